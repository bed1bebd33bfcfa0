//! The fuzz body over hand-made streams and seeded mutations of them.

use crate::support::Random;
use anabranch_export::fuzz::{client, nbd};
use anabranch_export::nbd::wire::{command, option};

fn corpus() -> Vec<Vec<u8>> {
    let write = client::write(1, 1, 0, &[1; 4096]);
    let read = client::request(command::READ, 0, 2, 0, 1_200_640);
    let trim = client::request(command::TRIM, 1, 3, 4096, 8192);
    let disc = client::request(command::DISC, 0, 4, 0, 0);
    let hello = client::negotiate("disk", true);
    let options = [
        client::flags(),
        client::option(option::LIST, &[]),
        client::option(option::INFO, &client::info("", &[1, 2, 3])),
        client::option(77, &[7; 100]),
        client::option(option::ABORT, &[]),
    ];
    vec![
        options.concat(),
        [hello.clone(), write.clone(), read.clone(), trim.clone(), disc.clone()].concat(),
        [write.clone(), read.clone(), trim.clone(), read.clone(), write.clone(), disc].concat(),
        [read.clone(), read.clone(), read].concat(),
        [client::write(0, 1, 512, &vec![9; 100_000]), trim, write].concat(),
        Vec::new(),
    ]
}

#[test]
fn streams_and_their_mutations_do_no_harm() {
    let mut random = Random::seeded();
    let corpus = corpus();
    for round in 0..4000 {
        let mut bytes: Vec<u8> = (0..4).map(|_| random.next() as u8).collect();
        // With and without a valid negotiation before.
        bytes.extend_from_slice(&corpus[random.below(corpus.len() as u64) as usize]);
        if round > 200 {
            for _ in 0..random.below(6) {
                let at = 4 + random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
                    1 if at < bytes.len() => {
                        bytes[at] = [0, 255, 127, 128][random.below(4) as usize]
                    }
                    2 => bytes.truncate(at),
                    _ if at < bytes.len() => {
                        let part: Vec<u8> = bytes[at..].iter().copied().take(40).collect();
                        let to = 4 + random.below(bytes.len() as u64 - 4) as usize;
                        bytes.splice(to..to, part);
                    }
                    _ => {}
                }
            }
        }
        nbd(&bytes);
    }
}
