//! All settings except the rules: the one list behind the file, variables, flags, the example and
//! the documentation.

use super::value::Given;
use super::{Configuration, LogFormat, LogLevel, StoreUrl};
use crate::engine::OnStoreFailure;
use crate::protocol::{Description, Protocol};
use sluicegate::internal::grammar::{self, SyntaxError, quoted};
use sluicegate::semaphore::MAX_LEASES_MAX;
use sluicegate::{MAX_KEYS_MAX, MAX_LOG_ENTRIES_MAX, MAX_RECEIPTS_MAX, OnFull};
use sluicegate_core::bounds::COUNT_MAX;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// One setting.
#[derive(Clone)]
pub struct Setting {
    /// Its table in the file.
    pub section: &'static str,
    /// Its name in that table.
    pub name: &'static str,
    /// The variable that overrides it.
    pub variable: &'static str,
    /// The flag that overrides both, if there is one.
    pub flag: Option<&'static str>,
    /// `true` if a reload applies a change; otherwise it needs a restart.
    pub live: bool,
    kind: Kind,
}

type Field<T> = fn(&mut Configuration) -> &mut T;

/// The type of a setting, and its field.
#[derive(Clone)]
enum Kind {
    Size(Field<usize>, RangeInclusive<u64>),
    Cost(Field<u64>, RangeInclusive<u64>),
    Percent(Field<u32>, RangeInclusive<u64>),
    /// A number, or the word `auto`.
    SizeOrAuto(Field<Option<usize>>, RangeInclusive<u64>),
    Duration(Field<Duration>),
    DurationOrOff(Field<Option<Duration>>),
    Bool(Field<bool>),
    Address(Protocol),
    File(Field<Option<PathBuf>>),
    Hosts(Field<Vec<String>>),
    StoreUrl(Field<Option<StoreUrl>>),
    KeyPrefix(Field<String>),
    Word(&'static [&'static str], fn(&mut Configuration, &str), fn(&Configuration) -> &'static str),
}

const fn setting(section: &'static str, name: &'static str, variable: &'static str, kind: Kind) -> Setting {
    Setting { section, name, variable, flag: None, live: false, kind }
}

impl Setting {
    const fn with_flag(mut self, flag: &'static str) -> Setting {
        self.flag = Some(flag);
        self
    }

    const fn live(mut self) -> Setting {
        self.live = true;
        self
    }
}

const MIB: u64 = 1024 * 1024;

/// What to answer while the shared store is unavailable.
pub(super) const ON_FAILURE: &[&str] = &["allow", "deny", "local", "error"];
/// The percentage of a limit that one server applies under `local`.
pub(super) const LOCAL_SHARE: RangeInclusive<u64> = 1..=100;

/// The meaning of a word of [`ON_FAILURE`].
pub(super) fn on_failure(word: &str) -> OnStoreFailure {
    match word {
        "allow" => OnStoreFailure::Allow,
        "deny" => OnStoreFailure::Deny,
        "local" => OnStoreFailure::Local,
        _ => OnStoreFailure::Error,
    }
}

/// All settings, in the order of the file.
pub static SETTINGS: LazyLock<Vec<Setting>> =
    LazyLock::new(|| Protocol::ALL.into_iter().map(address_of).chain(OTHERS.iter().cloned()).collect());

/// The setting of a protocol's address.
const fn address_of(protocol: Protocol) -> Setting {
    let Description { id, variable, flag, .. } = *protocol.description();
    setting("server", id, variable, Kind::Address(protocol)).with_flag(flag)
}

