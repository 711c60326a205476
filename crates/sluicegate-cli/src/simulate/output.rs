//! The files that are asked for. They are opened before the work begins, emptied when there is
//! something to write, and taken away again if it came to nothing.

use super::{csv, json, picture};
use crate::Problem;
use crate::args::SimulateArgs;
use same_file::Handle;
use sluicegate_sim::human::printable;
use sluicegate_sim::report::Report;
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// What to write where.
pub(super) struct Outputs(Files<Kind>);

/// Files of any kind that are to be written.
pub(crate) struct Files<K>(Vec<(K, Output)>);

/// What a picture is written as.
#[derive(Clone, Copy)]
pub(crate) enum Picture {
    Svg,
    Png,
}

#[derive(Clone, Copy)]
enum Kind {
    Csv,
    Series,
    Keys,
    Json,
    Plot(Picture),
}

enum Output {
    Stdout,
    File(OutputFile),
}

struct OutputFile {
    path: PathBuf,
    file: File,
    /// Whether it was made here and nothing has been written to it yet.
    is_empty_and_ours: bool,
}

impl Outputs {
    pub(super) fn open(args: &SimulateArgs) -> Result<Outputs, Problem> {
        let mut wanted = Vec::new();
        for (kind, path) in [
            (Kind::Csv, &args.csv),
            (Kind::Series, &args.series),
            (Kind::Keys, &args.keys),
            (Kind::Json, &args.json),
        ] {
            wanted.extend(path.iter().map(|path| (kind, path)));
        }
        for path in &args.plots {
            wanted.push((Kind::Plot(Picture::named(path)?), path));
        }
        Files::open(wanted, inputs(args)).map(Outputs)
    }

    /// Returns `true` if standard output carries data that a table would spoil.
    pub(super) fn use_stdout(&self) -> bool {
        self.0.use_stdout()
    }

    pub(super) fn write(self, report: &Report<'_>, args: &SimulateArgs) -> Result<(), Problem> {
        self.0.write(|kind| {
            Ok(match kind {
                Kind::Csv => csv::table(report).into_bytes(),
                Kind::Series => csv::series(report).into_bytes(),
                Kind::Keys => csv::keys(report).into_bytes(),
                Kind::Json => json::of(report, args.top)?.into_bytes(),
                Kind::Plot(Picture::Svg) => picture::svg(report, args).into_bytes(),
                Kind::Plot(Picture::Png) => picture::png(report, args)?,
            })
        })
    }
}

impl Picture {
    /// What its name says that it is.
    pub(crate) fn named(path: &Path) -> Result<Picture, Problem> {
        match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase) {
            Some(end) if end == "svg" => Ok(Picture::Svg),
            Some(end) if end == "png" => Ok(Picture::Png),
            _ => Err(format!(
                "--plot {}: the kind of picture is unknown; name it FILE.svg or FILE.png",
                shown(path)
            )),
        }
    }
}

impl<K> Files<K> {
    /// Opens them all; none may be there twice, or among those that are read.
    pub(crate) fn open(wanted: Vec<(K, &PathBuf)>, mut seen: Vec<Handle>) -> Result<Files<K>, Problem> {
        let mut outputs = Vec::new();
        for (kind, path) in wanted {
            outputs.push((kind, Output::open(path)?));
            // Devices and pipes swallow whatever is written, as often as one likes.
            let is_taken = match path == Path::new("-") {
                true => outputs.iter().filter(|(_, output)| matches!(output, Output::Stdout)).count() > 1,
                false if path.is_file() => Handle::from_path(path).is_ok_and(|file| {
                    let is_taken = seen.contains(&file);
                    seen.push(file);
                    is_taken
                }),
                false => false,
            };
            if is_taken {
                return Err(format!("{} is named twice; read and write different files", shown(path)));
            }
        }
        Ok(Files(outputs))
    }

    /// Returns `true` if standard output carries data that a table would spoil.
    pub(crate) fn use_stdout(&self) -> bool {
        self.0.iter().any(|(_, output)| matches!(output, Output::Stdout))
    }

    /// Writes each.
    pub(crate) fn write(self, bytes: impl Fn(K) -> Result<Vec<u8>, Problem>) -> Result<(), Problem> {
        for (kind, output) in self.0 {
            output.write(&bytes(kind)?)?;
        }
        Ok(())
    }
}

impl Output {
    fn open(path: &Path) -> Result<Output, Problem> {
        if path == Path::new("-") {
            return Ok(Output::Stdout);
        }
        let is_new = !path.exists();
        match OpenOptions::new().write(true).create(true).truncate(false).open(path) {
            Ok(file) => {
                // Where a link leads to, so that the link stays if this is taken away.
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                Ok(Output::File(OutputFile { path, file, is_empty_and_ours: is_new }))
            }
            Err(error) => Err(cannot_write(path, &error)),
        }
    }

    fn write(self, bytes: &[u8]) -> Result<(), Problem> {
        match self {
            Output::File(mut file) => {
                let path = file.path.clone();
                file.write(bytes).map_err(|error| cannot_write(&path, &error))
            }
            Output::Stdout => print(bytes),
        }
    }
}

/// The files that are read, whatever their names, so that none of them is written.
fn inputs(args: &SimulateArgs) -> Vec<Handle> {
    let mut inputs = Vec::new();
    for path in [&args.trace, &args.log].into_iter().flatten() {
        if path == Path::new("-") {
            inputs.extend(Handle::stdin());
        } else if path.is_file() {
            // A pipe is not opened: it may have no reader yet, and it cannot be overwritten.
            inputs.extend(Handle::from_path(path));
        }
    }
    inputs
}

/// A name that is safe to print in one line.
fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room, or choose another disk",
        _ => "choose a folder that exists and that you may write to",
    };
    format!("{} cannot be written: {error}; {advice}", shown(path))
}

/// Writes to standard output. A reader that closes the pipe is not an error.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Problem> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written: {error}; check where it goes"))
        }
        _ => Ok(()),
    }
}

impl OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Pipes and devices have no length to set.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.is_empty_and_ours = false;
        self.file.write_all(bytes)?;
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_empty_and_ours {
            // It was made to see whether it can be; if it cannot be taken away, an empty file
            // stays.
            let _ = remove_file(&self.path);
        }
    }
}
