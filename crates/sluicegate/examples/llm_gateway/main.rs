//! A gateway in front of a language model: its budgets hold with many calls in flight, although
//! streams are cut, the provider fails and gateways die.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod provider;
use provider::Outcome;
use sluicegate::{Limiter, MemoryStore, ReserveOptions, Ttl, reserve_all};
use std::{error::Error, thread, time::Duration};

const PRICE: u64 = 3; // millionths of a dollar per token
const TTL: Duration = Duration::from_millis(500);

/// Returns the tokens that were used; 0 if the call was denied, failed or died.
fn complete(tokens: &Limiter, spend: &Limiter, prompt: u64, max: u64) -> Result<u64, Box<dyn Error>> {
    let calls = [tokens.call("user:42", prompt + max), spend.call("team:7", (prompt + max) * PRICE)];
    let mut reserved = reserve_all(&calls, ReserveOptions::default().ttl(Ttl::cancel(TTL)))?;
    let used = match reserved.allowed().then(|| provider::stream(prompt, max)) {
        Some(Outcome::Finished(tokens) | Outcome::Cut(tokens)) => prompt + tokens,
        Some(Outcome::Failed) => 0,
        None | Some(Outcome::Died) => return Ok(0), // what it reserved is returned after the TTL
    };
    Ok(if reserved.settle_each(&[used, used * PRICE])? { used } else { 0 })
}

fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::builder().build()?; // a receipt over several limiters needs one store
    let tokens = Limiter::builder("fixed-window 100000/year").in_store(&store, "tokens").build()?;
    let spend = Limiter::builder("fixed-window 2G/year").in_store(&store, "spend").build()?;
    let call = |prompt| complete(&tokens, &spend, prompt, 500).expect("the calls are valid");
    let used = thread::scope(|scope| {
        let gateways: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..200).map(call).sum::<u64>())).collect();
        gateways.into_iter().map(|gateway| gateway.join().unwrap_or_default()).sum::<u64>()
    });
    thread::sleep(TTL);
    assert!(used <= 100_000 && tokens.usage("user:42")[0].1.used == used);
    assert_eq!(spend.usage("team:7")[0].1.used, used * PRICE);
    println!("{used} tokens were used, and exactly these are charged");
    Ok(())
}
