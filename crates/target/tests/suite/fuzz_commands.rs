//! The fuzz body over seeded random input.

use anabranch_target::fuzz;
use anabranch_target::rng::Rng;

#[test]
fn random_commands_verbs_and_mishaps() {
    for seed in 0..1_500 {
        let mut rng = Rng::new(seed);
        let len = 64 + rng.below(12_000);
        let bytes: Vec<u8> = (0..len).map(|_| (rng.next_u64() >> 56) as u8).collect();
        if let Err(panic) = std::panic::catch_unwind(|| fuzz::commands(&bytes)) {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
