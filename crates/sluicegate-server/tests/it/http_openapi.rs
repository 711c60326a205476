//! Compares `openapi.json` with what the server accepts and returns.

use crate::http_client::Serving;
use serde_json::{Value, json};

/// The JSON schema keywords that the document uses. The test ignores others, so there may be none.
const WORDS: [&str; 13] = [
    "$ref",
    "type",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "oneOf",
    "allOf",
];
const COMMENTS: [&str; 2] = ["description", "default"];

struct Document(Value);

impl Document {
    fn of(serving: &Serving) -> Document {
        Document(serving.get("/openapi.json").json())
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let Some(place) = value["$ref"].as_str() else { return value };
        let found = self.0.pointer(place.strip_prefix('#').unwrap());
        self.resolved(found.unwrap_or_else(|| panic!("nothing is at {place}")))
    }

    /// Why a value does not match a schema, if it does not.
    fn wrong(&self, schema: &Value, value: &Value) -> Option<String> {
        let schema = self.resolved(schema);
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let says = |what: &str| Some(format!("{value} {what} {schema}"));
        match &schema["type"] {
            Value::String(one) if one != kind => return says("is not of the type of"),
            Value::Array(some) if !some.contains(&kind.into()) => return says("is of no type of"),
            _ => {}
        }
        if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
            return says("is none of");
        }
        if let Some(number) = value.as_i64()
            && (schema["minimum"].as_i64().is_some_and(|least| number < least)
                || schema["maximum"].as_i64().is_some_and(|most| number > most))
        {
            return says("is outside of");
        }
        if let Some(all) = schema["allOf"].as_array()
            && let Some(wrong) = all.iter().find_map(|one| self.wrong(one, value))
        {
            return Some(wrong);
        }
        if let Some(some) = schema["oneOf"].as_array()
            && some.iter().filter(|one| self.wrong(one, value).is_none()).count() != 1
        {
            return says("is not exactly one of");
        }
        match value {
            Value::Array(items) => {
                let length = u64::try_from(items.len()).unwrap();
                let too_few = schema["minItems"].as_u64().is_some_and(|least| length < least);
                if too_few || schema["maxItems"].as_u64().is_some_and(|most| length > most) {
                    return says("has not the length of");
                }
                items.iter().find_map(|item| self.wrong(&schema["items"], item))
            }
            Value::Object(fields) => {
                let required = schema["required"].as_array().into_iter().flatten();
                if required.into_iter().any(|name| !fields.contains_key(name.as_str().unwrap())) {
                    return says("lacks a field of");
                }
                fields.iter().find_map(|(name, value)| match schema["properties"].get(name) {
                    Some(schema) => self.wrong(schema, value),
                    None if schema["additionalProperties"] == false => says("has a field too many for"),
                    None => None,
                })
            }
            _ => None,
        }
    }

    /// Every schema in the document, including nested ones.
    fn walk(&self, schema: &Value, seen: &mut usize) {
        *seen += 1;
        for word in schema.as_object().unwrap().keys() {
            assert!(
                WORDS.contains(&word.as_str()) || COMMENTS.contains(&word.as_str()),
                "{word} in {schema}"
            );
        }
        self.resolved(schema);
        let properties = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
        let lists =
            ["oneOf", "allOf"].into_iter().flat_map(|word| schema[word].as_array().into_iter().flatten());
        for part in properties.chain(lists).chain(schema.get("items")) {
            self.walk(part, seen);
        }
    }

    /// Checks the request body and the response against the document.
    fn agrees(&self, serving: &Serving, path: &str, body: &Value) {
        let plain = path.split('?').next().unwrap();
        let operation = &self.0["paths"][plain]["post"];
        let taken = &operation["requestBody"]["content"]["application/json"]["schema"];
        let reply = serving.post(path, &body.to_string());
        let wrong = self.wrong(taken, body);
        assert_eq!(reply.status == 400, wrong.is_some(), "{path} {body}: {reply:?} {wrong:?}");
        let described = self.resolved(&operation["responses"][reply.status.to_string()]);
        let content = &described["content"][reply.header("content-type").unwrap()];
        assert_ne!(*content, Value::Null, "{path}: no such answer: {reply:?}");
        let wrong = self.wrong(&content["schema"], &reply.json());
        assert_eq!(wrong, None, "{path} {body}");
        for name in described["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let denied = reply.json()["allowed"] == false && reply.json()["retry_after_ms"] != Value::Null;
            assert_eq!(reply.header(name).is_some(), name != "Retry-After" || denied, "{name} of {reply:?}");
        }
    }
}

