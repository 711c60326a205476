//! The contract for machines: an `OpenAPI` 3.1 document, written by hand. Tests compare it with the
//! routes, the fields of each verb, and real requests and responses.

pub(super) const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::handler::Page;
    use crate::http::handler::verbs::VerbPath;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    #[test]
    fn it_lists_every_route_and_no_other() {
        let document = document();
        let written: BTreeSet<_> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(move |method| (method.as_str(), path.as_str()))
            })
            .collect();
        let verbs = VerbPath::ALL.into_iter().map(|verb| ("post", verb.path()));
        let pages = Page::ALL.into_iter().map(|page| ("get", page.path()));
        assert_eq!(written, verbs.chain(pages).collect());
    }

    #[test]
    fn it_lists_every_field_of_a_verb_and_no_other() {
        fn fields<'a>(document: &'a Value, schema: &'a Value, found: &mut BTreeSet<&'a str>) {
            if let Some(place) = schema["$ref"].as_str() {
                return fields(document, document.pointer(place.trim_start_matches('#')).unwrap(), found);
            }
            found.extend(
                schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()),
            );
            for one in schema["oneOf"].as_array().into_iter().flatten() {
                fields(document, one, found);
            }
        }
        let document = document();
        for verb in VerbPath::ALL {
            let body = &document["paths"][verb.path()]["post"]["requestBody"];
            let mut found = BTreeSet::new();
            fields(&document, &body["content"]["application/json"]["schema"], &mut found);
            assert_eq!(found, verb.takes().iter().copied().collect(), "{}", verb.path());
        }
    }

    #[test]
    fn it_has_the_server_version() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
