//! A hundred readers walk the tree while controllers come and go and others write nonsense.

use crate::stand::Stand;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const READERS: usize = 100;
/// How often the second path leaves and comes back.
const ROUNDS: usize = 8;

/// What may be met on the way: it has gone meanwhile.
fn has_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV, Errno::STALE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| gone.contains(&errno))
}

/// Reads everything below a directory; gives back how many files.
fn walk(dir: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let below = (|| {
            let metadata = fs::symlink_metadata(&path)?;
            let kind = metadata.file_type();
            if metadata.permissions().mode() & 0o444 == 0 {
                return Ok(0);
            }
            if kind.is_dir() {
                return walk(&path);
            }
            if kind.is_symlink() {
                fs::read_link(&path)?;
                return Ok(0);
            }
            let mut text = Vec::new();
            File::open(&path)?.read_to_end(&mut text)?;
            assert!(text.is_empty() || text.ends_with(b"\n"), "{path:?}: {text:?}");
            Ok(1)
        })();
        match below {
            Ok(count) => files += count,
            Err(error) if has_gone(&error) => {}
            Err(error) => panic!("{path:?}: {error}"),
        }
    }
    Ok(files)
}

#[test]
fn a_hundred_readers_do_no_harm_while_controllers_come_and_go() {
    let Some(stand) = Stand::new() else { return };
    let root = stand.at("");
    let before = walk(&root).expect("the root stays");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, root) = (&over, &root);
        let reader = || {
            let mut files = 0;
            while !over.load(Ordering::Relaxed) {
                files = walk(root).expect("the root stays");
            }
            files
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let writer = scope.spawn(move || {
            let nonsense = vec![b'z'; 1 << 20];
            while !over.load(Ordering::Relaxed) {
                let policy = root.join("class/nvme-subsystem/nvme-subsys0/iopolicy");
                assert!(fs::write(&policy, &nonsense).is_err());
                fs::write(&policy, "round-robin\n").expect("a policy");
                // The second path may be away.
                let _ = fs::write(root.join("class/nvme/nvme1/reconnect_delay"), "3");
            }
        });
        for _ in 0..ROUNDS {
            stand.disconnect("nvme1");
            assert_eq!(stand.connect(1), "nvme1");
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().expect("a reader") > 0);
        }
        writer.join().expect("the writer");
    });
    assert_eq!(walk(&root).expect("the root stays"), before, "nothing is missing afterwards");
    stand.finish();
}
