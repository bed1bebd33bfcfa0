//! Numbers in half of their room.

/// A number to within one part in 2^11, rounded down; exact up to 2^12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short(u16);

/// Bits behind the first one that are kept.
const KEPT: u32 = 11;
const MASK: u32 = (1 << KEPT) - 1;

impl Short {
    pub(super) const NONE: Short = Short(0);

    #[inline]
    pub(super) const fn of(value: u32) -> Short {
        let bits = u32::BITS - value.leading_zeros();
        if bits <= KEPT {
            return Short(value as u16);
        }
        // 1 to 21: five bits.
        let exponent = bits - KEPT;
        let kept = (value >> (exponent - 1)) & MASK;
        Short(((exponent << KEPT) | kept) as u16)
    }

    #[inline]
    pub(super) const fn get(self) -> u32 {
        let (exponent, kept) = (self.0 as u32 >> KEPT, self.0 as u32 & MASK);
        match exponent {
            0 => kept,
            _ => (kept | 1 << KEPT) << (exponent - 1),
        }
    }

    /// Sixteen bits that are something else.
    #[inline]
    pub(super) const fn raw(bits: u16) -> Short {
        Short(bits)
    }

    #[inline]
    pub(super) const fn bits(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn small_numbers_are_exact_large_ones_nearly_and_none_grows() {
        for value in 0..=1 << 12 {
            assert_eq!(Short::of(value).get(), value);
        }
        let mut last = 0;
        for value in
            (12..32).flat_map(|bit| [1, 1027, 2047].map(|more| (1 << bit) | more << (bit - 12)))
        {
            let kept = Short::of(value).get();
            assert!(kept <= value && value - kept <= value >> 11, "{value}: {kept}");
            assert!(kept >= last, "{value}: {kept} after {last}");
            last = kept;
        }
        assert_eq!(Short::of(u32::MAX).get(), u32::MAX - (1 << 20) + 1);
    }
}
