//! Scenarios are found by path, by name in a directory, and by name in the program.

use anabranch_lab::scenario::{Found, file, find, library};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Names without ending, and texts.
fn on_disk(below: &str, ending: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(root().join(below)).expect("the library is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let texts = paths.filter(|path| path.extension().is_some_and(|e| e == ending)).map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("text"))
    });
    texts.collect()
}

#[test]
fn the_program_has_every_file_of_the_library() {
    let remedy = "crates/lab/src/scenario/library/files.rs lists the files, in order";
    let disk = on_disk("", "toml");
    let names: Vec<&str> = library::names().collect();
    assert_eq!(names, disk.keys().map(String::as_str).collect::<Vec<_>>(), "{remedy}");
    for (name, text) in &disk {
        assert_eq!(library::text(name), Some(text.as_str()), "{name}");
    }
    let disk = on_disk("jobs", "fio");
    let names: Vec<String> = disk.keys().map(|name| format!("jobs/{name}")).collect();
    assert_eq!(library::job_files().collect::<Vec<_>>(), names, "{remedy}");
    for (name, text) in &disk {
        assert_eq!(library::job_file(&format!("jobs/{name}.fio")), Some(text.as_str()), "{name}");
    }
    assert_eq!((library::text("nothing"), library::job_file("jobs/mixed-read")), (None, None));
}

#[test]
fn what_the_program_has_is_what_the_files_say() {
    for name in library::names() {
        let built_in = Found::Library(name).read().unwrap_or_else(|mistake| panic!("{mistake}"));
        let from_file = file::read(&root().join(format!("{name}.toml"))).unwrap();
        assert_eq!(built_in.scenario, from_file.scenario, "{name}");
        assert_eq!(built_in.texts, from_file.texts, "{name}");
        assert_eq!(built_in.texts[0].name, format!("{name}.toml"));
        assert!(built_in.texts.len() <= 2, "{name}: itself, and a job file");
    }
}

#[test]
fn a_path_goes_before_a_directory_and_that_before_the_program() {
    let dir = std::env::temp_dir().join(format!("anabranch-find-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("brownout")).unwrap();
    let file = dir.join("brownout.toml");
    std::fs::write(&file, "").unwrap();
    let named = |word: &str| find(word, &[&dir]);
    assert_eq!(named("brownout"), Ok(Found::File(file.clone())));
    assert_eq!(named("cold-start"), Ok(Found::Library("cold-start")));
    assert_eq!(named("cold-start.toml"), Ok(Found::Library("cold-start")));
    let path = file.display().to_string();
    assert_eq!(named(&path), Ok(Found::File(file)));
    let folder = dir.join("brownout");
    let refused = named(&folder.display().to_string()).unwrap().read().unwrap_err();
    assert_eq!(refused.text, "is no regular file; name one");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_not_there_is_answered_with_what_is_close() {
    let said = |word: &str| find(word, &[]).unwrap_err().to_string();
    let near = said("service-time-mixd");
    let begin = "service-time-mixd: there is no such file, and no scenario of this name; did you \
                 mean service-time-mixed, ";
    assert!(near.starts_with(begin) && near.ends_with('?'), "{near}");
    let flaps = said("flaps");
    assert!(flaps.contains("path-flaps-1hz, path-flaps-01hz, path-flaps-10hz?"), "{flaps}");
    assert!(said("x").ends_with("`anabranch lab list` names all"));
    assert!(said("some/where.toml").contains("there is no such file; name a file, or a scenario"));
    assert!(said("").contains("there is no such file"));
    let long = said(&"\u{1f980}\n".repeat(300));
    assert!(long.chars().count() < 200 && !long.contains('\n'), "{long:?}");
}

#[test]
fn notices_say_in_which_file_they_are() {
    let loaded = Found::Library("two-hosts-rw").read().unwrap();
    let said: Vec<String> = loaded.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[0],
        "jobs/two-hosts-rw.fio:16: filename: the load goes to the scenario's namespace"
    );
    let text = "title = \"t\"\n[[path]]\nname = \"a\"\n[[job]]\nrw = \"read\"\ndirect = 0\n";
    let notices = file::parse(text, "dir/x.toml").unwrap().notices;
    assert_eq!(
        notices[0].to_string(),
        "dir/x.toml:6: direct: there is no page cache: all I/O is direct"
    );
}
