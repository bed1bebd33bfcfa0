//! Work on files.

use crate::support::{Dir, Random, Rig, Seen};
use anabranch_proto::machine::{BufRef, DiskId, DiskOp, FileId, Output, SystemError};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;

fn open(path: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

/// Runs one operation to its end.
fn run(rig: &mut Rig, file: FileId, op: DiskOp) -> Result<u32, SystemError> {
    let id = DiskId(77);
    rig.ask(0, move |engine, _| engine.out(Output::Disk { id, file, op }));
    rig.wait(0, |seen| match seen {
        Seen::DiskDone(done, result) if *done == id => Some(*result),
        _ => None,
    })
}

fn buffer(rig: &Rig, bytes: Vec<u8>) -> BufRef {
    rig.ask(0, move |_, bufs| {
        let buf = bufs.alloc(bytes.len() as u32).expect("a buffer");
        bufs.bytes_mut(buf).copy_from_slice(&bytes);
        buf
    })
}

fn contents(rig: &Rig, buf: BufRef) -> Vec<u8> {
    rig.ask(0, move |_, bufs| bufs.bytes(buf).to_vec())
}

#[test]
fn written_is_what_is_read() {
    let dir = Dir::new("disk");
    let mut random = Random::new();
    let mut rig = Rig::new(1);
    let whole = open(&dir.path("f"));
    let mut model = vec![0u8; 3 << 20];
    whole.set_len(model.len() as u64).expect("it grows");
    let file = rig.group.register_file(whole);
    for step in 0..60u32 {
        let len = 1 + random.below(1 << 20);
        let offset = random.below(model.len() as u64 - len);
        let range = offset as usize..(offset + len) as usize;
        let bytes = random.bytes(len as usize);
        let buf = buffer(&rig, bytes.clone());
        match step % 4 {
            0 | 1 => {
                let op = DiskOp::Write { offset, buf };
                assert_eq!(run(&mut rig, file, op), Ok(len as u32));
                if step % 8 == 0 {
                    let op = DiskOp::Sync { offset, len };
                    assert_eq!(run(&mut rig, file, op), Ok(0));
                }
                model[range].copy_from_slice(&bytes);
            }
            2 => {
                assert_eq!(run(&mut rig, file, DiskOp::Read { offset, buf }), Ok(len as u32));
                assert!(contents(&rig, buf) == model[range], "step {step}");
            }
            _ => {
                let op = DiskOp::Zero { offset, len, deallocate: step % 8 == 3 };
                assert_eq!(run(&mut rig, file, op), Ok(0));
                model[range].fill(0);
            }
        }
        rig.ask(0, move |_, bufs| bufs.free(buf));
    }
    assert_eq!(run(&mut rig, file, DiskOp::Flush), Ok(0));
    let on_disk = std::fs::read(dir.path("f")).expect("readable");
    assert!(on_disk == model, "the file is what was written");
    rig.stop();
}

#[test]
fn a_read_goes_as_far_as_the_file() {
    let dir = Dir::new("past-end");
    std::fs::write(dir.path("f"), [9; 100]).expect("written");
    let mut rig = Rig::new(1);
    let file = rig.group.register_file(open(&dir.path("f")));
    let buf = buffer(&rig, vec![1; 8192]);
    for (offset, read) in [(50, 50), (0, 100), (100, 0), (4096, 0)] {
        assert_eq!(run(&mut rig, file, DiskOp::Read { offset, buf }), Ok(read));
    }
    assert!(contents(&rig, buf)[..100] == [9; 100]);
    rig.stop();
}

#[test]
fn deallocation_gives_space_back() {
    let dir = Dir::new("punch");
    let mut rig = Rig::new(1);
    let file = rig.group.register_file(open(&dir.path("f")));
    let buf = buffer(&rig, vec![1; 1 << 20]);
    let blocks = || std::fs::metadata(dir.path("f")).expect("there").blocks();
    let (offset, len) = (0, 1 << 20);
    for op in [DiskOp::Zero { offset, len, deallocate: true }, DiskOp::Deallocate { offset, len }] {
        assert_eq!(run(&mut rig, file, DiskOp::Write { offset, buf }), Ok(1 << 20));
        let before = blocks();
        assert_eq!(run(&mut rig, file, op), Ok(0));
        assert!(blocks() < before, "{before} blocks shrink to {}", blocks());
        let on_disk = std::fs::read(dir.path("f")).expect("readable");
        assert!(on_disk == [0; 1 << 20], "as long as before, and zeroes");
    }
    rig.stop();
}

/// It was advice: zeroes in its place would take the space that was to be given back, for hours.
#[test]
fn what_cannot_be_given_back_stays_as_it_is() {
    let mut rig = Rig::new(1);
    // Neither has a way to; the second one would fail if it were written to.
    for device in ["/dev/null", "/dev/full"] {
        let file = rig.group.register_file(open(device));
        for _ in 0..2 {
            let op = DiskOp::Deallocate { offset: 0, len: 16 << 40 };
            assert_eq!(run(&mut rig, file, op), Ok(0), "{device}");
        }
        let zero = DiskOp::Zero { offset: 0, len: 2 << 20, deallocate: true };
        let wanted = if device == "/dev/null" { Ok(1 << 20) } else { Err(SystemError::NO_SPACE) };
        assert_eq!(run(&mut rig, file, zero), wanted, "zeroes are written still");
    }
    rig.stop();
}

/// A device without a way to zero a range is given zeroes, and whoever asked is asked in between
/// whether it still wants them.
#[test]
fn zeroes_that_have_to_be_written_come_in_pieces() {
    let mut rig = Rig::new(1);
    let sink = rig.group.register_file(open("/dev/null"));
    for deallocate in [false, true, false] {
        let op = |offset, len| DiskOp::Zero { offset, len, deallocate };
        assert_eq!(run(&mut rig, sink, op(0, (2 << 20) + 512)), Ok(1 << 20));
        assert_eq!(run(&mut rig, sink, op(1 << 20, (1 << 20) + 512)), Ok(1 << 20));
        assert_eq!(run(&mut rig, sink, op(2 << 20, 512)), Ok(0));
        assert_eq!(run(&mut rig, sink, op(0, 1 << 20)), Ok(0), "all at once");
    }
    rig.stop();
}

#[test]
fn errors_are_the_systems() {
    let dir = Dir::new("disk-errors");
    let mut rig = Rig::new(1);
    let full = rig.group.register_file(open("/dev/full"));
    let buf = buffer(&rig, vec![1; 4096]);
    let write = DiskOp::Write { offset: 0, buf };
    assert_eq!(run(&mut rig, full, write), Err(SystemError::NO_SPACE));
    std::fs::write(dir.path("f"), [9; 100]).expect("written");
    let read_only = File::open(dir.path("f")).expect("opened");
    let read_only = rig.group.register_file(read_only);
    assert_eq!(run(&mut rig, read_only, write), Err(SystemError(9)));
    assert_eq!(run(&mut rig, FileId(1000), DiskOp::Flush), Err(SystemError(9)));
    // A device without a way to zero a range is given zeroes, which this one refuses.
    let zero = DiskOp::Zero { offset: 0, len: 100_000, deallocate: false };
    assert!(run(&mut rig, full, zero).is_err());
    // The buffer was given back each time: freeing it passes the pool's check.
    rig.ask(0, move |_, bufs| bufs.free(buf));
    rig.stop();
}
