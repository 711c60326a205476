//! What is asked: commands made beforehand, or made up as they go out.

use super::client::command;

/// The bytes of every key.
pub const KEY_LEN: usize = 20;

/// Stands for the key in the words of a [`Template`].
pub const KEY: &str = "????????????????????";

/// Gives commands to send.
pub trait Requests {
    /// Appends this many commands.
    fn next(&mut self, count: usize, into: &mut Vec<u8>);
}

/// Stands for an identifier of the call in the words of a [`Template`]: as long as a UUID, and
/// other each time.
pub const CALL_ID: &str = "????????-????-????-????-????????????";

/// A command in which only the key changes, and the call's identifier if it has one.
#[derive(Clone)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where the key stands, which may be several times.
    keys: Vec<usize>,
    call_id: Option<usize>,
}

impl Template {
    pub fn new(words: &[impl AsRef<[u8]>]) -> Template {
        let bytes = command(words);
        let places = |what: &str| -> Vec<usize> {
            let windows = bytes.windows(what.len()).enumerate();
            windows.filter(|(_, window)| *window == what.as_bytes()).map(|(place, _)| place).collect()
        };
        Template { keys: places(KEY), call_id: places(CALL_ID).first().copied(), bytes }
    }

    /// Appends the command for the key of a number. `call` is another number each time.
    fn write(&self, number: u64, call: u64, into: &mut Vec<u8>) {
        let began = into.len();
        into.extend_from_slice(&self.bytes);
        if !self.keys.is_empty() {
            let key = key_of(number);
            for place in &self.keys {
                into[began + place..][..KEY_LEN].copy_from_slice(&key);
            }
        }
        if let Some(place) = self.call_id {
            // The rest of the identifier stays as it is: it is as long, and two of these are never
            // the same.
            into[began + place..][..KEY_LEN].copy_from_slice(&key_of(call));
        }
    }
}

/// The key of a number: 20 letters and digits without any order.
pub fn key_of(number: u64) -> [u8; KEY_LEN] {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut low, mut high) = (mixed(number), mixed(!number));
    let mut key = [0; KEY_LEN];
    let (front, back) = key.split_at_mut(KEY_LEN / 2);
    for (front, back) in front.iter_mut().zip(back) {
        (*front, *back) = (LETTERS[(low % 32) as usize], LETTERS[(high % 32) as usize]);
        (low, high) = (low / 32, high / 32);
    }
    key
}

/// The output function of `SplitMix64`: two numbers never become one.
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Each key once, from a number on: to fill a server, or to flood it.
pub struct Fresh {
    pub template: Template,
    pub from: u64,
}

impl Requests for Fresh {
    fn next(&mut self, count: usize, into: &mut Vec<u8>) {
        for _ in 0..count {
            self.template.write(self.from, self.from, into);
            self.from += 1;
        }
    }
}

/// A number of keys in turn, again and again, so that each has been asked equally often.
pub struct Turns {
    pub template: Template,
    pub keys: u64,
    pub at: u64,
}

impl Requests for Turns {
    fn next(&mut self, count: usize, into: &mut Vec<u8>) {
        for _ in 0..count {
            self.template.write(self.at % self.keys, self.at, into);
            self.at += 1;
        }
    }
}

/// Commands of uniformly drawn keys, made beforehand, so that sending them is copying. They come
/// again from the start when they have been used up.
pub struct Prepared {
    bytes: Vec<u8>,
    each: usize,
    at: usize,
}

impl Prepared {
    /// As many commands as there are keys.
    pub fn new(template: &Template, keys: u64) -> Prepared {
        let mut bytes = Vec::with_capacity(template.bytes.len() * keys as usize);
        for draw in 0..keys {
            // Far from the numbers of the keys themselves, so that the draws have nothing to do
            // with them.
            template.write(mixed(draw ^ 0x5bd1_e995_0000_0000) % keys, draw, &mut bytes);
        }
        Prepared { bytes, each: template.bytes.len(), at: 0 }
    }

    /// The same commands for a second generator, which begins halfway.
    pub fn second(&self) -> Prepared {
        let half = self.bytes.len() / self.each / 2 * self.each;
        Prepared { bytes: self.bytes.clone(), each: self.each, at: half }
    }
}

impl Requests for Prepared {
    fn next(&mut self, count: usize, into: &mut Vec<u8>) {
        let mut left = count * self.each;
        while left > 0 {
            let here = left.min(self.bytes.len() - self.at);
            into.extend_from_slice(&self.bytes[self.at..][..here]);
            left -= here;
            self.at = (self.at + here) % self.bytes.len();
        }
    }
}
