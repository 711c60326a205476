//! The log: lines on standard error, as text for people or as JSON for programs.
//!
//! The level applies to Sluicegate's own lines; libraries log warnings and errors only, except at
//! `trace`. Lines that a client can cause pass a [`LogThrottle`], at most one per second, or are
//! logged at `debug`: no client can fill a disk. Text from a client is logged as a field with `?`
//! (`key = ?key`), which escapes it.

mod log_throttle;

pub(crate) use log_throttle::LogThrottle;

use crate::config::{Log, LogFormat, LogLevel};
use std::io::{self, IsTerminal as _};
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// The common prefix of our crates' names.
const OUR_CRATES: &str = "sluice";

/// Changes the log level while the server runs.
pub(crate) struct LevelHandle(reload::Handle<Targets, Registry>);

/// Starts the log. Only the first call in a process has an effect.
pub(crate) fn start(log: Log) -> LevelHandle {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
    let (level_handle, subscriber) = to(io::stderr, log, io::stderr().is_terminal() && !no_color);
    let _ = subscriber.try_init();
    level_handle
}

impl LevelHandle {
    /// Sets the level.
    pub(crate) fn set(&self, level: LogLevel) {
        let _ = self.0.reload(filter(level));
    }
}

fn to<W>(writer: W, log: Log, ansi: bool) -> (LevelHandle, impl Subscriber + Send + Sync)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (level, level_handle) = reload::Layer::new(filter(log.level));
    let lines = fmt::layer()
        .with_writer(writer)
        .with_target(false)
        // If standard error is closed, reporting that would panic.
        .log_internal_errors(false);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(ansi).boxed(),
        LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).boxed(),
    };
    (LevelHandle(level_handle), tracing_subscriber::registry().with(level).with(lines))
}

fn filter(level: LogLevel) -> Targets {
    let ours = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let theirs = if ours == LevelFilter::TRACE { ours } else { ours.min(LevelFilter::WARN) };
    Targets::new().with_default(theirs).with_target(OUR_CRATES, ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A log that a test can read.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what is logged while `run` runs.
    fn logged(format: LogFormat, level: LogLevel, run: impl FnOnce(&LevelHandle)) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let (level_handle, subscriber) = to(move || writer.clone(), Log { format, level }, false);
        tracing::subscriber::with_default(subscriber, || run(&level_handle));
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_text_line_has_time_level_message_and_fields() {
        let line = logged(LogFormat::Text, LogLevel::Info, |_| tracing::info!(port = 6380, "listening"));
        assert!(line.contains("Z  INFO listening port=6380\n"), "{line}");
        assert!(line.starts_with("20"), "it begins with the time: {line}");
    }

    #[test]
    fn a_json_line_is_one_flat_object() {
        let line = logged(LogFormat::Json, LogLevel::Info, |_| {
            tracing::warn!(port = 6380, key = ?"a\nb", "listening");
        });
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["message"], "listening");
        assert_eq!(object["port"], 6380);
    }

    #[test]
    fn client_text_cannot_forge_or_colour_a_line() {
        let line = logged(LogFormat::Text, LogLevel::Info, |_| {
            tracing::info!(key = ?"x\n2026-01-01 ERROR all is lost \u{1b}[31m", "odd key");
        });
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn libraries_log_only_warnings_below_trace() {
        let speak = |_: &LevelHandle| {
            tracing::debug!("ours");
            tracing::warn!(target: "hyper::proto", "wrong");
            tracing::debug!(target: "hyper::proto", "theirs");
        };
        for (level, ours, wrong, theirs) in [
            (LogLevel::Off, false, false, false),
            (LogLevel::Error, false, false, false),
            (LogLevel::Info, false, true, false),
            (LogLevel::Debug, true, true, false),
            (LogLevel::Trace, true, true, true),
        ] {
            let lines = logged(LogFormat::Text, level, speak);
            let has = ["ours", "wrong", "theirs"].map(|word| lines.contains(word));
            assert_eq!(has, [ours, wrong, theirs], "{level:?}: {lines}");
        }
    }

    #[test]
    fn the_level_can_change_while_the_server_runs() {
        let lines = logged(LogFormat::Text, LogLevel::Warn, |level_handle| {
            tracing::info!("one");
            level_handle.set(LogLevel::Info);
            tracing::info!("two");
            level_handle.set(LogLevel::Error);
            tracing::info!("three");
        });
        assert!(lines.contains("two") && !lines.contains("one") && !lines.contains("three"), "{lines}");
    }
}
