//! What a slot holds in the store that many limiters share: the state of any limit.

use super::book::Book;
use super::shape::{Kept, Shape, load, store};
use sluicegate_core::algorithm::{Charged, Debt, NotCharged};
use sluicegate_core::{Algorithm, AnyLimit, AnyState, Cell, Time};
use std::{mem, slice};

/// Limits of any kind, those of each key its own: the store that many limiters share. A cell lies in the slot, as in a store
/// of its own; logs, and the states of lists, lie elsewhere.
pub(crate) struct Mixed;

/// The states of a key under one limit or several.
#[derive(Clone, Debug)]
pub(crate) enum Several {
    One(AnyState),
    List(Box<[AnyState]>),
}

impl Default for Several {
    fn default() -> Several {
        Several::One(AnyState::default())
    }
}

impl Several {
    pub(super) fn all(&self) -> &[AnyState] {
        match self {
            Several::One(state) => slice::from_ref(state),
            Several::List(states) => states,
        }
    }

    fn take_all(&mut self) -> Vec<AnyState> {
        match mem::take(self) {
            Several::One(state) => vec![state],
            Several::List(states) => states.into_vec(),
        }
    }

    /// A state for each of so many limits: more start afresh, fewer are forgotten.
    pub(super) fn fit(&mut self, limits: usize) -> &mut [AnyState] {
        let is_list = matches!(self, Several::List(_));
        if is_list && limits == 1 {
            *self = Several::One(self.take_all().into_iter().next().unwrap_or_default());
        } else if limits != 1 && (!is_list || self.all().len() != limits) {
            let mut states = self.take_all();
            states.resize_with(limits, AnyState::default);
            *self = Several::List(states.into_boxed_slice());
        }
        match self {
            Several::One(state) => slice::from_mut(state),
            Several::List(states) => states,
        }
    }
}

impl Kept<'_, Mixed> {
    /// Takes the state out of the slot, or from where it lies.
    fn take_out(&mut self) -> Several {
        let aside = self.aside.get_mut(self.slot).map(mem::take);
        match aside {
            None | Some(Several::One(AnyState::Cell(Cell::UNSEEN))) => {
                Several::One(AnyState::Cell(load(self.words)))
            }
            Some(state) => state,
        }
    }

    /// Puts a state where it belongs.
    fn put_in(self, state: Several) {
        if let Several::One(AnyState::Cell(cell)) = state {
            store(self.words, cell);
        } else {
            store(self.words, Cell::UNSEEN);
            *self.aside() = state;
        }
    }
}

impl Shape for Mixed {
    type Limit = AnyLimit;
    type State = Several;
    const STATE_WORDS: usize = 2;
    type Aside = Box<[Several]>;
    type Rules = Book;

    fn limit(limit: &AnyLimit) -> Option<AnyLimit> {
        Some(limit.clone())
    }

    fn read<R>(kept: Kept<'_, Mixed>, look: impl FnOnce(&Several) -> R) -> R {
        match kept.aside.get(kept.slot) {
            None | Some(Several::One(AnyState::Cell(_))) => {
                look(&Several::One(AnyState::Cell(load(kept.words))))
            }
            Some(state) => look(state),
        }
    }

    #[inline]
    fn update<R>(mut kept: Kept<'_, Mixed>, act: impl FnOnce(&mut Several) -> R) -> R {
        let mut state = kept.take_out();
        let done = act(&mut state);
        kept.put_in(state);
        done
    }

    #[inline]
    fn try_charge(
        kept: Kept<'_, Mixed>,
        limits: &[AnyLimit],
        now: Time,
        cost: u32,
    ) -> Result<Charged, NotCharged> {
        match limits {
            [AnyLimit::Cell(limit)] => {
                let mut cell = load(kept.words);
                let charged = limit.try_charge(&mut cell, now, cost)?;
                store(kept.words, cell);
                Ok(charged)
            }
            [AnyLimit::Log(limit)] => match kept.aside.get_mut(kept.slot) {
                Some(Several::One(AnyState::Log(log))) => limit.try_charge(log, now, cost),
                _ => Err(NotCharged::UNKNOWN),
            },
            _ => Err(NotCharged::UNKNOWN),
        }
    }

    #[inline]
    fn debt(kept: Kept<'_, Mixed>, limits: &[AnyLimit], now: Time) -> Option<Debt> {
        match limits {
            [AnyLimit::Cell(limit)] => limit.debt(&load(kept.words), now),
            _ => Self::read(kept, |state| Self::debt_of(state, limits, now)),
        }
    }

    fn states(state: &mut Several, limits: usize) -> &mut [AnyState] {
        state.fit(limits)
    }

    fn seen(state: &Several) -> &[AnyState] {
        state.all()
    }

    fn is_unseen(state: &Several) -> bool {
        state.all().iter().all(AnyState::is_unseen)
    }

    fn lend(mut state: Several, limits: usize) -> Vec<AnyState> {
        state.fit(limits);
        state.take_all()
    }

    fn take_back(mut states: Vec<AnyState>) -> Several {
        match states.len() {
            1 => Several::One(states.pop().unwrap_or_default()),
            _ => Several::List(states.into_boxed_slice()),
        }
    }
}
