//! Each kind of server starts, answers and stops, and each fault has the documented effect.

mod cluster;
mod proxy;
mod replicated;
mod server;
