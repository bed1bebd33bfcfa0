//! What listings say about policies: the default, the one in force and where it was set stand
//! together, in nvme-cli's shapes.

use anabranch::cli::args::Cli;
use anabranch::cli::print::topology::Ranking;
use anabranch::cli::print::{attributes, subsys, topology};
use anabranch::daemon::view::{AttributeView, HostView, SubsystemView};
use anabranch_policy::Policy;
use clap::CommandFactory;

fn host() -> HostView {
    HostView {
        host_nqn: "nqn.2026-01.org.example:host".into(),
        host_id: String::new(),
        subsystems: vec![SubsystemView {
            name: "nvme-subsys0".into(),
            nqn: "nqn.2026-01.org.example:a".into(),
            iopolicy: "service-time".into(),
            iopolicy_default: "queue-depth".into(),
            iopolicy_set_by: "attribute".into(),
            ..SubsystemView::default()
        }],
        ..HostView::default()
    }
}

#[test]
fn default_current_and_where_it_was_set_stand_together() {
    let heading = "\
nvme-subsys0 - NQN=nqn.2026-01.org.example:a
               hostnqn=nqn.2026-01.org.example:host
               iopolicy=service-time
               iopolicy_default=queue-depth iopolicy_set_by=attribute
";
    let host = host();
    let rankings = [Ranking::Namespace, Ranking::Ctrl, Ranking::Multipath];
    let texts = rankings.map(|ranking| topology::text(&host, None, ranking));
    for text in texts.iter().chain([&subsys::text(&host, None)]) {
        assert!(text.starts_with(heading), "{text}");
    }
    let listings = rankings.map(|ranking| topology::json(&host, None, ranking));
    for listing in listings.iter().chain([&subsys::json(&host, None)]) {
        let subsystem = &listing[0]["Subsystems"][0];
        assert_eq!(subsystem["IOPolicy"], "service-time");
        assert_eq!(subsystem["Diag"]["iopolicy_default"], "queue-depth");
        assert_eq!(subsystem["Diag"]["iopolicy_set_by"], "attribute");
    }
}

#[test]
fn everything_that_an_object_shows_is_one_table() {
    let shown = [("iopolicy", true, "numa"), ("latency_stat", false, "a\nb"), ("uuid", false, "")];
    let shown = shown.map(|(name, writable, value)| AttributeView {
        name: name.into(),
        writable,
        value: value.into(),
    });
    let table = "\
Attribute     Mode  Value
------------  ----  -----
iopolicy      rw    numa
latency_stat  ro    a
                    b
uuid          ro
";
    assert_eq!(attributes::text(&shown), table);
    let json = attributes::json("nvme0n1", &shown);
    assert_eq!(json["object"], "nvme0n1");
    assert_eq!(json["attributes"][1]["value"], "a\nb");
}

#[test]
fn help_lists_every_policy() {
    let mut command = Cli::command();
    for verb in ["demo", "bench"] {
        let verb = command.find_subcommand_mut(verb).expect("a verb");
        let help = verb.render_long_help().to_string();
        for policy in Policy::ALL {
            assert!(help.contains(policy.name()), "{policy} in:\n{help}");
        }
    }
}
