use super::repetitions::{ALIKE_IN_WINDOW, ALIKE_WINDOW, MAX_LINES, SAME_IN_WINDOW, SAME_WINDOW};
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

fn line(text: impl Into<String>) -> Line {
    Line { kind: None, text: text.into() }
}

#[test]
fn a_reader_that_stands_still_stops_nobody_and_is_told_what_it_missed() {
    let (gate, open, text) = gate();
    let journal = Journal::start(gate, String::new);
    for number in 0..5000 {
        journal.tell(line(format!("line {number}")));
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
fn each_line_has_its_time_before_it() {
    let mut paper = Paper::new(Vec::new(), || "at noon ".to_owned());
    paper.say("path lost");
    paper.say("path back");
    let told = String::from_utf8(paper.to).unwrap();
    assert_eq!(told, "at noon anabranch: path lost\nat noon anabranch: path back\n");
}

#[test]
fn why_the_program_ends_is_written_also_behind_a_full_queue() {
    let (gate, open, text) = gate();
    let journal = Journal::start(gate, String::new);
    for _ in 0..5000 {
        journal.tell(line("the same"));
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
    let journal = Journal::start(Broken(Arc::clone(&tried)), String::new);
    for number in 0..3 {
        journal.tell(line(format!("line {number}")));
    }
    journal.flush(Duration::from_secs(60));
    assert_eq!(tried.load(Ordering::Relaxed), 3);
}

/// A disk with so many bytes left.
struct Disk {
    room: usize,
    text: String,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.text.push_str(str::from_utf8(&bytes[..taken]).unwrap());
        if taken > 0 { Ok(taken) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_full_disk_has_torn_is_ended_and_what_it_lost_is_counted() {
    let to = Disk { room: 15, text: String::new() };
    let mut paper = Paper::new(to, String::new);
    for line in ["one", "two", "three"] {
        paper.say(line);
    }
    paper.to.room = 1000;
    for line in ["four", "five"] {
        paper.say(line);
    }
    let told = "anabranch: one\n\
                anabranch: four\n\
                anabranch: 2 lines are missing: they could not be written\n\
                anabranch: five\n";
    assert_eq!(paper.to.text, told);

    let to = Disk { room: 12, text: String::new() };
    let mut paper = Paper::new(to, String::new);
    paper.say("one");
    paper.to.room = 1000;
    paper.say("two");
    let told = "anabranch: o\n\
                anabranch: two\n\
                anabranch: 1 line is missing: it could not be written\n";
    assert_eq!(paper.to.text, told);
}

#[test]
fn the_same_line_over_and_over_is_written_a_few_times_and_counted() {
    let mut seen = Repetitions::lines();
    let start = Instant::now();
    let line = "nvme0c1n1: Asymmetric Access Transition";
    let mut admit = |line: &str, now| seen.admit(None, line.to_owned(), now);
    let written = (0..1000).filter_map(|_| admit(line, start)).count() as u64;
    assert_eq!(written, SAME_IN_WINDOW);
    assert_eq!(admit("another", start).as_deref(), Some("another"));
    let later = admit(line, start + SAME_WINDOW).unwrap();
    assert_eq!(later, format!("{line} ({} more like this before)", 1000 - SAME_IN_WINDOW));
    let rare = admit(line, start + 2 * SAME_WINDOW);
    assert_eq!(rare.as_deref(), Some(line), "a rare line is left alone");
}

#[test]
fn what_is_remembered_of_lines_is_bounded_and_old_lines_make_room() {
    let mut seen = Repetitions::lines();
    let start = Instant::now();
    let mut admit = |line: &str, now| seen.admit(None, line.to_owned(), now).is_some();
    for number in 0..10 * MAX_LINES {
        assert!(admit(&format!("line {number}"), start));
    }
    assert!(admit("new", start + SAME_WINDOW));
    assert_eq!(seen.remembered(), 1);
    let mut seen = Repetitions::lines();
    for number in 0..10 * MAX_LINES {
        assert!(seen.admit(None, format!("line {number}"), start).is_some());
    }
    assert_eq!(seen.remembered(), MAX_LINES);
}

#[test]
fn of_many_lines_of_one_kind_a_few_are_written_and_the_others_counted_later() {
    let mut seen = Repetitions::kinds();
    let start = Instant::now();
    assert_eq!(seen.admit(Some("up"), "up 0".to_owned(), start).as_deref(), Some("up 0"));
    let written =
        (1..5000).filter_map(|n| seen.admit(Some("up"), format!("up {n}"), start)).count();
    assert_eq!(written as u64, ALIKE_IN_WINDOW - 1);
    let first = seen.admit(Some("down"), "down 0".to_owned(), start);
    assert_eq!(first.as_deref(), Some("down 0"), "the first of its kind");
    // Nothing more comes: what was hidden is told all the same, once.
    assert_eq!(seen.due(), Some(start + ALIKE_WINDOW));
    assert!(seen.overdue(start + ALIKE_WINDOW - Duration::from_nanos(1)).is_empty());
    let told = seen.overdue(start + ALIKE_WINDOW);
    let others = 5000 - ALIKE_IN_WINDOW - 1;
    assert_eq!(told, [format!("up 4999 ({others} more like this before)")]);
    assert_eq!(seen.due(), None);
    assert!(seen.overdue(start + 2 * ALIKE_WINDOW).is_empty());
}

#[test]
fn a_single_hidden_line_is_told_as_it_was() {
    let mut seen = Repetitions::kinds();
    let start = Instant::now();
    for number in 0..=ALIKE_IN_WINDOW {
        seen.admit(Some("up"), format!("up {number}"), start);
    }
    assert_eq!(seen.hidden(), [format!("up {ALIKE_IN_WINDOW}")]);
    assert!(seen.hidden().is_empty());
    assert_eq!(seen.admit(Some("up"), "next".to_owned(), start), None, "the window goes on");
}

/// Whatever the pace of this machine: every line is written or counted.
#[test]
fn a_flood_of_one_kind_leaves_few_lines_and_none_is_forgotten() {
    let (gate, open, text) = gate();
    let journal = Journal::start(gate, String::new);
    let flood = QUEUE_LINES / 2;
    for number in 0..flood {
        journal.tell(Line { kind: Some("up".to_owned()), text: format!("up {number}") });
    }
    open.send(()).unwrap();
    journal.flush(Duration::from_secs(60));
    let text = text.lock().unwrap();
    assert!(text.starts_with("anabranch: up 0\n"), "{text}");
    let counts = text.lines().filter_map(|line| line.split_once('('));
    let counted = counts.map(|(_, rest)| rest.split(' ').next().unwrap().parse::<usize>().unwrap());
    let counted: usize = counted.sum();
    assert!(counted > 0, "{text}");
    assert_eq!(text.lines().count() + counted, flood, "{text}");
}
