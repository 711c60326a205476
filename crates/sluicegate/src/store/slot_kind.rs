//! What a slot of the table holds: a cell, a log, or one state per limit of a list.

use super::limit_versions::{LimitVersion, LimitsByTag};
use super::table::SLOTS;
use sluicegate_core::algorithm::{Charged, Debt, NotCharged};
use sluicegate_core::all_of::check_list;
use sluicegate_core::cell::WideCell;
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::sliding_log::{Log, SlidingLog};
use sluicegate_core::sliding_window::SlidingWindow;
use sluicegate_core::smooth::Smooth;
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{Algorithm, AnyLimit, AnyState, Cell, CellLimit, Decision, Time};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{mem, slice};

/// The kind of slots a store has. A single limit with 16 bytes of state, as most have, gets slots
/// of that size instead of the largest.
pub(crate) trait SlotKind: Sized + Send + Sync + 'static {
    /// The limits whose state fits this slot.
    type Limit: Algorithm<State: Send> + Clone + Send + Sync;
    /// The state of a key; the default is an unseen key.
    type State: Clone + Default + Send;
    /// The number of words of the state that are in the slot, beside the fingerprint.
    const STATE_WORDS: usize;
    /// The part of all slots' states that is stored outside the table, under the shard's lock.
    /// Empty at first.
    type SideTable: Default + Send;
    /// The limits of a store with these slots.
    type Limits: LimitsByTag<Self>;

    /// The limit as this slot's type, if it is of that type.
    fn limit(limit: &AnyLimit) -> Option<Self::Limit>;

    /// Reads a slot's state.
    fn read<R>(slot_state: SlotState<'_, Self>, read: impl FnOnce(&Self::State) -> R) -> R;

    /// Changes a slot's state.
    fn update<R>(slot_state: SlotState<'_, Self>, act: impl FnOnce(&mut Self::State) -> R) -> R;

    /// The states as a slice, one per limit.
    fn states_mut(state: &mut Self::State, limits: usize) -> &mut [StateOf<Self>];

    /// Charges a call if it is allowed. A list has no such fast path: its limits are charged only
    /// if all of them allow the call.
    ///
    /// # Errors
    /// If nothing was charged, perhaps without an attempt.
    #[inline]
    fn try_charge(
        _kept: SlotState<'_, Self>,
        _limits: &[Self::Limit],
        _now: Time,
        _cost: u64,
    ) -> Result<Charged, NotCharged> {
        Err(NotCharged::UNKNOWN)
    }

    /// Decides a call under all limits, whatever the result.
    fn check_in_full(
        slot_state: SlotState<'_, Self>,
        limits: &[Self::Limit],
        now: Time,
        cost: u64,
    ) -> Decision {
        Self::update(slot_state, |state| match limits {
            [limit] => {
                limit.check_in_full(&mut Self::states_mut(state, 1)[0], now, cost, NotCharged::UNKNOWN)
            }
            limits => check_list(limits, Self::states_mut(state, limits.len()), now, cost),
        })
    }

    /// A key's debt under its limits; `None` if the key has recovered.
    fn debt(slot_state: SlotState<'_, Self>, limits: &[Self::Limit], now: Time) -> Option<Debt> {
        Self::read(slot_state, |state| Self::debt_of(state, limits, now))
    }

    /// The debt of a state that is in no slot.
    fn debt_of(state: &Self::State, limits: &[Self::Limit], now: Time) -> Option<Debt> {
        let both = limits.iter().zip(Self::as_states(state));
        both.filter_map(|(limit, state)| limit.debt(state, now)).reduce(Debt::max_of_each)
    }

    /// The number of log entries that fit into the memory of a state.
    fn log_capacity(_state: &Self::State) -> usize {
        0
    }

    /// The states as a slice. It may be empty for an unseen key.
    fn as_states(state: &Self::State) -> &[StateOf<Self>];

    /// Returns `true` if this is the state of an unseen key.
    fn is_unseen(state: &Self::State) -> bool;

    /// Converts to [`AnyState`], to be decided together with states of other kinds.
    fn into_states(state: Self::State, limits: usize) -> Vec<AnyState>;

    /// Converts back.
    fn from_states(states: Vec<AnyState>) -> Self::State;
}

/// The state of one limit in a slot of this kind.
pub(crate) type StateOf<S> = <<S as SlotKind>::Limit as Algorithm>::State;

/// The state of one slot, wherever it is stored.
pub(crate) struct SlotState<'a, S: SlotKind> {
    pub(super) words: &'a [AtomicU64],
    pub(super) side_table: &'a mut S::SideTable,
    pub(super) slot: usize,
}

