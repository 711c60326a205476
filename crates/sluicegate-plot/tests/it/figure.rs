//! Figures: everything on the paper, no words over others, whatever is drawn.

use sluicegate::Limit;
use sluicegate_core::Span;
use sluicegate_plot::terminal::{self, Colours};
use sluicegate_plot::{Figure, Ink, Item, OverloadFigure, OverloadView, Scene, Step, Text, View};
use sluicegate_sim::Traffic;
use sluicegate_sim::human::columns;
use sluicegate_sim::overload::{self, Callers, Scenario};
use sluicegate_sim::report::Report;
use sluicegate_sim::simulate::Simulation;
use sluicegate_sim::traffic::workload::generate;
use sluicegate_sim::traffic::{Reading, csv};

const ALL: [View; 3] = [View::Traffic, View::Window, View::Room];

fn workload(text: &str) -> Traffic {
    generate(&[text.parse().unwrap()], 1, Span::from_micros(600_000_000), Reading::default(), |_| {}).unwrap()
}

/// Each limit under a label of its own.
fn report<'a>(traffic: &'a Traffic, source: &str, limits: &[(&str, &str)]) -> Report<'a> {
    let simulation = Simulation::new(traffic, None);
    let mut report = Report::new(source.to_owned(), simulation);
    let limits_of =
        |text: &str| text.split(" + ").map(|limit| limit.parse().unwrap()).collect::<Vec<Limit>>();
    let candidates: Vec<_> =
        limits.iter().map(|(label, text)| ((*label).to_owned(), limits_of(text))).collect();
    report.run(&candidates, |_| {}).unwrap();
    report
}

fn texts(scene: &Scene) -> Vec<&Text> {
    scene
        .items
        .iter()
        .filter_map(|item| if let Item::Text(text) = item { Some(text) } else { None })
        .collect()
}

/// Left, top, right and bottom of the letters, roughly.
fn bounds(text: &Text) -> [f64; 4] {
    [text.left(), text.at.1 - 0.75 * text.size, text.left() + text.width(), text.at.1 + 0.2 * text.size]
}

fn check(scene: &Scene, about: &str) {
    let inside = |x: f64, y: f64| {
        (-0.01..=scene.width + 0.01).contains(&x) && (-0.01..=scene.height + 0.01).contains(&y)
    };
    for item in &scene.items {
        let (Item::Fill { path, .. } | Item::Line { path, .. }) = item else { continue };
        for step in path.steps() {
            if let Step::Move((x, y)) | Step::Line((x, y)) | Step::Quad(_, (x, y)) = step {
                assert!(inside(*x, *y), "{about}: a line at {x} {y} leaves the paper");
            }
        }
    }
    let texts = texts(scene);
    for (place, text) in texts.iter().enumerate() {
        let [left, top, right, bottom] = bounds(text);
        assert!(inside(left, top) && inside(right, bottom), "{about}: {:?} leaves the paper", text.words);
        for other in &texts[..place] {
            let [other_left, other_top, other_right, other_bottom] = bounds(other);
            let apart =
                right <= other_left || other_right <= left || bottom <= other_top || other_bottom <= top;
            assert!(apart, "{about}: {:?} lies over {:?}", text.words, other.words);
        }
    }
}

#[test]
fn no_words_lie_over_others_or_leave_the_paper() {
    let long = "a label that is far too long for any picture, and goes on and on";
    let limits = [
        (long, "fixed-window 12/min"),
        ("令牌桶", "token-bucket 1000000000/s"),
        ("sliding-log", "sliding-log 12/90s"),
        ("pacer", "pacer 1/d queue=1000"),
    ];
    let workloads = [
        "steady 48/60s after=30s for=210s",
        "poisson 900/s keys=40 zipf=1 key=a-very-long-name-of-a-key-indeed for=90s",
        "burst 1/1s for=1us",
        "edge 12/60s for=6min",
        "steady 1/d for=400d",
        "steady 9/us for=50us cost=1000000000",
        "steady 1/us for=6us",
        "burst 5000000/1s cost=1000000000 for=1s",
        "poisson 1/1d for=3650d",
    ];
    for text in workloads {
        let traffic = workload(text);
        for many in [1, 2, 4] {
            let report = report(&traffic, &text.repeat(3), &limits[..many]);
            for views in [&ALL[..], &ALL[..2], &ALL[1..2], &ALL[2..]] {
                for title in [None, Some(long)] {
                    check(
                        &Figure { title, views }.draw(&report),
                        &format!("{text}, {many} limits, {views:?}"),
                    );
                }
            }
        }
    }
}

#[test]
fn dates_fit_below_the_panels() {
    let mut rows = "at_us,key,cost\n".to_owned();
    for (step, many) in
        [(1_u64, 50), (250_000, 40), (7_000_000, 30), (3_600_000_000, 200), (86_400_000_000, 90)]
    {
        for call in 0..many {
            rows += &format!("{},k,1\n", 1_794_398_400_000_000 + call * step);
        }
        let traffic = csv::read(rows.as_bytes(), Reading::default()).unwrap();
        let report = report(&traffic, "a trace", &[("fixed-window 3/min", "fixed-window 3/min")]);
        check(&Figure { title: None, views: &ALL }.draw(&report), &format!("steps of {step} us"));
        rows.truncate("at_us,key,cost\n".len());
    }
}

