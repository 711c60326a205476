//! A waiter in the store's line that is given back if its caller goes away.

use super::{Close, Inner};
use crate::receipt::StoredReceipt;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What a waiting caller holds in the store. Dropped before its caller acts, it is given back: by a task of its own, as
/// nothing may wait in a drop. That is done once and as well as can be; while the store is away, or once the runtime
/// has ended, the charge stays.
pub(super) struct WaitGuard {
    inner: Arc<Inner>,
    receipt: StoredReceipt,
    runtime: Option<Handle>,
    is_open: bool,
}

impl WaitGuard {
    /// To be made before the store is asked: who goes away meanwhile does not know whether it was charged.
    pub(super) fn new(inner: &Arc<Inner>, key: &[u8]) -> WaitGuard {
        WaitGuard {
            inner: Arc::clone(inner),
            receipt: StoredReceipt::new(&inner.scope, key),
            runtime: Handle::try_current().ok(),
            is_open: true,
        }
    }

    pub(super) fn receipt(&self) -> &StoredReceipt {
        &self.receipt
    }

    /// There is nothing to give back.
    pub(super) fn release(mut self) {
        self.is_open = false;
    }

    /// The caller acts: the charge stays, and the store need not remember whose it is.
    pub(super) fn act(mut self) {
        self.is_open = false;
        if let Some(runtime) = self.runtime.take() {
            let (inner, receipt) = (Arc::clone(&self.inner), self.receipt.clone());
            // If it fails, the receipt makes room for others as soon as it is worth nothing.
            runtime.spawn(async move { inner.forget(&receipt).await });
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let (true, Some(runtime)) = (self.is_open, self.runtime.take()) {
            let (inner, receipt) = (Arc::clone(&self.inner), self.receipt.clone());
            runtime.spawn(async move { inner.close_stored(&receipt, Close::Cancel, None).await });
        }
    }
}
