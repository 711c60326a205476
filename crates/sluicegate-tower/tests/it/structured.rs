//! A strict parser of the structured fields (RFC 9651) that the layer writes: lists of strings with
//! parameters.

/// An item of a list: its string, and its parameters as name and text.
pub(crate) type Item = (String, Vec<(String, String)>);

/// Reads a list whose items are strings. `None` if the text is not one to the letter.
pub(crate) fn list_of_strings(text: &str) -> Option<Vec<Item>> {
    let mut rest = text;
    let mut items = Vec::new();
    loop {
        let name;
        (name, rest) = string(rest)?;
        let mut parameters = Vec::new();
        while let Some(after) = rest.strip_prefix(';') {
            let end = after.find(|c: char| !is_of_key(c)).unwrap_or(after.len());
            let (key, after) = after.split_at(end);
            if !key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') {
                return None;
            }
            let after = after.strip_prefix('=')?;
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let (number, after) = after.split_at(end);
            // At most fifteen digits.
            if number.is_empty() || number.len() > 15 {
                return None;
            }
            parameters.push((key.to_owned(), number.to_owned()));
            rest = after;
        }
        items.push((name, parameters));
        if rest.is_empty() {
            return Some(items);
        }
        rest = rest.trim_start_matches([' ', '\t']).strip_prefix(',')?.trim_start_matches([' ', '\t']);
    }
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)
}

fn string(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut string = String::new();
    loop {
        match chars.next()? {
            (place, '"') => return Some((string, &text[place + 2..])),
            (_, '\\') => string.push(chars.next().map(|(_, c)| c).filter(|c| matches!(c, '"' | '\\'))?),
            (_, c @ ' '..='~') => string.push(c),
            _ => return None,
        }
    }
}
