//! Calls on several keys, and receipts over them, match the model over RESP and HTTP.

use crate::http_client::{Raw, Serving, posted};
use crate::redis_store::{InRedis, LATEST_IN_REDIS, Redis};
use crate::resp_client::{Client, TestServer, array};
use crate::running::{config, rule};
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::{Limit, ReserveOptions, RetryAfter, Then, Usage, Window};
use sluicegate_conformance::{KeyCall, KeysSubject, NotDone, Report, Reserved, random_keys};
use sluicegate_core::algorithm::{Verb, Waiting};
use sluicegate_core::decision::store::{StoreDecision as _, reported};
use sluicegate_core::decision::{Decision, Standing};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Span, Time};
use sluicegate_server::engine::{KeySpec, RuleSpec};
use sluicegate_server::server::Config;

const MILLISECOND: u64 = 1_000;

/// A request, as both protocols can send it.
enum Request<'a> {
    Check(Call<'a>),
    Peek(Call<'a>),
    Refund(Call<'a>),
    Usage(&'a Place),
    Reset(&'a Place),
    CheckAll(&'a [Call<'a>]),
    Reserve(Call<'a>, &'a ReserveOptions),
    ReserveAll(&'a [Call<'a>], &'a ReserveOptions),
    Extend(&'a str, &'a [u64], Option<Span>),
    Settle(&'a str, &'a [u64]),
    Cancel(&'a str),
}

/// Where a key of the suite is.
struct Place {
    rule: String,
    key: String,
    limits: Vec<Limit>,
}

#[derive(Clone, Copy)]
struct Call<'a> {
    place: &'a Place,
    cost: u64,
}

/// What a reply says.
#[derive(Default, Debug)]
struct Reply {
    decision: Option<(Standing, Result<Span, RetryAfter>)>,
    denied_by: Option<String>,
    /// The rule and the index of the call that was denied.
    denied: Option<(String, usize)>,
    receipt: Option<String>,
    granted: u64,
    done: bool,
    usages: Vec<Usage>,
}

/// Sends a request and reads the reply, or the message of an error.
trait Door {
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String>;

    /// The latest time that its store accepts.
    fn latest() -> Time {
        Time::MAX
    }
}

impl<D: Door> Door for InRedis<D> {
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String> {
        self.0.ask(request)
    }

    fn latest() -> Time {
        LATEST_IN_REDIS
    }
}

/// Keys of a running server.
struct Keys<D> {
    places: Vec<Place>,
    clock: ManualClock,
    door: D,
}

impl Place {
    fn call(places: &[Place], KeyCall { key, cost }: KeyCall) -> Call<'_> {
        Call { place: &places[key], cost }
    }

    fn calls<'a>(places: &'a [Place], calls: &[KeyCall]) -> Vec<Call<'a>> {
        calls.iter().map(|call| Place::call(places, *call)).collect()
    }
}

fn places(limits: &[Vec<Limit>], case: usize) -> Vec<Place> {
    // Keys under the same limits are keys of one rule.
    let place = |(index, own): (usize, &Vec<Limit>)| {
        let first = limits.iter().position(|other| other == own).unwrap_or(index);
        Place { rule: format!("case-{case}-{first}"), key: format!("user:{index}"), limits: own.clone() }
    };
    limits.iter().enumerate().map(place).collect()
}

fn rules(places: &[Place]) -> Vec<RuleSpec> {
    let mut rules: Vec<RuleSpec> = Vec::new();
    for Place { rule: name, key, limits } in places {
        if !rules.iter().any(|rule| rule.name == *name) {
            let any = vec!["fixed-window 1/day".parse().unwrap()];
            let limits = if limits.is_empty() { any } else { limits.clone() };
            rules.push(RuleSpec { limits, ..rule(name, &[]) });
        }
        if limits.is_empty() {
            let rule = rules.iter_mut().find(|rule| rule.name == *name).unwrap();
            rule.keys.push((key.clone().into_bytes(), KeySpec::Unlimited));
        }
    }
    rules
}

