//! The head of a request, which keys, costs and filters see.

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A borrowed request without its body, as the closures of a layer see it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target. Routers may have shortened the path.
    pub uri: &'a Uri,
    /// The header fields, as the client sent them.
    pub headers: &'a HeaderMap,
    /// Values attached by the server and other layers.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// Returns the head of a request.
    pub fn of<B>(request: &'a Request<B>) -> RequestHead<'a> {
        RequestHead {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Returns the value of a header field that occurs once: `None` if it is missing, empty or
    /// repeated.
    pub fn single_header(&self, name: impl http::header::AsHeaderName) -> Option<&'a [u8]> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.as_bytes().trim_ascii();
        (values.next().is_none() && !value.is_empty()).then_some(value)
    }
}