/// The settings that belong to no protocol.
static OTHERS: &[Setting] = &[
    setting("server", "password_file", "SLUICE_PASSWORD_FILE", Kind::File(|c| &mut c.password_file))
        .with_flag("--password-file"),
    setting("server", "tls_cert", "SLUICE_TLS_CERT", Kind::File(|c| &mut c.tls_cert))
        .with_flag("--tls-cert")
        .live(),
    setting("server", "tls_key", "SLUICE_TLS_KEY", Kind::File(|c| &mut c.tls_key))
        .with_flag("--tls-key")
        .live(),
    setting("server", "hosts", "SLUICE_HOSTS", Kind::Hosts(|c| &mut c.hosts)),
    setting("server", "allow_inline", "SLUICE_ALLOW_INLINE", Kind::Bool(|c| &mut c.engine.allow_inline)),
    setting(
        "server",
        "inline_log_count_max",
        "SLUICE_INLINE_LOG_COUNT_MAX",
        Kind::Cost(|c| &mut c.engine.inline_log_count_max, 1..=10_000),
    ),
    setting(
        "server",
        "inline_period_max",
        "SLUICE_INLINE_PERIOD_MAX",
        Kind::DurationOrOff(|c| &mut c.engine.inline_period_max),
    ),
    setting("server", "threads", "SLUICE_THREADS", Kind::SizeOrAuto(|c| &mut c.threads, 1..=1024))
        .with_flag("--threads"),
    setting(
        "server",
        "connections_max",
        "SLUICE_CONNECTIONS_MAX",
        Kind::Size(|c| &mut c.limits.connections_max, 1..=1_000_000),
    ),
    setting(
        "server",
        "idle_timeout",
        "SLUICE_IDLE_TIMEOUT",
        Kind::DurationOrOff(|c| &mut c.limits.idle_timeout),
    ),
    setting(
        "server",
        "request_timeout",
        "SLUICE_REQUEST_TIMEOUT",
        Kind::Duration(|c| &mut c.limits.request_timeout),
    ),
    setting(
        "server",
        "handshake_timeout",
        "SLUICE_HANDSHAKE_TIMEOUT",
        Kind::Duration(|c| &mut c.limits.handshake_timeout),
    ),
    setting(
        "server",
        "arguments_max",
        "SLUICE_ARGUMENTS_MAX",
        // The longest command of bounded length has thirteen arguments.
        Kind::Size(|c| &mut c.limits.arguments_max, 14..=MIB),
    ),
    setting(
        "server",
        "bulk_len_max",
        "SLUICE_BULK_LEN_MAX",
        Kind::Size(|c| &mut c.limits.bulk_len_max, 64..=512 * MIB),
    ),
    setting(
        "server",
        "command_len_max",
        "SLUICE_COMMAND_LEN_MAX",
        Kind::Size(|c| &mut c.limits.command_len_max, 1024..=1024 * MIB),
    ),
    setting(
        "server",
        "unread_replies_max",
        "SLUICE_UNREAD_REPLIES_MAX",
        Kind::Size(|c| &mut c.limits.unread_replies_max, 1024..=1024 * MIB),
    ),
    setting(
        "server",
        "unread_timeout",
        "SLUICE_UNREAD_TIMEOUT",
        Kind::Duration(|c| &mut c.limits.unread_timeout),
    ),
    setting(
        "server",
        "lease_wait_max",
        "SLUICE_LEASE_WAIT_MAX",
        Kind::DurationOrOff(|c| &mut c.limits.lease_wait_max),
    ),
    setting(
        "server",
        "request_head_max",
        "SLUICE_REQUEST_HEAD_MAX",
        // hyper needs a buffer of at least 8 KiB.
        Kind::Size(|c| &mut c.limits.request_head_max, 8192..=MIB),
    ),
    setting(
        "server",
        "request_body_max",
        "SLUICE_REQUEST_BODY_MAX",
        Kind::Size(|c| &mut c.limits.request_body_max, 64..=512 * MIB),
    ),
    setting(
        "server",
        "key_len_max",
        "SLUICE_KEY_LEN_MAX",
        Kind::Size(|c| &mut c.engine.key_len_max, 1..=64 * 1024),
    ),
    setting("server", "cost_max", "SLUICE_COST_MAX", Kind::Cost(|c| &mut c.engine.cost_max, 1..=COUNT_MAX)),
    setting("store", "url", "SLUICE_STORE", Kind::StoreUrl(|c| &mut c.store.url)).with_flag("--store"),
    setting("store", "tls_ca", "SLUICE_STORE_TLS_CA", Kind::File(|c| &mut c.store.tls_ca)),
    setting("store", "deadline", "SLUICE_STORE_DEADLINE", Kind::Duration(|c| &mut c.store.deadline)),
    setting("store", "key_prefix", "SLUICE_STORE_KEY_PREFIX", Kind::KeyPrefix(|c| &mut c.store.key_prefix)),
    setting(
        "store",
        "on_failure",
        "SLUICE_STORE_ON_FAILURE",
        Kind::Word(
            ON_FAILURE,
            |c, word| c.engine.on_failure = on_failure(word),
            |c| c.engine.on_failure.as_str(),
        ),
    ),
    setting(
        "store",
        "local_share",
        "SLUICE_STORE_LOCAL_SHARE",
        Kind::Percent(|c| &mut c.engine.local_share, LOCAL_SHARE),
    ),
    setting(
        "store",
        "remember_denials",
        "SLUICE_STORE_REMEMBER_DENIALS",
        Kind::Bool(|c| &mut c.store.remember_denials),
    ),
    setting(
        "memory",
        "max_keys",
        "SLUICE_MAX_KEYS",
        Kind::Size(|c| &mut c.engine.max_keys, 1..=MAX_KEYS_MAX as u64),
    )
    .with_flag("--max-keys"),
    setting(
        "memory",
        "max_receipts",
        "SLUICE_MAX_RECEIPTS",
        Kind::Size(|c| &mut c.engine.max_receipts, 0..=MAX_RECEIPTS_MAX as u64),
    ),
    setting(
        "memory",
        "max_log_entries",
        "SLUICE_MAX_LOG_ENTRIES",
        Kind::Size(|c| &mut c.engine.max_log_entries, 1..=MAX_LOG_ENTRIES_MAX as u64),
    ),
    setting(
        "memory",
        "max_leases",
        "SLUICE_MAX_LEASES",
        Kind::Size(|c| &mut c.engine.max_leases, 1..=MAX_LEASES_MAX as u64),
    ),
    setting(
        "memory",
        "on_full",
        "SLUICE_ON_FULL",
        Kind::Word(
            &["evict", "deny"],
            |c, word| c.engine.on_full = if word == "deny" { OnFull::Deny } else { OnFull::Evict },
            |c| if c.engine.on_full == OnFull::Deny { "deny" } else { "evict" },
        ),
    ),
    setting(
        "log",
        "format",
        "SLUICE_LOG_FORMAT",
        Kind::Word(
            &["text", "json"],
            |c, word| c.log.format = if word == "json" { LogFormat::Json } else { LogFormat::Text },
            |c| if c.log.format == LogFormat::Json { "json" } else { "text" },
        ),
    )
    .with_flag("--log-format"),
    setting(
        "log",
        "level",
        "SLUICE_LOG",
        Kind::Word(LogLevel::WORDS, |c, word| c.log.level = LogLevel::of(word), |c| c.log.level.word()),
    )
    .with_flag("--log")
    .live(),
];

