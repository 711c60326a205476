//! The scripts, assembled from `lua/`.

use crate::script::Script;
use std::sync::LazyLock;

const PRELUDE: &str = include_str!("../lua/prelude.lua");
const MARKS: &str = include_str!("../lua/marks.lua");
const GCRA: &str = include_str!("../lua/gcra.lua");
const FIXED_WINDOW: &str = include_str!("../lua/fixed_window.lua");
const SLIDING_WINDOW: &str = include_str!("../lua/sliding_window.lua");
const SLIDING_LOG: &str = include_str!("../lua/sliding_log.lua");
const SMOOTH: &str = include_str!("../lua/smooth.lua");
const CHECK_LOG: &str = include_str!("../lua/check/sliding_log.lua");
const LEASES: &str = include_str!("../lua/semaphore/leases.lua");
const QUEUE: &str = include_str!("../lua/semaphore/queue.lua");
const RESCALE: &str = include_str!("../lua/rescale.lua");
const RECEIPTS: &str = include_str!("../lua/returns/receipts.lua");
const CLOSE: &str = include_str!("../lua/returns/close.lua");
const GCRA_RETURNS: &str = include_str!("../lua/returns/gcra.lua");
const REPORT: &str = include_str!("../lua/report.lua");

/// A check under one bucket.
pub(crate) static CHECK_BUCKET: LazyLock<Script> = LazyLock::new(|| {
    let check = include_str!("../lua/check/gcra.lua");
    Script::new([PRELUDE, check].concat())
});

/// A check under one fixed window.
pub(crate) static CHECK_FIXED_WINDOW: LazyLock<Script> = LazyLock::new(|| {
    let check = include_str!("../lua/check/fixed_window.lua");
    Script::new([PRELUDE, check].concat())
});

/// A check under one sliding window.
pub(crate) static CHECK_SLIDING_WINDOW: LazyLock<Script> = LazyLock::new(|| {
    let check = include_str!("../lua/check/sliding_window.lua");
    Script::new([PRELUDE, MARKS, SLIDING_WINDOW, check].concat())
});

/// A check under `smooth`, at once or within a longest wait.
pub(crate) static CHECK_SMOOTH: LazyLock<Script> = LazyLock::new(|| {
    let check = include_str!("../lua/check/smooth.lua");
    Script::new([PRELUDE, SMOOTH, check].concat())
});

/// A check under one sliding log.
pub(crate) static CHECK_SLIDING_LOG: LazyLock<Script> =
    LazyLock::new(|| Script::new([PRELUDE, &check_log()].concat()));

/// A check under one sliding log that is rarely long, so that its type is not queried first.
pub(crate) static CHECK_SHORT_SLIDING_LOG: LazyLock<Script> = LazyLock::new(|| {
    let queried = "call('TYPE', key).ok == 'hash' and {} or call('GET', key)";
    Script::new([PRELUDE, &check_log().replace(queried, "redis.pcall('GET', key)")].concat())
});

/// A check under one sliding log with `count=all`.
pub(crate) static CHECK_SLIDING_LOG_ALL: LazyLock<Script> = LazyLock::new(|| {
    let check = include_str!("../lua/check/sliding_log_all.lua");
    Script::new([PRELUDE, SLIDING_LOG, check].concat())
});

/// Reads the state under any list of limits.
pub(crate) static READ: LazyLock<Script> = LazyLock::new(|| {
    let read = include_str!("../lua/read.lua");
    let algorithms = [MARKS, GCRA, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, SMOOTH, REPORT].concat();
    Script::new([PRELUDE, &algorithms, read].concat())
});

/// All verbs, under any list of limits.
pub(crate) static VERBS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        [
            PRELUDE,
            MARKS,
            GCRA,
            FIXED_WINDOW,
            SLIDING_WINDOW,
            SLIDING_LOG,
            SMOOTH,
            REPORT,
            GCRA_RETURNS,
            include_str!("../lua/returns/rollback.lua"),
            include_str!("../lua/returns/fixed_window.lua"),
            include_str!("../lua/returns/sliding_window.lua"),
            include_str!("../lua/returns/sliding_log.lua"),
            include_str!("../lua/returns/smooth.lua"),
            RESCALE,
            RECEIPTS,
            include_str!("../lua/returns/convert_gcra.lua"),
            CLOSE,
            include_str!("../lua/returns/notice.lua"),
            include_str!("../lua/returns/as_if.lua"),
            include_str!("../lua/verbs.lua"),
        ]
        .concat(),
    )
});

/// Replaces a state by its conversion.
pub(crate) static REPLACE: LazyLock<Script> = LazyLock::new(|| {
    let replace = include_str!("../lua/replace.lua");
    Script::new([PRELUDE, MARKS, GCRA, GCRA_RETURNS, RECEIPTS, replace].concat())
});

/// Does nothing: the reply says whether the server accepts writes.
pub(crate) static PROBE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../lua/probe.lua").to_owned()));

/// Deletes one receipt.
pub(crate) static DISCARD: LazyLock<Script> = LazyLock::new(|| {
    let discard = include_str!("../lua/discard.lua");
    Script::new([PRELUDE, RECEIPTS, CLOSE, discard].concat())
});

pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::new([&prelude_allowing_oom(), include_str!("../lua/reset.lua")].concat()));

/// Acquires a lease, or enters the queue for one.
pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    let acquire = include_str!("../lua/semaphore/acquire.lua");
    Script::new([PRELUDE, LEASES, QUEUE, acquire].concat())
});

/// Decides about a lease without acquiring it.
pub(crate) static PEEK: LazyLock<Script> = LazyLock::new(|| {
    let peek = include_str!("../lua/semaphore/peek.lua");
    Script::new([PRELUDE, LEASES, QUEUE, peek].concat())
});

/// Renews a lease.
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| {
    let renew = include_str!("../lua/semaphore/renew.lua");
    Script::new([&prelude_allowing_oom(), LEASES, renew].concat())
});

/// Releases a lease.
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    let release = include_str!("../lua/semaphore/release.lua");
    Script::new([&prelude_allowing_oom(), LEASES, QUEUE, release].concat())
});

/// The prelude of scripts that only return or renew. They run even if the server is out of memory:
/// a holder must be able to keep its lease, and returning frees memory.
fn prelude_allowing_oom() -> String {
    PRELUDE.replacen("#!lua\n", "#!lua flags=allow-oom\n", 1)
}

/// A check under one sliding log. The functions for a long log are inlined where they are needed: a
/// script defines its functions on every call.
fn check_log() -> String {
    let long = [SLIDING_LOG, include_str!("../lua/check/sliding_log_long.lua")].concat();
    CHECK_LOG.replace("  -- A LONG LOG\n", &long)
}
