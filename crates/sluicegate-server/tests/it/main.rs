//! The server, over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod budgets;
mod budgets_conformance;
mod config;
mod engine;
mod engine_leases;
mod http;
mod http_client;
mod http_conformance;
mod http_docs;
mod http_guard;
mod http_leases;
mod http_limits;
mod http_openapi;
mod lease_conformance;
mod leasing;
mod listen;
mod metrics;
mod packaging;
mod redis_store;
mod resp_client;
mod resp_clients;
mod resp_commands;
mod resp_conformance;
mod resp_docs;
mod resp_fuzz;
mod resp_leases;
mod resp_limits;
mod resp_pipelines;
mod resp_redis_cell;
mod resp_transactions;
mod running;
mod shared;
mod shared_leases;
mod tls;
mod unestablished;
