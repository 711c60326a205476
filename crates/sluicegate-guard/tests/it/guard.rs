//! Guards: breaker, bulkhead, timeout, retry and fallback around one call.

mod polling;

mod blocking;
mod clock_steps;
mod denied;
mod dropped;
mod order;
mod random;
mod retry;
mod text;
mod threads;
mod timeout;
