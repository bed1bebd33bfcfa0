//! Plans that the device cannot serve, and a device that comes late.

use crate::fake::{Device, Fake, MS, SECOND, US};
use crate::{mixed, plan, reads, scenario};
use anabranch_lab::generator::{GeneratorEvent, GeneratorReply, Plan};
use anabranch_lab::scenario::{Job, PerOp, Sizes};

/// Why a plan is refused; it must be an event too.
fn refused(mut fake: Fake, plan: Plan) -> String {
    assert!(matches!(fake.start(plan), GeneratorReply::Started));
    let GeneratorReply::Refused(words) = fake.collect() else { panic!("not refused") };
    assert_eq!(fake.events.first(), Some(&GeneratorEvent::Rejected(words.clone())));
    assert_eq!(fake.bufs.live(), 0);
    assert_eq!(fake.taken, Some(Vec::new()));
    words
}

#[test]
fn what_the_device_cannot_do_is_said_at_once() {
    let one = |job| plan(&scenario(1, vec![job]));
    let device = Device { max_discard_blocks: 0, ..Device::new(MS) };
    let words = refused(Fake::new(1, device), one(mixed(1, 1)));
    assert_eq!(words, "job \"job\" on nvme0n1: the device supports no deallocate: leave out trims");
    let far = Job { offset: 1 << 40, ..reads(1, 1) };
    let words = refused(Fake::new(1, Device::new(MS)), one(far));
    assert!(words.starts_with("job \"job\" on nvme0n1: offset: must be a multiple"), "{words}");
    let long = Job { sizes: PerOp::all(Sizes::fixed(2 << 20)), ..reads(1, 1) };
    let words = refused(Fake::new(1, Device::new(MS)), one(long));
    assert!(words.contains("longer than the longest buffer, 1048576 bytes"), "{words}");
}

#[test]
fn a_device_that_never_comes_is_named() {
    let mut fake = Fake::new(2, Device::new(MS));
    fake.hide_device();
    let words = refused(fake, plan(&scenario(2, vec![reads(1, 2)])));
    assert_eq!(words, "there is no device nvme0n1");
}

#[test]
fn a_device_that_comes_late_is_used_from_then_on() {
    let mut fake = Fake::new(1, Device::new(100 * US));
    fake.hide_device();
    assert!(matches!(fake.start(plan(&scenario(1, vec![reads(1, 1)]))), GeneratorReply::Started));
    fake.run_until(500 * MS);
    fake.show_device();
    let GeneratorReply::Figures(figures) = fake.collect() else { panic!("figures") };
    let first = fake.taken.iter().flatten().map(|taken| taken.at_ns).min();
    assert_eq!(first, Some(500 * MS));
    assert_eq!(figures.jobs[0][0].requests(), 4_999);
    assert_eq!(figures.books.check(), Ok(()));
    assert_eq!(figures.books.in_flight_ns, SECOND);
}
