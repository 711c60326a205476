//! Compares `CL.THROTTLE` with redis-cell: its replies, ours, and why they differ.

use crate::redis_store::Redis;
use crate::resp_client::{TestServer, shown};
use crate::running::config;
use sluicegate::Time;
use sluicegate::clock::ManualClock;

/// The start time of the tables.
const START_US: u64 = 1_700_000_000_000_000;

/// The fields of a row; a field with a comma is in quotes.
fn fields(row: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in row.replace("\"\"", "\u{1}").chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            '\u{1}' => fields.last_mut().unwrap().push('"'),
            letter => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

/// Runs a table against a server, with keys in memory and in Redis.
fn check(table: &str) {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    answers(table, &clock, &TestServer::start_at(config(), &clock));
    answers(table, &clock, &redis.server_at(config(), &clock));
}

fn answers(table: &str, clock: &ManualClock, server: &TestServer) {
    let mut client = server.client();
    for (index, row) in table.lines().enumerate().skip(1) {
        let fields = fields(row);
        let [at_us, arguments, redis_cell, ours, why] = fields.as_slice() else { panic!("{row} {fields:?}") };
        let expected = if ours == "same" { redis_cell } else { ours };
        assert_eq!(ours == "same", why.is_empty(), "a difference has a reason: {row}");
        clock.set(Time::from_micros(START_US + at_us.parse::<u64>().unwrap()).unwrap());
        client.send(format!("CL.THROTTLE {arguments}\r\n"));
        let reply = shown(&client.reply());
        let answered = match reply.strip_prefix("*5|:") {
            Some(numbers) => numbers.trim_end_matches('|').replace("|:", " "),
            None => reply.trim_start_matches('-').trim_end_matches('|').to_owned(),
        };
        assert_eq!(&answered, expected, "row {}: {row}", index + 1);
    }
}

#[test]
fn cl_throttle_matches_redis_cell() {
    check(include_str!("redis_cell.csv"));
}

/// Recorded replies of a real redis-cell, with their times; written by `cargo xtask bench server
/// parity`.
#[test]
fn cl_throttle_matches_recorded_redis_cell() {
    let clock = ManualClock::default();
    answers_what_was_heard(&clock, &TestServer::start_at(config(), &clock));
}

#[test]
fn cl_throttle_in_redis_matches_recorded_redis_cell() {
    let (clock, redis) = (ManualClock::default(), Redis::start());
    answers_what_was_heard(&clock, &redis.server_at(config(), &clock));
}

fn answers_what_was_heard(clock: &ManualClock, server: &TestServer) {
    let mut client = server.client();
    let mut peeks_that_differ = 0;
    for row in include_str!("../redis-cell.csv").lines().skip(1) {
        let fields = fields(row);
        let [_, at_ms, key, max_burst, count, period, quantity, heard @ ..] = fields.as_slice() else {
            panic!("{row}")
        };
        clock.set(Time::from_micros(START_US + at_ms.parse::<u64>().unwrap() * 1_000).unwrap());
        client.send(format!("CL.THROTTLE {key} {max_burst} {count} {period} {quantity}\r\n"));
        let reply = shown(&client.reply());
        let answered = reply.strip_prefix("*5|:").unwrap().trim_end_matches('|').replace("|:", ",");
        // If new parameters are below a key's debt, redis-cell denies a peek; here cost 0 is always
        // allowed.
        if quantity == "0" && heard[0] == "1" {
            assert!(
                answered.starts_with("0,") && answered.split(',').nth(3) == Some("-1"),
                "{row}: {answered}"
            );
            peeks_that_differ += 1;
        } else {
            assert_eq!(answered, heard.join(","), "{row}");
        }
    }
    assert_eq!(peeks_that_differ, 2);
    for row in include_str!("../redis-cell-errors.csv").lines().skip(1) {
        let words = row.split(',').next().unwrap();
        client.send(format!("CL.THROTTLE {words}\r\n"));
        let reply = shown(&client.reply());
        assert!(reply.starts_with("-ERR "), "{row}: {reply}");
    }
}

#[test]
fn new_parameters_reinterpret_debt_as_time() {
    check(include_str!("redis_cell_new_numbers.csv"));
}
