//! Numbers in half of their room.

/// A number to within one part in 2^11, rounded down; exact up to 2^12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short(u16);

/// Three numbers: two to within one part in 2^6, exact up to 2^7, and one to within one in 2^5,
/// exact up to 2^6; rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Triple(u32);

/// Bits behind the first one that are kept.
const KEPT: u32 = 11;
/// … of three: of the first two, and of the last one, with five bits above them each.
const FIRST: u32 = 6;
const LAST: u32 = 5;
/// Where the second and the last one begin.
const SECOND_AT: u32 = FIRST + 5;
const LAST_AT: u32 = 2 * SECOND_AT;

/// The exponent above so many bits of the number.
#[inline]
const fn pack<const KEPT: u32>(value: u32) -> u32 {
    let bits = u32::BITS - value.leading_zeros();
    if bits <= KEPT {
        return value;
    }
    // 1 to 27: five bits.
    let exponent = bits - KEPT;
    let kept = (value >> (exponent - 1)) & ((1 << KEPT) - 1);
    (exponent << KEPT) | kept
}

#[inline]
const fn unpack<const KEPT: u32>(packed: u32) -> u32 {
    let (exponent, kept) = (packed >> KEPT, packed & ((1 << KEPT) - 1));
    match exponent {
        0 => kept,
        _ => (kept | 1 << KEPT) << (exponent - 1),
    }
}

impl Triple {
    pub(super) const NONE: Triple = Triple(0);

    #[inline]
    pub(super) const fn of([first, second, last]: [u32; 3]) -> Triple {
        let (first, second) = (pack::<FIRST>(first), pack::<FIRST>(second));
        Triple(first | second << SECOND_AT | pack::<LAST>(last) << LAST_AT)
    }

    #[inline]
    pub(super) const fn get(self) -> [u32; 3] {
        const MASK: u32 = (1 << SECOND_AT) - 1;
        let (first, second) = (self.0 & MASK, self.0 >> SECOND_AT & MASK);
        [unpack::<FIRST>(first), unpack::<FIRST>(second), unpack::<LAST>(self.0 >> LAST_AT)]
    }
}

impl Short {
    pub(super) const NONE: Short = Short(0);

    #[inline]
    pub(super) const fn of(value: u32) -> Short {
        Short(pack::<KEPT>(value) as u16)
    }

    #[inline]
    pub(super) const fn get(self) -> u32 {
        unpack::<KEPT>(self.0 as u32)
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
    #[test]
    fn three_numbers_of_any_size_do_not_touch_each_other() {
        let large = (8..32).flat_map(|bit| [1 << bit, (1 << bit) | 3 << (bit - 8)]);
        for value in (0..=257).chain(large).chain([u32::MAX]) {
            for other in [0, 1, 255, 70_000, u32::MAX] {
                let alone = Triple::of([other; 3]).get();
                for at in 0..3 {
                    let mut three = [other; 3];
                    three[at] = value;
                    let kept = Triple::of(three).get();
                    let shift = if at == 2 { LAST } else { FIRST };
                    assert!(kept[at] <= value && value - kept[at] <= value >> shift, "{three:?}");
                    let untouched = (0..3).filter(|place| *place != at);
                    assert!(untouched.into_iter().all(|at| kept[at] == alone[at]), "{three:?}");
                }
            }
        }
        assert_eq!(Triple::of([100, 128, 64]).get(), [100, 128, 64]);
    }
}
