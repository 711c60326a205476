//! The store that fits a limiter's limits.
//!
//! There is one store type per algorithm, so the compiler knows what a slot holds and how it is
//! charged. That saves some nanoseconds per check (docs/benchmarks.md).

use super::error::BuildError;
use crate::clock::UtcAhead;
use crate::limit::Limit;
use crate::store::{
    AnySlot, AnyStore, CellSlot, LimitVersion, ListSlot, LogSlot, NoMemory, Size, SlotKind, Store,
};
use sluicegate_core::cell::WideCell;
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::sliding_window::SlidingWindow;
use sluicegate_core::smooth::Smooth;
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{AnyLimit, CellLimit, Time};
use std::sync::Arc;

/// A store for one limit of a given algorithm, or for several limits.
pub(super) enum StoreByAlgorithm {
    TokenBucket(Store<CellSlot<TokenBucket>>),
    LeakyBucket(Store<CellSlot<LeakyBucket>>),
    MinInterval(Store<CellSlot<MinInterval>>),
    Pacer(Store<CellSlot<Pacer>>),
    FixedWindow(Store<CellSlot<FixedWindow>>),
    SlidingWindow(Store<CellSlot<SlidingWindow>>),
    WideSlidingWindow(Store<CellSlot<SlidingWindow<WideCell>>>),
    Smooth(Store<CellSlot<Smooth>>),
    SlidingLog(Store<LogSlot>),
    List(Store<ListSlot>),
    /// A [`MemoryStore`](crate::MemoryStore), which other limiters use too.
    Shared(Arc<Store<AnySlot>>),
}

/// Evaluates an expression on the store, whatever its type.
macro_rules! on_store {
    ($stores:expr, $store:ident => $act:expr) => {
        match $stores {
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::TokenBucket($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::LeakyBucket($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::MinInterval($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::Pacer($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::FixedWindow($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::SlidingWindow($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::WideSlidingWindow($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::Smooth($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::SlidingLog($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::List($store) => $act,
            $crate::limiter::store_by_algorithm::StoreByAlgorithm::Shared($store) => $act,
        }
    };
}

pub(super) use on_store;

impl StoreByAlgorithm {
    /// Creates the store for limits that go together.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn new(made: Arc<[AnyLimit]>, size: Size) -> Result<StoreByAlgorithm, NoMemory> {
        Ok(match &*made {
            [AnyLimit::Cell(limit)] => match limit {
                CellLimit::TokenBucket(_) => StoreByAlgorithm::TokenBucket(store(made, size)?),
                CellLimit::LeakyBucket(_) => StoreByAlgorithm::LeakyBucket(store(made, size)?),
                CellLimit::MinInterval(_) => StoreByAlgorithm::MinInterval(store(made, size)?),
                CellLimit::Pacer(_) => StoreByAlgorithm::Pacer(store(made, size)?),
                CellLimit::FixedWindow(_) => StoreByAlgorithm::FixedWindow(store(made, size)?),
                CellLimit::SlidingWindow(_) => StoreByAlgorithm::SlidingWindow(store(made, size)?),
                CellLimit::Smooth(_) => StoreByAlgorithm::Smooth(store(made, size)?),
            },
            [AnyLimit::Wide(_)] => StoreByAlgorithm::WideSlidingWindow(store(made, size)?),
            [AnyLimit::Log(_)] => StoreByAlgorithm::SlidingLog(store(made, size)?),
            [] | [_, _, ..] => StoreByAlgorithm::List(store(made, size)?),
        })
    }

    /// Changes the limits of a store that is the limiter's own.
    pub(super) fn change(
        &self,
        limits: &[Limit],
        start: Time,
        utc_ahead: &UtcAhead,
    ) -> Result<(), BuildError> {
        let made = made(limits, start, utc_ahead)?;
        if matches!(self, StoreByAlgorithm::List(_)) != (made.len() > 1) {
            return Err(BuildError::AlgorithmChanged);
        }
        match self {
            StoreByAlgorithm::TokenBucket(store) => change(store, made),
            StoreByAlgorithm::LeakyBucket(store) => change(store, made),
            StoreByAlgorithm::MinInterval(store) => change(store, made),
            StoreByAlgorithm::Pacer(store) => change(store, made),
            StoreByAlgorithm::FixedWindow(store) => change(store, made),
            StoreByAlgorithm::SlidingWindow(store) => change(store, made),
            StoreByAlgorithm::WideSlidingWindow(store) => change(store, made),
            StoreByAlgorithm::Smooth(store) => change(store, made),
            StoreByAlgorithm::SlidingLog(store) => change(store, made),
            StoreByAlgorithm::List(store) => change(store, made),
            // A limiter in such a store changes its tag instead.
            StoreByAlgorithm::Shared(_) => Err(BuildError::AlgorithmChanged),
        }
    }

    pub(super) fn any(&self) -> &dyn AnyStore {
        on_store!(self, store => store.as_any())
    }
}

/// Creates the core's limits from parsed ones.
pub(crate) fn made(
    limits: &[Limit],
    start: Time,
    utc_ahead: &UtcAhead,
) -> Result<Arc<[AnyLimit]>, BuildError> {
    Ok(Limit::all_made_on_clock(limits, start, utc_ahead)?.into())
}

fn store<S: SlotKind<Limits = LimitVersion<<S as SlotKind>::Limit>>>(
    made: Arc<[AnyLimit]>,
    size: Size,
) -> Result<Store<S>, NoMemory> {
    // `S::limit` returns every one of them: the caller has matched their algorithms.
    Store::new(LimitVersion::new(made.iter().filter_map(S::limit).collect(), made), size)
}

fn change<S: SlotKind<Limits = LimitVersion<<S as SlotKind>::Limit>>>(
    store: &Store<S>,
    made: Arc<[AnyLimit]>,
) -> Result<(), BuildError> {
    let limits: Option<Box<[S::Limit]>> = made.iter().map(S::limit).collect();
    store.change(limits.ok_or(BuildError::AlgorithmChanged)?, made);
    Ok(())
}
