//! Which part of a cluster a key belongs to.

/// One of the 16384 parts that a cluster spreads keys over. Servers without a cluster don't look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// How many slots there are.
pub const SLOTS: u16 = 16384;

impl Slot {
    /// The slot of a key: of the part between its first `{` and the `}` after it, if there is anything between them.
    pub fn of(key: &[u8]) -> Self {
        let tag = key
            .iter()
            .position(|b| *b == b'{')
            .and_then(|open| {
                let rest = &key[open + 1..];
                rest.iter().position(|b| *b == b'}').filter(|close| *close > 0).map(|close| &rest[..close])
            })
            .unwrap_or(key);
        Slot(crc16(tag) % SLOTS)
    }
}

/// CRC-16/XMODEM, as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let at = ((crc >> 8) as u8 ^ byte) as usize;
        (crc << 8) ^ TABLE[at]
    })
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(Slot::of(b"foo"), Slot(12182));
    }

    #[test]
    fn only_a_tag_that_is_not_empty_counts() {
        assert_eq!(Slot::of(b"a{user1}b"), Slot::of(b"c{user1}:d"));
        assert_eq!(Slot::of(b"foo{}{bar}"), Slot(crc16(b"foo{}{bar}") % SLOTS));
        assert_eq!(Slot::of(b"foo{{bar}}zap"), Slot(crc16(b"{bar") % SLOTS));
    }
}
