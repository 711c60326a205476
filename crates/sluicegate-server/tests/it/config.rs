//! The configuration: what is accepted, which errors are reported, and which layer wins.

use sluicegate_server::config::{Configuration, Layers, LogFormat, LogLevel, SETTINGS};
use sluicegate_server::engine::{KeySpec, OnStoreFailure};
use sluicegate_server::protocol::Protocol;
use std::path::Path;
use std::time::Duration;

const EXAMPLE: &str = include_str!("../../sluice.example.toml");

fn parse(text: &str) -> Result<Configuration, String> {
    Configuration::parse("sluice.toml", text).map_err(|problems| problems.to_string())
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("").unwrap(), Configuration::default());
}

#[test]
fn a_file_sets_everything() {
    let configuration = parse(
        r#"
        [server]
        resp = "[::1]:7000"
        http = "off"
        password_file = "/run/secrets/sluice"
        tls_cert = "cert.pem"
        tls_key = "key.pem"
        hosts = ["Limits.Example.com"]
        allow_inline = false
        threads = 3
        connections_max = 0x20
        idle_timeout = "off"
        request_timeout = "1500ms"
        key_len_max = 512
        cost_max = 1_000
        [store]
        url = "redis://me:hunter2@db:6379/2"
        deadline = "20ms"
        key_prefix = "shop:"
        on_failure = "deny"
        local_share = 50
        [memory]
        max_keys = 5
        on_full = "deny"
        [log]
        format = "json"
        level = "debug"

        [[rule]]
        name = "reply"
        limit = "sliding-log 5/60s"

        [[rule]]
        name = "api"
        limit = ["token-bucket 10/s burst=50", "fixed-window 1000/day"]
        on_store_failure = "local"
        local_share = 25
        share = 3
        shadow = true
        [rule.keys]
        "partner-7" = "token-bucket 100/s burst=500"
        "two" = ["sliding-log 5/60s", "sliding-log 9/1h"]
        "health-check" = "unlimited"
        "203.0.113.9" = "blocked"
        "#,
    )
    .unwrap();
    assert_eq!(configuration.listen[Protocol::Resp].as_deref(), Some("[::1]:7000"));
    assert_eq!(configuration.listen[Protocol::Http], None);
    assert_eq!(configuration.hosts, ["limits.example.com"]);
    assert_eq!(configuration.threads, Some(3));
    assert_eq!(configuration.limits.connections_max, 32);
    assert_eq!(configuration.limits.idle_timeout, None);
    assert_eq!(configuration.limits.request_timeout, Duration::from_millis(1500));
    assert!(!configuration.engine.allow_inline);
    assert_eq!((configuration.engine.cost_max, configuration.engine.key_len_max), (1000, 512));
    assert_eq!(configuration.store.key_prefix, "shop:");
    assert_eq!(configuration.store.url.as_ref().unwrap().with_password(), "redis://me:hunter2@db:6379/2");
    assert!(!format!("{configuration:?}").contains("hunter2"));
    let shown = SETTINGS.iter().map(|setting| setting.shown(&configuration)).collect::<String>();
    assert!(shown.contains("redis://***@db:6379/2") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(
        (configuration.engine.on_failure, configuration.engine.local_share),
        (OnStoreFailure::Deny, 50)
    );
    assert_eq!(configuration.log.format, LogFormat::Json);
    assert_eq!(configuration.log.level, LogLevel::Debug);
    let [reply, api] = &configuration.rules[..] else { panic!("{:?}", configuration.rules) };
    assert_eq!((reply.name.as_str(), reply.shadow, reply.on_store_failure), ("reply", false, None));
    assert_eq!((api.shadow, api.on_store_failure, api.limits.len()), (true, Some(OnStoreFailure::Local), 2));
    assert_eq!((reply.share, api.share), (1, 3));
    assert_eq!((reply.local_share, api.local_share), (None, Some(25)));
    let key =
        |name: &str| api.keys.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, says)| says).unwrap();
    assert!(matches!(key("partner-7"), KeySpec::Limits(limits) if limits.len() == 1));
    assert!(matches!(key("two"), KeySpec::Limits(limits) if limits.len() == 2));
    assert_eq!((key("health-check"), key("203.0.113.9")), (&KeySpec::Unlimited, &KeySpec::Blocked));
}

