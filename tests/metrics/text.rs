//! A reader of expositions that takes nothing but what the two formats allow: OpenMetrics 1.0, and
//! Prometheus' text format 0.0.4.

use anabranch::daemon::metrics::Format;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// Families by name, as `# TYPE` names them.
#[derive(Clone, Debug)]
pub(crate) struct Exposition(pub(crate) BTreeMap<String, Family>);

fn is_name(text: &str, more: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || more.contains(c);
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Parses a whole exposition.
pub(crate) fn parse(text: &str, format: Format) -> Exposition {
    let body = match format {
        Format::OpenMetrics => text.strip_suffix("# EOF\n").expect("it has an end"),
        Format::Plain => text,
    };
    assert!(body.is_empty() || body.ends_with('\n'), "the last line has no end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.split_terminator('\n') {
        let Some(rest) = line.strip_prefix("# ") else {
            let family = families.get_mut(&current).expect("a sample has a family");
            assert!(!family.kind.is_empty(), "{line}: no type before it");
            family.samples.push(sample(line));
            continue;
        };
        let mut words = rest.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
        let (what, name, said) = (word(), word().to_owned(), word().to_owned());
        assert!(is_name(&name, ":"), "{line}");
        if name != current {
            assert!(!families.contains_key(&name), "{name} stands in two places");
            current.clone_from(&name);
        }
        let family = families.entry(name).or_default();
        assert!(family.samples.is_empty(), "{line} stands behind samples");
        match what {
            "HELP" => family.help = said,
            "TYPE" => family.kind = said,
            "UNIT" if format == Format::OpenMetrics => family.unit = Some(said),
            _ => panic!("{line}"),
        }
    }
    families.iter().for_each(|(name, family)| check(name, family, format));
    Exposition(families)
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, ":"), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label's value");
            assert!(is_name(label, ""), "{line}");
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}: {label} twice");
            rest = after.strip_prefix(',').unwrap_or(after);
            assert!(after.starts_with(['}', ',']) && !after.starts_with(",}"), "{line}");
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    let value = value.parse().unwrap_or_else(|_| panic!("{line}: no number, or more than one"));
    Sample { name: name.to_owned(), labels, value }
}

/// What stands before the closing quote, and what follows it.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                other => panic!("{text}: {other:?} is escaped"),
            }),
            c => value.push(c),
        }
    }
    panic!("{text}: no end of a value");
}

/// What a family may look like.
fn check(name: &str, family: &Family, format: Format) {
    assert!(!family.help.is_empty() && !family.samples.is_empty(), "{name}: {family:?}");
    if let Some(unit) = &family.unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} does not end with {unit}");
    }
    let open = format == Format::OpenMetrics;
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let labels = format!("{:?}", sample.labels);
        assert!(seen.insert((&sample.name, labels)), "{sample:?} stands there twice");
        let suffix = sample.name.strip_prefix(name).expect("a sample of its family");
        match family.kind.as_str() {
            "counter" => {
                assert_eq!(suffix, if open { "_total" } else { "" }, "{sample:?}");
                assert!(open || name.ends_with("_total"), "{name}");
                assert!(sample.value >= 0.0 && sample.value.is_finite(), "{sample:?}");
            }
            "gauge" => assert_eq!(suffix, "", "{sample:?}"),
            "info" if open => assert_eq!((suffix, sample.value), ("_info", 1.0), "{sample:?}"),
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{sample:?}"),
            kind => panic!("{name} is a {kind}"),
        }
        assert_eq!(suffix == "_bucket", sample.labels.contains_key("le"), "{sample:?}");
    }
    if family.kind == "histogram" {
        histograms(name, family);
    }
}

fn histograms(name: &str, family: &Family) {
    let of = |suffix: &str| {
        let name = format!("{name}{suffix}");
        family.samples.iter().filter(move |sample| sample.name == name)
    };
    assert_eq!(of("_count").count(), of("_sum").count(), "{name}");
    for count in of("_count") {
        let (mut last, mut bound) = (0.0, f64::NEG_INFINITY);
        let own = of("_bucket").filter(|bucket| {
            let mut labels = bucket.labels.clone();
            labels.remove("le");
            labels == count.labels
        });
        for bucket in own {
            let le: f64 = bucket.labels["le"].parse().expect("a bound");
            assert!(le > bound && bucket.value >= last, "{bucket:?} after {last} at {bound}");
            (last, bound) = (bucket.value, le);
        }
        assert_eq!((bound, last), (f64::INFINITY, count.value), "{count:?}");
    }
}

impl Exposition {
    /// Every sample of this name.
    pub(crate) fn samples(&self, name: &str) -> Vec<&Sample> {
        let all = self.0.values().flat_map(|family| &family.samples);
        all.filter(|sample| sample.name == name).collect()
    }

    /// The only sample of this name with these labels, among others.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut found = self.samples(name);
        found.retain(|sample| {
            labels
                .iter()
                .all(|(label, value)| sample.labels.get(*label).is_some_and(|v| v == value))
        });
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].value
    }
}
