//! Guards: breaker, bulkhead, timeout, retry and fallback around one call.

mod polled;

mod blocking;
mod clock_set;
mod dropped;
mod order;
mod random;
mod refused;
mod retry;
mod text;
mod threads;
mod timeout;
