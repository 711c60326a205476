//! `RateLimit`, `RateLimit-Policy`, `Retry-After` and the problem details.

use crate::structured::{Item, list_of_strings};
use crate::support::{Body, ask, field, get, limiter, text};
use http::Response;
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate_tower::RateLimitLayer;
use std::time::Duration;

fn read(response: &Response<Body>, name: &str) -> Vec<Item> {
    let text = field(response, name).unwrap_or_else(|| panic!("there is no {name}"));
    list_of_strings(text).unwrap_or_else(|| panic!("{name}: {text}"))
}

fn parameters(pairs: &[(&str, u32)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, number)| ((*name).to_owned(), number.to_string())).collect()
}

#[tokio::test]
async fn allowed_responses_carry_the_fields() {
    let (limiter, clock) = limiter("token-bucket 10/s burst=50");
    let layer = RateLimitLayer::new(limiter).name("api");
    let response = ask(&layer, get()).await;
    assert_eq!(
        read(&response, "ratelimit-policy"),
        [("api".to_owned(), parameters(&[("q", 10), ("w", 1), ("sluice-burst", 50)]))]
    );
    assert_eq!(read(&response, "ratelimit"), [("api".to_owned(), parameters(&[("r", 49), ("t", 1)]))]);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(text(response).await, "hello");
    clock.advance(Duration::from_secs(10));
    assert_eq!(
        read(&ask(&layer, get()).await, "ratelimit"),
        [("api".to_owned(), parameters(&[("r", 49), ("t", 1)]))]
    );
}

#[tokio::test]
async fn a_denial_is_a_problem_with_all_fields() {
    let (limiter, clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter).name("replies");
    ask(&layer, get()).await;
    clock.advance(Duration::from_millis(1500));
    let response = ask(&layer, get()).await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&response, "retry-after"), Some("59"), "58.5 s, rounded up");
    assert_eq!(read(&response, "ratelimit"), [("replies".to_owned(), parameters(&[("r", 0), ("t", 59)]))]);
    assert_eq!(
        read(&response, "ratelimit-policy"),
        [("replies".to_owned(), parameters(&[("q", 1), ("w", 60)]))]
    );
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Rate limit exceeded",
        "status": 429,
        "detail": "denied by `replies`; retry in 59 s",
        "violated-policies": ["replies"],
    });
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn each_of_several_limits_is_named_and_so_is_the_denying_one() {
    let clock = ManualClock::default();
    let limiter =
        Limiter::builder(["sliding-log 2/s", "sliding-log 3/h"]).clock(clock.clone()).build().unwrap();
    let layer = RateLimitLayer::new(limiter).name("api");
    for standings in ["\"api#1\";r=1;t=1, \"api#2\";r=2;t=3600", "\"api#1\";r=0;t=1, \"api#2\";r=1;t=3600"] {
        let response = ask(&layer, get()).await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, Some(standings)));
    }
    let by_second = ask(&layer, get()).await;
    assert_eq!(field(&by_second, "ratelimit-policy"), Some("\"api#1\";q=2;w=1, \"api#2\";q=3;w=3600"));
    assert_eq!(field(&by_second, "ratelimit"), Some("\"api#1\";r=0;t=1, \"api#2\";r=1;t=3600"));
    assert!(text(by_second).await.contains(r#""violated-policies":["api#1"]"#));
    clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&layer, get()).await.status(), 200);
    clock.advance(Duration::from_secs(1));
    let by_hour = ask(&layer, get()).await;
    assert_eq!(field(&by_hour, "ratelimit"), Some("\"api#1\";r=2;t=0, \"api#2\";r=0;t=3599"));
    assert!(text(by_hour).await.contains(r#""violated-policies":["api#2"]"#));
}

#[tokio::test]
async fn changed_limits_appear_in_the_fields() {
    let (limiter, _clock) = limiter("sliding-log 5/60s");
    let layer = RateLimitLayer::new(limiter.clone());
    assert_eq!(field(&ask(&layer, get()).await, "ratelimit-policy"), Some("\"default\";q=5;w=60"));
    let service = tower::Layer::layer(&layer, tower::service_fn(crate::support::answer));
    limiter.change("sliding-log 7/60s").unwrap();
    for _ in 0..2 {
        let response = tower::ServiceExt::oneshot(service.clone(), get()).await.unwrap();
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"default\";q=7;w=60"));
    }
}

#[tokio::test]
async fn without_fields_a_denial_still_has_retry_after() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter).headers(false);
    let allowed = ask(&layer, get()).await;
    let denied = ask(&layer, get()).await;
    for response in [&allowed, &denied] {
        assert_eq!((field(response, "ratelimit"), field(response, "ratelimit-policy")), (None, None));
    }
    assert_eq!((denied.status().as_u16(), field(&denied, "retry-after")), (429, Some("60")));
}

/// Whatever a layer is called, its fields are structured fields and its problems are JSON.
#[tokio::test]
async fn no_name_breaks_the_fields() {
    let names = ["api", "", "a b", "a\"b", "a\\", "é", "\r\nx-evil: 1", "\";q=0", "a,b;c=d"];
    for name in names {
        let (limiter, _clock) = limiter("sliding-log 1/1500ms");
        let layer = RateLimitLayer::new(limiter).name(name);
        for status in [200, 429] {
            let response = ask(&layer, get()).await;
            assert_eq!(response.status(), status);
            let (policy, standing) = (read(&response, "ratelimit-policy"), read(&response, "ratelimit"));
            assert_eq!((policy.len(), standing.len(), &policy[0].0), (1, 1, &standing[0].0), "{name}");
            assert_eq!(policy[0].1, parameters(&[("q", 1)]), "a window of 1.5 s cannot be written");
            assert_eq!(field(&response, "x-evil"), None);
            if status == 429 {
                let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
                assert_eq!(problem["violated-policies"][0], *policy[0].0);
            }
        }
    }
}

#[test]
fn the_parser_of_these_tests_is_strict() {
    assert!(list_of_strings("\"a\";q=1, \"b\"").is_some());
    for wrong in [
        "",
        "a",
        "\"a",
        "\"a\";Q=1",
        "\"a\";q=",
        "\"a\";q=-",
        "\"a\",",
        "\"a\" \"b\"",
        "\"a\";q=1234567890123456",
        "\"é\"",
    ] {
        assert_eq!(list_of_strings(wrong), None, "{wrong}");
    }
}
