//! What `#[derive(Key)]` expands to.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::HashSet;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Generics, Ident, LitStr, Result, Variant, parse_quote,
};

/// The `#[key(...)]` of a type or a variant.
#[derive(Default)]
struct Options {
    tag: Option<LitStr>,
    transparent: Option<Span>,
}

impl Options {
    fn read(attributes: &[Attribute]) -> Result<Options> {
        let mut options = Options::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("tag") {
                    let tag: LitStr = meta.value()?.parse()?;
                    if options.tag.replace(tag).is_some() {
                        return Err(meta.error("tag is given twice; keep one of them"));
                    }
                    Ok(())
                } else if meta.path.is_ident("transparent") {
                    options.transparent = Some(Span::call_site());
                    Ok(())
                } else {
                    Err(meta.error("unknown option; use #[key(tag = \"...\")] or #[key(transparent)]"))
                }
            })?;
        }
        Ok(options)
    }
}

pub(crate) fn key(input: &DeriveInput) -> Result<TokenStream> {
    let options = Options::read(&input.attrs)?;
    if let (Some(tag), Some(_)) = (&options.tag, options.transparent) {
        return Err(Error::new_spanned(tag, "tag does not go with transparent; keep one of them"));
    }
    let write = match &input.data {
        Data::Struct(data) if options.transparent.is_some() => transparent(&input.ident, &data.fields)?,
        Data::Struct(data) => {
            reject_field_options(&data.fields)?;
            let (bindings, names) = bindings(&data.fields);
            let parts = parts(options.tag.iter(), &names);
            quote! { let Self #bindings = self; #parts }
        }
        Data::Enum(_) if options.transparent.is_some() => {
            return Err(Error::new_spanned(
                &input.ident,
                "transparent is for a struct with one field; an enum's key names the variant",
            ));
        }
        Data::Enum(data) => variants(options.tag.as_ref(), data.variants.iter())?,
        Data::Union(_) => {
            return Err(Error::new_spanned(
                &input.ident,
                "a union cannot be a key, as nothing tells which field is set; use an enum",
            ));
        }
    };
    let name = &input.ident;
    let generics = bounded(&input.generics);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::sluicegate::Key for #name #type_generics #where_clause {
            #[inline]
            fn write(&self, to: &mut ::sluicegate::KeyWriter<'_>) {
                #write
            }
        }
    })
}

/// The one field, as it is.
fn transparent(name: &Ident, fields: &Fields) -> Result<TokenStream> {
    reject_field_options(fields)?;
    let (bindings, names) = bindings(fields);
    let [field] = names.as_slice() else {
        return Err(Error::new_spanned(name, "transparent is for a struct with exactly one field"));
    };
    Ok(quote! { let Self #bindings = self; ::sluicegate::Key::write(#field, to); })
}

/// A match that writes the name of each variant and its fields.
fn variants<'a>(tag: Option<&LitStr>, variants: impl Iterator<Item = &'a Variant>) -> Result<TokenStream> {
    let mut tags = HashSet::new();
    let mut arms = Vec::new();
    for variant in variants {
        let options = Options::read(&variant.attrs)?;
        if options.transparent.is_some() {
            return Err(Error::new_spanned(variant, "transparent is for a struct with one field"));
        }
        reject_field_options(&variant.fields)?;
        let name = &variant.ident;
        let unraw = name.to_string().trim_start_matches("r#").to_owned();
        let own = options.tag.unwrap_or_else(|| LitStr::new(&unraw, name.span()));
        if !tags.insert(own.value()) {
            let says =
                format!("two variants have the tag {:?}, so their keys would be the same", own.value());
            return Err(Error::new_spanned(variant, says));
        }
        let (bindings, names) = bindings(&variant.fields);
        let parts = parts(tag.into_iter().chain([&own]), &names);
        arms.push(quote! { Self::#name #bindings => { #parts } });
    }
    // A reference to an enum without variants is not known to be uninhabited; the value is.
    Ok(if arms.is_empty() {
        quote! { let _ = to; match *self {} }
    } else {
        quote! { match self { #(#arms)* } }
    })
}

/// Writes a tuple of the tags and the fields.
fn parts<'a>(tags: impl Iterator<Item = &'a LitStr>, names: &[Ident]) -> TokenStream {
    let tags: Vec<&LitStr> = tags.collect();
    let count = tags.len() + names.len();
    quote! {
        to.tuple(#count);
        #(::sluicegate::Key::write(#tags, to);)*
        #(::sluicegate::Key::write(#names, to);)*
    }
}

/// A pattern that binds every field, and the names it binds.
fn bindings(fields: &Fields) -> (TokenStream, Vec<Ident>) {
    let names: Vec<Ident> = (0..fields.len()).map(|index| format_ident!("field_{index}")).collect();
    let pattern = match fields {
        Fields::Unit => quote! {},
        Fields::Unnamed(_) => quote! { (#(#names),*) },
        Fields::Named(fields) => {
            let fields = fields.named.iter().filter_map(|field| field.ident.as_ref());
            quote! { { #(#fields: #names),* } }
        }
    };
    (pattern, names)
}

/// Leaving a field out would make two values one key, so a field has no options.
fn reject_field_options(fields: &Fields) -> Result<()> {
    for field in fields {
        if let Some(attribute) = field.attrs.iter().find(|attribute| attribute.path().is_ident("key")) {
            return Err(Error::new_spanned(
                attribute,
                "a field takes no #[key(...)]: every field is part of the key, or two values would be one",
            ));
        }
    }
    Ok(())
}

/// The type's generics, each type parameter a key.
fn bounded(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::sluicegate::Key));
    }
    generics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(source: &str) -> String {
        key(&syn::parse_str(source).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_key_is_rejected_with_a_reason() {
        for (source, says) in [
            ("union Either { a: u32, b: u32 }", "a union cannot be a key"),
            ("#[key(transparent)] struct Two(u32, u32);", "exactly one field"),
            ("#[key(transparent)] struct None;", "exactly one field"),
            ("#[key(transparent)] enum One { A(u32) }", "an enum's key names the variant"),
            ("#[key(tag = \"a\", transparent)] struct One(u32);", "tag does not go with transparent"),
            ("#[key(tag = \"a\", tag = \"b\")] struct One(u32);", "tag is given twice"),
            ("#[key(tag = \"a\")] #[key(tag = \"b\")] struct One(u32);", "tag is given twice"),
            ("#[key(name = \"a\")] struct One(u32);", "unknown option"),
            ("struct One(#[key(skip)] u32);", "a field takes no #[key(...)]"),
            ("enum One { A { #[key(skip)] a: u32 } }", "a field takes no #[key(...)]"),
            ("enum Two { A, #[key(tag = \"A\")] B }", "two variants have the tag \"A\""),
            ("enum One { #[key(transparent)] A(u32) }", "transparent is for a struct with one field"),
        ] {
            assert!(error(source).contains(says), "{source}: {}", error(source));
        }
    }
}
