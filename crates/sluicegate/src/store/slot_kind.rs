//! What a slot of the table holds: a cell, a log, or a state for each limit of a list.

use super::limit_versions::{LimitVersion, LimitsByTag};
use super::table::SLOTS;
use sluicegate_core::algorithm::{Charged, Debt, NotCharged};
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::several::check_list;
use sluicegate_core::sliding_log::{Log, SlidingLog};
use sluicegate_core::sliding_window::SlidingWindow;
use sluicegate_core::smooth::Smooth;
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{Algorithm, AnyLimit, AnyState, Cell, CellLimit, Decision, Time};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{mem, slice};

/// What a store is made for. A single limit with a state of 16 bytes, as most are, has slots of that size and not
/// of the largest.
pub(crate) trait SlotKind: Sized + Send + Sync + 'static {
    /// The limits of this shape.
    type Limit: Algorithm<State: Send> + Clone + Send + Sync;
    /// What is kept of a key; the default is a key that has never called.
    type State: Clone + Default + Send;
    /// How many words of it lie in the slot, beside the fingerprint.
    const STATE_WORDS: usize;
    /// What of all slots lies elsewhere, under the place's lock. Nothing at first.
    type SideTable: Default + Send;
    /// What its places know of limits.
    type Limits: LimitsByTag<Self>;

    /// The limit, if it is of this shape.
    fn limit(limit: &AnyLimit) -> Option<Self::Limit>;

    /// Looks at a slot's state.
    fn read<R>(slot_state: SlotState<'_, Self>, look: impl FnOnce(&Self::State) -> R) -> R;

    /// Changes a slot's state.
    fn update<R>(slot_state: SlotState<'_, Self>, act: impl FnOnce(&mut Self::State) -> R) -> R;

    /// A state for each limit.
    fn states_mut(state: &mut Self::State, limits: usize) -> &mut [StateOf<Self>];

    /// Takes the cost of a call that is allowed.
    ///
    /// # Errors
    /// When nothing was taken, or not even tried.
    /// Several limits have no such short way: they are only charged when all of them agree.
    #[inline]
    fn try_charge(
        _kept: SlotState<'_, Self>,
        _limits: &[Self::Limit],
        _now: Time,
        _cost: u32,
    ) -> Result<Charged, NotCharged> {
        Err(NotCharged::UNKNOWN)
    }

    /// Checks all limits, whatever comes of it.
    fn check_in_full(
        slot_state: SlotState<'_, Self>,
        limits: &[Self::Limit],
        now: Time,
        cost: u32,
    ) -> Decision {
        Self::update(slot_state, |state| match limits {
            [limit] => {
                limit.check_in_full(&mut Self::states_mut(state, 1)[0], now, cost, NotCharged::UNKNOWN)
            }
            limits => check_list(limits, Self::states_mut(state, limits.len()), now, cost),
        })
    }

    /// How much a slot's key owes under its limits; `None` if it has recovered.
    fn debt(slot_state: SlotState<'_, Self>, limits: &[Self::Limit], now: Time) -> Option<Debt> {
        Self::read(slot_state, |state| Self::debt_of(state, limits, now))
    }

    /// The same for a state that is in no slot.
    fn debt_of(state: &Self::State, limits: &[Self::Limit], now: Time) -> Option<Debt> {
        let both = limits.iter().zip(Self::as_states(state));
        both.filter_map(|(limit, state)| limit.debt(state, now)).reduce(Debt::max_of_each)
    }

    /// The states of a key that has called; perhaps none of one that has not.
    fn as_states(state: &Self::State) -> &[StateOf<Self>];

    /// Whether this is a key that has never called.
    fn is_unseen(state: &Self::State) -> bool;

    /// Hands the states out, to be decided on together with those of other shapes.
    fn into_states(state: Self::State, limits: usize) -> Vec<AnyState>;

    /// Takes them back.
    fn from_states(states: Vec<AnyState>) -> Self::State;
}

/// One limit's state, in a store of this shape.
pub(crate) type StateOf<S> = <<S as SlotKind>::Limit as Algorithm>::State;

/// Where the state of one slot is.
pub(crate) struct SlotState<'a, S: SlotKind> {
    pub(super) words: &'a [AtomicU64],
    pub(super) side_table: &'a mut S::SideTable,
    pub(super) slot: usize,
}