impl LogLevel {
    const WORDS: &'static [&'static str] = &["off", "error", "warn", "info", "debug", "trace"];
    const ALL: [LogLevel; 6] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    fn of(word: &str) -> LogLevel {
        let index = LogLevel::WORDS.iter().position(|known| *known == word);
        index.map_or(LogLevel::Info, |index| LogLevel::ALL[index])
    }

    fn word(self) -> &'static str {
        LogLevel::WORDS[self as usize]
    }
}

impl Setting {
    /// Sets the value.
    pub(super) fn set(
        &self,
        configuration: &mut Configuration,
        given: &Given<'_>,
    ) -> Result<(), SyntaxError> {
        // The bounds of every size fit into a `usize`.
        let size = |within| given.number(within).map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        match &self.kind {
            Kind::Size(field, within) => *field(configuration) = size(within)?,
            Kind::Cost(field, within) => *field(configuration) = given.number(within)?,
            Kind::Percent(field, within) => {
                *field(configuration) = u32::try_from(given.number(within)?).unwrap_or(u32::MAX);
            }
            Kind::SizeOrAuto(field, within) => {
                let auto = given.text().is_ok_and(|text| text == "auto");
                *field(configuration) = if auto { None } else { Some(size(within)?) };
            }
            Kind::Duration(field) => *field(configuration) = given.duration()?,
            Kind::DurationOrOff(field) => *field(configuration) = given.duration_or_off()?,
            Kind::Bool(field) => *field(configuration) = given.bool()?,
            Kind::Address(protocol) => configuration.listen[*protocol] = address(given.text()?)?,
            Kind::File(field) => *field(configuration) = Some(file(given.text()?)?),
            Kind::Hosts(field) => {
                *field(configuration) = given.texts()?.into_iter().map(host).collect::<Result<_, _>>()?;
            }
            Kind::StoreUrl(field) => *field(configuration) = StoreUrl::read(given.text()?)?,
            Kind::KeyPrefix(field) => *field(configuration) = key_prefix(given.text()?)?,
            Kind::Word(words, set, _) => set(configuration, grammar::name("word", given.text()?, words)?),
        }
        Ok(())
    }

