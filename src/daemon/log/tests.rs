use super::*;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

/// A place that takes nothing until it is let go, and keeps what it was given.
struct Gate {
    go: Receiver<()>,
    open: bool,
    text: Arc<Mutex<String>>,
}

fn gate() -> (Gate, Sender<()>, Arc<Mutex<String>>) {
    let (open, go) = channel();
    let text = Arc::new(Mutex::new(String::new()));
    (Gate { go, open: false, text: Arc::clone(&text) }, open, text)
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.open {
            self.go.recv().expect("the test lets it go");
            self.open = true;
        }
        self.text.lock().unwrap().push_str(str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_stands_still_stops_nobody_and_is_told_what_it_missed() {
    let (gate, open, text) = gate();
    let journal = Journal::start(gate);
    for number in 0..5000 {
        journal.tell(format!("line {number}"));
    }
    open.send(()).unwrap();
    while !text.lock().unwrap().contains("lines are missing") {
        journal.flush(Duration::from_secs(60));
        thread::yield_now();
    }
    let text = text.lock().unwrap();
    assert!(text.starts_with("anabranch: line 0\n"), "{text}");
    let missing = text.lines().find(|line| line.contains("missing")).unwrap();
    let missing: usize = missing.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(missing >= 5000 - QUEUE_LINES - 1, "{missing}");
}

#[test]
fn why_the_program_ends_is_written_also_behind_a_full_queue() {
    let (gate, open, text) = gate();
    let journal = Journal::start(gate);
    for _ in 0..5000 {
        journal.tell("the same".to_owned());
    }
    // However often it came before.
    for _ in 0..SAME_IN_WINDOW {
        journal.insist("the reason".to_owned());
    }
    journal.insist("the reason".to_owned());
    open.send(()).unwrap();
    journal.flush(Duration::from_secs(60));
    let text = text.lock().unwrap();
    assert_eq!(text.matches("the reason\n").count() as u64, SAME_IN_WINDOW + 1, "{text}");
}

/// A pipe whose reader has gone.
struct Broken(Arc<AtomicU64>);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_reader_that_has_gone_harms_nobody() {
    let tried = Arc::new(AtomicU64::new(0));
    let journal = Journal::start(Broken(Arc::clone(&tried)));
    for number in 0..3 {
        journal.tell(format!("line {number}"));
    }
    journal.flush(Duration::from_secs(60));
    assert_eq!(tried.load(Ordering::Relaxed), 3);
}

#[test]
fn the_same_line_over_and_over_is_written_a_few_times_and_counted() {
    let mut seen = Repetitions::default();
    let start = Instant::now();
    let line = || "nvme0c1n1: Asymmetric Access Transition".to_owned();
    let written = (0..1000).filter_map(|_| seen.admit(line(), start)).count() as u64;
    assert_eq!(written, SAME_IN_WINDOW);
    assert_eq!(seen.admit("another".to_owned(), start).as_deref(), Some("another"));
    let later = seen.admit(line(), start + WINDOW).unwrap();
    assert_eq!(later, format!("{} ({} more like this before)", line(), 1000 - SAME_IN_WINDOW));
    assert_eq!(seen.admit(line(), start + 2 * WINDOW), Some(line()), "a rare line is left alone");
}

#[test]
fn what_is_remembered_of_lines_is_bounded_and_old_lines_make_room() {
    let mut seen = Repetitions::default();
    let start = Instant::now();
    for number in 0..10 * MAX_REMEMBERED {
        assert!(seen.admit(format!("line {number}"), start).is_some());
    }
    assert_eq!(seen.0.len(), MAX_REMEMBERED);
    let later = start + WINDOW;
    assert!(seen.admit("new".to_owned(), later).is_some());
    assert_eq!(seen.0.len(), 1);
}
