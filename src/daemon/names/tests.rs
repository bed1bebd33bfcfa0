use super::super::path::PathSpec;
use super::*;
use anabranch_proto::machine::Endpoint;
use std::cell::Cell;
use std::time::Duration;

fn path(reconnect_delay: Duration, ctrl_loss_tmo: Option<Duration>) -> NamedPath {
    let spec = PathSpec { traddr: "array.example".to_owned(), ..PathSpec::default() };
    let mut path = spec.named("nqn.2026-01.org.example:a", true).expect("a path");
    path.options.reconnect_delay = reconnect_delay;
    path.options.ctrl_loss_tmo = ctrl_loss_tmo;
    path
}

const SOON: Duration = Duration::from_micros(1);
/// Far longer than a test takes.
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_name_that_leads_somewhere_at_last_is_connected_once() {
    let (_stop, stopped) = channel();
    let looks = Cell::new(0);
    let connected = Cell::new(None);
    keep_looking(
        &path(SOON, None),
        |path| {
            looks.set(looks.get() + 1);
            let found = SocketAddr::from(([192, 0, 2, 1], path.port));
            if looks.get() < 4 { Err("nobody knows it".to_owned()) } else { Ok(found) }
        },
        |request| {
            assert!(request.keep_trying);
            connected.set(Some(request.to));
            Ok("nvme0".to_owned())
        },
        &stopped,
    );
    assert_eq!(looks.get(), 4);
    let expected = Endpoint::Tcp("192.0.2.1:4420".parse().expect("an address"));
    assert_eq!(connected.into_inner(), Some(expected));
}

#[test]
fn a_name_that_leads_nowhere_is_given_up_after_ctrl_loss_tmo() {
    let (_stop, stopped) = channel();
    let looks = Cell::new(0);
    let look_up = |_: &NamedPath| {
        looks.set(looks.get() + 1);
        Err("nobody knows it".to_owned())
    };
    let connect = |_| panic!("there is no address");
    keep_looking(&path(SOON, Some(Duration::ZERO)), look_up, connect, &stopped);
    assert_eq!(looks.get(), 1);
}

#[test]
fn with_the_daemon_the_looking_ends() {
    let (stop, stopped) = channel();
    drop(stop);
    let look_up = |_: &NamedPath| panic!("nobody wants to know");
    keep_looking(&path(NEVER, None), look_up, |_| Ok(String::new()), &stopped);
}
