//! The configuration: a file, environment variables and flags over the defaults.
//!
//! ```text
//! defaults  <  sluice.toml  <  SLUICE_... variables  <  flags
//! ```
//!
//! `settings.rs` is the list of all settings, each with its name, section, variable, bounds and
//! field in [`Configuration`]; the other files iterate over it. `file.rs` reads the TOML file,
//! `rules.rs` its rules, `value.rs` one value of any layer, `error.rs` locates errors. All errors
//! of a file are reported at once.

mod error;
mod file;
mod password;
mod rules;
mod settings;
mod store_url;
mod value;

pub use error::{ConfigError, ConfigErrors};
pub use password::read as read_password;
pub use settings::{SETTINGS, Setting};
pub use store_url::StoreUrl;

use crate::connection_limits::ConnectionLimits;
use crate::engine::{KeySpec, RuleSpec, Settings};
use crate::protocol::ByProtocol;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::Given;

/// The longest configuration file, in bytes: room for some hundred thousand exceptions.
const FILE_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The variable that names the file.
const FILE_VARIABLE: &str = "SLUICE_CONFIG";
/// The variable that holds the password itself. There is no flag for it, as flags are visible to
/// all users of a machine.
const PASSWORD_VARIABLE: &str = "SLUICE_PASSWORD";
/// The variable that names the password file.
const PASSWORD_FILE_VARIABLE: &str = "SLUICE_PASSWORD_FILE";

/// All settings. The files that it names are not read yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// The address to listen on per protocol, `HOST:PORT`. `None`: off.
    pub listen: ByProtocol<Option<String>>,
    /// The file with the password that clients must send.
    pub password_file: Option<PathBuf>,
    /// The certificate chain, in PEM.
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    pub tls_key: Option<PathBuf>,
    /// The host names that HTTP is served under, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Worker threads. `None`: one per core.
    pub threads: Option<usize>,
    /// Limits on connections.
    pub limits: ConnectionLimits,
    /// Settings of the engine.
    pub engine: Settings,
    /// Where the state of keys lives.
    pub store: Store,
    /// The log.
    pub log: Log,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSpec>,
}

/// Where the state of keys lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// The URL of a shared store. `None`: keys live in memory.
    pub url: Option<StoreUrl>,
    /// The only authority trusted for the store's certificate, in PEM. `None`: those of the system.
    pub tls_ca: Option<PathBuf>,
    /// How long a decision may wait for a shared store.
    pub deadline: Duration,
    /// The prefix of key names in the store.
    pub key_prefix: String,
    /// `true` to repeat a denial without a round trip until its wait is over, for at most 1 s.
    pub remember_denials: bool,
}

/// The log on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// The format of lines.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: LogLevel,
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text, for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The least severe level that is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// What an operator should look at.
    Warn,
    /// What the server does.
    Info,
    /// What clients do.
    Debug,
    /// Everything.
    Trace,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            listen: ByProtocol::new(|protocol| protocol.description().default_address.map(Into::into)),
            password_file: None,
            tls_cert: None,
            tls_key: None,
            hosts: Vec::new(),
            threads: None,
            limits: ConnectionLimits::default(),
            engine: Settings::default(),
            store: Store {
                url: None,
                tls_ca: None,
                deadline: sluicegate_redis::DEADLINE_DEFAULT,
                key_prefix: sluicegate_redis::KEY_PREFIX_DEFAULT.into(),
                remember_denials: false,
            },
            log: Log { format: LogFormat::Text, level: LogLevel::Info },
            rules: Vec::new(),
        }
    }
}

/// The sources of a configuration. Later ones win.
#[derive(Clone, Default, Debug)]
pub struct Layers {
    /// The file of `--config`; default: that of `SLUICE_CONFIG`.
    pub file: Option<PathBuf>,
    /// All environment variables.
    pub variables: Vec<(String, String)>,
    /// Flags as name and value, such as `--resp` and `off`.
    pub flags: Vec<(&'static str, String)>,
}

/// The most limits, or lists of limits, of all rules and exceptions; equal ones of one rule count
/// once. The memory store
/// holds 65,535 at once; inline limits leave a quarter of them, and a reload needs the old and the
/// new ones.
pub const RULE_LIMITS_MAX: usize = 8_000;

fn distinct_limits(rules: &[RuleSpec]) -> usize {
    let of_rule = |rule: &RuleSpec| {
        let exceptions = rule.keys.iter().filter_map(|(_, exception)| match exception {
            KeySpec::Limits(limits) => Some(limits),
            KeySpec::Unlimited | KeySpec::Blocked => None,
        });
        std::iter::once(&rule.limits).chain(exceptions).collect::<HashSet<_>>().len()
    };
    rules.iter().map(of_rule).sum()
}

impl Layers {
    /// The path of the file, if one is named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref().or_else(|| self.variable(FILE_VARIABLE).map(Path::new))
    }

