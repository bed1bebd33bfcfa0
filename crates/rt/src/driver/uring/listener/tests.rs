//! What becomes of errors that accepting seldom has: they are told to the driver as if the kernel
//! had given them.

use crate::Config;
use crate::driver::{Driver, Event, Uring};
use crate::memory::Regions;
use anabranch_proto::machine::{Endpoint, ListenerId, SocketOptions, SystemError};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

thread_local! {
    static TOLD: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

fn tell(error: SystemError) {
    TOLD.with_borrow_mut(|told| told.push(error.0));
}

fn told() -> Vec<i32> {
    TOLD.take()
}

/// A driver whose operations never reach the kernel, with one listener.
fn listening() -> (Uring, OwnedFd) {
    let wake = eventfd(0, EventfdFlags::CLOEXEC).expect("an event descriptor");
    let regions = Arc::new(Regions::new(1, 4 << 20).expect("memory"));
    let config = Config { starved: Some(tell), ..Config::default() };
    let mut driver = Uring::new(&config, regions, Arc::default(), wake.as_fd()).expect("a ring");
    let at = Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"));
    driver.listen(ListenerId(0), &at, &SocketOptions::default());
    assert!(matches!(driver.next_event(), Some(Event::Listening { .. })));
    (driver, wake)
}

/// It accepts (again), rather than rests.
fn accepts(driver: &Uring) -> bool {
    let listener = driver.listeners.0[0].as_ref().expect("it is there");
    assert_ne!(listener.accepting, listener.retry_at.is_some(), "one of them");
    listener.accepting
}

#[test]
fn an_error_of_the_connection_that_came_is_nothing_to_rest_for() {
    let (mut driver, wake) = listening();
    for error in [libc::ENETDOWN, libc::EHOSTUNREACH, libc::ECONNABORTED, libc::EPROTO] {
        driver.accepted(0, -error);
        assert!(accepts(&driver), "{error}");
        let connection = wake.try_clone().expect("a descriptor").into_raw_fd();
        driver.accepted(0, connection);
    }
    assert_eq!(told(), []);
}

/// It would be asked again and again, without a pause and without a word.
#[test]
fn an_error_of_one_connection_after_the_other_is_the_listeners() {
    for error in [libc::ENETDOWN, libc::EOPNOTSUPP, libc::ECONNABORTED] {
        let (mut driver, _wake) = listening();
        driver.accepted(0, -error);
        driver.accepted(0, -error);
        assert!(!accepts(&driver), "{error}");
        assert_eq!(told(), [error]);
        driver.listeners.0[0].as_mut().expect("it is there").retry_at = Some(crate::now());
        driver.retry_accepts();
        assert!(accepts(&driver), "{error}");
        driver.accepted(0, -error);
        assert_eq!(told(), [], "told once");
    }
}

#[test]
fn an_error_of_the_listener_is_told_as_what_it_is() {
    for error in [libc::EPERM, libc::ENOBUFS, libc::ENOMEM, libc::EMFILE] {
        let (mut driver, _wake) = listening();
        driver.accepted(0, -error);
        assert!(!accepts(&driver), "{error}");
        assert_eq!(told(), [error]);
    }
}
