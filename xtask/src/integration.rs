//! Real Redis clients of other languages against the built server.

use crate::{ci, finish, tools};

/// Runs the suites of all clients, ignored tests in `crates/sluicegate-cli/tests/it/clients.rs`.
pub(crate) fn run() -> Result<(), String> {
    tools::install().map_err(|problem| format!("tools: {problem}"))?;
    let (redis_py, node) = (tools::redis_py()?, tools::node_clients()?);
    let arguments =
        "test --locked --package sluicegate-cli --test it clients:: -- --include-ignored --nocapture";
    let mut command = ci::command(&arguments.split(' ').collect::<Vec<_>>());
    command.env(tools::REDIS_PY_VARIABLE, redis_py).env(tools::NODE_CLIENTS_VARIABLE, node);
    finish(&mut command, "a client did not get what docs/protocol.md promises")
}