impl<'a, S: SlotKind<SideTable = Box<[T]>>, T: Default> SlotState<'a, S> {
    /// What lies elsewhere of the slot. The first key of a place makes room for all of its slots.
    pub(super) fn side_entry(self) -> &'a mut T {
        if self.side_table.is_empty() {
            *self.side_table = (0..SLOTS).map(|_| T::default()).collect();
        }
        &mut self.side_table[self.slot]
    }
}

/// One limit with a cell: all in the slot. Each algorithm has a store of its own, so that its check is compiled in
/// place and nothing is looked up at run time.
pub(crate) struct CellSlot<A>(PhantomData<A>);

/// A limit whose state is a cell.
pub(crate) trait CellAlgorithm: Algorithm<State = Cell> + Clone + Send + Sync + 'static {
    /// The limit, if it is of this algorithm.
    fn of(limit: &CellLimit) -> Option<&Self>;
}

macro_rules! cell_algorithms {
    ($($name:ident)*) => {
        $(impl CellAlgorithm for $name {
            fn of(limit: &CellLimit) -> Option<&Self> {
                if let CellLimit::$name(limit) = limit { Some(limit) } else { None }
            }
        })*
    };
}

cell_algorithms!(TokenBucket LeakyBucket MinInterval Pacer FixedWindow SlidingWindow Smooth);

/// One sliding log.
pub(crate) struct LogSlot;

/// Several limits of any kind.
pub(crate) struct ListSlot;

/// A cell, in two words.
#[inline]
pub(super) fn load(words: &[AtomicU64]) -> Cell {
    let [at, rest] = words else { unreachable!("a cell has two words") };
    let [a, b] = halves(rest.load(Ordering::Relaxed));
    Cell { at: at.load(Ordering::Relaxed), a, b }
}

#[inline]
pub(super) fn store(words: &[AtomicU64], cell: Cell) {
    let [at, rest] = words else { unreachable!("a cell has two words") };
    at.store(cell.at, Ordering::Relaxed);
    rest.store(u64::from(cell.a) | u64::from(cell.b) << 32, Ordering::Relaxed);
}

/// The low half and the high one.
#[inline]
fn halves(word: u64) -> [u32; 2] {
    [word & u64::from(u32::MAX), word >> 32].map(|half| u32::try_from(half).unwrap_or(u32::MAX))
}

impl<A: CellAlgorithm> SlotKind for CellSlot<A> {
    type Limit = A;
    type State = Cell;
    const STATE_WORDS: usize = 2;
    type SideTable = ();
    type Limits = LimitVersion<A>;

    fn limit(limit: &AnyLimit) -> Option<A> {
        match limit {
            AnyLimit::Cell(limit) => A::of(limit).cloned(),
            AnyLimit::Log(_) => None,
        }
    }

    #[inline]
    fn read<R>(slot_state: SlotState<'_, CellSlot<A>>, look: impl FnOnce(&Cell) -> R) -> R {
        look(&load(slot_state.words))
    }

    #[inline]
    fn update<R>(slot_state: SlotState<'_, CellSlot<A>>, act: impl FnOnce(&mut Cell) -> R) -> R {
        let mut cell = load(slot_state.words);
        let done = act(&mut cell);
        store(slot_state.words, cell);
        done
    }

    #[inline]
    fn try_charge(
        slot_state: SlotState<'_, CellSlot<A>>,
        limits: &[A],
        now: Time,
        cost: u32,
    ) -> Result<Charged, NotCharged> {
        let [limit] = limits else { return Err(NotCharged::UNKNOWN) };
        let mut cell = load(slot_state.words);
        let charged = limit.try_charge(&mut cell, now, cost)?;
        store(slot_state.words, cell);
        Ok(charged)
    }

    #[inline]
    fn debt(slot_state: SlotState<'_, CellSlot<A>>, limits: &[A], now: Time) -> Option<Debt> {
        limits.first()?.debt(&load(slot_state.words), now)
    }

    #[inline]
    fn states_mut(state: &mut Cell, _limits: usize) -> &mut [Cell] {
        slice::from_mut(state)
    }

