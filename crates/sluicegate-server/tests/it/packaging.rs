//! The files for operators name only metrics, files, flags and settings that exist.

use crate::metrics::page_of_new_servers;
use sluicegate_server::config::SETTINGS;
use sluicegate_server::connection_limits::ConnectionLimits;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All words of a text that look like our metrics.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| word.starts_with("sluice_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn operating_md_explains_every_metric_and_no_other() {
    let (manual, page) = (text("docs/operating.md"), page_of_new_servers());
    // A histogram is explained by its family name; expressions use its suffixes.
    let mut known: BTreeSet<&str> = page.families.keys().map(String::as_str).collect();
    let said = metrics_in(&manual);
    for (family, kind) in &page.families {
        let name = if kind == "counter" { format!("{family}_total") } else { family.clone() };
        assert!(said.contains(name.as_str()), "docs/operating.md does not explain {name}");
    }
    known.extend(page.names());
    let unknown: Vec<_> = said.difference(&known).collect();
    assert!(unknown.is_empty(), "docs/operating.md names what is not there: {unknown:?}");
}

#[test]
fn alerts_and_panels_use_existing_metrics() {
    let page = page_of_new_servers();
    for path in ["packaging/alerts.yml", "packaging/grafana-dashboard.json"] {
        let text = text(path);
        let asked = metrics_in(&text);
        assert!(asked.len() >= 5, "{path} asks for almost nothing: {asked:?}");
        let unknown: Vec<_> = asked.difference(&page.names()).copied().collect();
        assert!(unknown.is_empty(), "{path} asks for what is not there: {unknown:?}");
    }
}

#[test]
fn alerts_and_panels_use_existing_labels() {
    let page = page_of_new_servers();
    let texts = ["packaging/alerts.yml", "packaging/grafana-dashboard.json"].map(text);
    // As in `outcome="denied"`; in JSON the quotes are escaped.
    for text in texts {
        let text = text.replace("\\\"", "\"");
        for label in ["outcome", "protocol", "source", "kind"] {
            for asked in text.split(&format!("{label}=\"")).skip(1) {
                let value = asked.split('"').next().unwrap();
                let written = format!("{label}=\"{value}\"");
                assert!(
                    page.series.keys().any(|series| series.contains(&written)),
                    "no series has {written}"
                );
            }
        }
    }
}

#[test]
fn the_dashboard_is_importable_without_overlaps() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&text("packaging/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        let number = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in number("x")..number("x") + number("w") {
            for y in number("y")..number("y") + number("h") {
                assert!(x < 24 && cells.insert((x, y)), "{title}: there is no room at {x},{y}");
            }
        }
        if panel["type"] != "row" {
            assert!(
                panel["description"].as_str().is_some_and(|text| text.len() > 20),
                "{title}: say what it shows"
            );
            let targets = panel["targets"].as_array().unwrap();
            assert!(targets.iter().all(|target| target["expr"].is_string()), "{title}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
    assert!(dashboard["id"].is_null(), "an id of another Grafana would replace a stranger's dashboard");
}

#[test]
fn operating_md_lists_every_bound_on_clients() {
    let manual = text("docs/operating.md");
    let shown = format!("{:?}", ConnectionLimits::default());
    let fields = shown.trim_start_matches("ConnectionLimits {").trim_end_matches('}');
    for field in fields.split(", ") {
        let (name, _) = field.trim().split_once(": ").unwrap();
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.unwrap_or_else(|| panic!("{name} cannot be set"));
        let default = setting.shown(&sluicegate_server::config::Configuration::default());
        let row = format!("| `{name}` | `{default}` |");
        assert!(manual.contains(&row), "docs/operating.md lacks the row {row}");
    }
}

#[test]
fn documented_variables_exist() {
    let known: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.variable).collect();
    for path in ["docs/operating.md", "packaging/sluice.service", "packaging/Dockerfile"] {
        let text = text(path);
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        for word in words.filter(|word| word.starts_with("SLUICE_")) {
            let is_ours = known.contains(word) || ["SLUICE_CONFIG", "SLUICE_PASSWORD"].contains(&word);
            assert!(is_ours, "{path}: {word} is none of our variables");
        }
    }
}

#[test]
fn the_files_of_the_image_exist() {
    let dockerfile = text("packaging/Dockerfile");
    let mut copied = 0;
    for line in dockerfile.lines().filter(|line| line.starts_with("COPY ")) {
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        // From an earlier stage: not a file of the repository.
        if words.iter().any(|word| word.starts_with("--from")) {
            continue;
        }
        let (_, sources) = words.split_last().unwrap();
        for source in sources.iter().filter(|word| !word.starts_with("--")) {
            assert!(root().join(source).exists(), "{line}: there is no {source}");
            copied += 1;
        }
    }
    assert!(copied > 0);
    let pinned = dockerfile.lines().filter(|line| line.starts_with("FROM "));
    assert!(pinned.clone().all(|line| line.contains(':') && !line.contains(":latest")));
    assert_eq!(pinned.count(), 2);
}
