//! The log: lines on standard error, as text for people or as JSON for programs.
//!
//! A level is for our own lines; libraries only get to say what is wrong, unless everything is asked for. Whatever a client
//! can cause is said through [`Seldom`], at most once a second, so that no client can fill a disk; or at the level `debug`.
//! What a client sent is written as a field with `?` (`key = ?key`), which escapes it.

mod seldom;

pub(crate) use seldom::Seldom;

use crate::config::{Log, LogFormat, LogLevel};
use std::io::{self, IsTerminal as _};
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// What the names of our crates begin with.
const OURS: &str = "sluice";

/// Turns the log up and down while it is written.
pub(crate) struct Volume(reload::Handle<Targets, Registry>);

/// Begins to write it. Once in a process; what begins a second time is not heard.
pub(crate) fn start(log: Log) -> Volume {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
    let (volume, subscriber) = to(io::stderr, log, io::stderr().is_terminal() && !unwanted);
    let _ = subscriber.try_init();
    volume
}

impl Volume {
    /// From which level on lines are written from now on.
    pub(crate) fn set(&self, level: LogLevel) {
        let _ = self.0.reload(filter(level));
    }
}

fn to<W>(writer: W, log: Log, colours: bool) -> (Volume, impl Subscriber + Send + Sync)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (level, volume) = reload::Layer::new(filter(log.level));
    let lines = fmt::layer()
        .with_writer(writer)
        .with_target(false)
        // Where nobody reads the log there is nobody to be told of it either, and telling would panic.
        .log_internal_errors(false);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(colours).boxed(),
        LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).boxed(),
    };
    (Volume(volume), tracing_subscriber::registry().with(level).with(lines))
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
    Targets::new().with_default(theirs).with_target(OURS, ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Lines that a test can read.
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

    /// What is logged while something runs.
    fn logged(format: LogFormat, level: LogLevel, run: impl FnOnce(&Volume)) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let (volume, subscriber) = to(move || writer.clone(), Log { format, level }, false);
        tracing::subscriber::with_default(subscriber, || run(&volume));
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_of_text_has_time_level_message_and_fields() {
        let line = logged(LogFormat::Text, LogLevel::Info, |_| tracing::info!(port = 6380, "listening"));
        assert!(line.contains("Z  INFO listening port=6380\n"), "{line}");
        assert!(line.starts_with("20"), "it begins with the time: {line}");
    }

    #[test]
    fn a_line_of_json_is_an_object_with_its_fields_at_the_top() {
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
    fn what_a_client_sends_cannot_begin_a_line_or_colour_it() {
        let line = logged(LogFormat::Text, LogLevel::Info, |_| {
            tracing::info!(key = ?"x\n2026-01-01 ERROR all is lost \u{1b}[31m", "odd key");
        });
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn a_level_is_for_our_lines_and_libraries_say_only_what_is_wrong() {
        let speak = |_: &Volume| {
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
            let said = logged(LogFormat::Text, level, speak);
            let has = ["ours", "wrong", "theirs"].map(|word| said.contains(word));
            assert_eq!(has, [ours, wrong, theirs], "{level:?}: {said}");
        }
    }

    #[test]
    fn the_level_changes_while_it_runs() {
        let said = logged(LogFormat::Text, LogLevel::Warn, |volume| {
            tracing::info!("one");
            volume.set(LogLevel::Info);
            tracing::info!("two");
            volume.set(LogLevel::Error);
            tracing::info!("three");
        });
        assert!(said.contains("two") && !said.contains("one") && !said.contains("three"), "{said}");
    }
}
