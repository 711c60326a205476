//! Cancels the charge of a waiter that is dropped.

use super::Inner;
use crate::receipt::StoredReceipt;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The charge of a waiting call. If the guard is dropped before the call is admitted, a task
/// cancels the charge, since a drop cannot wait. The task tries once: while the store is
/// unavailable, or once the runtime has ended, the charge stays.
pub(super) struct WaitGuard {
    inner: Arc<Inner>,
    receipt: StoredReceipt,
    runtime: Option<Handle>,
    is_armed: bool,
}

impl WaitGuard {
    /// Names the receipt before the call is sent, since a call that is dropped in flight does not
    /// know whether it was charged.
    pub(super) fn new(inner: &Arc<Inner>, key: &[u8]) -> WaitGuard {
        WaitGuard {
            inner: Arc::clone(inner),
            receipt: StoredReceipt::new(&inner.scope, key),
            runtime: Handle::try_current().ok(),
            is_armed: true,
        }
    }

    pub(super) fn receipt(&self) -> &StoredReceipt {
        &self.receipt
    }

    /// Disarms the guard: nothing was charged that could be cancelled.
    pub(super) fn disarm(mut self) {
        self.is_armed = false;
    }

    /// The call is admitted: the charge stays, and the store need not keep the receipt.
    pub(super) fn admitted(mut self) {
        self.is_armed = false;
        if let Some(runtime) = self.runtime.take() {
            let (inner, receipt) = (Arc::clone(&self.inner), self.receipt.clone());
            // If this fails, the receipt makes room for others once its charge no longer counts.
            runtime.spawn(async move { inner.discard(receipt).await });
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let (true, Some(runtime)) = (self.is_armed, self.runtime.take()) {
            let (inner, receipt) = (Arc::clone(&self.inner), self.receipt.clone());
            runtime.spawn(async move { inner.cancel_stored(receipt).await });
        }
    }
}