/// The decision of a reply on these calls.
fn decision(reply: &Reply, calls: &[Call<'_>]) -> Decision {
    let (standing, outcome) = reply.decision.unwrap();
    let Err(retry_after) = outcome else {
        assert!(reply.denied_by.is_none() && reply.denied.is_none(), "{reply:?}");
        return reported(standing, outcome.map_err(|_| unreachable!()));
    };
    let index = reply.denied.as_ref().map_or(0, |(_, index)| *index);
    let place = calls[index].place;
    assert!(reply.denied.as_ref().is_none_or(|(rule, _)| *rule == place.rule), "{reply:?}");
    let denied_by = reply.denied_by.as_deref().unwrap_or_else(|| panic!("no limit denied: {reply:?}"));
    // Equal limits of a list stand equally, and then the first one denies.
    let position = place.limits.iter().position(|limit| limit.to_string() == denied_by).unwrap();
    reported(standing, Err((retry_after, Some(u32::try_from(position).unwrap())))).of_call(index)
}

/// Panics unless a request is not supported by a limit.
fn unsupported(verb: Verb, error: &str) -> Unsupported {
    assert!(error.contains("does not support"), "{error}");
    Unsupported { verb, waiting: Waiting::Queue }
}

fn not_done(error: &str) -> NotDone {
    if error.contains("the receipt is not open") {
        return NotDone::NotOpen;
    }
    let is_count =
        error.contains(" numbers for a receipt of ") || error.contains("wrong number of arguments");
    assert!(is_count, "{error}");
    NotDone::WrongCount
}

/// A receipt, and the keys of its calls.
type Held = (String, Vec<usize>);

impl<D: Door> KeysSubject for Keys<D> {
    type Receipt = Held;

    fn check(&mut self, now: Time, call: KeyCall) -> Decision {
        self.clock.set(now);
        let call = Place::call(&self.places, call);
        decision(&self.door.ask(&Request::Check(call)).unwrap(), &[call])
    }

    fn peek(&mut self, now: Time, call: KeyCall) -> Decision {
        self.clock.set(now);
        let call = Place::call(&self.places, call);
        decision(&self.door.ask(&Request::Peek(call)).unwrap(), &[call])
    }

    fn refund(&mut self, now: Time, call: KeyCall) -> Result<Decision, Unsupported> {
        self.clock.set(now);
        let call = Place::call(&self.places, call);
        let reply = self.door.ask(&Request::Refund(call));
        Ok(decision(&reply.map_err(|error| unsupported(Verb::Refund, &error))?, &[call]))
    }

    fn usage(&mut self, now: Time, key: usize) -> Vec<Usage> {
        self.clock.set(now);
        self.door.ask(&Request::Usage(&self.places[key])).unwrap().usages
    }

    fn reset(&mut self, key: usize) {
        self.door.ask(&Request::Reset(&self.places[key])).unwrap();
    }

    fn check_all(&mut self, now: Time, calls: &[KeyCall]) -> Decision {
        self.clock.set(now);
        let calls = Place::calls(&self.places, calls);
        decision(&self.door.ask(&Request::CheckAll(&calls)).unwrap(), &calls)
    }

    fn reserve(
        &mut self,
        now: Time,
        call: KeyCall,
        options: &ReserveOptions,
    ) -> Result<Reserved<Held>, Unsupported> {
        self.clock.set(now);
        let one = Place::call(&self.places, call);
        let reply = self.door.ask(&Request::Reserve(one, options));
        let reply = reply.map_err(|error| unsupported(Verb::ReserveAtLeast, &error))?;
        let decision = decision(&reply, &[one]);
        let receipt = reply.receipt.map(|receipt| (receipt, vec![call.key]));
        Ok(Reserved { decision, receipt, granted: reply.granted })
    }

    fn reserve_all(
        &mut self,
        now: Time,
        calls: &[KeyCall],
        options: &ReserveOptions,
    ) -> (Decision, Option<Held>) {
        self.clock.set(now);
        let keys = calls.iter().map(|call| call.key).collect();
        let calls = Place::calls(&self.places, calls);
        let reply = self.door.ask(&Request::ReserveAll(&calls, options)).unwrap();
        (decision(&reply, &calls), reply.receipt.map(|receipt| (receipt, keys)))
    }

    fn extend(
        &mut self,
        now: Time,
        (receipt, keys): Held,
        costs: &[u64],
        ttl: Option<Span>,
    ) -> Result<Decision, NotDone> {
        self.clock.set(now);
        let reply = self.door.ask(&Request::Extend(&receipt, costs, ttl));
        let reply = reply.map_err(|error| not_done(&error))?;
        let calls: Vec<KeyCall> = keys.into_iter().map(|key| KeyCall { key, cost: 0 }).collect();
        Ok(decision(&reply, &Place::calls(&self.places, &calls)))
    }

    fn settle(&mut self, now: Time, (receipt, _): Held, used: &[u64]) -> Result<bool, NotDone> {
        self.clock.set(now);
        let reply = self.door.ask(&Request::Settle(&receipt, used));
        Ok(reply.map_err(|error| not_done(&error))?.done)
    }

    fn cancel(&mut self, now: Time, (receipt, _): Held) -> bool {
        self.clock.set(now);
        self.door.ask(&Request::Cancel(&receipt)).unwrap().done
    }

    fn latest() -> Time {
        D::latest()
    }

    fn tick() -> u64 {
        MILLISECOND
    }
}

/// A connection, and the server that it keeps running.
struct OverResp {
    client: Client,
    _server: TestServer,
}

impl Door for OverResp {
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String> {
        let words = resp_words(request);
        self.client.send(array(&words.iter().map(String::as_bytes).collect::<Vec<_>>()));
        let reply = self.client.shown();
        if reply.starts_with('-') {
            return Err(reply);
        }
        Ok(read_resp(request, &reply))
    }
}

fn ms(span: Span) -> String {
    (span.as_micros() / MILLISECOND).to_string()
}

fn resp_words(request: &Request<'_>) -> Vec<String> {
    let (name, place, calls, options): (_, Option<&Place>, &[Call<'_>], _) = match request {
        Request::Check(call) => ("RL.CHECK", None, std::slice::from_ref(call), None),
        Request::Peek(call) => ("RL.PEEK", None, std::slice::from_ref(call), None),
        Request::Refund(call) => ("RL.REFUND", None, std::slice::from_ref(call), None),
        Request::Reserve(call, options) => ("RL.RESERVE", None, std::slice::from_ref(call), Some(*options)),
        Request::Usage(place) => ("RL.USAGE", Some(*place), &[], None),
        Request::Reset(place) => ("RL.RESET", Some(*place), &[], None),
        Request::CheckAll(calls) => ("RL.CHECKALL", None, *calls, None),
        Request::ReserveAll(calls, options) => ("RL.RESERVEALL", None, *calls, Some(*options)),
        Request::Extend(receipt, costs, ttl) => {
            let mut words = vec!["RL.EXTEND".to_owned(), (*receipt).to_owned()];
            words.extend(costs.iter().map(u64::to_string));
            words.extend(ttl.iter().flat_map(|ttl| ["TTL".to_owned(), ms(*ttl)]));
            return words;
        }
        Request::Settle(receipt, used) => {
            let words = ["RL.SETTLE".to_owned(), (*receipt).to_owned()].into_iter();
            return words.chain(used.iter().map(u64::to_string)).collect();
        }
        Request::Cancel(receipt) => return vec!["RL.CANCEL".to_owned(), (*receipt).to_owned()],
    };
    let mut words = vec![name.to_owned()];
    words.extend(place.into_iter().flat_map(|place| [place.rule.clone(), place.key.clone()]));
    for Call { place, cost } in calls {
        words.extend([place.rule.clone(), place.key.clone()]);
        if !matches!(request, Request::CheckAll(_) | Request::ReserveAll(..)) {
            words.push("COST".to_owned());
        }
        words.push(cost.to_string());
    }
    let Some(options) = options else { return words };
    if let Some(ttl) = options.ttl {
        words.extend(["TTL".to_owned(), ms(ttl.length)]);
        if ttl.then == Then::Cancel {
            words.extend(["THEN".to_owned(), "cancel".to_owned()]);
        }
    }
    match options.at_least {
        Some(least) => words.extend(["ATLEAST".to_owned(), least.to_string()]),
        None => words.extend(["MAXWAIT".to_owned(), ms(options.max_wait)]),
    }
    words
}

/// The items of a reply, however nested; `None` for nil.
fn items(reply: &str) -> Vec<Option<&str>> {
    let mut parts = reply.trim_end_matches('|').split('|');
    let mut items = Vec::new();
    while let Some(part) = parts.next() {
        match part.split_at(1) {
            ("*", _) => {}
            ("$", "-1") => items.push(None),
            ("$", _) => items.push(parts.next()),
            (":" | "+", item) => items.push(Some(item)),
            other => panic!("{other:?} of {reply}"),
        }
    }
    items
}

fn span_of_ms(ms: u64) -> Span {
    Span::from_micros(ms * MILLISECOND)
}

fn time_of_ms(ms: u64) -> Time {
    Time::saturating_from_micros(ms * MILLISECOND)
}

fn read_resp(request: &Request<'_>, reply: &str) -> Reply {
    let items = items(reply);
    let number = |index: usize| items[index].unwrap().parse::<u64>().unwrap();
    let text = |index: usize| items[index].map(str::to_owned);
    let mut read = Reply::default();
    match request {
        Request::Reset(_) => return read,
        Request::Settle(..) | Request::Cancel(_) => {
            read.done = number(0) == 1;
            return read;
        }
        Request::Usage(place) => {
            for (index, limit) in place.limits.iter().enumerate() {
                let at = 7 * index;
                assert_eq!(text(at), Some(limit.to_string()));
                let mut usage =
                    Usage::new(number(at + 1), number(at + 2), number(at + 3), span_of_ms(number(at + 4)));
                usage.window = items[at + 5]
                    .map(|_| Window { start: time_of_ms(number(at + 5)), end: time_of_ms(number(at + 6)) });
                read.usages.push(usage);
            }
            assert_eq!(items.len(), 7 * place.limits.len());
            return read;
        }
        _ => {}
    }
    let standing = Standing { limit: number(1), remaining: number(2), reset_after: span_of_ms(number(4)) };
    let outcome = match items[3].unwrap() {
        "-1" => Ok(span_of_ms(number(5))),
        "-2" => Err(RetryAfter::Never),
        _ => Err(RetryAfter::After(span_of_ms(number(3)))),
    };
    assert_eq!(number(0) == 1, outcome.is_ok(), "{reply}");
    (read.decision, read.denied_by) = (Some((standing, outcome)), text(6));
    let len = match request {
        Request::Reserve(..) => {
            (read.receipt, read.granted) = (text(7), number(8));
            9
        }
        Request::CheckAll(_) | Request::Extend(..) | Request::ReserveAll(..) => {
            read.denied = text(7).map(|rule| (rule, usize::try_from(number(8)).unwrap()));
            let has_receipt = matches!(request, Request::ReserveAll(..));
            if has_receipt {
                read.receipt = text(9);
            }
            9 + usize::from(has_receipt)
        }
        _ => 7,
    };
    assert_eq!(items.len(), len, "{reply}");
    read
}

/// A connection, and the server that it keeps running.
struct OverHttp {
    connection: Raw,
    _serving: Serving,
}

impl Door for OverHttp {
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String> {
        let (path, body) = http_request(request);
        self.connection.send(posted(path, &body.to_string()));
        let (status, body) = self.connection.answer();
        let body: Value = serde_json::from_str(&body).unwrap();
        if let Some(error) = body["error"].as_str() {
            assert_eq!(status == 404, error.contains("not open"), "{status} {error}");
            return Err(error.to_owned());
        }
        assert_eq!(status, 200, "{body}");
        Ok(read_http(&body))
    }
}

fn http_request(request: &Request<'_>) -> (&'static str, Value) {
    let target = |place: &Place| json!({"rule": place.rule, "key": place.key});
    let call = |call: &Call<'_>| json!({"rule": call.place.rule, "key": call.place.key, "cost": call.cost});
    let checks = |calls: &[Call<'_>]| json!({"checks": calls.iter().map(call).collect::<Vec<_>>()});
    let numbers = |receipt: &str, numbers: &[u64]| match numbers {
        [cost] => json!({"receipt": receipt, "cost": cost}),
        costs => json!({"receipt": receipt, "costs": costs}),
    };
    let with = |mut body: Value, options: &ReserveOptions| {
        match options.at_least {
            Some(least) => body["at_least"] = json!(least),
            None => body["max_wait_ms"] = json!(options.max_wait.as_micros() / MILLISECOND),
        }
        if let Some(ttl) = options.ttl {
            body["ttl_ms"] = json!(ttl.length.as_micros() / MILLISECOND);
            body["then"] = json!(if ttl.then == Then::Cancel { "cancel" } else { "keep" });
        }
        body
    };
    match request {
        Request::Check(one) => ("/v1/check", call(one)),
        Request::Peek(one) => ("/v1/peek", call(one)),
        Request::Refund(one) => ("/v1/refund", call(one)),
        Request::Usage(place) => ("/v1/usage", target(place)),
        Request::Reset(place) => ("/v1/reset", target(place)),
        Request::CheckAll(calls) => ("/v1/check", checks(calls)),
        Request::Reserve(one, options) => ("/v1/reserve", with(call(one), options)),
        Request::ReserveAll(calls, options) => ("/v1/reserve", with(checks(calls), options)),
        Request::Extend(receipt, costs, ttl) => {
            let mut body = numbers(receipt, costs);
            body["ttl_ms"] = json!(ttl.map(|ttl| ttl.as_micros() / MILLISECOND));
            ("/v1/extend", body)
        }
        Request::Settle(receipt, used) => ("/v1/settle", numbers(receipt, used)),
        Request::Cancel(receipt) => ("/v1/cancel", json!({"receipt": receipt})),
    }
}

fn read_http(body: &Value) -> Reply {
    let mut read = Reply { done: body["done"] == true, ..Reply::default() };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    for limit in body["limits"].as_array().into_iter().flatten() {
        let number = |field: &str| limit[field].as_u64().unwrap();
        let reset_after = span_of_ms(number("reset_after_ms"));
        let mut usage = Usage::new(number("limit"), number("used"), number("remaining"), reset_after);
        usage.window = limit["window_start_ms"]
            .as_u64()
            .map(|start| Window { start: time_of_ms(start), end: time_of_ms(number("window_end_ms")) });
        read.usages.push(usage);
    }
    let Some(allowed) = body["allowed"].as_bool() else { return read };
    let number = |field: &str| body[field].as_u64().unwrap();
    let standing = Standing {
        limit: number("limit"),
        remaining: number("remaining"),
        reset_after: span_of_ms(number("reset_after_ms")),
    };
    let outcome = match body["retry_after_ms"].as_u64() {
        _ if allowed => Ok(span_of_ms(number("delay_ms"))),
        None => Err(RetryAfter::Never),
        Some(wait) => Err(RetryAfter::After(span_of_ms(wait))),
    };
    (read.decision, read.denied_by) = (Some((standing, outcome)), text(&body["denied_by"]));
    let denied = &body["denied"];
    read.denied =
        text(&denied["rule"]).map(|rule| (rule, usize::try_from(denied["call"].as_u64().unwrap()).unwrap()));
    assert_eq!(denied["limit"], body["denied_by"]);
    read.receipt = text(&body["receipt"]);
    read.granted = body["granted"].as_u64().unwrap_or_default();
    read
}

fn agrees_with_the_model<D: Door>(operations: u64, start: impl Fn(Vec<RuleSpec>, Time) -> (ManualClock, D)) {
    let (mut report, mut cases) = (Report::default(), 0);
    for (seed, are_alike) in [(1, false), (2, true)] {
        let make = |limits: &[Vec<Limit>], at: Time| {
            cases += 1;
            let places = places(limits, cases);
            let (clock, door) = start(rules(&places), at);
            Keys { places, clock, door }
        };
        if let Err(mismatch) = random_keys(seed, operations / 2, (false, are_alike), make, &mut report) {
            panic!("{mismatch}");
        }
    }
    assert!(report.returned > operations / 200 && report.indebted > operations / 2_000, "{report:?}");
}

fn over_resp(server: TestServer) -> OverResp {
    OverResp { client: server.client(), _server: server }
}

fn over_http(serving: Serving, rules: Vec<RuleSpec>, at: Time) -> (ManualClock, OverHttp) {
    serving.clock.set(at);
    serving.server().service().engine.load(rules).unwrap();
    (serving.clock.clone(), OverHttp { connection: serving.connect(), _serving: serving })
}

#[test]
fn several_keys_over_resp_match_the_model() {
    agrees_with_the_model(6_000, |rules, at| {
        let clock = ManualClock::at(at);
        let server = TestServer::start_at(Config { rules, ..config() }, &clock);
        (clock, over_resp(server))
    });
}

#[test]
fn several_keys_over_http_match_the_model() {
    agrees_with_the_model(3_000, |rules, at| over_http(Serving::with_rules(&[]), rules, at));
}

#[test]
fn several_keys_in_redis_over_resp_match_the_model() {
    let redis = Redis::start();
    agrees_with_the_model(4_000, |rules, at| {
        let clock = ManualClock::at(at);
        let server = redis.server_at(Config { rules, ..config() }, &clock);
        (clock, InRedis(over_resp(server)))
    });
}

#[test]
fn several_keys_in_redis_over_http_match_the_model() {
    let redis = Redis::start();
    agrees_with_the_model(2_000, |rules, at| {
        let (clock, door) = over_http(redis.serving(config()), rules, at);
        (clock, InRedis(door))
    });
}
