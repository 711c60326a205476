//! The slots of a store that several limiters share: each holds the state of any limit.

use super::limit_table::LimitTable;
use super::slot_kind::{SlotKind, SlotState, load, store};
use sluicegate_core::algorithm::{Charged, Debt, NotCharged};
use sluicegate_core::{Algorithm, AnyLimit, AnyState, Cell, Time};
use std::{mem, slice};

/// A slot for limits of any kind, which may differ from key to key. A cell is stored in the slot
/// itself, other states in the side table.
pub(crate) struct AnySlot;

/// The states of a key under one limit or a list of limits.
#[derive(Clone, Debug)]
pub(crate) enum States {
    One(AnyState),
    List(Box<[AnyState]>),
}

impl Default for States {
    fn default() -> States {
        States::One(AnyState::default())
    }
}

impl States {
    pub(super) fn all(&self) -> &[AnyState] {
        match self {
            States::One(state) => slice::from_ref(state),
            States::List(states) => states,
        }
    }

    fn take_all(&mut self) -> Vec<AnyState> {
        match mem::take(self) {
            States::One(state) => vec![state],
            States::List(states) => states.into_vec(),
        }
    }

    /// Resizes to one state per limit: missing ones start unseen, surplus ones are dropped.
    pub(super) fn fit(&mut self, limits: usize) -> &mut [AnyState] {
        let is_list = matches!(self, States::List(_));
        if is_list && limits == 1 {
            *self = States::One(self.take_all().into_iter().next().unwrap_or_default());
        } else if limits != 1 && (!is_list || self.all().len() != limits) {
            let mut states = self.take_all();
            states.resize_with(limits, AnyState::default);
            *self = States::List(states.into_boxed_slice());
        }
        match self {
            States::One(state) => slice::from_mut(state),
            States::List(states) => states,
        }
    }
}

impl SlotState<'_, AnySlot> {
    /// Takes the state out of the slot or the side table.
    fn take_out(&mut self) -> States {
        let side_table = self.side_table.get_mut(self.slot).map(mem::take);
        match side_table {
            None | Some(States::One(AnyState::Cell(Cell::UNSEEN))) => {
                States::One(AnyState::Cell(load(self.words)))
            }
            Some(state) => state,
        }
    }

    /// Writes a state to the slot or the side table.
    fn put_in(self, state: States) {
        if let States::One(AnyState::Cell(cell)) = state {
            store(self.words, cell);
        } else {
            store(self.words, Cell::UNSEEN);
            *self.side_entry() = state;
        }
    }
}

impl SlotKind for AnySlot {
    type Limit = AnyLimit;
    type State = States;
    const STATE_WORDS: usize = 2;
    type SideTable = Box<[States]>;
    type Limits = LimitTable;

    fn limit(limit: &AnyLimit) -> Option<AnyLimit> {
        Some(limit.clone())
    }

    fn read<R>(slot_state: SlotState<'_, AnySlot>, read: impl FnOnce(&States) -> R) -> R {
        match slot_state.side_table.get(slot_state.slot) {
            None | Some(States::One(AnyState::Cell(_))) => {
                read(&States::One(AnyState::Cell(load(slot_state.words))))
            }
            Some(state) => read(state),
        }
    }

    #[inline]
    fn update<R>(mut slot_state: SlotState<'_, AnySlot>, act: impl FnOnce(&mut States) -> R) -> R {
        let mut state = slot_state.take_out();
        let done = act(&mut state);
        slot_state.put_in(state);
        done
    }

    #[inline]
    fn try_charge(
        slot_state: SlotState<'_, AnySlot>,
        limits: &[AnyLimit],
        now: Time,
        cost: u64,
    ) -> Result<Charged, NotCharged> {
        match limits {
            [AnyLimit::Cell(limit)] => {
                let mut cell = load(slot_state.words);
                let charged = limit.try_charge(&mut cell, now, cost)?;
                store(slot_state.words, cell);
                Ok(charged)
            }
            [AnyLimit::Wide(limit)] => match slot_state.side_table.get_mut(slot_state.slot) {
                Some(States::One(AnyState::Wide(cell))) => limit.try_charge(cell, now, cost),
                _ => Err(NotCharged::UNKNOWN),
            },
            [AnyLimit::Log(limit)] => match slot_state.side_table.get_mut(slot_state.slot) {
                // To grow, a log has to claim entries from the pool, which only the full path does.
                Some(States::One(AnyState::Log(log))) if limit.growth(log, now, cost) == 0 => {
                    limit.try_charge(log, now, cost)
                }
                _ => Err(NotCharged::UNKNOWN),
            },
            _ => Err(NotCharged::UNKNOWN),
        }
    }

    #[inline]
    fn debt(slot_state: SlotState<'_, AnySlot>, limits: &[AnyLimit], now: Time) -> Option<Debt> {
        match limits {
            [AnyLimit::Cell(limit)] => limit.debt(&load(slot_state.words), now),
            _ => Self::read(slot_state, |state| Self::debt_of(state, limits, now)),
        }
    }

    fn log_capacity(state: &States) -> usize {
        state.all().iter().map(AnyState::log_capacity).sum()
    }

    fn states_mut(state: &mut States, limits: usize) -> &mut [AnyState] {
        state.fit(limits)
    }

    fn as_states(state: &States) -> &[AnyState] {
        state.all()
    }

    fn is_unseen(state: &States) -> bool {
        state.all().iter().all(AnyState::is_unseen)
    }

    fn into_states(mut state: States, limits: usize) -> Vec<AnyState> {
        state.fit(limits);
        state.take_all()
    }

    fn from_states(mut states: Vec<AnyState>) -> States {
        match states.len() {
            1 => States::One(states.pop().unwrap_or_default()),
            _ => States::List(states.into_boxed_slice()),
        }
    }
}
