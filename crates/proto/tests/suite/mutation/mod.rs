//! Runs a fuzz body over a corpus and over seeded mutations of it.

const ROUNDS: u64 = 10_000;

/// SplitMix64: small, and the same everywhere.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Changes a few places: bits, bytes, little-endian extremes, cuts, repeats.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next() as u8,
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
            3 => {
                let value = [0, 1, u32::MAX, 1 << 31, rng.next() as u32][rng.below(5)];
                for (to, from) in bytes[at..].iter_mut().zip(value.to_le_bytes()) {
                    *to = from;
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let len = rng.below(200).min(bytes.len() - at);
                let part = bytes[at..at + len].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let len = rng.below(100).min(bytes.len() - at);
                bytes.drain(at..at + len);
            }
        }
    }
}

pub(crate) fn run(name: &str, corpus: &[Vec<u8>], body: fn(&[u8])) {
    let seed = std::env::var("ANABRANCH_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(0x0a0b_0c0d);
    println!("{name}: seed {seed} (ANABRANCH_SEED)");
    for bytes in corpus {
        body(bytes);
    }
    let mut rng = Rng(seed);
    for round in 0..ROUNDS {
        let mut bytes = corpus[rng.below(corpus.len())].clone();
        mutate(&mut bytes, &mut rng);
        let outcome = std::panic::catch_unwind(|| body(&bytes));
        assert!(outcome.is_ok(), "{name}: seed {seed}, round {round}, bytes {bytes:02x?}");
    }
}
