//! What an operator has said: a file, the environment and flags, laid over the defaults.
//!
//! ```text
//! defaults  <  sluice.toml  <  SLUICE_... variables  <  flags
//! ```
//!
//! `settings.rs` is the list of all settings, each with its name, section, variable, bounds and place in a
//! [`Configuration`]; the other files only walk over it. `file.rs` reads the TOML, `rules.rs` its rules, `value.rs` one value of
//! any layer, `problem.rs` says what is wrong and where. All mistakes of a file are told at once.

mod file;
mod password;
mod problem;
mod rules;
mod settings;
mod store_url;
mod value;

pub use password::read as read_password;
pub use problem::{Problem, Problems};
pub use settings::{SETTINGS, Setting};
pub use store_url::StoreUrl;

use crate::client_limits::ClientLimits;
use crate::engine::{KeySpec, RuleSpec, Settings};
use crate::protocol::ByProtocol;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::Given;

/// The longest configuration file that is read, in bytes: some hundred thousand exceptions.
const FILE_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The variable that names the file.
const FILE_VARIABLE: &str = "SLUICE_CONFIG";
/// The variable that is the password itself. There is no flag for it: everyone on a machine sees flags.
const PASSWORD_VARIABLE: &str = "SLUICE_PASSWORD";
/// The variable that names the password's file.
const PASSWORD_FILE_VARIABLE: &str = "SLUICE_PASSWORD_FILE";

/// All that can be set. Files are named here and not yet read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// Where to listen for each protocol, `HOST:PORT`. `None`: nowhere.
    pub listen: ByProtocol<Option<String>>,
    /// The file with the password that clients have to say.
    pub password_file: Option<PathBuf>,
    /// The certificates, in PEM.
    pub tls_cert: Option<PathBuf>,
    /// Their key, in PEM.
    pub tls_key: Option<PathBuf>,
    /// Names that HTTP is served under, beside `localhost` and any IP address.
    pub hosts: Vec<String>,
    /// Threads that serve. `None`: one a core.
    pub threads: Option<usize>,
    /// Bounds on clients.
    pub limits: ClientLimits,
    /// What the engine is told.
    pub engine: Settings,
    /// Where the state of keys lives.
    pub store: Store,
    /// What is written to standard error.
    pub log: Log,
    /// The rules, in the file's order.
    pub rules: Vec<RuleSpec>,
}

/// Where the state of keys lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// The address of a shared store. `None`: keys live in memory.
    pub url: Option<StoreUrl>,
    /// Whom a shared store's certificate has to be from, in PEM, beside those that are known to everybody.
    pub tls_ca: Option<PathBuf>,
    /// How long a decision may wait for a shared store.
    pub deadline: Duration,
    /// What the names of its keys begin with.
    pub key_prefix: String,
    /// Whether a denial is remembered here until its wait is over, a second at the most.
    pub remember_denials: bool,
}

/// What is written to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// From which level on lines are written.
    pub level: LogLevel,
}

/// How lines of the log look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// From which level on lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What does not work.
    Error,
    /// What somebody should look at.
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
            limits: ClientLimits::default(),
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

/// Where a configuration comes from. What comes later wins.
#[derive(Clone, Default, Debug)]
pub struct Layers {
    /// The file of `--config`; if there is none, that of `SLUICE_CONFIG`.
    pub file: Option<PathBuf>,
    /// The environment, all of it.
    pub variables: Vec<(String, String)>,
    /// Flags as name and value, such as `--resp` and `off`.
    pub flags: Vec<(&'static str, String)>,
}

/// How many different limits, or lists of them, the rules and their exceptions may have: the store knows 65,535 at once, callers
/// who bring their own leave a quarter of that, and while rules are changed the old and the new ones are needed.
pub const RULE_LIMITS_MAX: usize = 8_000;

fn different_limits(rules: &[RuleSpec]) -> usize {
    let exceptions = rules.iter().flat_map(|rule| &rule.keys).filter_map(|(_, says)| match says {
        KeySpec::Limits(limits) => Some(limits),
        KeySpec::Unlimited | KeySpec::Blocked => None,
    });
    rules.iter().map(|rule| &rule.limits).chain(exceptions).collect::<HashSet<_>>().len()
}

impl Layers {
    /// The file, if one is named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref().or_else(|| self.variable(FILE_VARIABLE).map(Path::new))
    }

