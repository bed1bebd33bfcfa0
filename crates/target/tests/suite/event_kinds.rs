//! What peers can make a target tell as often as they like is of few kinds, whatever they send; and
//! what the user must know is of none, so that no flood hides it.

use anabranch_proto::machine::{Endpoint, Peer, SystemError};
use anabranch_proto::nvme::Nqn;
use anabranch_target::{Asked, QueueOf, TargetEvent};
use std::collections::BTreeSet;
use std::net::SocketAddr;

fn up(cntlid: u16, port: u16) -> TargetEvent {
    let host = format!("nqn.2026-01.org.example:host-{cntlid}").parse().expect("an NQN");
    let subsystem = "nqn.2026-01.org.example:a".parse().expect("an NQN");
    TargetEvent::ControllerUp { cntlid, port, host, subsystem }
}

fn from(n: u16) -> Option<Peer> {
    Some(Peer::Address(SocketAddr::from(([192, 0, 2, 1], n))))
}

fn refused(n: u16, port: u16, reason: &'static str) -> TargetEvent {
    let nqn = |what: &str| format!("nqn.2026-01.org.example:{what}-{n}").parse().expect("an NQN");
    let asked = Asked { host: nqn("host"), subsystem: nqn("a") };
    TargetEvent::ConnectRefused { port, peer: from(n), asked: Some(Box::new(asked)), reason }
}

fn damaged(n: u16, port: u16) -> TargetEvent {
    let host = format!("nqn.2026-01.org.example:host-{n}").parse().expect("an NQN");
    let queue = Some(Box::new(QueueOf { cntlid: n, qid: 1, host }));
    TargetEvent::DataDamaged { port, peer: from(n), queue, commands: n.into() }
}

/// Who looks for what damages data has to know between whom.
#[test]
fn whose_data_was_damaged_is_told() {
    let told = "port 1: data was damaged on its way: a data digest did not match, of 7 commands \
                (controller 7, queue 1, host nqn.2026-01.org.example:host-7) (from 192.0.2.1:7)";
    assert_eq!(damaged(7, 1).to_string(), told);
    let unnamed = TargetEvent::DataDamaged { port: 1, peer: None, queue: None, commands: 1 };
    let told = "port 1: data was damaged on its way: a data digest did not match";
    assert_eq!(unnamed.to_string(), told);
}

/// Who is to let a host in has to know which.
#[test]
fn who_was_refused_is_told() {
    let told = "port 1: a connect was refused: host not allowed (host \
                nqn.2026-01.org.example:host-7, to nqn.2026-01.org.example:a-7) (from 192.0.2.1:7)";
    assert_eq!(refused(7, 1, "host not allowed").to_string(), told);
}

#[test]
fn what_a_peer_chooses_makes_no_new_kind() {
    let kinds: BTreeSet<_> = (0..1000)
        .flat_map(|n| {
            [
                up(n, 1),
                TargetEvent::ControllerDown { cntlid: n, reason: "its host left" },
                TargetEvent::ProtocolFault { port: 1, peer: from(n), fault: format!("{n} bytes") },
                damaged(n, 1),
                refused(n, 1, "unknown subsystem"),
            ]
        })
        .map(|event| event.kind().expect("it may come often"))
        .collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn another_port_and_another_reason_are_another_kind() {
    let refused = |port, reason| refused(1, port, reason).kind();
    assert_ne!(up(1, 1).kind(), up(1, 2).kind());
    assert_ne!(damaged(1, 1).kind(), damaged(1, 2).kind());
    assert_ne!(refused(1, "host not allowed"), refused(2, "host not allowed"));
    assert_ne!(refused(1, "host not allowed"), refused(1, "unknown subsystem"));
}

#[test]
fn what_no_peer_causes_is_always_told() {
    let at = Endpoint::Tcp("127.0.0.1:4420".parse().expect("an address"));
    let subsystem: Nqn = "nqn.2026-01.org.example:a".parse().expect("an NQN");
    let error = SystemError(28);
    for event in [
        TargetEvent::PortUp { port: 1, at: at.clone() },
        TargetEvent::PortFailed { port: 1, at, error },
        TargetEvent::PortCut { port: 1 },
        TargetEvent::FlushFailed { subsystem: subsystem.clone(), nsid: 1, error },
        TargetEvent::FileFailed {
            subsystem,
            nsid: 1,
            work: "write",
            error: Some(error),
            untold: 0,
        },
    ] {
        assert_eq!(event.kind(), None, "{event}");
    }
}
