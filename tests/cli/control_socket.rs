//! The control socket takes nothing on trust: every misuse of the bad-input catalogue (C72) is
//! refused, bounded, and hurts nobody else.

use anabranch::cli::client::Client;
use anabranch::daemon::control::{ControlServer, Handler, Limits};
use anabranch::daemon::rpc::{Answer, MAX_DEPTH, MAX_REQUEST_BYTES, Params, RpcError};
use anabranch::daemon::socket::{BoundSocket, Role, SocketError, may_control};
use anabranch::failure::Failure;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A directory of our own that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
        Place(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    depth: u16,
}

/// Answers `depth` with twice the depth.
struct Doubler;

impl Handler for Doubler {
    fn call(&self, method: &str, params: Params<'_>) -> Result<Answer, RpcError> {
        match method {
            "depth" => Answer::of(&(u32::from(params.read::<Queue>()?.depth) * 2)),
            "nothing" => params.none().and_then(|()| Answer::of(&Value::Null)),
            _ => Err(RpcError::no_method(method)),
        }
    }
}

fn start(place: &Place, limits: Limits) -> ControlServer {
    ControlServer::start(&place.file("control.sock"), Arc::new(Doubler), limits).expect("a server")
}

fn open(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream
}

fn read_line(stream: &UnixStream) -> Option<Value> {
    let mut line = String::new();
    let length = BufReader::new(stream).read_line(&mut line).expect("an answer or an end");
    (length > 0).then(|| serde_json::from_str(&line).expect("an answer is JSON"))
}

/// What the server answers to these bytes and a newline.
fn ask(path: &Path, bytes: &[u8]) -> Value {
    let stream = open(path);
    // A server that refuses may close before all is sent.
    let _ = (&stream).write_all(bytes).and_then(|()| (&stream).write_all(b"\n"));
    read_line(&stream).expect("an answer")
}

const GOOD: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"depth","params":{"depth":21}}"#;

#[test]
fn a_request_is_answered() {
    let place = Place::new("good");
    let server = start(&place, Limits::default());
    assert_eq!(ask(server.path(), GOOD), json!({"jsonrpc": "2.0", "id": 7, "result": 42}));
    let text_id = br#"{"id":"a","method":"nothing","jsonrpc":"2.0"}"#;
    assert_eq!(ask(server.path(), text_id), json!({"jsonrpc": "2.0", "id": "a", "result": null}));
}

/// As in a script: `anabranch serve &`, and a verb in the next line.
#[test]
fn a_verb_waits_for_a_daemon_that_was_started_just_before() {
    let place = Place::new("soon");
    let path = place.file("control.sock");
    let mut server = None;
    let client = Client::connect_while(Role::Host, Some(&path), || {
        server.get_or_insert_with(|| start(&place, Limits::default()));
        true
    });
    let answer = client.and_then(|client| client.call("depth", json!({ "depth": 7 })));
    assert_eq!(answer.expect("an answer"), json!(14));
    drop(server);
    let mut attempts = 0;
    let nobody = Client::connect_while(Role::Host, Some(&path), || {
        attempts += 1;
        attempts < 3
    });
    let told = nobody.expect_err("nobody listens").to_string();
    assert!(told.contains("no host is running") && attempts == 3, "{attempts}: {told}");
}

/// What does not go away by waiting is told at once, by its name.
#[test]
fn a_verb_does_not_wait_for_what_is_no_socket() {
    let place = Place::new("no-socket");
    let file = place.file("file");
    fs::write(&file, "").expect("a file");
    let beside = file.join("control.sock");
    for (path, why) in [
        (&file, "file is not a socket"),
        (&place.0, "is not a socket"),
        (&beside, "cannot reach the host"),
    ] {
        let refused = Client::connect_while(Role::Host, Some(path), || panic!("it waits"));
        let told = refused.expect_err("nobody listens").to_string();
        assert!(told.contains(why), "{told}");
    }
    let nowhere = place.file("nowhere").join("control.sock");
    let refused = Client::connect_while(Role::Host, Some(&nowhere), || panic!("it waits"));
    let told = refused.expect_err("nobody listens").to_string();
    let says = format!("there is no directory {}", place.file("nowhere").display());
    assert!(told.contains("no host is running on") && told.contains(&says), "{told}");
    let long = PathBuf::from("x".repeat(108));
    let refused = Client::connect_while(Role::Host, Some(&long), || panic!("it waits"));
    assert!(matches!(refused, Err(Failure::Usage(_))), "{refused:?}");
}

#[test]
fn several_requests_share_a_connection() {
    let place = Place::new("several");
    let server = start(&place, Limits::default());
    let stream = open(server.path());
    let mut both = GOOD.to_vec();
    both.push(b'\n');
    both.extend_from_slice(GOOD);
    both.push(b'\n');
    (&stream).write_all(&both).expect("sent");
    let mut reader = BufReader::new(&stream);
    for _ in 0..2 {
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["result"], 42);
    }
}

