//! Reading a discovery log.

use crate::fake::{Command, Fake, Hook, Say};
use crate::rig::{NQN, Rig};
use anabranch_host::verb::{Reply, Verb};
use anabranch_proto::nvme::log::{DiscoveryEntry, SubsystemKind};
use std::convert::Infallible;

const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

fn entries(count: u16) -> Vec<DiscoveryEntry> {
    let nqn: anabranch_proto::nvme::nqn::Nqn = "nqn.2024-01.test:one".parse().unwrap();
    (0..count)
        .map(|n| {
            let at = format!("10.0.0.1:{}", 1000 + n).parse().unwrap();
            DiscoveryEntry::tcp(SubsystemKind::Nvm, at, n, nqn.clone())
        })
        .collect()
}

type Log = Box<dyn FnMut(&Command) -> Vec<u8>>;

fn discover(mut log: Log) -> (Rig, Option<Reply<Infallible>>) {
    discover_as(Box::new(move |c| {
        c.is_log(0x70).then(|| {
            let whole = log(c);
            let at = c.log_offset().min(whole.len());
            Say::Data(whole[at..].to_vec())
        })
    }))
}

/// A discovery controller is asked, and answers so.
fn ask(change: impl FnOnce(&mut Fake), hook: Hook) -> (Rig, u64) {
    let mut rig = Rig::new(1);
    let mut fake = Fake::new(DISCOVERY, 1);
    fake.discovery = true;
    fake.ana = None;
    fake.hook = Some(hook);
    change(&mut fake);
    rig.put(8009, fake);
    let mut request = Rig::request(8009);
    request.subsystem_nqn = DISCOVERY.parse().unwrap();
    let id = rig.verb(Verb::Discover(Box::new(request)));
    (rig, id)
}

/// From a discovery controller that answers so.
fn discover_as(hook: Hook) -> (Rig, Option<Reply<Infallible>>) {
    discover_from(|_| (), hook)
}

fn discover_from(change: impl FnOnce(&mut Fake), hook: Hook) -> (Rig, Option<Reply<Infallible>>) {
    let (mut rig, id) = ask(change, hook);
    rig.advance_s(70);
    let reply = rig.reply(id);
    assert_eq!(rig.open_connections(), 0, "it leaves");
    assert_eq!(rig.bufs.in_use_bytes(), 0);
    (rig, reply)
}

