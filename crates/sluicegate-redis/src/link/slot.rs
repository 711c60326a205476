//! Where a key lives in a cluster: one of 16384 slots.
//!
//! Formula    slot = crc16(tag) mod 16384
//! Tag        what is between the first `{` and the first `}` after it, or the whole key if that is nothing.
//! CRC        the XMODEM one: polynomial 0x1021, begun with 0, no reflection.
//! Reference  the Redis Cluster specification, "Key distribution model" and "Hash tags".

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// The part of a key that says where it lives.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let index = (crc >> 8) ^ u16::from(byte);
        (crc << 8) ^ TABLE[usize::from(index & 0xff)]
    })
}

/// What each byte adds, made when compiling.
static TABLE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_that_the_servers_compute() {
        // From CLUSTER KEYSLOT; the first is the CRC's own check value, 0x31c3.
        for (key, wanted) in [
            ("123456789", 12_739),
            ("", 0),
            ("foo", 12_182),
            ("foo{bar}", 5_061),
            ("bar", 5_061),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("foo{bar", 15_278),
            ("}foo{", 8_453),
        ] {
            assert_eq!(slot(key.as_bytes()), wanted, "of {key:?}");
        }
    }
}
