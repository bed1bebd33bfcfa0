//! Files behave as in sysfs under the tools that people use.

use crate::stand::{Stand, errno};
use anabranch_host::verb::Selection;
use rustix::fs::Dir;
use rustix::io::Errno;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const POLICY: &str = "class/nvme-subsystem/nvme-subsys0/iopolicy";

#[test]
fn a_reader_goes_on_in_what_it_began_and_sees_the_new_text_from_the_beginning() {
    let Some(stand) = Stand::new() else { return };
    stand.write(POLICY, "round-robin\n").expect("a policy");
    let mut file = File::open(stand.at(POLICY)).expect("it opens");
    let mut part = [0; 5];
    file.read_exact(&mut part).expect("it reads");
    stand.write(POLICY, "numa\n").expect("a policy");
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("it reads");
    assert_eq!((&part, rest.as_str()), (b"round", "-robin\n"));
    file.seek(SeekFrom::Start(0)).expect("it seeks");
    let mut whole = String::new();
    file.read_to_string(&mut whole).expect("it reads");
    assert_eq!(whole, "numa\n");
    let mut bytes = [0; 16];
    assert_eq!(file.read_at(&mut bytes, 2).expect("it reads"), 3);
    assert_eq!(&bytes[..3], b"ma\n");
    for far in [5, 4096, u64::from(u32::MAX), i64::MAX as u64 - 16] {
        assert_eq!(file.read_at(&mut bytes, far).expect("the end"), 0, "{far}");
    }
    stand.finish();
}

#[test]
fn a_text_is_that_of_when_it_is_read_not_of_when_the_file_was_opened() {
    let Some(stand) = Stand::new() else { return };
    let mut bytes = [0; 16];
    for (policy, from) in [("numa", 0), ("round-robin", 3)] {
        let file = File::open(stand.at(POLICY)).expect("it opens");
        stand.write(POLICY, policy).expect("a policy");
        let count = file.read_at(&mut bytes, from as u64).expect("it reads");
        assert_eq!(String::from_utf8_lossy(&bytes[..count]), format!("{policy}\n")[from..]);
    }
    stand.finish();
}

#[test]
fn a_directory_that_is_read_again_shows_what_is_there_then() {
    let Some(stand) = Stand::new() else { return };
    let dir = File::open(stand.at("class/nvme")).expect("it opens");
    let mut dir = Dir::new(dir).expect("a directory");
    let mut names = || {
        dir.rewind();
        let entries = dir.by_ref().map(|entry| entry.expect("an entry"));
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with('n')).collect::<Vec<String>>()
    };
    assert_eq!(names(), ["nvme0", "nvme1"]);
    stand.disconnect("nvme1");
    assert_eq!(names(), ["nvme0"]);
    drop(dir);
    stand.finish();
}

#[test]
fn a_file_that_is_open_for_both_shows_what_was_written() {
    let Some(stand) = Stand::new() else { return };
    let mut file = OpenOptions::new().read(true).write(true).open(stand.at(POLICY)).expect("open");
    let mut bytes = [0; 32];
    assert_eq!(file.read_at(&mut bytes, 0).expect("it reads"), "queue-depth\n".len());
    file.write_all(b"numa\n").expect("a policy");
    let count = file.read_at(&mut bytes, 0).expect("it reads");
    assert_eq!(&bytes[..count], b"numa\n");
    drop(file);
    // Where a value is written does not matter, as in sysfs.
    let file = OpenOptions::new().append(true).open(stand.at(POLICY)).expect("it opens");
    file.write_at(b"round-robin\n", 1000).expect("a policy");
    assert_eq!(stand.read(POLICY), "round-robin\n");
    stand.finish();
}

/// As programs do that write a string of C with `sizeof`.
#[test]
fn a_value_may_come_with_its_terminator() {
    let Some(stand) = Stand::new() else { return };
    for value in ["numa\0", "round-robin\n\0", "queue-depth\0\0rest"] {
        stand.write(POLICY, value).unwrap_or_else(|error| panic!("{value:?}: {error}"));
        let text = value.split(['\0', '\n']).next().expect("a text");
        assert_eq!(stand.read(POLICY), format!("{text}\n"));
    }
    for value in ["\0", "\0numa"] {
        let error = errno(stand.write(POLICY, value));
        assert_eq!(error, Errno::INVAL.raw_os_error(), "{value:?}");
    }
    assert_eq!(stand.read(POLICY), "queue-depth\n");
    stand.finish();
}