/// Whatever is wrong with a value.
#[test]
fn a_value_that_is_wrong_is_told_with_its_field() {
    let place = Place::new("field");
    let server = start(&place, Limits::default());
    for value in ["-1", "\"21\"", "1.5", "[]"] {
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"depth","params":{{"depth":{value}}}}}"#);
        let answer = ask(server.path(), request.as_bytes());
        let message = answer["error"]["message"].as_str().expect("an error");
        assert!(message.starts_with("params: depth: "), "{message}");
    }
    // Also where the words are those of the field's type.
    for (params, told) in [
        (r#"{"depth":1,"even":3}"#, "params: even: an even number is wanted"),
        (r#"{"inner":{"even":3}}"#, "params: even: an even number is wanted"),
        (r#"{"odd":3}"#, "params: unknown field `odd`, expected one of `depth`, `even`, `inner`"),
    ] {
        let wrong = Params::from_text(params).read::<Even>().expect_err(params);
        assert_eq!(wrong.message, told);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Even {
    depth: u16,
    #[serde(deserialize_with = "even")]
    even: u16,
    inner: Option<Box<Even>>,
}

fn even<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    let number = u16::deserialize(from)?;
    if number % 2 == 0 { Ok(number) } else { Err(D::Error::custom("an even number is wanted")) }
}

/// What is asked, as what, and the error code that must come back.
fn bad_requests() -> Vec<(&'static str, Vec<u8>, i32)> {
    let request = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"depth","params":{params}}}"#).into_bytes()
    };
    let deep = "[".repeat(MAX_DEPTH + 1);
    vec![
        ("not JSON", b"hello".to_vec(), RpcError::PARSE),
        ("empty line", b"".to_vec(), RpcError::PARSE),
        ("invalid UTF-8", b"{\"jsonrpc\":\"\xff\"}".to_vec(), RpcError::PARSE),
        ("half an object", b"{\"jsonrpc\":\"2.0\"".to_vec(), RpcError::PARSE),
        ("something behind it", [GOOD, b"x"].concat(), RpcError::PARSE),
        ("NaN", request(r#"{"depth":NaN}"#), RpcError::PARSE),
        ("infinity", request(r#"{"depth":1e999}"#), RpcError::INVALID_PARAMS),
        ("negative", request(r#"{"depth":-1}"#), RpcError::INVALID_PARAMS),
        ("fraction", request(r#"{"depth":1.5}"#), RpcError::INVALID_PARAMS),
        ("too large", request(r#"{"depth":65536}"#), RpcError::INVALID_PARAMS),
        ("beyond 64 bits", request(r#"{"depth":99999999999999999999}"#), RpcError::INVALID_PARAMS),
        ("wrong type", request(r#"{"depth":"21"}"#), RpcError::INVALID_PARAMS),
        ("missing field", request("{}"), RpcError::INVALID_PARAMS),
        ("unknown field", request(r#"{"depth":1,"width":2}"#), RpcError::INVALID_PARAMS),
        ("duplicate field", request(r#"{"depth":1,"depth":2}"#), RpcError::INVALID_PARAMS),
        ("params by position", request("[21]"), RpcError::INVALID_PARAMS),
        ("params are a number", request("21"), RpcError::INVALID_PARAMS),
        ("deep", request(&deep), RpcError::PARSE),
        ("a batch", [b"[", GOOD, b"]"].concat(), RpcError::INVALID_REQUEST),
        (
            "no such method",
            br#"{"jsonrpc":"2.0","id":1,"method":"reboot"}"#.to_vec(),
            RpcError::NO_METHOD,
        ),
        (
            "wrong version",
            br#"{"jsonrpc":"1.0","id":1,"method":"nothing"}"#.to_vec(),
            RpcError::INVALID_REQUEST,
        ),
        (
            "a notification",
            br#"{"jsonrpc":"2.0","method":"nothing"}"#.to_vec(),
            RpcError::INVALID_REQUEST,
        ),
        (
            "unknown member",
            br#"{"jsonrpc":"2.0","id":1,"method":"nothing","also":1}"#.to_vec(),
            RpcError::INVALID_REQUEST,
        ),
        (
            "duplicate member",
            br#"{"jsonrpc":"2.0","id":1,"method":"nothing","method":"depth"}"#.to_vec(),
            RpcError::INVALID_REQUEST,
        ),
        (
            "an object as id",
            br#"{"jsonrpc":"2.0","id":{},"method":"nothing"}"#.to_vec(),
            RpcError::INVALID_REQUEST,
        ),
        (
            "a long id",
            format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"nothing"}}"#, "x".repeat(65))
                .into_bytes(),
            RpcError::INVALID_REQUEST,
        ),
    ]
}

#[test]
fn bad_requests_are_refused() {
    let place = Place::new("bad");
    let server = start(&place, Limits::default());
    for (what, bytes, code) in bad_requests() {
        let answer = ask(server.path(), &bytes);
        assert_eq!(answer["error"]["code"], code, "{what}: {answer}");
        assert!(answer.get("result").is_none(), "{what}: {answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(!message.is_empty() && message.len() < 400, "{what}: {message}");
        assert_eq!(ask(server.path(), GOOD)["result"], 42, "after {what}");
    }
}

#[test]
fn depth_is_counted_outside_of_texts_only() {
    let place = Place::new("text");
    let server = start(&place, Limits::default());
    let brackets = "[{".repeat(1000);
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"\"{brackets}"}}"#);
    assert_eq!(ask(server.path(), line.as_bytes())["error"]["code"], RpcError::NO_METHOD);
}

#[test]
fn a_hundred_thousand_levels_are_refused_without_recursion() {
    let place = Place::new("levels");
    let server = start(&place, Limits::default());
    // As deep as a request may be long.
    let line = "[".repeat(MAX_REQUEST_BYTES);
    assert_eq!(ask(server.path(), line.as_bytes())["error"]["code"], RpcError::PARSE);
}

#[test]
fn an_endless_request_is_cut_off() {
    let place = Place::new("endless");
    let server = start(&place, Limits::default());
    let stream = open(server.path());
    let piece = [b'x'; 64 << 10];
    // A gigabyte, if it were let in: far less is taken before the server lets go.
    let mut taken = 0_usize;
    while taken < 1 << 30 {
        match (&stream).write(&piece) {
            Ok(length) => taken += length,
            Err(_) => break,
        }
    }
    assert!(taken < 4 << 20, "{taken} bytes were taken");
    assert_eq!(ask(server.path(), GOOD)["result"], 42);
}

#[test]
fn a_request_one_byte_too_long_is_refused() {
    let place = Place::new("long");
    let server = start(&place, Limits::default());
    let padded = |length: usize| {
        let mut line = GOOD.to_vec();
        line.resize(length, b' ');
        line
    };
    assert_eq!(ask(server.path(), &padded(MAX_REQUEST_BYTES))["result"], 42);
    let answer = ask(server.path(), &padded(MAX_REQUEST_BYTES + 1));
    assert_eq!(answer["error"]["code"], RpcError::INVALID_REQUEST);
}

#[test]
fn half_a_request_and_silence_are_bounded() {
    let place = Place::new("half");
    let limits = Limits {
        idle: Duration::from_millis(200),
        request: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = start(&place, limits);
    let half = open(server.path());
    (&half).write_all(b"{\"jsonrpc\"").expect("sent");
    let answer = read_line(&half).expect("told why");
    assert_eq!(answer["error"]["code"], RpcError::INVALID_REQUEST);
    assert_eq!((&half).read(&mut [0; 1]).expect("an end"), 0);
    let silent = open(server.path());
    assert_eq!((&silent).read(&mut [0; 1]).expect("an end"), 0, "a silent client is let go");
}

#[test]
fn clients_beyond_the_limit_are_told_so() {
    let place = Place::new("crowd");
    let server = start(&place, Limits { clients: 4, ..Limits::default() });
    let inside: Vec<UnixStream> = (0..4).map(|_| open(server.path())).collect();
    for stream in &inside {
        (&*stream).write_all(&[GOOD, b"\n"].concat()).expect("sent");
        assert_eq!(read_line(stream).expect("an answer")["result"], 42);
    }
    for _ in 0..200 {
        let answer = read_line(&open(server.path())).expect("told why");
        assert_eq!(answer["error"]["code"], RpcError::BUSY);
    }
    (&inside[0]).write_all(&[GOOD, b"\n"].concat()).expect("sent");
    assert_eq!(read_line(&inside[0]).expect("an answer")["result"], 42, "the others go on");
    drop(inside);
    // Their places become free as soon as the server notices; until then it says that it is busy.
    loop {
        let answer = ask(server.path(), GOOD);
        if answer["result"] == 42 {
            break;
        }
        assert_eq!(answer["error"]["code"], RpcError::BUSY);
    }
}

#[test]
fn a_second_instance_is_refused_and_a_stale_socket_replaced() {
    let place = Place::new("second");
    let path = place.file("control.sock");
    // A process that was killed leaves its socket behind.
    drop(UnixListener::bind(&path).expect("a stale socket"));
    let first = BoundSocket::bind(&path).expect("the stale socket is replaced");
    match BoundSocket::bind(&path) {
        Err(error @ SocketError::InUse(_)) => {
            assert!(error.to_string().contains("--socket"), "{error}");
        }
        other => panic!("a second instance got {other:?}"),
    }
    drop(first);
    assert!(!path.exists(), "the socket goes with its owner");
    BoundSocket::bind(&path).expect("free again");
}

/// As one of an export is taken for: what answers there is said to be something else.
#[test]
fn a_socket_of_somebody_who_speaks_otherwise_is_named() {
    let place = Place::new("another");
    let path = place.file("export.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let greeter = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03").expect("greeted");
        let mut asked = [0; 4];
        client.read_exact(&mut asked).expect("a request");
    });
    let failure = Client::connect(Role::Host, Some(&path)).and_then(|it| it.call("top", json!({})));
    let text = failure.expect_err("nobody of ours").to_string();
    assert!(text.contains("is no 'anabranch serve'") && text.contains("export"), "{text}");
    assert!(text.contains("export.sock"), "{text}");
    greeter.join().expect("greeted");
}

/// What cleans `/tmp` takes files that nobody has touched for days, and leaves sockets.
#[test]
fn a_second_instance_is_refused_also_when_the_lock_was_cleaned_away() {
    let place = Place::new("cleaned");
    let path = place.file("control.sock");
    let first = BoundSocket::bind(&path).expect("bound");
    fs::remove_file(place.file("control.sock.lock")).expect("the lock");
    // Also when it has no time for whoever connects.
    for clients in [0, 100] {
        let socket = |_| {
            let family = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
            let flags = rustix::net::SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family.0, family.1, flags, None).expect("one");
            let at = rustix::net::SocketAddrUnix::new(&path).expect("an address");
            let _ = rustix::net::connect(&socket, &at);
            socket
        };
        let _held: Vec<_> = (0..clients).map(socket).collect();
        match BoundSocket::bind(&path) {
            Err(SocketError::InUse(at)) => assert_eq!(at, path),
            other => panic!("a second instance got {other:?}"),
        }
    }
    assert!(path.exists(), "it is the first one's");
    drop(first);
    BoundSocket::bind(&path).expect("free again");
}

/// As `/dev/log` is one.
#[test]
fn a_socket_of_another_kind_that_somebody_has_is_left_alone() {
    let place = Place::new("datagrams");
    let path = place.file("log.sock");
    let owner = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    match BoundSocket::bind(&path) {
        Err(SocketError::InUse(at)) => assert_eq!(at, path),
        other => panic!("its place was taken: {other:?}"),
    }
    let client = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    client.send_to(b"still", &path).expect("its owner is reached");
    drop(owner);
    BoundSocket::bind(&path).expect("nobody has it any more");
}

#[test]
fn the_socket_and_its_directory_are_ours_alone() {
    let place = Place::new("mode");
    let path = place.0.join("made/control.sock");
    let _socket = BoundSocket::bind(&path).expect("bound");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&place.0.join("made")), 0o700);
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn unsafe_places_are_refused() {
    let place = Place::new("place");
    let open_to_all = place.file("open");
    fs::create_dir(&open_to_all).expect("a directory");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).expect("its mode");
    let refused = BoundSocket::bind(&open_to_all.join("control.sock"));
    assert!(matches!(refused, Err(SocketError::Directory { .. })), "{refused:?}");

    let file = place.file("file");
    fs::write(&file, "precious").expect("a file");
    let refused = BoundSocket::bind(&file);
    assert!(matches!(refused, Err(SocketError::NotASocket(_))), "{refused:?}");
    assert_eq!(fs::read_to_string(&file).expect("still there"), "precious");

    let link = place.file("link.sock");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let refused = BoundSocket::bind(&link);
    assert!(matches!(refused, Err(SocketError::NotASocket(_))), "{refused:?}");
}

#[test]
fn a_place_that_will_not_do_names_the_option_that_takes_another() {
    let place = Place::new("remedy");
    fs::write(place.file("file"), "").expect("a file");
    let (below_a_file, long) = (place.file("file/run/control.sock"), "x".repeat(200));
    for (path, why) in [
        (below_a_file, "cannot make the directory"),
        (place.file("none/\0/control.sock"), "cannot make the directory"),
        (place.file(&long), "at most 107 fit"),
        (PathBuf::from("/proc/control.sock"), "cannot lock"),
    ] {
        let told = BoundSocket::bind(&path).expect_err("no place").to_string();
        assert!(told.contains(why) && told.contains("with --socket"), "{told}");
    }
}

#[test]
fn only_the_owner_and_root_control() {
    for (peer, own, may) in
        [(1000, 1000, true), (0, 1000, true), (1001, 1000, false), (1000, 0, false), (0, 0, true)]
    {
        assert_eq!(may_control(peer, own), may, "user {peer} and a host of user {own}");
    }
}