#[test]
fn the_whole_log_is_read_and_the_controller_left_in_order() {
    for count in [0, 1, 15, 16, 300] {
        let log = DiscoveryEntry::log(7, &entries(count));
        let (rig, reply) = discover(Box::new(move |_| log.clone()));
        match reply {
            Some(Reply::Discovered { generation: 7, entries: found, .. }) => {
                assert_eq!(found, entries(count));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.topology.controllers.len(), 0, "no shard ever hears of it");
        assert_eq!(rig.fake(8009).cc >> 14 & 3, 1, "normal shutdown");
    }
}

/// With a time-out a host asks for a connection that stays (Base, "Discovery Controller", explicit
/// persistent connection), which controllers without those refuse: ours reads the log and leaves.
#[test]
fn a_discovery_controller_is_asked_for_no_keep_alive() {
    let log = DiscoveryEntry::log(7, &entries(1));
    let (rig, reply) = discover(Box::new(move |_| log.clone()));
    assert!(matches!(reply, Some(Reply::Discovered { .. })), "{reply:?}");
    let kato: Vec<u32> =
        rig.fake(8009).seen.iter().filter(|c| c.is_connect()).map(|c| c.cdw12).collect();
    assert_eq!(kato, [0]);
}

/// A listener is taken away between the header and the entries.
#[test]
fn a_log_that_has_become_shorter_is_read_again() {
    let refusing = |generations: [u64; 2]| {
        let mut headers = 0;
        discover_as(Box::new(move |c| {
            let whole = DiscoveryEntry::log(generations[usize::from(headers > 0)], &entries(20));
            match (c.is_log(0x70), c.log_offset()) {
                (false, _) => None,
                (true, 0) => {
                    headers += 1;
                    Some(Say::Data(whole))
                }
                (true, _) if headers == 1 => Some(Say::Status(0x002)),
                (true, at) => Some(Say::Data(whole[at..].to_vec())),
            }
        }))
        .1
    };
    let reply = refusing([7, 8]);
    let Some(Reply::Discovered { generation: 8, entries: found, .. }) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(found, entries(20));
    let reply = refusing([7, 7]);
    let Some(Reply::Error(error)) = reply else { panic!("{reply:?}") };
    assert!(error.to_string().contains("discovery log: Invalid Field"), "{error}");
}

/// MDTS is in units of the smallest page, here of 4 KiB.
#[test]
fn no_command_reads_more_of_the_log_than_the_controller_transfers() {
    for (mdts, most) in [(1, 8 << 10), (2, 15 << 10), (0, 15 << 10)] {
        let log = DiscoveryEntry::log(7, &entries(20));
        let (rig, reply) = discover_from(
            |fake| fake.mdts = mdts,
            Box::new(move |c| {
                let at = c.log_offset();
                c.is_log(0x70).then(|| Say::Data(log[at..log.len()].to_vec()))
            }),
        );
        let found = match reply {
            Some(Reply::Discovered { entries, .. }) => entries,
            other => panic!("{other:?}"),
        };
        assert_eq!(found, entries(20));
        let fake = rig.fake(8009);
        let longest = fake.seen.iter().filter(|c| c.is_log(0x70)).map(|c| c.length).max();
        assert_eq!(longest, Some(most), "MDTS {mdts}");
    }
}

/// It has no namespaces, so it needs no command set for them.
#[test]
fn a_discovery_controller_need_not_have_an_io_command_set() {
    for (css, selected) in [(0, 0), (1 << 37, 0), (1 << 43, 6), (1 << 44, 7)] {
        let cap = 1023 | 1 << 16 | 2 << 24 | css;
        let (rig, reply) = discover_as(Box::new(move |c| {
            if c.is_property_get(0) {
                return Some(Say::Result(cap));
            }
            c.is_log(0x70).then(|| {
                let log = DiscoveryEntry::log(7, &entries(1));
                Say::Data(log[c.log_offset().min(log.len())..].to_vec())
            })
        }));
        assert!(matches!(reply, Some(Reply::Discovered { .. })), "{css:#x}: {reply:?}");
        assert_eq!(rig.fake(8009).cc >> 4 & 7, selected, "CC.CSS for {css:#x}");
    }
}

/// Who was asked for a log is a discovery controller, as in Linux: those from before NVMe 1.4 do
/// not say so of themselves, and one may have an NQN of its own. What only I/O needs it need not
/// have.
#[test]
fn whoever_is_asked_for_a_log_need_not_call_itself_a_discovery_controller() {
    for nqn in ["", "nqn.2024-01.test:own-discovery"] {
        let log = DiscoveryEntry::log(7, &entries(1));
        let (_, reply) = discover_from(
            |fake| {
                fake.patch_identify = Some(Box::new(move |data| {
                    data[76] |= 1 << 3; // CMIC: ANA, with no group
                    data[111] = 0; // CNTRLTYPE: not reported
                    data[320..322].fill(0); // KAS
                    data[344..352].fill(0); // ANAGRPMAX, NANAGRPID
                    data[768..1024].fill(0); // SUBNQN
                    data[768..768 + nqn.len()].copy_from_slice(nqn.as_bytes());
                    data[1792..1800].fill(0); // IOCCSZ, IORCSZ
                }));
            },
            Box::new(move |c| c.is_log(0x70).then(|| Say::Data(log[c.log_offset()..].to_vec()))),
        );
        assert!(matches!(reply, Some(Reply::Discovered { .. })), "{nqn}: {reply:?}");
    }
}

#[test]
fn a_log_that_changes_while_it_is_read_is_read_again() {
    let mut reads = 0;
    let (_, reply) = discover(Box::new(move |c| {
        reads += 1;
        // Two generations, then quiet.
        let generation = if reads < 3 { 1 } else { 2 };
        let _ = c;
        DiscoveryEntry::log(generation, &entries(if generation == 1 { 20 } else { 30 }))
    }));
    match reply {
        Some(Reply::Discovered { generation: 2, entries: found, .. }) => {
            assert_eq!(found.len(), 30)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn c65_a_log_that_never_rests_is_given_up() {
    let mut generation = 0;
    let (_, reply) = discover(Box::new(move |_| {
        generation += 1;
        DiscoveryEntry::log(generation, &entries(3))
    }));
    let text = format!("{reply:?}");
    assert!(text.contains("changes faster than it is read"), "{text}");
}

/// Whoever connects next has the number that the discovery controller had. One that does not let
/// us go is left all the same, and what it has said is told.
#[test]
fn the_log_is_told_when_the_controller_is_gone() {
    let log = DiscoveryEntry::log(7, &entries(1));
    let hook: Hook = Box::new(move |c| match c.is_property_set() {
        true => (c.cdw12 >> 14 & 3 != 0).then_some(Say::Nothing),
        false => c.is_log(0x70).then(|| Say::Data(log[c.log_offset()..].to_vec())),
    });
    let (mut rig, id) = ask(|_| (), hook);
    rig.advance_s(1);
    let shut_down =
        rig.fake(8009).seen.iter().any(|c| c.is_property_set() && c.cdw12 >> 14 & 3 != 0);
    assert!(shut_down, "the log was read");
    assert!(rig.reply(id).is_none(), "it is still there");
    rig.advance_s(30);
    match rig.reply(id) {
        Some(Reply::Discovered { generation: 7, entries: found, .. }) => {
            assert_eq!(found, entries(1))
        }
        other => panic!("{other:?}"),
    }
    rig.put(1, Fake::new(NQN, 1));
    rig.connect_ok(1, |_| ());
    assert!(rig.head("nvme0n1").is_some());
}

#[test]
fn c65_a_log_that_comes_too_slowly_is_not_said_to_change() {
    let (mut rig, id) = ask(|_| (), Box::new(|c| c.is_log(0x70).then_some(Say::Nothing)));
    rig.advance_s(5);
    let asked = *rig.fake(8009).seen.iter().rfind(|c| c.is_log(0x70)).expect("asked");
    rig.fake(8009).say(&asked, Say::Data(DiscoveryEntry::log(1, &entries(3))));
    rig.deliver(8009);
    rig.run();
    rig.advance_s(70);
    let text = format!("{:?}", rig.reply(id));
    assert!(text.contains("the discovery log could not be read within 60 s"), "{text}");
}

#[test]
fn c65_lies_in_the_header_are_bounded() {
    for (records, format, why) in [(u64::MAX, 0, "NUMREC"), (10_001, 0, "NUMREC"), (1, 9, "RECFMT")]
    {
        let (_, reply) = discover(Box::new(move |_| {
            let mut log = DiscoveryEntry::log(1, &entries(1));
            log[8..16].copy_from_slice(&u64::to_le_bytes(records));
            log[16] = format;
            log
        }));
        let text = format!("{reply:?}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn c65_entries_that_make_no_sense_are_skipped() {
    let (_, reply) = discover(Box::new(|_| {
        let mut log = DiscoveryEntry::log(1, &entries(4));
        log[1024 + 2] = 77;
        log[2 * 1024 + 512..2 * 1024 + 768].fill(0xff);
        log[3 * 1024 + 256..3 * 1024 + 512].fill(b'x');
        log
    }));
    let Some(Reply::Discovered { entries: found, skipped, .. }) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(found, entries(4)[3..]);
    assert_eq!(skipped.len(), 3, "{skipped:?}");
    for told in [
        "entry 0 of the discovery log is skipped: Discovery log entry SUBTYPE is 77",
        "Discovery log entry TRADDR is no IP address",
        "Discovery log entry SUBNQN holds no NQN",
    ] {
        assert!(skipped.iter().any(|why| why.contains(told)), "{told}: {skipped:?}");
    }
}

#[test]
fn skipped_entries_are_told_up_to_a_limit() {
    let (_, reply) = discover(Box::new(|_| {
        let mut log = DiscoveryEntry::log(1, &entries(100));
        log.chunks_exact_mut(1024).skip(1).for_each(|entry| entry[2] = 77);
        log
    }));
    let Some(Reply::Discovered { entries, skipped, .. }) = reply else { panic!("{reply:?}") };
    assert!(entries.is_empty());
    assert_eq!(skipped.len(), 9);
    assert!(skipped[..8].iter().all(|why| why.contains("SUBTYPE is 77")), "{skipped:?}");
    assert_eq!(skipped[8], "92 more entries of the discovery log are skipped");
}

#[test]
fn a_discovery_controller_that_is_not_there_is_told() {
    let mut rig = Rig::new(1);
    let id = rig.verb(Verb::Discover(Box::new(Rig::request(9))));
    assert!(format!("{:?}", rig.reply(id)).contains("connection refused"));
}
