//! `#[derive(Key)]` for `sluicegate`, which re-exports it with the feature `derive`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap fails the test"))]

mod expand;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `sluicegate::Key` for a struct or an enum whose fields are keys.
///
/// A struct is the tuple of its fields, in order, whatever they are called. An enum is the name of
/// the variant and then its fields. So no two values of one type are the same key:
///
/// ```
/// use sluicegate::Key;
///
/// #[derive(Key)]
/// struct Reply<'a> {
///     user: u64,
///     thread: &'a str,
/// }
///
/// #[derive(Key)]
/// enum Caller {
///     User(u64),
///     Address(std::net::IpAddr),
///     Anonymous,
/// }
///
/// assert_eq!(Reply { user: 42, thread: "home" }.to_bytes(), (42, "home").to_bytes());
/// assert_eq!(Caller::User(42).to_bytes(), ("User", 42).to_bytes());
/// assert_eq!(Caller::Anonymous.to_bytes(), ("Anonymous",).to_bytes());
/// # let _ = Caller::Address(std::net::Ipv4Addr::LOCALHOST.into());
/// ```
///
/// # Types that share a limiter
///
/// Values of two types with equal fields are the same key, as `UserId(7)` and `TeamId(7)` would be.
/// Where both are keys of one limiter or one scope, give each a tag, which comes first:
///
/// ```
/// use sluicegate::Key;
///
/// #[derive(Key)]
/// #[key(tag = "user")]
/// struct UserId(u64);
///
/// #[derive(Key)]
/// #[key(tag = "team")]
/// struct TeamId(u64);
///
/// assert_eq!(UserId(7).to_bytes(), ("user", 7).to_bytes());
/// assert_ne!(UserId(7).to_bytes(), TeamId(7).to_bytes());
/// ```
///
/// # Keys that are stored
///
/// Keys in a shared store outlive a deployment. A field that is added, removed or moved makes other
/// keys, and so does a variant that is renamed, unless `#[key(tag = "...")]` on the variant keeps
/// the old name. A struct with one field can be exactly that field, so that its keys are as
/// readable:
///
/// ```
/// use sluicegate::Key;
///
/// #[derive(Key)]
/// #[key(transparent)]
/// struct ApiToken(String);
///
/// assert_eq!(*ApiToken("t-1".into()).to_bytes(), *b"t-1");
/// ```
///
/// # Errors
/// A union is rejected, as are two variants with one tag, and `transparent` where there is not
/// exactly one field:
///
/// ```compile_fail
/// #[derive(sluicegate::Key)]
/// #[key(transparent)]
/// struct Reply(u64, u64);
/// ```
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::key(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
