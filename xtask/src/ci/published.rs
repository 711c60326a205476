//! The published crates, compiled with every choice of features that a user has.
//!
//! The tests of a crate turn features on through its dev-dependencies. Nothing else compiles the
//! crate as its users do.

use super::cargo;

/// Each published crate, after the crates it depends on, and its features.
const PUBLISHED: [(&str, &[&str]); 10] = [
    ("sluicegate-core", &["std", "serde"]),
    ("sluicegate-derive", &[]),
    ("sluicegate", &["derive", "serde", "tokio"]),
    ("sluicegate-guard", &[]),
    ("sluicegate-redis", &["_testkit"]),
    ("sluicegate-tower", &["axum"]),
    ("sluicegate-sim", &[]),
    ("sluicegate-plot", &[]),
    ("sluicegate-server", &[]),
    ("sluicegate-cli", &[]),
];

/// Compiles each crate without features, with each of them alone, and with all. Clippy compiles
/// like `cargo check`, and lets us deny warnings without building the dependencies again.
pub(super) fn lint() -> Result<(), String> {
    for (package, features) in PUBLISHED {
        for chosen in choices(features) {
            let mut arguments = vec!["clippy", "--locked", "--package", package, "--no-default-features"];
            if !chosen.is_empty() {
                arguments.extend(["--features", &chosen]);
            }
            arguments.extend(["--", "--deny", "warnings"]);
            println!("cargo {}", arguments.join(" "));
            cargo(&arguments, &[])?;
        }
    }
    Ok(())
}

/// None, each alone, and all, as `--features` takes them. No choice comes twice.
fn choices(features: &[&str]) -> Vec<String> {
    let mut choices = vec![String::new()];
    choices.extend(features.iter().map(|feature| (*feature).to_owned()));
    if features.len() > 1 {
        choices.push(features.join(","));
    }
    choices
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;
    use crate::root;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The files below a folder whose names end like this. None if there is no such folder.
    fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.extend(files(&path, extension));
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
        found
    }

    /// The folder and the manifest of each published crate.
    fn published() -> impl Iterator<Item = (&'static str, PathBuf, String)> {
        PUBLISHED.into_iter().map(|(package, _)| {
            let folder = root().join("crates").join(package);
            let manifest = read(&folder.join("Cargo.toml"));
            (package, folder, manifest)
        })
    }

    /// The lines of a section of a manifest, without comments.
    fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
        let heading = format!("[{name}]");
        let lines = manifest.lines().skip_while(|line| *line != heading).skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }

    #[test]
    fn choices_are_none_each_and_all() {
        assert_eq!(choices(&[]), [""]);
        assert_eq!(choices(&["a"]), ["", "a"]);
        assert_eq!(choices(&["a", "b"]), ["", "a", "b", "a,b"]);
    }

    #[test]
    fn the_table_has_every_published_crate() {
        let mut expected = Vec::new();
        for entry in fs::read_dir(root().join("crates")).unwrap() {
            let folder = entry.unwrap().path();
            let manifest = read(&folder.join("Cargo.toml"));
            if !section(&manifest, "package").contains(&"publish = false") {
                expected.push(folder.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        expected.sort();
        let mut listed = PUBLISHED.map(|(package, _)| package);
        listed.sort_unstable();
        assert_eq!(listed.to_vec(), expected);
    }

    #[test]
    fn the_table_has_every_feature() {
        for ((package, features), (_, _, manifest)) in PUBLISHED.into_iter().zip(published()) {
            let lines = section(&manifest, "features");
            let names: Vec<&str> =
                lines.iter().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
            assert_eq!(names, features, "the features of {package}");
        }
    }

    #[test]
    fn a_crate_comes_after_the_crates_it_depends_on() {
        for (place, (package, _, manifest)) in published().enumerate() {
            for line in section(&manifest, "dependencies") {
                let name = line.split(['.', ' ']).next().unwrap_or_default();
                let dependency = PUBLISHED.iter().position(|(package, _)| *package == name);
                assert!(dependency < Some(place), "{package} depends on {name}");
            }
        }
    }

    #[test]
    fn every_crate_has_what_the_registry_shows() {
        for (package, folder, manifest) in published() {
            let lines = section(&manifest, "package");
            for field in [
                "description",
                "keywords",
                "categories",
                "documentation",
                "readme",
                "license.workspace",
                "repository.workspace",
                "rust-version.workspace",
            ] {
                let start = format!("{field} = ");
                assert!(lines.iter().any(|line| line.starts_with(&start)), "{package} has no {field}");
            }
            for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
                assert!(folder.join(file).is_file(), "{package} has no {file}");
            }
        }
    }

    /// A package has only what is in the folder of its crate, without `tests`.
    #[test]
    fn no_source_includes_a_file_from_outside_its_package() {
        for (_, folder, _) in published() {
            let sources = ["src", "examples"].into_iter().flat_map(|name| files(&folder.join(name), "rs"));
            for source in sources {
                let text = read(&source);
                for start in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
                    for included in text.split(start).skip(1) {
                        let included = included.split('"').next().unwrap_or_default();
                        let ups = included.split('/').take_while(|part| *part == "..").count();
                        let depth = source.strip_prefix(&folder).unwrap().components().count() - 1;
                        assert!(ups <= depth, "{} includes {included}", source.display());
                    }
                }
            }
        }
    }

    /// A page is shown in the repository, by the registry and in the documentation of its crate.
    /// Only an address leads to the same place from all of them.
    #[test]
    fn no_packaged_page_links_to_another_by_a_relative_path() {
        for (_, folder, _) in published() {
            let readme = folder.join("README.md");
            for page in files(&folder.join("docs"), "md").into_iter().chain([readme]) {
                let text = read(&page);
                for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                    let is_relative = target.contains(".md") && !target.starts_with("https://");
                    assert!(
                        !is_relative,
                        "{} links to {target}; write its address in the repository",
                        page.display()
                    );
                }
            }
        }
    }
}
