//! `sluice overload`: what protects callers from a dependency that slows down or fails.

mod json;
mod table;

use crate::Problem;
use crate::args::{OverloadArgs, OverloadView as ViewName};
use crate::simulate::TITLE_MAX;
use crate::simulate::output::{Files, Picture, print};
use crate::simulate::picture::{PNG_SCALE, shade, theme, warn_of_boxes};
use sluicegate_core::Span;
use sluicegate_plot::{OverloadFigure, OverloadView, Scene};
use sluicegate_sim::human::many;
use sluicegate_sim::overload::{Callers, Dependency, Protection, Report, Scenario};
use sluicegate_sim::traffic::Reading;
use sluicegate_sim::traffic::workload::{Workload, generate};

/// The default maximum number of calls.
pub(crate) const CALLS_MAX_DEFAULT: usize = 1_000_000;
/// The most calls that can be allowed: each can be tried eleven times, and each try takes some
/// hundred bytes.
pub(crate) const CALLS_MAX: usize = 20_000_000;
/// The most protections in one table.
const PROTECTIONS_MAX: usize = 16;
/// The longest label in letters.
const LABEL_MAX: usize = 80;

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Plot(Picture),
}

pub(crate) fn run(args: &OverloadArgs) -> Result<(), Problem> {
    check(args)?;
    let protections = protections(args)?;
    let dependency: Dependency = args.dependency.parse().map_err(said)?;
    let callers: Callers = args.callers.parse().map_err(said)?;
    let workloads: Vec<Workload> =
        args.workloads.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(said)?;
    // Checked before any work, so that no time is spent on a picture that cannot be written.
    let files = files(args)?;
    let reading = Reading { calls_max: args.max_calls, ..Reading::default() };
    let traffic = generate(&workloads, args.seed, Span::ZERO, reading, |_| {}).map_err(said)?;
    let source = format!("{}, seed {}; {callers}; {dependency}", args.workloads.join(" and "), args.seed);
    let scenario = Scenario { traffic: &traffic, dependency, callers, seed: args.seed };
    let report = Report::new(source, &scenario, &protections).map_err(said)?;
    if !files.use_stdout() {
        print(table::of(&report).as_bytes())?;
    }
    files.write(|kind| {
        Ok(match kind {
            Kind::Json => json::of(&report)?.into_bytes(),
            Kind::Plot(Picture::Svg) => {
                sluicegate_plot::svg(&scene(&report, args), theme(args.theme)).into_bytes()
            }
            Kind::Plot(Picture::Png) => {
                let labels = report.ran.iter().map(|ran| ran.label.as_str());
                warn_of_boxes(labels.chain(args.title.as_deref()));
                let picture = sluicegate_plot::png(&scene(&report, args), shade(args.theme), PNG_SCALE);
                picture.map_err(said)?
            }
        })
    })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn said(error: impl ToString) -> Problem {
    error.to_string()
}

/// Rejects options that would have no effect.
fn check(args: &OverloadArgs) -> Result<(), Problem> {
    if let Some(word) = args.stray.first() {
        return Err(format!(
            "{word:?} stands alone; quote lines as in --protect 'aimd 20', and name a picture with --plot"
        ));
    }
    let title = args.title.as_deref().unwrap_or_default().chars().count();
    if title > TITLE_MAX {
        return Err(format!("a title of {title} letters is above the maximum, {TITLE_MAX}; shorten it"));
    }
    let (protections, labels) = (args.protections.len(), args.labels.len());
    if protections > PROTECTIONS_MAX {
        return Err(format!(
            "{protections} protections are above the maximum, {PROTECTIONS_MAX}; leave some out"
        ));
    }
    if labels > 0 && labels != protections {
        let (labels, protections) = (many(labels as u64, "label"), many(protections as u64, "protection"));
        return Err(format!("there are {labels} for {protections}; give each one, or none"));
    }
    if let Some(long) = args.labels.iter().find(|label| label.chars().count() > LABEL_MAX) {
        let letters = long.chars().count();
        return Err(format!("a label of {letters} letters is above the maximum, {LABEL_MAX}; shorten it"));
    }
    for (place, view) in args.show.iter().enumerate() {
        if args.show.get(..place).is_some_and(|earlier| earlier.contains(view)) {
            let view = format!("{view:?}").to_lowercase();
            return Err(format!("--show has {view} twice; name each view once, as in --show calls,limit"));
        }
    }
    Ok(())
}

fn protections(args: &OverloadArgs) -> Result<Vec<(String, Protection)>, Problem> {
    let labels = if args.labels.is_empty() { &args.protections } else { &args.labels };
    let read = |(text, label): (&String, &String)| Ok((label.clone(), text.parse().map_err(said)?));
    args.protections.iter().zip(labels).map(read).collect()
}

fn files(args: &OverloadArgs) -> Result<Files<Kind>, Problem> {
    let mut wanted = Vec::new();
    wanted.extend(args.json.iter().map(|path| (Kind::Json, path)));
    for path in &args.plots {
        wanted.push((Kind::Plot(Picture::named(path)?), path));
    }
    Files::open(wanted, Vec::new())
}

fn scene(report: &Report, args: &OverloadArgs) -> Scene {
    let view = |view: &ViewName| match view {
        ViewName::Calls => OverloadView::Calls,
        ViewName::Waits => OverloadView::Waits,
        ViewName::Limit => OverloadView::Limit,
    };
    let views = match args.show.as_slice() {
        [] => vec![OverloadView::Calls, OverloadView::Waits, OverloadView::Limit],
        some => some.iter().map(view).collect(),
    };
    OverloadFigure { title: args.title.as_deref(), views: &views }.draw(report)
}