    /// The password, if the environment holds it.
    pub fn password(&self) -> Option<&str> {
        self.variable(PASSWORD_VARIABLE)
    }

    /// Reads the file, if one is named, and lays the others over it.
    ///
    /// # Errors
    /// With all that is wrong.
    pub fn read(&self) -> Result<Configuration, Problems> {
        match self.file() {
            None => self.over(Ok(Configuration::default())),
            Some(path) => self.over(Configuration::read(path)),
        }
    }

    /// Lays the environment and flags over what the file says.
    fn over(&self, file: Result<Configuration, Problems>) -> Result<Configuration, Problems> {
        let (mut configuration, mut problems) = match file {
            Ok(configuration) => (configuration, Vec::new()),
            Err(problems) => (Configuration::default(), problems.0),
        };
        for setting in SETTINGS.iter() {
            let flag = setting.flag.and_then(|flag| self.flags.iter().rev().find(|(name, _)| *name == flag));
            let variable = self.variable(setting.variable).map(|value| (setting.variable, value));
            let later = flag.map(|(name, value)| (*name, value.as_str())).or(variable);
            if let Some((name, value)) = later
                && let Err(mistake) = setting.set(&mut configuration, &Given::Text(value))
            {
                problems.push(Problem::of(name, mistake));
            }
        }
        // Where a secret was to be put in and was not, starting without one would be the worst answer.
        if self.variables.iter().any(|(name, value)| name == PASSWORD_VARIABLE && value.is_empty()) {
            problems.push(Problem::of(
                PASSWORD_VARIABLE,
                "the password is empty; set one, or unset the variable",
            ));
        }
        if self.password().is_some() && self.variable(PASSWORD_FILE_VARIABLE).is_some() {
            let says = format!("{PASSWORD_FILE_VARIABLE} is set too; unset one of them");
            problems.push(Problem::of(PASSWORD_VARIABLE, says));
        }
        Problems::none_of(problems)?;
        let different = different_limits(&configuration.rules);
        if different > RULE_LIMITS_MAX {
            let says = format!("{different} different limits are too many; use at most {RULE_LIMITS_MAX}");
            return Err(Problems(vec![Problem::of("rules", says)]));
        }
        // What one layer has begun the next may complete, so that this is looked at in the end only.
        let half = match (&configuration.tls_cert, &configuration.tls_key) {
            (Some(_), None) => Problem::of("tls_cert", "its key is missing; set tls_key too"),
            (None, Some(_)) => Problem::of("tls_key", "its certificate is missing; set tls_cert too"),
            _ => return Ok(configuration),
        };
        Err(Problems(vec![half]))
    }

    /// Variables that look like ours and are not: perhaps misspelled.
    pub fn unknown_variables(&self) -> impl Iterator<Item = &str> {
        // Kubernetes tells every pod of a service called `sluice` in variables of these names.
        let of_kubernetes =
            |name: &str| name.starts_with("SLUICE_PORT") || name.starts_with("SLUICE_SERVICE_");
        let known = |name: &str| {
            [FILE_VARIABLE, PASSWORD_VARIABLE].contains(&name)
                || SETTINGS.iter().any(|setting| setting.variable == name)
        };
        let names = self.variables.iter().map(|(name, _)| name.as_str());
        names.filter(move |name| name.starts_with("SLUICE_") && !known(name) && !of_kubernetes(name))
    }

    /// A variable that is set. An empty one is as good as none, as scripts cannot easily unset what is not wanted.
    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }
}

impl Configuration {
    /// What a file says, over the defaults.
    ///
    /// # Errors
    /// With all that is wrong in it.
    pub fn read(path: &Path) -> Result<Configuration, Problems> {
        let name = path.display().to_string();
        let says = match text_of(path) {
            Ok(text) => return Configuration::parse(&name, &text),
            Err(says) => says,
        };
        Err(Problems(vec![Problem::of(&name, says)]))
    }

    /// What the text of a file of this name says, over the defaults.
    ///
    /// # Errors
    /// With all that is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Configuration, Problems> {
        file::parse(name, text)
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let cannot = |error: std::io::Error| format!("cannot be read: {error}; check the name");
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(format!("is longer than {FILE_LEN_MAX} bytes; use fewer exceptions"));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("is not UTF-8 text: byte {}; save it as UTF-8", error.utf8_error().valid_up_to() + 1)
    })
}
