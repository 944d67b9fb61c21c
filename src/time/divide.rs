//! Division by one number, many times: a multiplication instead, for processors divide slowly.

/// Divides offsets by a fixed divisor.
///
/// Factors of two are shifted out of both first, so that offsets of nearly any length fit: with windows of
/// 10 seconds in microseconds, 6 days. Then `n / d = (n · ⌈2⁶⁴ / d⌉) >> 64`, exact for `n` and `d` below
/// 2³². Source: Lemire, Kaser and Kurz, "Faster remainder by direct computation" (2019), theorem 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divisor {
    shift: u32,
    /// ⌈2⁶⁴ / d⌉; none where only a shift is left.
    reciprocal: Option<u64>,
}

impl Divisor {
    /// A divisor above zero whose odd part is below 2³²; none otherwise.
    pub fn new(divisor: i64) -> Option<Self> {
        let divisor = u64::try_from(divisor).ok().filter(|divisor| *divisor > 0)?;
        let shift = divisor.trailing_zeros();
        let odd = u32::try_from(divisor >> shift).ok()?;
        // For an odd divisor above 1, which does not divide 2⁶⁴, rounding up is adding one.
        let reciprocal = (odd > 1).then(|| u64::MAX / u64::from(odd) + 1);
        Some(Self { shift, reciprocal })
    }

    /// Whether offsets up to this one can be divided.
    pub fn takes(&self, greatest: u64) -> bool {
        greatest >> self.shift <= u64::from(u32::MAX)
    }

    /// The divisor as a function, for loops.
    #[inline]
    pub fn divide(&self, offset: u64) -> u64 {
        let offset = offset >> self.shift;
        match self.reciprocal {
            None => offset,
            Some(reciprocal) => {
                let product = u128::from(offset).wrapping_mul(u128::from(reciprocal));
                // The upper half of a product of two 64-bit numbers fits in 64 bits.
                (product >> 64) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_divides_as_the_processor_does() {
        let divisors = [
            1,
            2,
            3,
            7,
            10,
            60,
            1_000,
            4_096,
            3_600_000_000,
            10_000_000_000,
            4_294_967_291,
        ];
        for divisor in divisors {
            let fast = Divisor::new(divisor).unwrap();
            let divisor = divisor.unsigned_abs();
            let greatest = (u64::from(u32::MAX) << fast.shift) | ((1 << fast.shift) - 1);
            assert!(fast.takes(greatest));
            let around = |offset: u64| [offset.saturating_sub(1), offset, offset + 1];
            let multiples = (0..64).map(|bits| (1_u64 << bits) / divisor * divisor);
            let offsets = multiples
                .flat_map(around)
                .chain([0, 1, greatest - 1, greatest]);
            for offset in offsets.filter(|offset| fast.takes(*offset)) {
                assert_eq!(
                    fast.divide(offset),
                    offset / divisor,
                    "{offset} / {divisor}"
                );
            }
        }
    }

    #[test]
    fn what_it_cannot_divide_by_is_told() {
        assert_eq!(Divisor::new(0), None);
        assert_eq!(Divisor::new(-5), None);
        assert_eq!(Divisor::new((1 << 32) + 1), None);
        assert!(!Divisor::new(3).unwrap().takes(1 << 32));
    }
}
