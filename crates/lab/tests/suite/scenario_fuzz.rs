//! Both parsers take anything: the library's files, and the same with damage.

use anabranch_lab::rng::Rng;
use anabranch_lab::scenario::fuzz::{fuzz_job_file, fuzz_scenario};
use std::path::Path;

const SEED: u64 = 0x5ce7_a210;

fn library() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    for dir in [dir.clone(), dir.join("jobs")] {
        for entry in std::fs::read_dir(dir).expect("the library is there") {
            let path = entry.expect("the library is readable").path();
            if path.extension().is_some_and(|e| e == "toml" || e == "fio") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.into_iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

/// Numbers and signs that parsers stumble over.
const BITS: &[&[u8]] = &[
    b"18446744073709551615",
    b"-1",
    b"0",
    b"999999999999999999999",
    b"[[",
    b"]]",
    b"{",
    b"\"",
    b"=",
    b"/",
    b":",
    b",",
    b"%",
    b"\n",
    b"\0",
    b"\xff",
    "\u{1f980}".as_bytes(),
    b"'''",
    b"nan",
    b"1e400",
    b"0.0000001",
    b"0x",
    b"[global]",
    b"none",
    b"100",
];

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let at = usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap();
        let end = (at + usize::try_from(rng.below(12)).unwrap()).min(bytes.len());
        match rng.below(4) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let bit = BITS[usize::try_from(rng.below(BITS.len() as u64)).unwrap()];
                drop(bytes.splice(at..end, bit.iter().copied()));
            }
            2 => {
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            _ => bytes.truncate(at / 2),
        }
    }
}

#[test]
fn anything_is_answered() {
    println!("seed {SEED:#x}");
    let mut rng = Rng::new(SEED);
    for file in library() {
        for round in 0..100 {
            let mut bytes = file.clone();
            if round > 0 {
                damage(&mut bytes, &mut rng);
            }
            fuzz_scenario(&bytes);
            fuzz_job_file(&bytes);
        }
    }
}

#[test]
fn deep_and_wide_files_are_answered() {
    let deep = format!("title = {}", "[".repeat(200_000));
    fuzz_scenario(deep.as_bytes());
    let dotted = format!("{} = 1", vec!["a"; 100_000].join("."));
    fuzz_scenario(dotted.as_bytes());
    fuzz_scenario("[[path]]\n".repeat(100_000).as_bytes());
    fuzz_scenario(&vec![b'\n'; 2 << 20]);
    fuzz_job_file("[a]\nrw=read\n".repeat(80_000).as_bytes());
    fuzz_job_file(format!("[a]\nbssplit={}\n", "4k:".repeat(300_000)).as_bytes());
    fuzz_job_file(format!("[a]\ncpus_allowed={}\n", "0-4095,".repeat(100_000)).as_bytes());
    fuzz_job_file(&vec![b'='; 1 << 20]);
}
