//! Compiles and runs the Rust code in the pages of this repository, as documentation tests.
//!
//! The pages are not part of any published crate, and a page may use several crates. A published
//! crate that included them would not build from its own package.

/// The tests of one page: `cargo test --doc -p sluicegate-doctests`.
#[cfg(doctest)]
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../../", $path))]
        struct $name;
    };
}

#[cfg(doctest)]
mod pages {
    page!(Readme, "README.md");
    page!(Budgets, "docs/budgets.md");
    page!(Tower, "docs/tower.md");

    page!(Library, "crates/sluicegate/README.md");
    page!(Core, "crates/sluicegate-core/README.md");
    page!(Derive, "crates/sluicegate-derive/README.md");
    page!(Guard, "crates/sluicegate-guard/README.md");
    page!(Plot, "crates/sluicegate-plot/README.md");
    page!(Redis, "crates/sluicegate-redis/README.md");
    page!(Server, "crates/sluicegate-server/README.md");
    page!(Sim, "crates/sluicegate-sim/README.md");
    page!(TowerCrate, "crates/sluicegate-tower/README.md");
}