#[test]
fn the_document_is_complete_openapi() {
    let serving = Serving::with_rules(&[]);
    let document = Document::of(&serving);
    assert_eq!(document.0["openapi"], "3.1.0");
    assert!(document.0["info"]["title"].is_string() && document.0["info"]["version"].is_string());
    let mut names = Vec::new();
    let mut schemas = 0;
    for (path, item) in document.0["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(matches!(method.as_str(), "get" | "post"), "{method} {path}");
            names.push(operation["operationId"].as_str().unwrap().to_owned());
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(
                    status.parse::<u16>().is_ok_and(|status| (200..600).contains(&status)),
                    "{status} {path}"
                );
                let response = document.resolved(response);
                assert!(response["description"].is_string(), "{status} {path}");
                for content in response["content"].as_object().unwrap().values() {
                    document.walk(&content["schema"], &mut schemas);
                }
                for header in response["headers"].as_object().into_iter().flatten().map(|(_, header)| header)
                {
                    document.walk(&document.resolved(header)["schema"], &mut schemas);
                }
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert_eq!(document.resolved(parameter)["in"], "query");
            }
            assert_eq!(method == "post", operation["requestBody"]["required"] == true, "{path}");
        }
    }
    for schema in document.0["components"]["schemas"].as_object().unwrap().values() {
        document.walk(schema, &mut schemas);
    }
    assert!(schemas > 100, "{schemas}");
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "two operations have one name");
}

