//! SVG, read back by an XML parser.

use crate::scene;
use roxmltree::{Document, Node};
use sluicegate_plot::{Anchor, Ink, Path, Scene, Shade, Text, Theme, font, svg};

const THEMES: [Theme; 3] = [Theme::Auto, Theme::Light, Theme::Dark];

fn all<'a>(document: &'a Document<'_>, name: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name))).collect()
}

fn of_words(words: &str) -> Scene {
    let mut scene = Scene::new(300.0, 40.0, words, words);
    scene.text(Text::new((150.0, 20.0), words, 12.0).anchor(Anchor::Middle));
    scene
}

#[test]
fn it_is_a_picture_with_a_name_and_a_size() {
    for theme in THEMES {
        let text = svg(&scene(), theme);
        let document = Document::parse(&text).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"));
        assert_eq!(root.attribute("viewBox"), Some("0 0 100 60"));
        assert_eq!((root.attribute("width"), root.attribute("height")), (Some("100"), Some("60")));
        assert_eq!(all(&document, "title")[0].text(), Some("A title"));
        assert_eq!(all(&document, "desc")[0].text(), Some("What is to be seen"));
    }
}

#[test]
fn the_same_scene_is_the_same_bytes() {
    for theme in THEMES {
        assert_eq!(svg(&scene(), theme), svg(&scene(), theme));
    }
}

#[test]
fn words_of_others_are_read_back_as_they_are() {
    let words = "</text><script>alert(1)</script> & \"x\" ]]> 'y'";
    let text = svg(&of_words(words), Theme::Auto);
    let document = Document::parse(&text).unwrap();
    for name in ["title", "desc", "text"] {
        assert_eq!(all(&document, name)[0].text(), Some(words), "{name}");
    }
    assert!(all(&document, "script").is_empty());
}

#[test]
fn control_characters_do_not_break_the_picture() {
    let text = svg(&of_words("a\0b\u{8}c\u{ffff}"), Theme::Auto);
    let document = Document::parse(&text).unwrap();
    for name in ["title", "desc", "text"] {
        assert_eq!(all(&document, name)[0].text(), Some("a\u{fffd}b\u{fffd}c\u{fffd}"), "{name}");
    }
}

#[test]
fn words_can_be_found_and_are_not_seen_twice() {
    let text = svg(&scene(), Theme::Auto);
    let document = Document::parse(&text).unwrap();
    let words = all(&document, "text");
    assert_eq!(words.len(), 1);
    assert_eq!(words[0].text(), Some("twelve a minute"));
    assert_eq!(words[0].attribute("fill-opacity"), Some("0"));
    let length: f64 = words[0].attribute("textLength").unwrap().parse().unwrap();
    assert!((length - font::width("twelve a minute", 10.0, false)).abs() <= 0.005);
    let letters = all(&document, "g");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].attribute("aria-hidden"), Some("true"));
    assert_eq!(letters[0].children().count(), "twelveaminute".len(), "a space is not drawn");
}

#[test]
fn each_glyph_is_written_once_for_each_weight_and_every_use_finds_it() {
    let mut scene = of_words("noon noon");
    scene.text(Text::new((0.0, 20.0), "on", 12.0).bold());
    let text = svg(&scene, Theme::Auto);
    let document = Document::parse(&text).unwrap();
    let mut ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids.len(), 4);
    for used in all(&document, "use") {
        assert!(ids.contains(&used.attribute("href").unwrap().strip_prefix('#').unwrap()));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn words_that_the_font_lacks_are_left_to_the_viewer() {
    let text = svg(&of_words("令牌桶 12/60s"), Theme::Dark);
    let document = Document::parse(&text).unwrap();
    let words = all(&document, "text")[0];
    assert_eq!(words.text(), Some("令牌桶 12/60s"));
    assert_eq!(words.attribute("fill-opacity"), None);
    assert_eq!(words.attribute("fill"), Some(Ink::Words.colour(Shade::Dark).to_string().as_str()));
    assert_eq!((words.attribute("x"), words.attribute("text-anchor")), (Some("150"), Some("middle")));
    assert!(document.root_element().attribute("font-family").unwrap().ends_with("sans-serif"));
    assert!(all(&document, "use").is_empty());
}

#[test]
fn a_viewer_that_knows_no_style_sheets_shows_the_light_picture() {
    let (auto, light) = (svg(&scene(), Theme::Auto), svg(&scene(), Theme::Light));
    let document = Document::parse(&auto).unwrap();
    let mut bare = auto.clone();
    for node in document.descendants() {
        if let Some(class) = node.attribute("class") {
            bare = bare.replace(&format!(" class=\"{class}\""), "");
        }
        if node.has_tag_name(("http://www.w3.org/2000/svg", "style")) {
            bare = bare.replace(&format!("{}\n", &auto[node.range()]), "");
        }
    }
    assert_eq!(bare, light);
}

#[test]
fn in_the_dark_every_class_has_its_dark_colour() {
    let text = svg(&scene(), Theme::Auto);
    let document = Document::parse(&text).unwrap();
    let style = all(&document, "style")[0].text().unwrap();
    assert!(style.starts_with("@media (prefers-color-scheme:dark){"));
    for class in document.descendants().filter_map(|node| node.attribute("class")) {
        assert!(style.contains(&format!(".{class}{{")), "{class}");
    }
    let blue = Ink::Allowed.colour(Shade::Dark);
    assert!(style.contains(&format!(".sluice-fill-allowed{{fill:{blue}}}")));
    let limit = Ink::Limit.colour(Shade::Dark);
    assert!(style.contains(&format!(".sluice-stroke-limit{{stroke:{limit}}}")));
}

#[test]
fn a_chosen_theme_needs_no_style_sheet() {
    for theme in [Theme::Light, Theme::Dark] {
        let text = svg(&scene(), theme);
        assert!(!text.contains("<style") && !text.contains("class="));
    }
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    let text = svg(&scene(), Theme::Auto);
    let document = Document::parse(&text).unwrap();
    for node in document.descendants() {
        assert!(!matches!(node.tag_name().name(), "script" | "image" | "foreignObject" | "a"));
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
            assert!(!attribute.value().contains("://"), "{}", attribute.value());
        }
    }
    assert!(!text.contains("url(") && !text.contains("@import"));
}

#[test]
fn numbers_have_at_most_two_decimals() {
    let mut scene = Scene::new(100.0 / 3.0, 50.0, "", "");
    scene.line(Path::polyline([(1.0 / 3.0, 2.0 / 3.0), (-0.001, 9.999)]), Ink::Offered, 1.0 / 7.0);
    let text = svg(&scene, Theme::Light);
    assert!(text.contains("viewBox=\"0 0 33.33 50\""), "{text}");
    assert!(text.contains("stroke-width=\"0.14\" d=\"m0.33 0.67l-0.33 9.33\""), "{text}");
}

#[test]
fn no_words_are_no_elements() {
    let text = svg(&of_words(""), Theme::Light);
    assert!(!text.contains("<text") && !text.contains("<g") && !text.contains("<defs"));
}
