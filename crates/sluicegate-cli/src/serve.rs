//! `sluice serve`: the server, as a process.

use crate::Problem;
use crate::args::{ServeArgs, SettingArgs};
use sluicegate_server::config::Layers;
use std::path::PathBuf;

pub(crate) fn run(args: ServeArgs) -> Result<(), Problem> {
    let insecure = args.settings.insecure;
    sluicegate_server::run(&layers(args.config, args.settings)?, insecure)
}

/// The file, the environment and the flags.
pub(crate) fn layers(file: Option<PathBuf>, args: SettingArgs) -> Result<Layers, Problem> {
    let listen = args.listen.0.iter().map(|(protocol, at)| (protocol.description().flag, at.clone()));
    let others = [
        ("--store", args.store),
        ("--max-keys", args.max_keys),
        ("--threads", args.threads),
        ("--password-file", args.password_file),
        ("--tls-cert", args.tls_cert),
        ("--tls-key", args.tls_key),
        ("--log", args.log),
        ("--log-format", args.log_format),
    ];
    let flags = listen.chain(others).filter_map(|(name, value)| Some((name, value?))).collect();
    Ok(Layers { file, variables: variables()?, flags })
}

/// The environment, as far as it is ours.
fn variables() -> Result<Vec<(String, String)>, Problem> {
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("SLUICE_"));
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(format!("{name}: the value is not UTF-8 text; set it again")),
    })
    .collect()
}