/// The number that a reader should see first: the doubled burst, in the ink that means above the
/// limit.
#[test]
fn the_doubled_burst_of_a_fixed_window_is_named_and_inked() {
    let traffic = workload("edge 12/60s for=6min");
    let of = |limit| {
        let report = report(&traffic, "", &[(limit, limit)]);
        Figure { title: None, views: &[View::Window] }.draw(&report)
    };
    let fixed = of("fixed-window 12/60s");
    let number = texts(&fixed).into_iter().find(|text| text.ink == Ink::Over).unwrap().words.clone();
    assert_eq!(number, "24");
    let is_over = |item: &Item| matches!(item, Item::Fill { ink: Ink::Over, path } if !path.is_empty());
    // The first is the key in the heading.
    assert_eq!(fixed.items.iter().filter(|item| is_over(item)).count(), 2);
    let log = of("sliding-log 12/60s");
    assert_eq!(log.items.iter().filter(|item| is_over(item)).count(), 1);
    assert!(texts(&log).iter().all(|text| text.ink != Ink::Over));
}

#[test]
fn what_the_picture_shows_is_said_for_those_who_do_not_see_it() {
    let traffic = workload("edge 12/60s for=6min");
    let report = report(&traffic, "edge 12/60s", &[("fixed", "fixed-window 12/60s")]);
    let scene = Figure { title: Some("An attack"), views: &[View::Window] }.draw(&report);
    assert_eq!(scene.title, "An attack");
    assert_eq!(
        scene.description,
        "edge 12/60s: 72 calls of 1 key. fixed: 72 allowed, 0 denied, at most 24 of 12 in any 1 min."
    );
}

#[test]
fn the_terminal_drawing_keeps_to_its_width_whatever_is_drawn() {
    for (workload_text, limit) in [
        (
            "poisson 900/s keys=40 zipf=1 key=令牌令牌令牌令牌令牌令牌令牌令牌令牌令牌 for=90s",
            "token-bucket 1000000000/s",
        ),
        ("steady 9/us for=50us cost=1000000000", "fixed-window 12/min"),
        ("burst 1/1s for=1us", "pacer 1/d queue=1000"),
        ("steady 1/d for=400d", "fixed-window 1/month"),
    ] {
        let traffic = workload(workload_text);
        let label = "令牌".repeat(50) + "\x1b[31m";
        let report = report(&traffic, "", &[(&label, limit)]);
        for width in [0, 40, 80, 200] {
            let drawing = terminal::draw(&report, &ALL, width, Colours::None);
            let widest = drawing.lines().map(columns).max();
            assert!(widest <= Some(width.max(40)), "{widest:?} of {width} in\n{drawing}");
            assert!(!drawing.contains('\x1b'));
        }
        let coloured = terminal::draw(&report, &ALL, 80, Colours::Used);
        let plain: String = coloured.replace("\x1b[34m", "").replace("\x1b[33m", "").replace("\x1b[0m", "");
        assert_eq!(plain, terminal::draw(&report, &ALL, 80, Colours::None), "colours change nothing else");
    }
}

/// What is within the limit is never drawn as above it, however far above others are.
#[test]
fn the_terminal_tells_within_from_above_at_every_height() {
    let traffic = workload("steady 1/s for=300s");
    for (limit, most) in [
        ("token-bucket 12/min burst=30", 41),
        ("token-bucket 3/min burst=60", 60),
        ("sliding-log 12/min", 12),
    ] {
        let report = report(&traffic, "", &[("", limit)]);
        let drawing = terminal::draw(&report, &[View::Window], 80, Colours::None);
        let count = report.tried[0].limits[0].count();
        assert_eq!(report.tried[0].outcome.focus.window.iter().copied().max(), Some(most), "{limit}");
        let rows: Vec<&str> = drawing.lines().filter(|line| line.contains(['┤', '│'])).collect();
        let limit_row =
            rows.iter().position(|row| row.trim_start().starts_with(&format!("{count} ┤"))).unwrap();
        // Full blocks are above the limit only; and there are some if anything is.
        assert!(rows[limit_row + 1..].iter().all(|row| !row.contains('█')), "{limit}\n{drawing}");
        let is_above =
            rows[..limit_row].iter().any(|row| row.contains(['█', '▁', '▂', '▃', '▄', '▅', '▆', '▇']));
        assert_eq!(is_above, most > count, "{limit}\n{drawing}");
    }
}

/// What leaves a pacer later than it came is allowed, not offered.
#[test]
fn the_terminal_shows_when_the_calls_of_a_pacer_act() {
    let traffic = workload("burst 5/20s for=20s");
    let report = report(&traffic, "", &[("", "pacer 1/s queue=9")]);
    let drawing = terminal::draw(&report, &[View::Traffic], 80, Colours::None);
    let lowest = drawing.lines().rfind(|line| line.contains('│')).unwrap();
    let blocks = lowest.chars().filter(|letter| !" │".contains(*letter)).count();
    assert!(!lowest.contains('░') && blocks >= 5, "{drawing}");
}

