use super::super::path::PathSpec;
use super::*;
use anabranch_proto::machine::Endpoint;
use anabranch_proto::nvme::nqn::Nqn;
use std::cell::Cell;
use std::sync::mpsc::TryRecvError::Disconnected;
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
        None,
        |path| {
            looks.set(looks.get() + 1);
            let found = SocketAddr::from(([192, 0, 2, 1], path.port));
            if looks.get() < 4 { Err("nobody knows it".to_owned()) } else { Ok(vec![found]) }
        },
        |path, at| {
            let request = path.request(at);
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
    let connect = |_: &NamedPath, _| panic!("there is no address");
    keep_looking(&path(SOON, Some(Duration::ZERO)), None, look_up, connect, &stopped);
    assert_eq!(looks.get(), 1);
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4420))
}

/// Another path may have the address, or the host too much to do: it is wanted all the same.
#[test]
fn a_path_that_is_refused_is_tried_again_until_it_is_taken() {
    let (_stop, stopped) = channel();
    let tries = Cell::new(0);
    let connect = |_: &NamedPath, _| {
        tries.set(tries.get() + 1);
        match tries.get() {
            1 => Err(RpcError::new(RpcError::CONNECTED, "another's")),
            2 => Err(RpcError::new(RpcError::BUSY, "too much to do")),
            _ => Ok("nvme0".to_owned()),
        }
    };
    keep_looking(&path(SOON, None), None, |_| Ok(vec![at(1)]), connect, &stopped);
    assert_eq!(tries.get(), 3);
}

#[test]
fn a_path_that_is_refused_is_given_up_after_ctrl_loss_tmo_or_when_it_is_not_wanted_any_more() {
    let (_stop, stopped) = channel();
    for (limit, code) in
        [(Some(Duration::ZERO), RpcError::CONNECTED), (None, RpcError::INVALID_PARAMS)]
    {
        let tries = Cell::new(0);
        let connect = |_: &NamedPath, _| {
            tries.set(tries.get() + 1);
            Err(RpcError::new(code, "no"))
        };
        keep_looking(&path(SOON, limit), None, |_| Ok(vec![at(1)]), connect, &stopped);
        assert_eq!(tries.get(), 1, "{code}");
    }
}

#[test]
fn of_the_addresses_of_a_late_name_the_first_that_is_free_is_taken() {
    let (_stop, stopped) = channel();
    let mut tried = Vec::new();
    let connect = |_: &NamedPath, to| {
        tried.push(to);
        let taken = RpcError::new(RpcError::CONNECTED, "another's");
        if to == at(1) { Err(taken) } else { Ok("nvme0".to_owned()) }
    };
    keep_looking(&path(SOON, None), None, |_| Ok([1, 2, 3].map(at).into()), connect, &stopped);
    assert_eq!(tried, [at(1), at(2)]);
}

#[test]
fn what_is_not_wanted_any_more_when_its_name_is_known_is_not_connected() {
    let (stop, stopped) = channel();
    let mut stop = Some(stop);
    let look_up = |_: &NamedPath| {
        drop(stop.take());
        Ok(vec![at(1)])
    };
    let connect = |_: &NamedPath, _| panic!("nobody wants it");
    keep_looking(&path(SOON, None), None, look_up, connect, &stopped);
}

/// Each once; that they have it all is told as of one that has.
#[test]
fn a_connect_goes_on_to_the_next_address_where_one_is_another_paths() {
    let all = [1, 2].map(at);
    let refused = |code| move |to: SocketAddr| Err::<(), _>(RpcError::new(code, to.to_string()));
    let taken = |to| if to == at(1) { refused(RpcError::CONNECTED)(to) } else { Ok(()) };
    assert_eq!(at_one_free_of(&all, taken), Ok(()));
    let first = at_one_of(&all, taken).expect_err("it goes on where one fails");
    assert_eq!((first.code, first.message.as_str()), (RpcError::CONNECTED, "192.0.2.1:4420"));
    let both = at_one_free_of(&all, refused(RpcError::CONNECTED)).expect_err("both are taken");
    assert_eq!(both.code, RpcError::CONNECTED);
    assert_eq!(both.message, "192.0.2.1:4420; 192.0.2.2:4420");
    let one = |to| match to == at(1) {
        true => refused(RpcError::CONNECTED)(to),
        false => refused(RpcError::FAILED)(to),
    };
    assert_eq!(at_one_free_of(&all, one).expect_err("one failed").code, RpcError::FAILED);
    let busy = at_one_free_of(&all, refused(RpcError::BUSY)).expect_err("an answer");
    assert_eq!(busy.message, "192.0.2.1:4420", "which is not of this address alone");
}

/// What two names lead to may change from one minute to the next.
#[test]
fn names_that_lead_to_one_place_get_an_address_each_or_wait() {
    let named = |traddr: &str| {
        let spec = PathSpec { traddr: traddr.to_owned(), ..PathSpec::default() };
        spec.named("nqn.2026-01.org.example:a", true).expect("a path")
    };
    let paths = ["a.example", "b.example", "c.example", "192.0.2.1"].map(named);
    let at_all = |all: &[u8]| Found::At(all.iter().copied().map(at).collect());
    let found = || vec![at_all(&[1, 2]), at_all(&[1, 2, 3]), at_all(&[2, 3]), at_all(&[1])];
    let each = one_each(&paths, found()).expect("no address stands there twice");
    let [a, b, c, plain] = each.try_into().expect("one for each");
    for (found, expected) in [(a, at(2)), (b, at(3)), (plain, at(1))] {
        assert!(matches!(&found, Found::At(all) if *all == [expected]), "{found:?}");
    }
    let Found::Nowhere(why) = c else { panic!("there is none left: {c:?}") };
    let told = "traddr 'c.example' is 192.0.2.2, 192.0.2.3, where another path leads already";
    assert_eq!(why, told);
    let twice = ["192.0.2.1", "::ffff:192.0.2.1"].map(named);
    let second = one_each(&twice, vec![at_all(&[1]), at_all(&[1])]).expect_err("written twice");
    assert_eq!(second, 1);
}

