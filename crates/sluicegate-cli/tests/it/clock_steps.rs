//! The server on a machine whose clock is set.
#![cfg(target_os = "linux")]

use crate::serving::{Folder, Serving, client, free_port};
use crate::wall_clock::WallClock;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::SystemTime;

const HOUR: i64 = 3_600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

/// A server whose clock can be set.
struct Machine {
    clock: WallClock,
    server: Serving,
    stream: BufReader<TcpStream>,
}

impl Machine {
    /// `None` without a C compiler.
    fn start(shift: i64) -> Option<Machine> {
        let clock = WallClock::new(Folder::new("clock-steps"), shift)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let mut server = Serving::spawn(clock.give_to(command.arg("serve").args(free_port())));
        let stream = BufReader::new(client(&server.resp()));
        Some(Machine { clock, server, stream })
    }

    /// Sets the clock, and waits until the server has noticed.
    fn set(&mut self, shift: i64, logged: &str) {
        self.clock.set(shift);
        let line = self.server.wait_for("the system clock was set ");
        assert!(line.contains(&format!("the system clock was set {logged}")), "{line}");
    }

    /// Sends a command; the items of the reply.
    fn ask(&mut self, words: &[&str]) -> Vec<String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(command.as_bytes()).unwrap();
        let first = self.line();
        match first.strip_prefix('*') {
            None => vec![first],
            Some(items) => (0..items.parse().unwrap()).map(|_| self.item()).collect(),
        }
    }

    fn item(&mut self) -> String {
        let line = self.line();
        match line.strip_prefix('$') {
            Some("-1") => String::new(),
            Some(_) => self.line(),
            None => line,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Whether a call is allowed, and what remains.
    fn check(&mut self, limit: &str) -> (bool, u64) {
        let reply = self.ask(&["RL.CHECK", limit, "k"]);
        assert!(reply.len() == 7, "{reply:?}");
        (reply[0] == ":1", reply[2][1..].parse().unwrap())
    }

    fn acquires(&mut self) -> bool {
        self.ask(&["RL.ACQUIRE", "concurrency 3 ttl=1d", "k"])[0] == ":1"
    }

    /// When the next window begins, in milliseconds.
    fn next(&mut self, limit: &str) -> u128 {
        self.ask(&["RL.NEXT", limit, "k"])[0][1..].parse().unwrap()
    }
}

fn utc_ms() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()
}

/// Started ten years ahead, and set right; set back by an hour; and a glimpse of an hour ahead.
/// Each limit refills so slowly that it does not matter how long this takes.
#[test]
fn durations_do_not_follow_a_clock_that_is_set() {
    let Some(mut machine) = Machine::start(TEN_YEARS) else {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: there is no C compiler `cc`");
        }
        return;
    };
    let limits = ["token-bucket 50/3650d", "sliding-log 50/3650d", "fixed-window 50/3650d start=first"];
    for limit in limits {
        assert_eq!([(); 3].map(|()| machine.check(limit)), [(true, 49), (true, 48), (true, 47)], "{limit}");
    }
    let day = "fixed-window 5/day";
    assert_eq!(machine.check(day), (true, 4));
    let ten_years_ms = u128::try_from(TEN_YEARS).unwrap() * 1_000;
    assert!(machine.next(day) > utc_ms() + ten_years_ms - 1_000);

    // To the second: the two clocks are read a moment apart.
    machine.set(0, "back by 3153");
    for limit in limits {
        assert_eq!(machine.check(limit), (true, 46), "{limit}");
    }
    // A new key has the window of today.
    let next = machine.next("fixed-window 6/day");
    assert!(next + 1_000 > utc_ms() && next <= utc_ms() + 86_400_000, "{next}");

    let pacer = "pacer 6/3650d";
    assert_eq!(machine.check(pacer), (true, 6));
    machine.set(-HOUR, "back by 3");
    assert_eq!(machine.check(pacer), (true, 5));

    assert_eq!([(); 4].map(|()| machine.acquires()), [true, true, true, false]);
    machine.set(26 * HOUR, "forward by 97");
    assert!(!machine.acquires(), "a lease was granted twice");
    machine.set(0, "back by 93");
    assert!(!machine.acquires(), "a lease was granted twice");
}