/// Text in, message out.
const MISTAKES: &[(&str, &str)] = &[
    // Tables and fields.
    ("[sever]\n", "sluice.toml:1:2: unknown table \"sever\"; did you mean server?"),
    ("[[rules]]\n", "sluice.toml:1:3: unknown table \"rules\"; did you mean rule?"),
    ("resp = \"off\"\n", "sluice.toml:1:1: unknown table \"resp\"; use server store memory log rule"),
    ("server = 1\n", "sluice.toml:1:10: server is 1, not a table; write [server]"),
    (
        "[rule]\nname = \"a\"\n",
        "sluice.toml:1:1: rule is not a list of tables; start each rule with [[rule]]",
    ),
    (
        "[server]\n\n  rsep = \"off\"\n",
        "sluice.toml:3:3: [server]: unknown field \"rsep\"; did you mean resp?",
    ),
    (
        "[memory]\nmaxkeys = 1\n",
        "sluice.toml:2:1: [memory]: unknown field \"maxkeys\"; did you mean max_keys?",
    ),
    ("[log]\nfile = \"x\"\n", "sluice.toml:2:1: [log]: unknown field \"file\"; use format level"),
    // Values.
    (
        "[server]\nresp = \"127.0.0.1\"\n",
        "sluice.toml:2:8: resp: \"127.0.0.1\" has no port; use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off",
    ),
    (
        "[server]\nhttp = \":8380\"\n",
        "sluice.toml:2:8: http: \":8380\" has no host; use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off",
    ),
    (
        "[server]\nhttp = \"::1:8380\"\n",
        "sluice.toml:2:8: http: \"::1:8380\" has an IPv6 host without brackets, as in [::1]:6380; use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off",
    ),
    (
        "[server]\nhttp = \"localhost:65536\"\n",
        "sluice.toml:2:8: http: \"localhost:65536\" has a port that is not a number up to 65535; use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off",
    ),
    ("[server]\nresp = 6380\n", "sluice.toml:2:8: resp: 6380 is not text; put it in quotes"),
    (
        "[server]\nconnections_max = \"10\"\n",
        "sluice.toml:2:19: connections_max: \"10\" is not a number; use a whole number from 1 to 1000000, without quotes",
    ),
    (
        "[server]\nconnections_max = 0\n",
        "sluice.toml:2:19: connections_max: 0 is out of bounds; use a whole number from 1 to 1000000",
    ),
    (
        "[server]\ncost_max = -1\n",
        "sluice.toml:2:12: cost_max: -1 is out of bounds; use a whole number from 1 to 1000000000000",
    ),
    (
        "[server]\nthreads = \"many\"\n",
        "sluice.toml:2:11: threads: \"many\" is not a number; use a whole number from 1 to 1024, without quotes",
    ),
    (
        "[server]\nidle_timeout = 300\n",
        "sluice.toml:2:16: idle_timeout: 300 has no unit; write \"300s\" for seconds",
    ),
    (
        "[server]\nrequest_timeout = \"off\"\n",
        "sluice.toml:2:19: request_timeout: \"off\" is not a duration above zero; use one such as \"10s\"",
    ),
    (
        "[server]\nunread_timeout = \"10 s\"\n",
        "sluice.toml:2:18: unread_timeout: \"10 s\" has a space; write \"10s\"",
    ),
    (
        "[server]\nidle_timeout = \"400d\"\n",
        "sluice.toml:2:16: idle_timeout: \"400d\" is too long; use at most 365d",
    ),
    (
        "[[rule]]\nname = \"exports\"\nlimit = \"concurrency 3\"\n",
        "sluice.toml:3:9: rule exports: concurrency 3: a client that crashes would hold its lease forever; add a ttl, as in \"concurrency 3 ttl=30s\"",
    ),
    (
        "[[rule]]\nname = \"api\"\nlimit = \"token-bucket 10/s + sliding-log 5/60x\"\n",
        "sluice.toml:3:9: rule api: token-bucket 10/s + sliding-log 5/60x: unknown unit \"x\"; use us ms s min h d (or second minute hour day, and for fixed-window also week month year)",
    ),
    (
        "[[rule]]\nname = \"api\"\nlimit = \"100/min\"\n",
        "sluice.toml:3:9: rule api: 100/min: \"100/min\" is a rate without an algorithm; name an algorithm, for example token-bucket 100/min",
    ),
    (
        "[[rule]]\nname = \"api\"\nlimit = \"pacer 1/s\"\n[rule.keys]\nacme = \"5/s\"\n",
        "sluice.toml:5:8: rule api: 5/s: \"5/s\" is a rate without an algorithm; name an algorithm, for example token-bucket 5/s",
    ),
    (
        "[[rule]]\nname = \"exports\"\nlimit = \"sliding-log 5/60s + concurrency 3 ttl=1s\"\n",
        "sluice.toml:3:9: rule exports: concurrency 3 ttl=1s: concurrency grants leases and cannot be part of a list; make it a rule of its own",
    ),
    (
        "[[rule]]\nname = \"exports\"\nlimit = [\"concurrency 3 ttl=1s\", \"sliding-log 5/60s\"]\n",
        "sluice.toml:3:9: rule exports: concurrency 3 ttl=1s: concurrency grants leases and cannot be part of a list; make it a rule of its own",
    ),
    (
        "[[rule]]\nname = \"exports\"\nlimit = \"concurrency 3 ttl=1s\"\n[rule.keys]\nacme = \"sliding-log 5/60s\"\n",
        "sluice.toml:5:8: rule exports: exception sliding-log 5/min does not fit: the rule grants leases; use a concurrency limit, \"unlimited\" or \"blocked\"",
    ),
    (
        "[server]\nallow_inline = \"no\"\n",
        "sluice.toml:2:16: allow_inline: \"no\" is neither true nor false; write true or false, without quotes",
    ),
    (
        "[server]\nhosts = \"a.example\"\n",
        "sluice.toml:2:9: hosts: \"a.example\" is not a list; write it in brackets, such as [\"limits.example.com\"]",
    ),
    (
        "[server]\nhosts = [\"https://a.example/\"]\n",
        "sluice.toml:2:9: hosts: \"https://a.example/\" is not a host name; write the name alone, without a port, such as limits.example.com",
    ),
    (
        "[server]\nhosts = [\"a.example:8380\"]\n",
        "sluice.toml:2:9: hosts: \"a.example:8380\" is not a host name; write the name alone, without a port, such as limits.example.com",
    ),
    (
        "[server]\ntls_key = \"\"\n",
        "sluice.toml:2:11: tls_key: the path is empty; set one, or remove the setting",
    ),
    (
        "[store]\nurl = \"rdis://:secret@db:6379\"\n",
        "sluice.toml:2:7: url: unknown store ...@\"db:6379\"; use memory, or a URL such as redis://127.0.0.1:6379",
    ),
    (
        "[store]\nurl = \"disk\"\n",
        "sluice.toml:2:7: url: unknown store \"disk\"; use memory, or a URL such as redis://127.0.0.1:6379",
    ),
    (
        "[store]\nkey_prefix = \"{a}\"\n",
        "sluice.toml:2:14: key_prefix: key prefix \"{a}\" is invalid; use 1 to 64 of the characters A-Z a-z 0-9 _ . : -",
    ),
    (
        "[memory]\non_full = \"evit\"\n",
        "sluice.toml:2:11: on_full: unknown word \"evit\"; did you mean evict?",
    ),
    (
        "[log]\nlevel = \"loud\"\n",
        "sluice.toml:2:9: level: unknown word \"loud\"; use off error warn info debug trace",
    ),
    // Rules.
    (
        "[[rule]]\nlimit = \"sliding-log 5/60s\"\n",
        "sluice.toml:1:1: rule: the rule has no name; add one, such as name = \"reply\"",
    ),
    (
        "[[rule]]\nname = \"a b\"\nlimit = \"sliding-log 5/60s\"\n",
        "sluice.toml:2:8: rule: name: rule name \"a b\" is invalid; use the characters A-Z a-z 0-9 _ . : -",
    ),
    (
        "[[rule]]\nname = \"a\"\n",
        "sluice.toml:1:1: rule a: the rule has no limit; add one, such as limit = \"sliding-log 5/60s\"",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-lok 5/60s\"\n",
        "sluice.toml:3:9: rule a: sliding-lok 5/60s: unknown algorithm \"sliding-lok\"; did you mean sliding-log?",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = 5\n",
        "sluice.toml:3:9: rule a: 5 is not a limit; write one in quotes, such as \"sliding-log 5/60s\"",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = [\"sliding-log 5/60s\", \"pacer 1\"]\n",
        "sluice.toml:3:31: rule a: pacer 1: \"1\" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimits = \"sliding-log 5/60s\"\nlimit = \"sliding-log 5/60s\"\n",
        "sluice.toml:3:1: rule a: unknown field \"limits\"; did you mean limit?",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-log 5/60s\"\nshadow = 1\n",
        "sluice.toml:4:10: rule a: shadow: 1 is neither true nor false; write true or false, without quotes",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-log 5/60s\"\non_store_failure = \"alow\"\n",
        "sluice.toml:4:20: rule a: on_store_failure: unknown word \"alow\"; did you mean allow?",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-log 5/60s\"\nkeys = \"x\"\n",
        "sluice.toml:4:8: rule a: keys is \"x\", not a table; write [rule.keys]",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-log 5/60s\"\n[rule.keys]\nx = \"free\"\n",
        "sluice.toml:5:5: rule a: \"free\" is not an exception; use \"unlimited\", \"blocked\" or a limit such as \"sliding-log 5/60s\"",
    ),
    (
        "[[rule]]\nname = \"a\"\nlimit = \"sliding-log 5/60s\"\n[[rule]]\nname = \"a\"\nlimit = \"sliding-log 6/60s\"\n",
        "sluice.toml:5:8: the rule in line 2 is named \"a\" too; rename one of them",
    ),
];

#[test]
fn an_error_has_its_position_and_the_next_step() {
    let errors = MISTAKES.iter().map(|(text, expected)| (parse(text).unwrap_err(), *expected));
    let wrong: Vec<_> = errors.filter(|(error, expected)| error != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The TOML parser's wording is its own; here each error is one line with its position.
#[test]
fn invalid_toml_is_reported_in_one_line_each() {
    for (text, place) in [
        ("[server\nresp = \"off\"\n", "sluice.toml:1:8: "),
        ("[server]\nresp = off\n", "sluice.toml:2:8: "),
        ("[server]\nresp = \"off\"\nresp = \"off\"\n", "sluice.toml:3:1: "),
    ] {
        let said = parse(text).unwrap_err();
        assert!(said.starts_with(place), "{text}: {said}");
        assert!(said.lines().all(|line| line.starts_with("sluice.toml:")), "{said}");
    }
}

#[test]
fn a_list_of_limits_is_a_text_or_an_array() {
    let limits = |written: &str| {
        let text = format!("[[rule]]\nname = \"api\"\nlimit = {written}\n");
        parse(&text).unwrap().rules[0].limits.clone()
    };
    let array = limits(r#"["token-bucket 10/s burst=50", "fixed-window 1000/day"]"#);
    assert_eq!(limits(r#""token-bucket 10/sec burst=50 + fixed-window 1k/day""#), array);
    let three = limits(r#"["pacer 1/s", "token-bucket 10/s burst=50 + fixed-window 1000/day"]"#);
    assert_eq!(three[1..], array);
}

#[test]
fn an_invalid_list_of_limits_is_rejected() {
    let said = parse("[[rule]]\nname = \"a\"\nlimit = []\n").unwrap_err();
    assert!(said.starts_with("sluice.toml:3:9: rule a: "), "{said}");
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    let said = parse(
        "[server]\nresp = 1\nthreads = 0\n[store]\nurl = \"disk\"\n[[rule]]\nname = \"a\"\nlimit = [\"x\", \"y\"]\n",
    )
    .unwrap_err();
    let places: Vec<&str> = said.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        ["sluice.toml:2:8", "sluice.toml:3:11", "sluice.toml:5:7", "sluice.toml:8:10", "sluice.toml:8:15"]
    );
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let folder = Folder::new("layers");
    let file =
        folder.write("sluice.toml", "[server]\nresp = \"h:1\"\nhttp = \"h:1\"\n[memory]\nmax_keys = 1\n");
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let layers = Layers {
        file: None,
        variables: vec![
            variable("SLUICE_CONFIG", &file),
            variable("SLUICE_HTTP", "h:2"),
            variable("SLUICE_MAX_KEYS", "2"),
            variable("SLUICE_HOSTS", "a.example, b.example"),
            // Counts as not set.
            variable("SLUICE_RESP", ""),
        ],
        flags: vec![("--max-keys", "3".into())],
    };
    let configuration = layers.read().unwrap();
    assert_eq!(configuration.listen[Protocol::Resp].as_deref(), Some("h:1"));
    assert_eq!(configuration.listen[Protocol::Http].as_deref(), Some("h:2"));
    assert_eq!(configuration.engine.max_keys, 3);
    assert_eq!(configuration.hosts, ["a.example", "b.example"]);
    assert_eq!(configuration.threads, None);
}

#[test]
fn errors_of_variables_and_flags_name_them() {
    let layers = Layers {
        file: None,
        variables: vec![("SLUICE_RESP".into(), "6380".into()), ("SLUICE_PASSWORD".into(), "a".into())],
        flags: vec![("--max-keys", "lots".into()), ("--tls-cert", "a.pem".into())],
    };
    assert_eq!(
        layers.read().unwrap_err().to_string(),
        "SLUICE_RESP: \"6380\" has no port; use HOST:PORT such as 127.0.0.1:6380, port 0 for any free port, or off\n\
         --max-keys: \"lots\" is out of bounds; use a whole number from 1 to 1000000000"
    );
    for (flag, said) in [
        ("--tls-cert", "tls_cert: the key is missing; set tls_key too"),
        ("--tls-key", "tls_key: the certificate is missing; set tls_cert too"),
    ] {
        let half = Layers { flags: vec![(flag, "a.pem".into())], ..Layers::default() };
        assert_eq!(half.read().unwrap_err().to_string(), said);
    }
    let empty = Layers { variables: vec![("SLUICE_PASSWORD".into(), String::new())], ..Layers::default() };
    assert_eq!(
        empty.read().unwrap_err().to_string(),
        "SLUICE_PASSWORD: the password is empty; set one, or unset the variable"
    );
    let both = Layers {
        variables: vec![("SLUICE_PASSWORD".into(), "a".into()), ("SLUICE_PASSWORD_FILE".into(), "b".into())],
        ..Layers::default()
    };
    assert_eq!(
        both.read().unwrap_err().to_string(),
        "SLUICE_PASSWORD: SLUICE_PASSWORD_FILE is set too; unset one of them"
    );
}

#[test]
fn a_missing_file_is_named() {
    let layers = Layers { file: Some("no/such.toml".into()), ..Layers::default() };
    let said = layers.read().unwrap_err().to_string();
    assert!(said.starts_with("no/such.toml: cannot read the file: No such file"), "{said}");
}

#[test]
fn unknown_variables_are_found_except_kubernetes() {
    let variables = ["SLUICE_REPS", "SLUICE_RESP", "SLUICE_SERVICE_HOST", "SLUICE_PORT_6380_TCP", "PATH"];
    let layers = Layers {
        variables: variables.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect(),
        ..Layers::default()
    };
    assert_eq!(layers.unknown_variables().collect::<Vec<_>>(), ["SLUICE_REPS"]);
}

/// In the example, `#name = value` is a setting with its default, and `# ` starts a comment.
#[test]
fn the_example_shows_every_setting_with_its_default() {
    assert_eq!(parse(EXAMPLE).unwrap(), Configuration::default());
    let uncomment = |line: &'static str| {
        let setting =
            line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        setting.unwrap_or(line)
    };
    let uncommented = EXAMPLE.lines().map(uncomment).collect::<Vec<_>>().join("\n");
    assert_eq!(parse(&uncommented).unwrap(), Configuration::default());
    for setting in SETTINGS.iter() {
        let default = setting.shown(&Configuration::default());
        let line = match default.as_str() {
            "" => format!("# {} = ", setting.name),
            default => format!("#{} = {default}", setting.name),
        };
        assert!(EXAMPLE.lines().any(|shown| shown.starts_with(&line)), "the example should say {line}");
    }
}

#[test]
fn configuration_md_lists_every_setting() {
    let page = include_str!("../../../../docs/configuration.md");
    for setting in SETTINGS.iter() {
        let default = match setting.shown(&Configuration::default()).as_str() {
            "" => "none".to_owned(),
            default => format!("`{default}`"),
        };
        let flag = setting.flag.map_or(String::new(), |flag| format!(", `{flag}`"));
        let row = format!("| `{}` | {default} | `{}`{flag} |", setting.name, setting.variable);
        assert!(page.contains(&row), "docs/configuration.md should have a row\n{row}");
    }
}

#[test]
fn a_shown_setting_can_be_read_back() {
    for setting in SETTINGS.iter() {
        let shown = setting.shown(&Configuration::default());
        if !shown.is_empty() {
            let text = format!("[{}]\n{} = {shown}\n", setting.section, setting.name);
            assert_eq!(parse(&text), Ok(Configuration::default()), "{text}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_password_file_is_read_without_its_line_end() {
    use sluicegate_server::config::read_password;
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("password");
    let longest = "x".repeat(512) + "\r\n";
    for (text, expected) in
        [("open sesame\n", "open sesame"), ("a\r\n", "a"), ("b", "b"), (&longest, &longest[..512])]
    {
        let path = folder.write("password", text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (password, warning) = read_password(Path::new(&path)).unwrap();
        assert_eq!(password, expected.as_bytes(), "{text:?}");
        assert_eq!(warning, None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (_, warning) = read_password(Path::new(&path)).unwrap();
        assert!(warning.unwrap().ends_with(&format!("run chmod 600 {path}")));
    }
    for (text, reason) in [
        ("", "is empty"),
        ("\n", "is empty"),
        (&"x".repeat(513), "is longer than 512"),
        ("a\n\n", "control character \\n"),
        (" b ", "starts or ends with a space"),
    ] {
        let path = folder.write("password", text);
        let said = read_password(Path::new(&path)).unwrap_err();
        assert!(said.starts_with(&path) && said.contains(reason), "{said}");
    }
}

/// A directory for the files of one test, deleted with it.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