    #[inline]
    fn as_states(state: &Cell) -> &[Cell] {
        slice::from_ref(state)
    }

    fn is_unseen(state: &Cell) -> bool {
        *state == Cell::UNSEEN
    }

    fn into_states(state: Cell, _limits: usize) -> Vec<AnyState> {
        vec![AnyState::Cell(state)]
    }

    fn from_states(states: Vec<AnyState>) -> Cell {
        match states.into_iter().next() {
            Some(AnyState::Cell(cell)) => cell,
            _ => Cell::UNSEEN,
        }
    }
}

impl SlotKind for LogSlot {
    type Limit = SlidingLog;
    type State = Log;
    const STATE_WORDS: usize = 0;
    type SideTable = Box<[Log]>;
    type Limits = LimitVersion<SlidingLog>;

    fn limit(limit: &AnyLimit) -> Option<SlidingLog> {
        match limit {
            AnyLimit::Log(limit) => Some(*limit),
            AnyLimit::Cell(_) => None,
        }
    }

    #[inline]
    fn try_charge(
        slot_state: SlotState<'_, LogSlot>,
        limits: &[SlidingLog],
        now: Time,
        cost: u32,
    ) -> Result<Charged, NotCharged> {
        let [limit] = limits else { return Err(NotCharged::UNKNOWN) };
        limit.try_charge(slot_state.side_entry(), now, cost)
    }

    fn read<R>(slot_state: SlotState<'_, LogSlot>, look: impl FnOnce(&Log) -> R) -> R {
        look(slot_state.side_entry())
    }

    fn update<R>(slot_state: SlotState<'_, LogSlot>, act: impl FnOnce(&mut Log) -> R) -> R {
        act(slot_state.side_entry())
    }

    fn states_mut(state: &mut Log, _limits: usize) -> &mut [Log] {
        slice::from_mut(state)
    }

    fn as_states(state: &Log) -> &[Log] {
        slice::from_ref(state)
    }

    fn is_unseen(state: &Log) -> bool {
        *state == Log::EMPTY
    }

    fn into_states(state: Log, _limits: usize) -> Vec<AnyState> {
        vec![AnyState::Log(Box::new(state))]
    }

    fn from_states(states: Vec<AnyState>) -> Log {
        match states.into_iter().next() {
            Some(AnyState::Log(log)) => *log,
            _ => Log::EMPTY,
        }
    }
}

impl SlotKind for ListSlot {
    type Limit = AnyLimit;
    /// Empty for a key that has never called.
    type State = Box<[AnyState]>;
    const STATE_WORDS: usize = 0;
    type SideTable = Box<[Box<[AnyState]>]>;
    type Limits = LimitVersion<AnyLimit>;

    fn limit(limit: &AnyLimit) -> Option<AnyLimit> {
        Some(limit.clone())
    }

    fn read<R>(slot_state: SlotState<'_, ListSlot>, look: impl FnOnce(&Self::State) -> R) -> R {
        look(slot_state.side_entry())
    }

    fn update<R>(slot_state: SlotState<'_, ListSlot>, act: impl FnOnce(&mut Self::State) -> R) -> R {
        act(slot_state.side_entry())
    }

    fn states_mut(state: &mut Box<[AnyState]>, limits: usize) -> &mut [AnyState] {
        if state.len() != limits {
            // Unseen, or from a list of another length, which a change of limits has just brought.
            let mut states = mem::take(state).into_vec();
            // A box is as large as what it holds: room for more would be copied away, and leave a hole.
            states.reserve_exact(limits.saturating_sub(states.len()));
            states.resize_with(limits, AnyState::default);
            *state = states.into_boxed_slice();
        }
        state
    }

    fn as_states(state: &Box<[AnyState]>) -> &[AnyState] {
        state
    }

    fn is_unseen(state: &Box<[AnyState]>) -> bool {
        state.iter().all(AnyState::is_unseen)
    }

    fn into_states(mut state: Box<[AnyState]>, limits: usize) -> Vec<AnyState> {
        ListSlot::states_mut(&mut state, limits);
        state.into_vec()
    }

    fn from_states(states: Vec<AnyState>) -> Box<[AnyState]> {
        states.into_boxed_slice()
    }
}
