//! The fuzz body over seeded random input, raw and biased to get far.

use anabranch_host::control::fuzz;

fn random(state: &mut u64) -> u8 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 56) as u8
}

fn run(seed: u64, bytes: &[u8]) -> bool {
    std::panic::catch_unwind(|| fuzz::admin_answers(bytes)).unwrap_or_else(|panic| {
        println!("seed {seed}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn any_bytes() {
    for seed in 0..300 {
        let mut state = seed ^ 0xa5a5_a5a5;
        let bytes: Vec<u8> = (0..3000).map(|_| random(&mut state)).collect();
        run(seed, &bytes);
    }
}

#[test]
fn plausible_answers_with_mistakes_among_them() {
    let mut live = 0;
    for seed in 0..300 {
        let mut state = seed ^ 0x5a5a_5a5a;
        // Connected, ICResp, then mostly honest answers (6), some with mistakes (5), some rest.
        let mut bytes = vec![0, 1, 2, 3];
        for _ in 0..400 {
            let conn = random(&mut state) & 1;
            match random(&mut state) % 64 {
                0 => bytes.push(0xff),
                1 => bytes.extend([conn | 5 << 1, 1, 0, 0]),
                2 => bytes.extend([conn | 5 << 1, 1, 0, 0, random(&mut state), 8, 0x80]),
                3 => bytes.push(random(&mut state)),
                4 => bytes.extend([conn, conn | 1 << 1]),
                _ => bytes.push(conn | 6 << 1),
            }
        }
        live += u32::from(run(seed, &bytes));
    }
    assert!(live > 100, "most scripts get far: {live} of 300 were live once");
}
