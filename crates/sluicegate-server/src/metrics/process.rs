//! Statistics of this process. Linux has them in `/proc`; on other systems they are left out.

use std::fs;

/// The process at one moment; `None` where the system does not say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) cpu_s: Option<f64>,
}

impl Process {
    pub(super) fn now() -> Process {
        let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Process {
            resident_bytes: resident_bytes(&text("status")),
            open_fds: open_fds(),
            max_fds: max_fds(&text("limits")),
            cpu_s: cpu_s(&text("stat")),
        }
    }
}

/// From the line `VmRSS:    1234 kB` of `/proc/self/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn open_fds() -> Option<u64> {
    // Since Linux 6.2 the size of the directory is its number of entries. Before, it is 0 and they
    // must be counted, which takes milliseconds with thousands of clients.
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

/// From the line `Max open files    1024    524288    files` of `/proc/self/limits`: the first
/// number, the soft limit.
fn max_fds(limits: &str) -> Option<u64> {
    let value = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match value.split_whitespace().next()? {
        "unlimited" => None,
        soft => soft.parse().ok(),
    }
}

/// From `/proc/self/stat`: fields 14 and 15 are user and system time, in units of 1/100 s
/// (`USER_HZ`, which is 100 on every supported platform).
fn cpu_s(stat: &str) -> Option<f64> {
    // Field 2 is the program's name in parentheses, which may itself hold any character: start
    // after it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11).map(str::parse::<u32>);
    let (user, kernel) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((f64::from(user) + f64::from(kernel)) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(
            resident_bytes("Name:\tsluice\nVmRSS:\t    5120 kB\nThreads:\t3\n"),
            Some(5 * 1024 * 1024)
        );
        let limits = "Limit    Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files     \n";
        assert_eq!(max_fds(limits), Some(1024));
        let stat = "12 (a) b) c) S 1 12 12 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 100 1000 200";
        assert_eq!(cpu_s(stat), Some(3.0));
    }

    #[test]
    fn missing_values_are_none() {
        assert_eq!(resident_bytes("Name:\tsluice\n"), None);
        assert_eq!(resident_bytes("VmRSS:\t18446744073709551615 kB\n"), None);
        assert_eq!(max_fds("Max open files unlimited unlimited files"), None);
        assert_eq!(max_fds(""), None);
        assert_eq!(cpu_s("12 (sluice) S 1"), None);
        assert_eq!(cpu_s(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_open_files() {
        let Process { resident_bytes, open_fds, max_fds, cpu_s } = Process::now();
        assert!(resident_bytes.unwrap() > 100_000);
        assert!((1..=max_fds.unwrap()).contains(&open_fds.unwrap()));
        assert!(cpu_s.unwrap() >= 0.0);
    }
}
