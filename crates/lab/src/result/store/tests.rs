use super::{Key, Session, Store, StoreError, Terms};
use crate::result::{CellResult, Mode, tests};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory of its own for each test, gone at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("anabranch-store-{name}-{}", std::process::id());
        Dir(std::env::temp_dir().join(name))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left in the directory for temporary files harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cell(run: u64) -> CellResult {
    tests::result(&tests::scenario(), run)
}

fn terms(cell: &CellResult) -> Terms {
    let CellResult { ramp_ns, window_ns, scale_permille, open_permille, kernel_shaping, .. } =
        *cell;
    Terms {
        ramp_ns,
        window_ns,
        scale_permille: Some(scale_permille),
        open_permille,
        kernel_shaping,
    }
}

#[test]
fn what_was_put_is_found_listed_in_order_and_read() {
    let dir = Dir::new("put");
    let store = Store::create(&dir.0).expect("a directory");
    let cells = [10, 9, 1].map(cell);
    for one in &cells {
        store.put(one, "{}").expect("written");
    }
    let (key, terms) = (Key::of(&cells[0]), terms(&cells[0]));
    assert_eq!(store.find(&key, &terms).expect("readable"), Some(cells[0].clone()));
    let other = Key { run: 11, ..key };
    assert_eq!(store.find(&other, &terms).expect("nothing there"), None);
    let names: Vec<_> = store.cells().expect("cells");
    let ends: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(ends, ["1.json", "9.json", "10.json"]);
    assert_eq!(store.read(&names[1]).expect("readable"), cells[1]);
    let fio = dir.0.join("fio").join(Key::of(&cells[1]).path());
    assert_eq!(fs::read_to_string(fio).expect("beside it"), "{}");
}

#[test]
fn what_was_run_otherwise_is_not_taken_for_the_same() {
    let dir = Dir::new("terms");
    let store = Store::create(&dir.0).expect("a directory");
    assert_eq!(store.any("small", Mode::Light).expect("nothing there"), None);
    let one = cell(1);
    store.put(&one, "{}").expect("written");
    assert_eq!(store.any("small", Mode::Light).expect("readable"), Some(one.clone()));
    assert_eq!(store.any("small", Mode::Live).expect("nothing there"), None);
    let longer = Terms { window_ns: 1_000_000_000, ..terms(&one) };
    let error = store.find(&Key::of(&one), &longer).expect_err("another window").to_string();
    assert!(error.contains("a window of 300000000ns and is to have 1000000000ns"), "{error}");
    assert!(error.contains("--out"), "{error}");
    let by_kernel = Terms { kernel_shaping: true, ..terms(&one) };
    let error = store.agree(&one, &by_kernel).expect_err("another shaper").to_string();
    assert!(
        error.contains("had links shaped by the target and is to have them shaped by the kernel"),
        "{error}"
    );
}

#[test]
fn a_cell_that_does_not_tell_its_open_requests_had_the_part_of_the_rates_or_all() {
    let asked = |open| Terms { open_permille: Some(open), ..terms(&cell(1)) };
    let scaled = |open_permille| CellResult { scale_permille: 50, open_permille, ..cell(1) };
    let fits = |open_permille, open| {
        let terms = Terms { scale_permille: Some(50), ..asked(open) };
        terms.differences(&scaled(open_permille)).is_empty()
    };
    assert!(fits(None, 50) && fits(None, 1000) && fits(Some(150), 150));
    assert!(!fits(None, 150) && !fits(Some(150), 50) && !fits(Some(50), 150));
}

#[test]
fn damaged_foreign_and_misplaced_files_are_named() {
    let dir = Dir::new("damaged");
    let store = Store::create(&dir.0).expect("a directory");
    let one = cell(1);
    store.put(&one, "{}").expect("written");
    let path = store.cell_path(&Key::of(&one));
    let text = fs::read_to_string(&path).expect("there");
    let told = |text: &str| {
        fs::write(&path, text).expect("writable");
        let error = store.read(&path).expect_err("not what it should be").to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        error
    };
    assert!(told(&text[..text.len() / 2]).contains("is damaged: EOF"));
    assert!(told("").contains("delete it, and lab run --out makes it again"));
    assert!(told(&text.replacen("\"schema\":1", "\"schema\":2", 1)).contains("has schema 2"));
    assert!(told(&text.replacen("\"run\":1", "\"run\":2", 1)).contains("run 2"));
    assert!(told(&text.replacen("\"errors\"", "\"mistakes\"", 1)).contains("mistakes"));
    // Nothing that begins with a dot is taken for a result.
    fs::write(&path, &text).expect("writable");
    fs::write(path.with_file_name(".2.json.77"), "half").expect("writable");
    assert_eq!(store.cells().expect("cells"), [path]);
}

#[test]
fn a_scenario_is_kept_verbatim_and_not_replaced() {
    let dir = Dir::new("scenario");
    let store = Store::create(&dir.0).expect("a directory");
    let job = (Path::new("jobs/a.fio"), "[a]\n");
    for _ in 0..2 {
        store.keep_scenario("one", "title = 1\n", Some(job)).expect("kept");
    }
    let read = |name: &str| fs::read_to_string(dir.0.join("scenarios").join(name)).expect("kept");
    assert_eq!((read("one.toml").as_str(), read("jobs/a.fio").as_str()), ("title = 1\n", "[a]\n"));
    let error = store.keep_scenario("one", "title = 2\n", None).expect_err("another text");
    assert!(error.to_string().contains("is another text"), "{error}");
    let outside = (Path::new("../../b.fio"), "[b]\n");
    store.keep_scenario("two", "", Some(outside)).expect("kept");
    assert_eq!(read("jobs/b.fio"), "[b]\n");
}

#[test]
fn one_writes_at_a_time_and_each_is_remembered() {
    let dir = Dir::new("sessions");
    let store = Store::create(&dir.0).expect("a directory");
    assert!(matches!(Store::create(&dir.0), Err(StoreError::InUse(_))));
    let session = Session::begin(vec!["anabranch".to_owned(), "lab".to_owned()]);
    store.add_session(session.clone()).expect("written");
    store.add_session(session).expect("written");
    store.end_session(3, 4).expect("written");
    let sessions = store.environment().expect("readable").sessions;
    let counts: Vec<_> = sessions.iter().map(|one| (one.cells_run, one.cells_kept)).collect();
    assert_eq!(counts, [(0, 0), (3, 4)]);
    drop(store);
    let store = Store::create(&dir.0).expect("free again");
    assert!(matches!(store.cells(), Err(StoreError::Empty(_))));
}

#[test]
fn reading_needs_results() {
    let dir = Dir::new("reading");
    assert!(matches!(Store::open(&dir.0), Err(StoreError::Missing(_))));
    fs::create_dir_all(&dir.0).expect("a directory");
    assert!(matches!(Store::open(&dir.0), Err(StoreError::Empty(_))));
    let key =
        Key { scenario: "../up".to_owned(), mode: Mode::Sim, variant: "a b".to_owned(), run: 3 };
    assert_eq!(key.path(), Path::new("%2E.%2Fup/sim/a+b/3.json"));
}
