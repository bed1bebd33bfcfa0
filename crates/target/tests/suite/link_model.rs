//! The link model alone: each port measures within 3 % of its rate and 1 ms of its delay.

use anabranch_proto::machine::Time;
use anabranch_target::link::{Link, Shape};
use anabranch_target::rng::Rng;

fn shape(text: &str) -> Shape {
    text.parse().unwrap()
}

/// Bits per second that `count` sends of `bytes` bytes get through.
fn measured_rate(link: &mut Link, bytes: u64, count: u64) -> f64 {
    let mut rng = Rng::new(7);
    let mut last = Time::ZERO;
    for _ in 0..count {
        last = link.depart(Time::ZERO, bytes, &mut rng);
    }
    (bytes * count * 8) as f64 / (last.ns() as f64 / 1e9)
}

#[test]
fn rates_hold_within_three_percent() {
    for (text, rate) in [("100mbit", 1e8), ("500mbit", 5e8), ("10gbit", 1e10), ("60MiB/s", 5.033e8)]
    {
        for bytes in [600, 4 << 10, 128 << 10, 1 << 20] {
            let shape = shape(&format!("rate={text}"));
            for mut link in [Link::inbound(&shape, Time::ZERO), Link::outbound(&shape, Time::ZERO)]
            {
                let got = measured_rate(&mut link, bytes, 10_000);
                assert!((got / rate - 1.0).abs() < 0.03, "{text}, {bytes}: {got}");
            }
        }
    }
}

#[test]
fn delay_is_paid_once_per_round_trip() {
    let shape = shape("delay=30ms");
    let mut rng = Rng::new(1);
    let now = Time::from_ns(1_000);
    let there = Link::inbound(&shape, now).depart(now, 4096, &mut rng);
    assert_eq!(there.ns(), 30_001_000);
    assert_eq!(Link::outbound(&shape, now).depart(there, 4096, &mut rng), there);
}

#[test]
fn jitter_swings_around_the_delay() {
    let shape = shape("delay=10ms,jitter=4ms");
    let seed = 42;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut link = Link::inbound(&shape, Time::ZERO);
    let delays: Vec<u64> = (0..10_000).map(|_| link.depart(Time::ZERO, 0, &mut rng).ns()).collect();
    let (min, max) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
    assert!((6_000_000..6_100_000).contains(&min) && (13_900_000..=14_000_000).contains(&max));
    let mean = delays.iter().sum::<u64>() / 10_000;
    assert!((9_900_000..10_100_000).contains(&mean), "{mean}");
}

#[test]
fn congestion_carries_only_in_its_on_time() {
    let shape = shape("rate=80mbit,onoff=10ms:30ms");
    let mut link = Link::inbound(&shape, Time::ZERO);
    let mut rng = Rng::new(0);
    // 10 MB/s: 100 kB fill one ON exactly.
    assert_eq!(link.depart(Time::ZERO, 100_000, &mut rng).ns(), 10_000_000);
    assert_eq!(link.depart(Time::ZERO, 50_000, &mut rng).ns(), 45_000_000);
    assert_eq!(link.depart(Time::ZERO, 150_000, &mut rng).ns(), 90_000_000);
    // Something without work, in OFF time, waits for ON.
    assert_eq!(link.depart(Time::from_ns(95_000_000), 0, &mut rng).ns(), 120_000_000);
    assert_eq!(link.depart(Time::from_ns(121_000_000), 0, &mut rng).ns(), 121_000_000);
}

#[test]
fn large_commands_wait_longer() {
    let shape = shape("large=64k:10ms");
    assert_eq!(shape.large_delay(65_535).as_millis(), 0);
    assert_eq!(shape.large_delay(65_536).as_millis(), 10);
}

#[test]
fn the_text_form_round_trips() {
    for text in [
        "none",
        "rate=500mbit",
        "rate_in=1500mbit,rate_out=8kbit",
        "rate_in=5MiB/s,rate_out=3GiB/s",
        "rate_in=1025KiB/s,rate_out=1234567bit",
        "rate_out=1gbit,delay=30ms,jitter=250us,large=65536:10ms,onoff=2s:500ms",
    ] {
        assert_eq!(shape(text).to_string(), text);
    }
    assert_eq!(shape("rate=1.5gbit").rate_in, Some(1_500_000_000));
    assert_eq!(shape("rate=500mbit"), shape("rate_in=500m,rate_out=500Mbit"));
    assert_eq!(shape("rate=10mbps").rate_in, Some(80_000_000));
    assert_eq!(shape(" none ").to_string(), "none");
    assert_eq!(shape("large=64KiB:10ms"), shape("large=64k:10ms"));
    assert_eq!(shape("delay=1m"), shape("delay=60 s"));
}

#[test]
fn errors_name_the_key_and_the_limit() {
    for (text, key, word) in [
        ("speed=1", "speed", "there are rate, rate_in"),
        ("rate", "rate", "KEY=VALUE"),
        ("rate=fast", "rate", "500mbit"),
        ("rate=0", "rate", "between 1kbit"),
        ("rate=2000gbit", "rate", "1000gbit"),
        ("rate=99999999999999999999", "rate", "between 1kbit and 1000gbit"),
        ("rate=99999999999gbit", "rate", "between 1kbit and 1000gbit"),
        ("rate_out=1", "rate_out", "between 1kbit and 1000gbit"),
        ("delay=99999999999999999999h", "delay", "not exceed 60s"),
        ("rate=1m,rate=2m", "rate", "twice"),
        ("rate=1m,rate_in=2m", "rate", "both"),
        ("delay=30", "delay", "30ms"),
        ("delay=61s", "delay", "60s"),
        ("jitter=1ms", "jitter", "delay"),
        ("large=64k", "large", "SIZE:DELAY"),
        ("large=0:1ms", "large", "between 1"),
        ("onoff=1s", "onoff", "ON:OFF"),
        ("onoff=1s:0", "onoff", "100us"),
        ("delay=1ms,,", "", "shape: nothing stands beside a comma; expected KEY=VALUE"),
        ("", "", "shape: nothing is given; write KEY=VALUE,… or none"),
        (" ", "", "or none"),
    ] {
        let error = text.parse::<Shape>().expect_err(text);
        assert_eq!(error.key, key, "{text}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
}
