//! The pictures of the documentation are what the command draws today.

use crate::{sluice, stderr};
use std::path::PathBuf;
use std::{env, fs};

/// A picture's name and the arguments of `sluice` that draw it: those of `simulate`, or of the
/// command after the name.
fn pictures() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(folder().join("pictures.txt")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let blocks = lines.split(|line| line.is_empty()).filter(|block| !block.is_empty());
    let argument =
        |line: &&str| line.split_once(' ').map(|(flag, value)| [flag.to_owned(), value.to_owned()]).unwrap();
    let picture = |block: &[&str]| {
        let (name, command) = block[0].split_once(' ').unwrap_or((block[0], "simulate"));
        let arguments = block[1..].iter().flat_map(argument);
        (name.to_owned(), std::iter::once(command.to_owned()).chain(arguments).collect())
    };
    blocks.map(picture).collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// With `SLUICE_DRAW_PICTURES=1`, which `cargo xtask plots` sets, they are drawn instead.
#[test]
fn every_picture_is_up_to_date() {
    let pictures = pictures();
    assert!(pictures.len() >= 8, "{} pictures", pictures.len());
    let is_asked_to_draw = env::var_os("SLUICE_DRAW_PICTURES").is_some();
    for (name, arguments) in &pictures {
        let kept = folder().join(name).with_extension("svg");
        let drawn = env::temp_dir().join(format!("sluice-{}-{name}.svg", std::process::id()));
        let drawn_path = drawn.to_str().unwrap();
        let mut command: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command.extend(["--plot", drawn_path]);
        let output = sluice(&command, "");
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let picture = fs::read_to_string(&drawn).unwrap();
        fs::remove_file(&drawn).unwrap();
        if is_asked_to_draw {
            fs::write(&kept, &picture).unwrap();
        }
        let is_up_to_date = fs::read_to_string(&kept).is_ok_and(|kept| kept == picture);
        assert!(is_up_to_date, "{name}.svg is out of date: run `cargo xtask plots` and look at it");
    }
    // None is left over.
    for file in fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_known = name == "pictures" || pictures.iter().any(|(known, _)| *known == name);
        assert!(is_known, "{} is in no list: draw it from pictures.txt, or take it away", path.display());
    }
}

/// Every picture that a page shows is there, and every picture is shown.
#[test]
fn pages_show_pictures_that_there_are() {
    let root = folder().join("../..");
    let mut shown = Vec::new();
    for page in ["README.md", "docs/algorithms.md", "docs/simulate.md", "docs/overload.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for link in text.split("pictures/").skip(1) {
            let name = link.split(".svg").next().unwrap_or_default();
            assert!(
                folder().join(name).with_extension("svg").exists(),
                "{page} shows {name}.svg, which is not there"
            );
            shown.push(name.to_owned());
        }
    }
    for (name, _) in pictures() {
        assert!(shown.contains(&name), "no page shows {name}.svg");
    }
}