/// However many bars make a column, each call is in one of them.
#[test]
fn the_terminal_shows_all_that_was_denied() {
    let traffic = workload("edge 100/60s for=10min");
    let report = report(&traffic, "", &[("", "sliding-log 100/min")]);
    let drawing = terminal::draw(&report, &[View::Traffic], 80, Colours::None);
    let top = drawing.lines().find(|line| line.contains('┤')).unwrap();
    assert_eq!(top.matches('░').count() % 5, 0, "{drawing}");
    assert!(top.contains('░'), "half of each of the five attacks is denied\n{drawing}");
}

fn overload(workload_line: &str, dependency: &str, protections: &[&str]) -> overload::Report {
    let traffic = workload(workload_line);
    let (dependency, callers) = (dependency.parse().unwrap(), "timeout=1500ms retries=1".parse().unwrap());
    let scenario = Scenario { traffic: &traffic, dependency, callers, seed: 1 };
    let protections: Vec<_> =
        protections.iter().map(|text| ((*text).to_owned(), text.parse().unwrap())).collect();
    overload::Report::new(format!("{workload_line} on {}", scenario.dependency), &scenario, &protections)
        .unwrap()
}

#[test]
fn an_overload_has_no_words_over_others_or_off_the_paper() {
    let views = [OverloadView::Calls, OverloadView::Waits, OverloadView::Limit];
    let protections = [
        "none",
        "breaker 50%/10s min=5 open=60s probes=10 slow=60s slow-rate=100%  +  gradient 20 min=2 max=500 sample=1s",
        "aimd 2000",
    ];
    for (line, dependency) in [
        ("poisson 50/s for=60s", "workers=2 takes=50ms"),
        (
            "poisson 50/s for=60s",
            "workers=2 takes=50ms slow=10s..20s:x10,12s..55s:x3 fail=13s..14s:7%,58s..2min:100%",
        ),
        ("steady 1/s for=1s", "workers=100000 takes=1us slow=1s..1d:x2"),
        ("burst 5000/60s for=100min", "workers=1 takes=100ms random=100% fail=20min..25min:50%"),
    ] {
        let report = overload(line, dependency, &protections);
        for shown in [&views[..], &views[..1], &views[1..], &views[2..]] {
            let scene = OverloadFigure { title: None, views: shown }.draw(&report);
            check(&scene, &format!("{line} on {dependency}, {shown:?}"));
            assert!(scene.description.contains("aimd 2000: "), "{}", scene.description);
        }
    }
}

/// The first call comes 0.9 s after the round time at which the picture begins: bad times are
/// counted from the call, as they are simulated.
#[test]
fn bad_times_are_shaded_where_they_were() {
    let trace = "at_us,key,cost\n1794398400900000,k,1\n1794398500000000,k,1\n";
    let traffic = csv::read(trace.as_bytes(), Reading::default()).unwrap();
    let dependency = "workers=2 takes=50ms slow=10s..20s:x10".parse().unwrap();
    let scenario = Scenario { traffic: &traffic, dependency, callers: Callers::default(), seed: 1 };
    let protections = [("none".to_owned(), "none".parse().unwrap())];
    let report = overload::Report::new(String::new(), &scenario, &protections).unwrap();
    let early = report.first.since(report.timeline.start());
    assert_eq!(early.as_micros(), 900_000, "{:?}", report.timeline);
    let shade = |report: &overload::Report| {
        let scene = OverloadFigure { title: None, views: &[OverloadView::Calls] }.draw(report);
        let shades = scene.items.into_iter().filter_map(|item| match item {
            Item::Fill { ink: Ink::Trouble, path } => Some(path),
            _ => None,
        });
        shades.collect::<Vec<_>>()
    };
    let mut later = report.clone();
    for episode in &mut later.episodes {
        (episode.from, episode.to) = (episode.from.saturating_add(early), episode.to.saturating_add(early));
    }
    later.first = report.timeline.start();
    assert_eq!(shade(&report), shade(&later));
    assert_ne!(shade(&report), shade(&overload::Report { first: report.timeline.start(), ..report.clone() }));
}

#[test]
fn bad_times_are_shaded_in_every_panel_and_said_once() {
    let report =
        overload("steady 20/s for=60s", "workers=2 takes=50ms slow=10s..20s:x10", &["none", "aimd 20"]);
    let views = [OverloadView::Calls, OverloadView::Limit];
    let scene = OverloadFigure { title: Some("slow"), views: &views }.draw(&report);
    let shaded =
        scene.items.iter().filter(|item| matches!(item, Item::Fill { ink: Ink::Trouble, .. })).count();
    assert_eq!(shaded, 4);
    assert_eq!(texts(&scene).iter().filter(|text| text.words == "10 times as slow").count(), 1);
}
