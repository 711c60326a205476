//! What a key, a cost or a filter sees of a request: everything but its body.

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A request without its body, borrowed. Closures of the layer get this.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target. Routers may have shortened the path before it comes here.
    pub uri: &'a Uri,
    /// The header fields, as the client sent them.
    pub headers: &'a HeaderMap,
    /// What the server and other layers have attached.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// The head of a request.
    pub fn of<B>(request: &'a Request<B>) -> RequestHead<'a> {
        RequestHead {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The only value of a header field: `None` if it is missing, empty, or there several times.
    pub fn single_header(&self, name: impl http::header::AsHeaderName) -> Option<&'a [u8]> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.as_bytes().trim_ascii();
        (values.next().is_none() && !value.is_empty()).then_some(value)
    }
}