impl<'a, S: SlotKind<SideTable = Box<[T]>>, T: Default> SlotState<'a, S> {
    /// The slot's entry in the side table. The first key of a shard allocates the entries of all
    /// its slots.
    pub(super) fn side_entry(self) -> &'a mut T {
        if self.side_table.is_empty() {
            *self.side_table = (0..SLOTS).map(|_| T::default()).collect();
        }
        &mut self.side_table[self.slot]
    }
}

/// One limit whose state is a cell, stored in the slot. Each algorithm has a store type of its own,
/// so that its check is inlined and nothing is dispatched at run time.
pub(crate) struct CellSlot<A>(PhantomData<A>);

/// A limit whose state is a cell, or a wide one.
pub(crate) trait CellAlgorithm: Algorithm<State: InWords> + Clone + Send + Sync + 'static {
    /// The limit, if it is of this algorithm.
    fn of(limit: &AnyLimit) -> Option<&Self>;
}

macro_rules! cell_algorithms {
    ($($name:ident)*) => {
        $(impl CellAlgorithm for $name {
            fn of(limit: &AnyLimit) -> Option<&Self> {
                if let AnyLimit::Cell(CellLimit::$name(limit)) = limit { Some(limit) } else { None }
            }
        })*
    };
}

impl CellAlgorithm for SlidingWindow<WideCell> {
    fn of(limit: &AnyLimit) -> Option<&Self> {
        if let AnyLimit::Wide(limit) = limit { Some(limit) } else { None }
    }
}

/// A state that is stored in the words of a slot.
pub(crate) trait InWords: Copy + Default + PartialEq + Send {
    /// How many words it takes.
    const WORDS: usize;

    fn load(words: &[AtomicU64]) -> Self;

    fn store(self, words: &[AtomicU64]);

    fn into_any(self) -> AnyState;

    /// The state, if it is of this kind.
    fn of(state: AnyState) -> Option<Self>;
}

impl InWords for Cell {
    const WORDS: usize = 2;

    #[inline]
    fn load(words: &[AtomicU64]) -> Cell {
        load(words)
    }

    #[inline]
    fn store(self, words: &[AtomicU64]) {
        store(words, self);
    }

    fn into_any(self) -> AnyState {
        AnyState::Cell(self)
    }

    fn of(state: AnyState) -> Option<Cell> {
        if let AnyState::Cell(cell) = state { Some(cell) } else { None }
    }
}

impl InWords for WideCell {
    const WORDS: usize = 3;

    #[inline]
    fn load(words: &[AtomicU64]) -> WideCell {
        let [at, prev, cur] = words else { unreachable!("a wide cell has three words") };
        let [at, prev, cur] = [at, prev, cur].map(|word| word.load(Ordering::Relaxed));
        WideCell { at, prev, cur }
    }

    #[inline]
    fn store(self, words: &[AtomicU64]) {
        let [at, prev, cur] = words else { unreachable!("a wide cell has three words") };
        at.store(self.at, Ordering::Relaxed);
        prev.store(self.prev, Ordering::Relaxed);
        cur.store(self.cur, Ordering::Relaxed);
    }

    fn into_any(self) -> AnyState {
        AnyState::Wide(Box::new(self))
    }

    fn of(state: AnyState) -> Option<WideCell> {
        if let AnyState::Wide(cell) = state { Some(*cell) } else { None }
    }
}

cell_algorithms!(TokenBucket LeakyBucket MinInterval Pacer FixedWindow SlidingWindow Smooth);

/// One sliding log.
pub(crate) struct LogSlot;

/// A list of limits of any kind.
pub(crate) struct ListSlot;

/// Loads a cell from two words.
#[inline]
pub(super) fn load(words: &[AtomicU64]) -> Cell {
    let [at, rest] = words else { unreachable!("a cell has two words") };
    Cell::of_number(at.load(Ordering::Relaxed), rest.load(Ordering::Relaxed))
}

#[inline]
pub(super) fn store(words: &[AtomicU64], cell: Cell) {
    let [at, rest] = words else { unreachable!("a cell has two words") };
    at.store(cell.at, Ordering::Relaxed);
    rest.store(cell.number(), Ordering::Relaxed);
}

