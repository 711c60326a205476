//! The store that fits a limiter's limits.

use super::error::ChangeError;
use crate::limit::Limit;
use crate::store::{AnyStore, Cells, Lists, Logs, Rules, Shape, Size, Store};
use sluicegate_core::{AnyLimit, Time};
use std::sync::Arc;

/// One limit with a cell, one log, or several limits: each has slots of its own size.
pub(super) enum Engine {
    Cells(Store<Cells>),
    Logs(Store<Logs>),
    Lists(Store<Lists>),
}

/// Does the same with the store of any shape.
macro_rules! on_store {
    ($engine:expr, $store:ident => $act:expr) => {
        match $engine {
            $crate::limiter::engine::Engine::Cells($store) => $act,
            $crate::limiter::engine::Engine::Logs($store) => $act,
            $crate::limiter::engine::Engine::Lists($store) => $act,
        }
    };
}

pub(super) use on_store;

impl Engine {
    /// A store for limits that go together, of a limiter that is made at `start`.
    pub(super) fn new(limits: &[Limit], start: Time, size: Size) -> Engine {
        let made = made(limits, start);
        match &*made {
            [AnyLimit::Cell(_)] => Engine::Cells(store(made, size)),
            [AnyLimit::Log(_)] => Engine::Logs(store(made, size)),
            _ => Engine::Lists(store(made, size)),
        }
    }

    pub(super) fn change(&self, limits: &[Limit], start: Time) -> Result<(), ChangeError> {
        let made = made(limits, start);
        match (self, &*made) {
            (Engine::Cells(store), [AnyLimit::Cell(_)]) => change(store, made),
            (Engine::Logs(store), [AnyLimit::Log(_)]) => change(store, made),
            (Engine::Lists(store), [_, _, ..]) => change(store, made),
            _ => return Err(ChangeError::AnotherKind),
        }
        Ok(())
    }

    pub(super) fn any(&self) -> &dyn AnyStore {
        on_store!(self, store => store)
    }
}

fn made(limits: &[Limit], start: Time) -> Arc<[AnyLimit]> {
    limits.iter().map(|limit| limit.made_at(start)).collect()
}

fn store<S: Shape>(made: Arc<[AnyLimit]>, size: Size) -> Store<S> {
    Store::new(Rules::new(of_shape::<S>(&made), made), size)
}

fn change<S: Shape>(store: &Store<S>, made: Arc<[AnyLimit]>) {
    store.change(of_shape::<S>(&made), made);
}

/// All of them: the caller has looked.
fn of_shape<S: Shape>(made: &[AnyLimit]) -> Box<[S::Limit]> {
    made.iter().filter_map(S::limit).collect()
}