#[test]
fn requests_and_responses_match_the_document() {
    let serving =
        Serving::with_rules(&[("reply", "sliding-log 5/60s"), ("paced", "token-bucket 1/s burst=2")]);
    let document = Document::of(&serving);
    let user = json!({"rule": "reply", "key": "user:42"});
    for path in [
        "/v1/check",
        "/v1/peek",
        "/v1/take",
        "/v1/refund",
        "/v1/reserve",
        "/v1/reset",
        "/v1/next",
        "/v1/usage",
    ] {
        document.agrees(&serving, path, &user);
        document.agrees(&serving, path, &json!({"limit": "min-interval 200ms", "key_base64": "AAE="}));
        for wrong in [
            json!({}),
            json!([]),
            json!({"rule": "reply"}),
            json!({"rule": "reply", "limit": "sliding-log 5/60s", "key": "user:42"}),
            json!({"rule": "reply", "key": "user:42", "key_base64": "AAE="}),
            json!({"rule": "reply", "key": "user:42", "coast": 1}),
            json!({"rule": "reply", "key": 1}),
        ] {
            document.agrees(&serving, path, &wrong);
        }
    }
    for path in ["/v1/check", "/v1/peek", "/v1/take", "/v1/refund", "/v1/reserve", "/v1/reset"] {
        for cost in [
            json!(0),
            json!(7),
            json!(1_000_000_000_000_u64),
            json!(1_000_000_001),
            json!(-1),
            json!(1.5),
            json!("1"),
        ] {
            let body = json!({"rule": "reply", "key": "Sally", "cost": cost});
            document.agrees(&serving, path, &body);
            document.agrees(&serving, &format!("{path}?enforce=true"), &body);
        }
    }
    let waits = json!({"rule": "paced", "key": "user:42", "cost": 2, "max_wait_ms": 2_000});
    for path in
        ["/v1/reserve", "/v1/reserve?enforce=true", "/v1/reserve", "/v1/check", "/v1/reserve?enforce=true"]
    {
        document.agrees(&serving, path, &waits);
    }
    for options in [
        json!({"at_least": 1, "ttl_ms": 1000, "then": "cancel"}),
        json!({"max_wait_ms": 5, "ttl_ms": 315_360_000_000_u64, "then": "keep"}),
        json!({"at_least": 0}),
        json!({"ttl_ms": 0}),
        json!({"ttl_ms": 315_360_000_001_u64}),
        json!({"ttl_ms": 1, "then": "refund"}),
        json!({"costs": [1]}),
    ] {
        let mut body = json!({"rule": "paced", "key": "user:43", "cost": 9});
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        document.agrees(&serving, "/v1/reserve", &body);
        document.agrees(&serving, "/v1/reserve?enforce=true", &body);
    }
    let receipt = &serving.post("/v1/reserve", r#"{"rule":"reply","key":"user:7"}"#).json()["receipt"];
    for path in ["/v1/extend", "/v1/extend?enforce=true", "/v1/cancel", "/v1/extend", "/v1/settle"] {
        document.agrees(&serving, path, &json!({"receipt": receipt}));
        document.agrees(&serving, path, &json!({"receipt": receipt, "cost": 7}));
        document.agrees(&serving, path, &json!({"receipt": receipt, "costs": [0]}));
        document.agrees(&serving, path, &json!({"receipt": receipt, "costs": []}));
        document.agrees(&serving, path, &json!({"receipt": receipt, "cost": 0, "costs": [0]}));
        document.agrees(&serving, path, &json!({"receipt": receipt, "cost": 0, "ttl_ms": 5}));
        document.agrees(&serving, path, &json!({"cost": 1}));
    }
    let acme = json!({"limit": "concurrency 2 ttl=30s", "key": "acme", "cost": 2, "max_wait_ms": 0});
    for path in ["/v1/acquire", "/v1/acquire", "/v1/acquire?enforce=true", "/v1/acquire?enforce=true"] {
        document.agrees(&serving, path, &acme);
    }
    let acquired = serving.post("/v1/acquire", r#"{"limit":"concurrency 2 ttl=30s","key":"other"}"#).json();
    for path in ["/v1/renew", "/v1/release", "/v1/release"] {
        let lease = &acquired["lease"];
        document.agrees(
            &serving,
            path,
            &json!({"limit": "concurrency 2 ttl=30s", "key": "other", "lease": lease}),
        );
        document.agrees(&serving, path, &json!({"limit": "concurrency 2 ttl=30s", "key": "other"}));
        document.agrees(&serving, path, &json!({"lease": lease}));
    }
    let rules = serving.get("/v1/rules").json();
    let schema =
        &document.0["paths"]["/v1/rules"]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(document.wrong(schema, &rules), None);
}

/// Requests with `checks`.
#[test]
fn several_checks_match_the_document() {
    let serving = Serving::with_rules(&[("reply", "sliding-log 5/60s")]);
    let document = Document::of(&serving);
    let one = json!({"rule": "reply", "key": "user:42", "cost": 4});
    for checks in
        [json!([]), json!([one]), json!([one, one]), json!(vec![one.clone(); 65]), json!([{"checks": [one]}])]
    {
        document.agrees(&serving, "/v1/check?enforce=true", &json!({"checks": checks}));
        document.agrees(&serving, "/v1/reserve", &json!({"checks": checks, "ttl_ms": 5, "max_wait_ms": 5}));
        document.agrees(&serving, "/v1/reserve?enforce=true", &json!({"checks": checks}));
    }
    document.agrees(&serving, "/v1/reserve", &json!({"checks": [one], "at_least": 1}));
    document.agrees(&serving, "/v1/check", &json!({"checks": [one], "cost": 1}));
}
