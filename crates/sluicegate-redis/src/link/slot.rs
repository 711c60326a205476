//! The hash slot of a key in a cluster: one of 16384.
//!
//! ```text
//! Formula     slot = crc16(tag) mod 16384
//! Tag         the text between the first { and the next }; the whole key if there is none
//! CRC         XMODEM: polynomial 0x1021, initial value 0, no reflection
//! Reference   the Redis Cluster specification, "Key distribution model" and "Hash tags"
//! ```

/// The number of hash slots in a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the hash slot of a key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// Returns the part of a key that is hashed.
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

/// The CRC's lookup table, computed at compile time.
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
    fn slots_agree_with_the_server() {
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