    /// Returns `true` if two configurations differ in this setting, even if [`Setting::shown`]
    /// hides the difference.
    pub fn differs(&self, one: &Configuration, other: &Configuration) -> bool {
        match &self.kind {
            Kind::StoreUrl(field) => *field(&mut one.clone()) != *field(&mut other.clone()),
            _ => self.shown(one) != self.shown(other),
        }
    }

    /// The value as a file writes it; empty if there is none. The URL of a store is shown without
    /// its password.
    pub fn shown(&self, configuration: &Configuration) -> String {
        let mut configuration = configuration.clone();
        let configuration = &mut configuration;
        match &self.kind {
            Kind::Size(field, _) => field(configuration).to_string(),
            Kind::Cost(field, _) => field(configuration).to_string(),
            Kind::Percent(field, _) => field(configuration).to_string(),
            Kind::SizeOrAuto(field, _) => {
                field(configuration).map_or_else(|| "\"auto\"".into(), |size| size.to_string())
            }
            Kind::Duration(field) => duration(*field(configuration)),
            Kind::DurationOrOff(field) => field(configuration).map_or_else(|| "\"off\"".into(), duration),
            Kind::Bool(field) => field(configuration).to_string(),
            Kind::Address(protocol) => {
                format!("{:?}", configuration.listen[*protocol].as_deref().unwrap_or("off"))
            }
            Kind::File(field) => field(configuration)
                .as_ref()
                .map_or_else(String::new, |path| format!("{:?}", path.to_string_lossy())),
            Kind::Hosts(field) => format!("{:?}", field(configuration)),
            Kind::StoreUrl(field) => {
                field(configuration).as_ref().map_or_else(|| "\"memory\"".into(), |url| format!("\"{url}\""))
            }
            Kind::KeyPrefix(field) => format!("{:?}", field(configuration)),
            Kind::Word(_, _, word) => format!("{:?}", word(configuration)),
        }
    }
}

/// A duration in the largest unit that is exact.
fn duration(duration: Duration) -> String {
    match (duration.as_micros(), duration.as_millis()) {
        (micros, _) if micros % 1_000 != 0 => format!("\"{micros}us\""),
        (_, millis) if millis % 1_000 != 0 => format!("\"{millis}ms\""),
        _ => format!("\"{}s\"", duration.as_secs()),
    }
}

/// `HOST:PORT`, or `off`.
fn address(text: &str) -> Result<Option<String>, SyntaxError> {
    if text == "off" {
        return Ok(None);
    }
    let wrong = |problem: &str| {
        let problem = format!("{} {problem}", quoted(text));
        SyntaxError::new(problem, "use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off")
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
    if host.is_empty() || host.chars().any(|letter| letter.is_whitespace() || letter == '/') {
        return Err(wrong("has no host"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(wrong("has an IPv6 host without brackets, as in [::1]:6380"));
    }
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || port.parse::<u16>().is_err() {
        return Err(wrong("has a port that is not a number up to 65535"));
    }
    Ok(Some(text.to_owned()))
}

fn file(text: &str) -> Result<PathBuf, SyntaxError> {
    match text {
        "" => Err(SyntaxError::new("the path is empty", "set one, or remove the setting")),
        name => Ok(name.into()),
    }
}

/// Reads a host name in the form that is compared with the `Host` header: lower case, without a
/// port. IP addresses are always served and need not be named.
fn host(text: &str) -> Result<String, SyntaxError> {
    let good = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    if text.is_empty() || !text.chars().all(good) {
        let problem = format!("{} is not a host name", quoted(text));
        return Err(SyntaxError::new(
            problem,
            "write the name alone, without a port, such as limits.example.com",
        ));
    }
    Ok(text.to_ascii_lowercase())
}

fn key_prefix(text: &str) -> Result<String, SyntaxError> {
    const LEN_MAX: usize = 64;
    // No braces: they would change the hash slot of every key in a cluster.
    let good = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    if text.is_empty() || text.len() > LEN_MAX || !text.chars().all(good) {
        let advice = format!("use 1 to {LEN_MAX} of the characters A-Z a-z 0-9 _ . : -");
        return Err(SyntaxError::new(format!("key prefix {} is invalid", quoted(text)), advice));
    }
    Ok(text.to_owned())
}
