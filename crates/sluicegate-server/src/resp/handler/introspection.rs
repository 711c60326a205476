//! What clients ask about the server when they connect: `COMMAND`, `INFO`, `CONFIG GET`.

use super::super::codec::{Command, Replies, Shown};
use super::super::commands::{self, COMMANDS, CommandSpec};
use super::rejection::Rejection;
use crate::engine::TallyView;
use crate::service::Service;

/// The Redis version that clients may expect, for the commands that exist here.
const REDIS_VERSION: &str = "7.0.0";

pub(super) fn command(command: Command<'_>, replies: &mut Replies) -> Result<(), Rejection> {
    let about = command.get(1).unwrap_or_default().to_ascii_uppercase();
    match about.as_slice() {
        b"" => many(COMMANDS.iter().map(Some), replies, info_of),
        b"COUNT" => replies.integer(COMMANDS.len()),
        b"LIST" => many(COMMANDS.iter().map(Some), replies, name_of),
        b"INFO" if command.len() == 2 => many(COMMANDS.iter().map(Some), replies, info_of),
        b"INFO" => many(command.from(2).map(commands::find), replies, info_of),
        b"DOCS" if command.len() == 2 => docs(COMMANDS.iter(), replies),
        b"DOCS" => docs(command.from(2).filter_map(commands::find), replies),
        _ => {
            return Err(Rejection::error(format_args!(
                "unknown subcommand '{}' of COMMAND; use COUNT, LIST, INFO or DOCS",
                Shown(&about)
            )));
        }
    }
    Ok(())
}

fn many(
    specs: impl Iterator<Item = Option<&'static CommandSpec>> + Clone,
    replies: &mut Replies,
    write: impl Fn(&CommandSpec, &mut Replies),
) {
    replies.array(specs.clone().count());
    for spec in specs {
        match spec {
            Some(spec) => write(spec, replies),
            None => replies.nil(),
        }
    }
}

fn name_of(spec: &CommandSpec, replies: &mut Replies) {
    replies.bulk(spec.name.to_ascii_lowercase().as_bytes());
}

/// The ten items of Redis 7.
fn info_of(spec: &CommandSpec, replies: &mut Replies) {
    replies.array(10);
    name_of(spec, replies);
    replies.integer(spec.arity());
    replies.array(spec.flags().len());
    for flag in spec.flags() {
        replies.simple(flag);
    }
    for position in spec.keys {
        replies.integer(position);
    }
    // Categories, tips, key specifications, subcommands.
    for _ in 0..4 {
        replies.array(0);
    }
}

fn docs(specs: impl Iterator<Item = &'static CommandSpec> + Clone, replies: &mut Replies) {
    replies.map(specs.clone().count());
    for spec in specs {
        name_of(spec, replies);
        replies.map(3);
        let group = if spec.name.contains('.') { "rate-limiting" } else { "connection" };
        for (field, value) in
            [("summary", spec.summary), ("since", env!("CARGO_PKG_VERSION")), ("group", group)]
        {
            replies.bulk(field.as_bytes());
            replies.bulk(value.as_bytes());
        }
    }
}

