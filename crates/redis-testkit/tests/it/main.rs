//! Each kind of server starts, answers and goes away; what a test can do to it has the effect that it says.

mod cluster;
mod proxy;
mod replicated;
mod server;
