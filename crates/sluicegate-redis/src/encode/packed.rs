//! Packed numbers, as scripts read and write them.

/// Every whole number below this is exact in a script.
pub(crate) const EXACT: u64 = 1 << 53;

/// A time in whole microseconds and parts of one.
pub(super) struct ExactMicros {
    pub(super) whole: u64,
    pub(super) part: u64,
}

/// Numbers for `struct.unpack`: 4 bytes, or a double.
pub(super) struct Packed(pub(super) Vec<u8>);

impl Packed {
    pub(super) fn new() -> Packed {
        Packed(Vec::with_capacity(32))
    }

    pub(super) fn u32(mut self, number: u32) -> Packed {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// A whole number, exact up to [`EXACT`]. Larger ones are costs that no limit allows.
    #[allow(clippy::cast_precision_loss, reason = "exact up to EXACT")]
    pub(super) fn f64(mut self, number: u64) -> Packed {
        self.0.extend_from_slice(&(number as f64).to_le_bytes());
        self
    }

    /// Any double, bit by bit.
    pub(super) fn double(mut self, number: f64) -> Packed {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn length(self, ExactMicros { whole, part }: &ExactMicros) -> Packed {
        // Never truncated: a part is below the count.
        self.f64(*whole).u32(u32::try_from(*part).unwrap_or(u32::MAX))
    }

    /// -1, for a missing value.
    pub(super) fn none(self) -> Packed {
        self.double(-1.0)
    }
}

/// The unread rest of numbers from `struct.pack`.
pub(super) struct Unpacked<'a>(pub(super) &'a [u8]);

impl Unpacked<'_> {
    pub(super) fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// A number of permits: at least 0 and below [`EXACT`]. Anything else is not ours.
    #[allow(clippy::cast_precision_loss, reason = "exact")]
    pub(super) fn permits(&mut self) -> Option<f64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*number)).filter(|number| (0.0..EXACT as f64).contains(number))
    }

    /// Six bytes.
    pub(super) fn u48(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<6>()?;
        self.0 = rest;
        Some(number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A whole number below [`EXACT`]. Anything else is not ours.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked"
    )]
    pub(super) fn f64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        let number = f64::from_le_bytes(*number);
        ((0.0..EXACT as f64).contains(&number) && number.fract() == 0.0).then_some(number as u64)
    }
}