/// `INFO [section ...]`. An unknown section is empty, as with Redis.
pub(super) fn info(command: Command<'_>, replies: &mut Replies, service: &Service) {
    let is_wanted = |section: &str| {
        let named = |wanted: &[u8]| {
            [section, "all", "everything", "default"]
                .iter()
                .any(|name| wanted.eq_ignore_ascii_case(name.as_bytes()))
        };
        command.len() == 1 || command.from(1).any(named)
    };
    let mut text = String::new();
    for (section, fields) in sections(service) {
        if is_wanted(section) {
            if !text.is_empty() {
                text += "\r\n";
            }
            text += &format!("# {section}\r\n");
            for (field, value) in fields {
                text += &format!("{field}:{value}\r\n");
            }
        }
    }
    replies.bulk(text.as_bytes());
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn sections(service: &Service) -> [Section; 7] {
    let rules = service.engine.rules();
    let tallies = rules.iter().map(|rule| rule.tally()).chain([service.engine.inline_tally()]);
    let all = tallies.fold(TallyView::default(), |sum, one| TallyView {
        allowed: sum.allowed + one.allowed,
        denied: sum.denied + one.denied,
        shadow_denied: sum.shadow_denied + one.shadow_denied,
    });
    [
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.into()),
                ("sluicegate_version", env!("CARGO_PKG_VERSION").into()),
                ("redis_mode", "standalone".into()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
            ],
        ),
        ("Clients", vec![("maxclients", service.limits.connections_max.to_string())]),
        ("Persistence", vec![("loading", "0".into())]),
        (
            "Stats",
            vec![
                ("rules", rules.iter().count().to_string()),
                ("allowed", all.allowed.to_string()),
                ("denied", all.denied.to_string()),
                ("shadow_denied", all.shadow_denied.to_string()),
            ],
        ),
        ("Store", store(service)),
        ("Replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
        ("Cluster", vec![("cluster_enabled", "0".into())]),
    ]
}

/// Where keys live, and the health of a shared store.
fn store(service: &Service) -> Vec<(&'static str, String)> {
    let Some(view) = service.engine.store() else { return vec![("store", "memory".into())] };
    let failures: u64 = view.failures.iter().map(|(_, count)| count).sum();
    let bypassed: u64 = view.answers.iter().filter(|(source, _)| *source != "store").map(|(_, n)| n).sum();
    vec![
        ("store", "shared".into()),
        ("store_up", u8::from(view.is_up).to_string()),
        ("store_writable", u8::from(view.is_writable).to_string()),
        ("store_evicted_keys", view.evicted_keys.to_string()),
        ("store_failures", failures.to_string()),
        ("store_bypassed_answers", bypassed.to_string()),
    ]
}

/// `CONFIG GET pattern [pattern ...]`: the settings that clients and benchmarks read.
pub(super) fn config(
    command: Command<'_>,
    replies: &mut Replies,
    service: &Service,
) -> Result<(), Rejection> {
    let verb = command.get(1).unwrap_or_default();
    if !verb.eq_ignore_ascii_case(b"GET") {
        return Err(Rejection::error(format_args!(
            "CONFIG {} is not supported; settings are in the configuration file",
            Shown(verb)
        )));
    }
    if command.len() == 2 {
        return Err(Rejection::arity("config|get"));
    }
    let limits = &service.limits;
    let settings: [(&str, String); 7] = [
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("maxmemory", "0".into()),
        ("maxclients", limits.connections_max.to_string()),
        ("timeout", limits.idle_timeout.map_or(0, |timeout| timeout.as_secs()).to_string()),
        ("proto-max-bulk-len", limits.bulk_len_max.to_string()),
    ];
    let is_requested = |name: &str| command.from(2).any(|pattern| matches(pattern, name.as_bytes()));
    let requested = settings.iter().filter(|(name, _)| is_requested(name));
    replies.map(requested.clone().count());
    for (name, value) in requested {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    Ok(())
}

/// Returns `true` if a name matches a pattern with `*` and `?`, ignoring case. Takes at most as
/// many steps as the product of the lengths: a mismatch backtracks to the last star only.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = name.get(place) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
                continue;
            }
            Some(wanted) if *wanted == b'?' || wanted.eq_ignore_ascii_case(letter) => {
                at += 1;
                place += 1;
                continue;
            }
            _ => {}
        }
        let Some((star_at, taken)) = star else { return false };
        star = Some((star_at, taken + 1));
        at = star_at + 1;
        place = taken + 1;
    }
    pattern.get(at..).unwrap_or_default().iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, expected) in [
            ("save", "save", true),
            ("SAVE", "save", true),
            ("s*", "save", true),
            ("*", "", true),
            ("*a*e*", "save", true),
            ("s?ve", "save", true),
            ("s?", "save", false),
            ("", "save", false),
            ("save*x", "save", false),
            ("*ave", "saveave", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
