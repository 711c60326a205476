//! Tests that measure time run one after another.

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

/// While this guard is held, no other test that takes it runs.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
