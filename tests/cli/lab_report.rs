//! `lab report`: what was there stays until all of the new page is; what is no file takes it, too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Results of one short run, gone at the end.
struct Results(PathBuf);

impl Results {
    fn new(name: &str) -> Results {
        let name = format!("anabranch-report-{name}-{}", std::process::id());
        let results = Results(std::env::temp_dir().join(name));
        let run = ["run", "path-fails", "--short", "--policies", "numa", "--out"];
        let run = lab().args(run).arg(&results.0).output().expect("the binary runs");
        assert!(run.status.success(), "{}", text(&run.stderr));
        results
    }

    fn report(&self, output: &Path) -> Output {
        let mut command = lab();
        command.arg("report").arg(&self.0).arg("--output").arg(output);
        command.output().expect("the binary runs")
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("lab").current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_page(bytes: &[u8]) -> bool {
    let text = text(bytes);
    text.starts_with("<!DOCTYPE html>") && text.trim_end().ends_with("</html>")
}

/// A limit of the size of files is to a program what a full disk is.
#[test]
fn a_report_that_does_not_fit_leaves_the_one_before() {
    let results = Results::new("full");
    let page = results.0.join("report.html");
    let report = |limit: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" lab report \"$1\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_anabranch")]).arg(&results.0);
        shell.output().expect("a shell runs")
    };
    let entries = || fs::read_dir(&results.0).expect("readable").count();
    let before = entries();
    let refused = report("1");
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("report.html: cannot write: File too large"), "{told}");
    assert!(told.contains("give another --output"), "{told}");
    assert_eq!(entries(), before, "nothing is left of it");
    assert!(report("unlimited").status.success());
    let whole = fs::read(&page).expect("written");
    assert!(is_page(&whole));
    fs::set_permissions(&page, PermissionsExt::from_mode(0o640)).expect("it is ours");
    assert_eq!(report("1").status.code(), Some(1));
    assert!(fs::read(&page).expect("it is there") == whole, "the page is another one");
    assert!(report("unlimited").status.success());
    assert!(is_page(&fs::read(&page).expect("written again")));
    assert_eq!(fs::metadata(&page).expect("there").permissions().mode() & 0o777, 0o640);
    assert_eq!(entries(), before + 1);
}

#[test]
fn a_report_goes_where_a_link_leads_and_into_what_is_no_file() {
    let results = Results::new("elsewhere");
    let at = |name: &str| results.0.join(name);
    fs::write(at("page.html"), "what was").expect("writable");
    for (link, to) in [("old", "page.html"), ("new", "none.html")] {
        symlink(to, at(link)).expect("a link");
        let report = results.report(&at(link));
        assert!(report.status.success(), "{}", text(&report.stderr));
        assert_eq!(fs::read_link(at(link)).expect("still a link"), Path::new(to));
        assert!(is_page(&fs::read(at(to)).expect("written")), "{link}");
    }
    let report = results.report(Path::new("/dev/stdout"));
    let told = text(&report.stdout);
    assert!(told.starts_with("<!DOCTYPE html>"), "{told}");
    assert!(told.contains("</html>") && told.ends_with(" KiB\n"), "{told}");
    let log = fs::File::options().append(true).create(true).open(at("log")).expect("a file");
    let mut collected = lab();
    collected.arg("report").arg(&results.0).args(["--output", "/dev/stdout"]).stdout(log);
    assert!(collected.status().expect("the binary runs").success());
    let told = fs::read_to_string(at("log")).expect("text");
    assert!(told.starts_with("<!DOCTYPE html>") && told.ends_with(" KiB\n"), "{told}");
    let pipe = at("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).expect("somebody writes")
    });
    assert!(results.report(&pipe).status.success());
    assert!(is_page(&reader.join().expect("no panic")));
    let report = results.report(Path::new("/dev/full"));
    let told = text(&report.stderr);
    assert_eq!(report.status.code(), Some(1), "{told}");
    assert!(told.contains("/dev/full: cannot write: No space left"), "{told}");
    let report = results.report(&at("no/where.html"));
    let told = text(&report.stderr);
    assert_eq!((report.status.code(), at("no").exists()), (Some(1), false), "{told}");
}
