//! `#[derive(Key)]` for `sluicegate`, which re-exports it with the feature `derive`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Use it as `sluicegate::Key`, with the feature `derive`: its documentation is there.
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::key(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