impl<A: CellAlgorithm> SlotKind for CellSlot<A> {
    type Limit = A;
    type State = A::State;
    const STATE_WORDS: usize = A::State::WORDS;
    type SideTable = ();
    type Limits = LimitVersion<A>;

    fn limit(limit: &AnyLimit) -> Option<A> {
        A::of(limit).cloned()
    }

    #[inline]
    fn read<R>(slot_state: SlotState<'_, CellSlot<A>>, read: impl FnOnce(&A::State) -> R) -> R {
        read(&A::State::load(slot_state.words))
    }

    #[inline]
    fn update<R>(slot_state: SlotState<'_, CellSlot<A>>, act: impl FnOnce(&mut A::State) -> R) -> R {
        let mut cell = A::State::load(slot_state.words);
        let done = act(&mut cell);
        cell.store(slot_state.words);
        done
    }

    #[inline]
    fn try_charge(
        slot_state: SlotState<'_, CellSlot<A>>,
        limits: &[A],
        now: Time,
        cost: u64,
    ) -> Result<Charged, NotCharged> {
        let [limit] = limits else { return Err(NotCharged::UNKNOWN) };
        let mut cell = A::State::load(slot_state.words);
        let charged = limit.try_charge(&mut cell, now, cost)?;
        cell.store(slot_state.words);
        Ok(charged)
    }

    #[inline]
    fn debt(slot_state: SlotState<'_, CellSlot<A>>, limits: &[A], now: Time) -> Option<Debt> {
        limits.first()?.debt(&A::State::load(slot_state.words), now)
    }

    #[inline]
    fn states_mut(state: &mut A::State, _limits: usize) -> &mut [A::State] {
        slice::from_mut(state)
    }

    #[inline]
    fn as_states(state: &A::State) -> &[A::State] {
        slice::from_ref(state)
    }

    fn is_unseen(state: &A::State) -> bool {
        *state == A::State::default()
    }

    fn into_states(state: A::State, _limits: usize) -> Vec<AnyState> {
        vec![state.into_any()]
    }

    fn from_states(states: Vec<AnyState>) -> A::State {
        states.into_iter().next().and_then(A::State::of).unwrap_or_default()
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
            AnyLimit::Cell(_) | AnyLimit::Wide(_) => None,
        }
    }

    #[inline]
    fn try_charge(
        slot_state: SlotState<'_, LogSlot>,
        limits: &[SlidingLog],
        now: Time,
        cost: u64,
    ) -> Result<Charged, NotCharged> {
        let [limit] = limits else { return Err(NotCharged::UNKNOWN) };
        let log = slot_state.side_entry();
        // To grow, a log has to claim entries from the pool, which only the full path does.
        if limit.growth(log, now, cost) > 0 {
            return Err(NotCharged::UNKNOWN);
        }
        limit.try_charge(log, now, cost)
    }

    fn read<R>(slot_state: SlotState<'_, LogSlot>, read: impl FnOnce(&Log) -> R) -> R {
        read(slot_state.side_entry())
    }

    fn update<R>(slot_state: SlotState<'_, LogSlot>, act: impl FnOnce(&mut Log) -> R) -> R {
        act(slot_state.side_entry())
    }

    fn log_capacity(state: &Log) -> usize {
        state.capacity()
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
    /// Empty for an unseen key.
    type State = Box<[AnyState]>;
    const STATE_WORDS: usize = 0;
    type SideTable = Box<[Box<[AnyState]>]>;
    type Limits = LimitVersion<AnyLimit>;

    fn limit(limit: &AnyLimit) -> Option<AnyLimit> {
        Some(limit.clone())
    }

    fn read<R>(slot_state: SlotState<'_, ListSlot>, read: impl FnOnce(&Self::State) -> R) -> R {
        read(slot_state.side_entry())
    }

    fn update<R>(slot_state: SlotState<'_, ListSlot>, act: impl FnOnce(&mut Self::State) -> R) -> R {
        act(slot_state.side_entry())
    }

    fn log_capacity(state: &Box<[AnyState]>) -> usize {
        state.iter().map(AnyState::log_capacity).sum()
    }

    fn states_mut(state: &mut Box<[AnyState]>, limits: usize) -> &mut [AnyState] {
        if state.len() != limits {
            // The key is unseen, or a change of limits has just changed the length of the list.
            let mut states = mem::take(state).into_vec();
            // Exact: a boxed slice has no spare capacity, so any excess would be copied away and
            // leave a hole.
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