#[test]
fn a_text_of_many_paths_is_whole_to_tools_that_go_by_its_size() {
    let Some(stand) = Stand::new() else { return };
    let dir = "kernel/debug/block/nvme0n1";
    stand.write(&format!("{dir}/latency_size_buckets"), "1").expect("a line for each size");
    for own in 2..12 {
        stand.connect_from(0, Some([127, 0, 0, own].into()));
    }
    let (name, file) = (format!("{dir}/latency_stat"), stand.at(&format!("{dir}/latency_stat")));
    let text = stand.read(&name);
    assert!(text.len() > 4096, "{}", text.len());
    let copy = std::env::temp_dir().join(format!("anabranch-attr-fs-copy-{}", std::process::id()));
    fs::copy(&file, &copy).expect("a copy");
    let copied = fs::read_to_string(&copy).expect("it reads");
    fs::remove_file(&copy).expect("it goes");
    assert_eq!(copied, text);
    let last = Command::new("tail").args(["-n", "1"]).arg(&file).output().expect("it runs");
    assert_eq!(Some(String::from_utf8_lossy(&last.stdout).trim_end()), text.lines().last());
    stand.finish();
}

#[test]
fn the_usual_tools_work() {
    let Some(stand) = Stand::new() else { return };
    let sh = |script: &str| {
        let mut shell = Command::new("sh");
        let shell = shell.arg("-euc").arg(script).current_dir(stand.at("")).env("LC_ALL", "C");
        let output = shell.output().expect("a shell");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    sh(&format!("echo round-robin > {POLICY}; test \"$(cat {POLICY})\" = round-robin"));
    sh(&format!("printf numa > {POLICY}; read -r p < {POLICY}; test $p = numa"));
    sh(&format!("echo queue-depth >> {POLICY}; grep -q '^queue-depth$' {POLICY}"));
    sh(&format!("printf numa | dd of={POLICY} conv=notrunc status=none; : > {POLICY}"));
    assert_eq!(sh(&format!("dd if={POLICY} bs=1 status=none")), "numa\n");
    assert_eq!(sh(&format!("tail -c 3 {POLICY}; head -c 2 {POLICY}; wc -c < {POLICY}")).trim(), {
        "ma\nnu5"
    });
    let found = sh("grep -rs optimized . | sort");
    assert_eq!(found.lines().filter(|line| line.contains("ana_state:optimized")).count(), 4);
    assert!(sh("ls -lR . | grep -c iopolicy").trim() != "0");
    let home = "./devices/virtual/nvme-subsystem/nvme-subsys0";
    assert_eq!(sh("find . -name iopolicy -path '*subsys*'"), format!("{home}/iopolicy\n"));
    assert_eq!(sh("basename $(readlink block/nvme0c1n1/device)"), "nvme1\n");
    sh(&format!("cd {home}/nvme0n1 && test \"$(cat ../iopolicy)\" = numa"));
    stand.finish();
}

/// What `nvme disconnect` of nvme-cli does with the tree.
#[test]
fn a_controller_is_deleted_by_a_write_to_a_file_that_nobody_reads() {
    let Some(stand) = Stand::new() else { return };
    let file = "class/nvme/nvme1/delete_controller";
    let mode = fs::metadata(stand.at(file)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o200);
    assert_eq!(errno(fs::read(stand.at(file))), Errno::ACCESS.raw_os_error());
    stand.write(file, "1").expect("it is deleted");
    assert_eq!(errno(fs::metadata(stand.at("class/nvme/nvme1"))), Errno::NOENT.raw_os_error());
    assert_eq!(stand.read("class/nvme/nvme0/state"), "live\n");
    stand.finish();
}

/// It ends when the controller is live again, and in an outage that is not soon.
#[test]
fn whoever_waits_for_his_write_keeps_nobody_else_waiting() {
    let Some(stand) = Stand::new() else { return };
    let others = (2..10).map(|own| stand.connect_from(0, Some([127, 0, 0, own].into())));
    let controllers: Vec<String> = others.collect();
    stand.stall();
    let (ended, begun) = (AtomicU32::new(0), Barrier::new(controllers.len() + 1));
    thread::scope(|scope| {
        for name in &controllers {
            let file = stand.at(&format!("class/nvme/{name}/reset_controller"));
            let mut file = File::options().write(true).open(file).expect("it opens");
            let (begun, ended) = (&begun, &ended);
            scope.spawn(move || {
                begun.wait();
                let _ = file.write(b"1");
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        begun.wait();
        for _ in 0..100 {
            assert_ne!(stand.read("class/nvme/nvme0/state"), "");
        }
        assert_eq!(ended.load(Ordering::Relaxed), 0, "all of them still wait");
        assert!(stand.host.disconnect(Selection::All).expect("they go") > 0);
    });
    stand.finish();
}

#[test]
fn nothing_can_be_made_removed_or_renamed() {
    let Some(stand) = Stand::new() else { return };
    let at = |path: &str| stand.at(path);
    let perm = Errno::PERM.raw_os_error();
    assert_eq!(errno(File::create(at("block/new"))), Errno::ACCESS.raw_os_error());
    assert_eq!(errno(fs::create_dir(at("block/new"))), perm);
    assert_eq!(errno(fs::remove_file(at(POLICY))), perm);
    assert_eq!(errno(fs::remove_file(at("block/nvme0n1"))), perm);
    assert_eq!(errno(fs::remove_dir(at("block"))), perm);
    assert_eq!(errno(fs::rename(at("block/nvme0n1"), at("block/nvme0n9"))), perm);
    assert_eq!(errno(symlink("nvme0n1", at("block/new"))), perm);
    assert_eq!(errno(fs::hard_link(at(POLICY), at("block/new"))), perm);
    assert_eq!(errno(fs::set_permissions(at(POLICY), fs::Permissions::from_mode(0o666))), perm);
    assert_eq!(errno(File::create(at("block"))), Errno::ISDIR.raw_os_error());
    assert_eq!(stand.read(POLICY), "queue-depth\n");
    stand.finish();
}

#[test]
fn odd_names_are_just_not_there() {
    let Some(stand) = Stand::new() else { return };
    let long = [b'n'; 255];
    for name in [&b"\xff\xfe"[..], b"nvme0n1\n", b" ", b"nvme0n1 ", b"*", b"\x01", b"nvme-1", &long]
    {
        for dir in ["", "block", "class/nvme", "class/nvme-subsystem/nvme-subsys0", "block/nvme0n1"]
        {
            let path = stand.at(dir).join(OsStr::from_bytes(name));
            let error = errno(fs::symlink_metadata(&path));
            assert_eq!(error, Errno::NOENT.raw_os_error(), "{path:?}");
            let error = errno(fs::write(&path, "1"));
            assert_eq!(error, Errno::ACCESS.raw_os_error(), "{path:?}");
        }
    }
    stand.finish();
}

#[test]
fn a_file_of_what_has_gone_says_so() {
    let Some(stand) = Stand::new() else { return };
    let state = File::open(stand.at("class/nvme/nvme1/state")).expect("it opens");
    let delay = OpenOptions::new().write(true).open(stand.at("class/nvme/nvme1/reconnect_delay"));
    let delay = delay.expect("it opens");
    stand.disconnect("nvme1");
    let nodev = Errno::NODEV.raw_os_error();
    assert_eq!(errno(state.read_at(&mut [0; 16], 0)), nodev);
    assert_eq!(errno(delay.write_at(b"5", 0)), nodev);
    stand.finish();
}

#[test]
fn stat_counts_what_was_done() {
    let Some(stand) = Stand::new() else { return };
    let fields = |disk: &str| -> Vec<u64> {
        let text = stand.read(&format!("block/{disk}/stat"));
        text.split_whitespace().map(|field| field.parse().expect("a number")).collect()
    };
    let job = json!({
        "device": "nvme0n1", "read_percent": 50, "random": true, "sizes": [[4096, 1]],
        "iodepth": 8, "numjobs": 2, "offset": 0, "size": null, "verify": false, "seed": 1,
    });
    stand.call("bench_start", job).expect("a load");
    while fields("nvme0n1")[0].min(fields("nvme0n1")[4]) < 100 {}
    let report = stand.call("bench_stop", json!({})).expect("a report");
    let head = fields("nvme0n1");
    assert_eq!(head.len(), 17);
    assert_eq!(
        (json!(head[0]), json!(head[4])),
        (report["reads"].clone(), report["writes"].clone())
    );
    assert_eq!((head[2], head[6]), (head[0] * 8, head[4] * 8), "sectors");
    assert_eq!(head[8], 0, "in flight");
    let paths = [fields("nvme0c0n1"), fields("nvme0c1n1")];
    for field in [0, 2, 4, 6] {
        assert_eq!(paths[0][field] + paths[1][field], head[field], "field {field}");
    }
    assert_eq!(fields("nvme0n2"), [0; 17]);
    stand.finish();
}
