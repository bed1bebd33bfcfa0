//! What the allocator keeps of what was freed. A process of its own: it is set for all threads.

use anabranch_rt::heap::give_back_what_is_free;

/// KiB that this process has for itself.
fn resident_kib() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has it");
    let line = rollup.lines().find(|line| line.starts_with("Private_Dirty:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// 8 MiB in pieces, for a moment.
fn answer() {
    let pieces: Vec<Box<[u8]>> = (0..8192).map(|_| vec![1; 1000].into()).collect();
    assert_eq!(pieces.len(), 8192);
}

#[test]
#[cfg(target_env = "gnu")]
fn what_a_thread_took_for_a_moment_is_given_back() {
    give_back_what_is_free();
    // After this, left to itself, the allocator would keep 32 MiB.
    drop(std::hint::black_box(vec![1_u8; 16 << 20]));
    let before = resident_kib();
    std::thread::spawn(answer).join().expect("it ends");
    let kept = resident_kib().saturating_sub(before);
    assert!(kept < 1024, "{kept} KiB stay");
}
