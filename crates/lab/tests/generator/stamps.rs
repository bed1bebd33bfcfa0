//! Stamped payload: a block that comes from elsewhere is noticed.

use crate::fake::{Device, Fake, MS, US};
use crate::{mixed, reads, stamped};
use anabranch_lab::generator::{GeneratorReply, Payload, Plan};
use anabranch_lab::scenario::{Job, Mix, PerOp, Sizes};

/// Reads, writes and trims of 1 to 8 blocks of 512 bytes.
fn small(mix: Mix) -> Job {
    Job { mix, sizes: PerOp::all(Sizes::Range { min: 512, max: 4096 }), ..mixed(4, 2) }
}

#[test]
fn what_is_read_back_is_where_it_was_written() {
    let mix = Mix { read: 50, write: 40, trim: 10 };
    let mut fake = Fake::new(1, Device::small(100 * US, 1000));
    let figures = fake.run(stamped(vec![small(mix)]));
    assert_eq!((figures.errors, figures.first_error.clone()), (0, None));
    let [reads, writes, trims] = &figures.jobs[0];
    assert!(reads.requests() > 30_000 && writes.requests() > 20_000 && trims.requests() > 5000);
    let stamped = fake.device.data.chunks(512).filter(|block| block[8..16] != [0; 8]).count();
    assert!(stamped > 500, "{stamped}");
}

#[test]
fn a_swapped_block_is_an_error_in_words() {
    let write = Mix { read: 0, write: 100, trim: 0 };
    let mut fake = Fake::new(1, Device::small(100 * US, 1000));
    assert_eq!(fake.run(stamped(vec![small(write)])).errors, 0);
    let (low, high) = fake.device.data.split_at_mut(900 * 512);
    low[300 * 512..301 * 512].swap_with_slice(&mut high[..512]);
    let read = Mix { read: 100, write: 0, trim: 0 };
    let begin = fake.now;
    let figures = fake.run(Plan { begin, ..stamped(vec![small(read)]) });
    assert!(figures.errors > 100, "{}", figures.errors);
    let words = figures.first_error.expect("an error has words");
    let expected = [
        "nvme0n1: block 300 holds what was written to block 900",
        "nvme0n1: block 900 holds what was written to block 300",
    ];
    assert!(expected.contains(&words.as_str()), "{words}");
    let requests = figures.jobs[0][0].requests();
    let (ended, ramp) = (figures.books.requests_ended, figures.windows[..2].iter());
    let ramp: u64 = ramp.map(|window| window.requests).sum();
    assert_eq!(requests + ramp + figures.errors, ended);
}

#[test]
fn foreign_contents_are_no_stamp() {
    let mut fake = Fake::new(1, Device::small(100 * US, 1000));
    fake.device.data.fill(0x5a);
    let figures =
        fake.run(stamped(vec![Job { sizes: PerOp::all(Sizes::fixed(512)), ..reads(1, 1) }]));
    let words = figures.first_error.expect("an error has words");
    assert!(words.contains("holds no stamp: it begins with 0x5a5a"), "{words}");
    assert_eq!(figures.errors, figures.books.requests_ended);
}

#[test]
fn plain_payload_is_not_looked_at() {
    let mut fake = Fake::new(1, Device::small(MS, 1000));
    fake.device.data.fill(0x5a);
    let job = small(Mix { read: 100, write: 0, trim: 0 });
    let plan = Plan { payload: Payload::Plain, ..stamped(vec![job]) };
    assert!(matches!(fake.start(plan), GeneratorReply::Started));
    let GeneratorReply::Figures(figures) = fake.collect() else { panic!("figures") };
    assert_eq!(figures.errors, 0);
}