#[test]
fn with_the_daemon_the_looking_ends() {
    let (stop, stopped) = channel();
    drop(stop);
    let look_up = |_: &NamedPath| panic!("nobody wants to know");
    keep_looking(&path(NEVER, None), None, look_up, |_, _| Ok(String::new()), &stopped);
}

/// Its look-up, and the end that answers it.
fn a_look_up() -> (Sender<Addresses>, LookUp) {
    let (answer, answered) = channel();
    let look_up = move || answered.recv().expect("answered");
    (answer, LookUp::start(look_up).expect("a thread"))
}

#[test]
fn a_name_service_that_says_nothing_keeps_no_other_path_waiting() {
    let named = |traddr: &str| {
        let spec = PathSpec { traddr: traddr.to_owned(), ..PathSpec::default() };
        spec.named("nqn.2026-01.org.example:a", true).expect("a path")
    };
    let paths = ["silent.example", "array.example", "absent.example", "192.0.2.2"].map(named);
    let (_never, silence) = channel::<()>();
    let silence = Arc::new(Mutex::new(silence));
    let look_up = move |path: &NamedPath| match path.traddr.as_str() {
        "silent.example" => {
            let _ = silence.lock().expect("nobody failed").recv();
            Err("it was given up".to_owned())
        }
        "absent.example" => Err("nobody knows it".to_owned()),
        _ => Ok(vec![SocketAddr::from(([192, 0, 2, 1], path.port))]),
    };
    let found = look_up_all(&paths, look_up, Duration::ZERO).expect("threads");
    let [silent, array, absent, plain] = found.try_into().expect("one for each");
    assert!(matches!(silent, Found::NotYet(_)), "{silent:?}");
    assert!(matches!(plain, Found::At(_)), "{plain:?}");
    // Whether these had a processor by then is not for a test to say.
    let told = |found| match found {
        Found::At(at) => Ok(at),
        Found::Nowhere(why) => Err(why),
        Found::NotYet(look_up) => look_up.answer(),
    };
    assert_eq!(told(array), Ok(vec![at(1)]));
    assert_eq!(told(absent), Err("nobody knows it".to_owned()));
}

#[test]
fn a_look_up_that_is_under_way_is_waited_for_and_not_begun_again() {
    let (_stop, stopped) = channel();
    let (answer, under_way) = a_look_up();
    let Found::NotYet(under_way) = under_way.by(Instant::now()) else { panic!("who said so?") };
    answer.send(Ok(vec![at(1)])).expect("it is waited for");
    let connected = Cell::new(None);
    let look_up = |_: &NamedPath| panic!("it is looked up already");
    let connect = |path: &NamedPath, at| {
        connected.set(Some(path.request(at).to));
        Ok("nvme0".to_owned())
    };
    keep_looking(&path(NEVER, None), Some(under_way), look_up, connect, &stopped);
    assert_eq!(connected.into_inner(), Some(Endpoint::Tcp(at(1))));
}

#[test]
fn what_is_disconnected_is_no_longer_looked_for() {
    let nqn =
        |name: &str| -> Nqn { format!("nqn.2026-01.org.example:{name}").parse().expect(name) };
    let of = |name: &str, port: u16| {
        let mut path = path(NEVER, None);
        (path.subsystem_nqn, path.port) = (nqn(name), port);
        path
    };
    let names = Names::default();
    let to_be = |number| ToBe { number, aside: AsideId(number.into()) };
    let watched = [(1, "a"), (2, "b"), (3, "a"), (4, "c")].map(|(number, name)| {
        let (stop, stopped) = channel();
        let port = 4420 + u16::try_from(number).expect("a port");
        let path = of(name, port);
        names.add(path.clone(), to_be(number), stop).expect("a new one");
        assert_eq!(names.check_new(&path).map_err(|it| it.code), Err(RpcError::CONNECTED));
        stopped
    });
    let ended = || watched.each_ref().map(|stopped| stopped.try_recv() == Err(Disconnected));
    let controller = |name: &str| Selection::Controller(name.to_owned());
    assert_eq!(names.give_up(&controller("nvme0")), []);
    assert_eq!(ended(), [false; 4]);
    assert_eq!(names.give_up(&controller("nvme4")), [to_be(4)]);
    assert_eq!(ended(), [false, false, false, true]);
    let both = [to_be(1), to_be(3)];
    assert_eq!(names.give_up(&Selection::Subsystem(nqn("a"))), both);
    assert_eq!(ended(), [true, false, true, true]);
    assert_eq!(names.check_new(&of("a", 4421)), Ok(()), "it may be asked for again");
    names.forget(&Selection::All);
    assert_eq!(ended(), [true; 4]);
}