    /// The password, if the environment holds one.
    pub fn password(&self) -> Option<&str> {
        self.variable(PASSWORD_VARIABLE)
    }

    /// Reads the file, if one is named, and applies variables and flags over it.
    ///
    /// # Errors
    /// All errors at once.
    pub fn read(&self) -> Result<Configuration, ConfigErrors> {
        match self.file() {
            None => self.apply_over(Ok(Configuration::default())),
            Some(path) => self.apply_over(Configuration::read(path)),
        }
    }

    /// Applies variables and flags over the file.
    fn apply_over(&self, file: Result<Configuration, ConfigErrors>) -> Result<Configuration, ConfigErrors> {
        let (mut configuration, mut errors) = match file {
            Ok(configuration) => (configuration, Vec::new()),
            Err(errors) => (Configuration::default(), errors.0),
        };
        for setting in SETTINGS.iter() {
            let flag = setting.flag.and_then(|flag| self.flags.iter().rev().find(|(name, _)| *name == flag));
            let variable = self.variable(setting.variable).map(|value| (setting.variable, value));
            let later = flag.map(|(name, value)| (*name, value.as_str())).or(variable);
            if let Some((name, value)) = later
                && let Err(error) = setting.set(&mut configuration, &Given::Text(value))
            {
                errors.push(ConfigError::of(name, error));
            }
        }
        // An empty password is most likely a secret that was not filled in. Starting without a
        // password would be the worst response.
        if self.variables.iter().any(|(name, value)| name == PASSWORD_VARIABLE && value.is_empty()) {
            errors.push(ConfigError::of(
                PASSWORD_VARIABLE,
                "the password is empty; set one, or unset the variable",
            ));
        }
        if self.password().is_some() && self.variable(PASSWORD_FILE_VARIABLE).is_some() {
            let message = format!("{PASSWORD_FILE_VARIABLE} is set too; unset one of them");
            errors.push(ConfigError::of(PASSWORD_VARIABLE, message));
        }
        ConfigErrors::none_of(errors)?;
        let distinct = distinct_limits(&configuration.rules);
        if distinct > RULE_LIMITS_MAX {
            let message = format!("{distinct} distinct limits are too many; use at most {RULE_LIMITS_MAX}");
            return Err(ConfigErrors(vec![ConfigError::of("rules", message)]));
        }
        // Checked last, as one layer may set the certificate and the next its key.
        let half = match (&configuration.tls_cert, &configuration.tls_key) {
            (Some(_), None) => ConfigError::of("tls_cert", "the key is missing; set tls_key too"),
            (None, Some(_)) => ConfigError::of("tls_key", "the certificate is missing; set tls_cert too"),
            _ => return Ok(configuration),
        };
        Err(ConfigErrors(vec![half]))
    }

    /// The variables that start with `SLUICE_` and are unknown: perhaps misspelt.
    pub fn unknown_variables(&self) -> impl Iterator<Item = &str> {
        // Kubernetes sets variables of these names for a service named `sluice`.
        let of_kubernetes =
            |name: &str| name.starts_with("SLUICE_PORT") || name.starts_with("SLUICE_SERVICE_");
        let known = |name: &str| {
            [FILE_VARIABLE, PASSWORD_VARIABLE].contains(&name)
                || SETTINGS.iter().any(|setting| setting.variable == name)
        };
        let names = self.variables.iter().map(|(name, _)| name.as_str());
        names.filter(move |name| name.starts_with("SLUICE_") && !known(name) && !of_kubernetes(name))
    }

    /// A variable that is set and not empty: scripts cannot easily unset one.
    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }
}

impl Configuration {
    /// Reads a file over the defaults.
    ///
    /// # Errors
    /// All errors at once.
    pub fn read(path: &Path) -> Result<Configuration, ConfigErrors> {
        let name = path.display().to_string();
        let message = match text_of(path) {
            Ok(text) => return Configuration::parse(&name, &text),
            Err(message) => message,
        };
        Err(ConfigErrors(vec![ConfigError::of(&name, message)]))
    }

    /// Parses the text of a file over the defaults; `name` is for error messages.
    ///
    /// # Errors
    /// All errors at once.
    pub fn parse(name: &str, text: &str) -> Result<Configuration, ConfigErrors> {
        file::parse(name, text)
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let cannot = |error: std::io::Error| format!("cannot read the file: {error}; check the path");
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(format!("the file is longer than {FILE_LEN_MAX} bytes; use fewer exceptions"));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("the file is not UTF-8 at byte {}; save it as UTF-8", error.utf8_error().valid_up_to() + 1)
    })
}
