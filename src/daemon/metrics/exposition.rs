//! The text of one look.

use super::families;
use super::look::Look;
use super::plain::plain;
use anabranch_lab::shown::{Shown, obeyed};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What every name begins with.
const PREFIX: &str = "anabranch";

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4, which everything reads.
    Plain,
}

impl Format {
    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Everything that a look shows, as text.
///
/// # Errors
/// Never, unless the encoder has a defect.
pub fn exposition(look: &Arc<Look>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Arc::clone(look)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Plain => plain(&text),
    })
}

impl Collector for Look {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families::write(self, &mut Page(encoder))
    }
}

/// What tells the samples of a family apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Labels<'a> {
    /// With one more. Texts of others' making are shown as everywhere: nothing in them controls a
    /// terminal.
    pub(super) fn with(&self, name: &'static str, value: &'a str) -> Labels<'a> {
        let value = match value.chars().any(obeyed) {
            true => Cow::Owned(Shown(value).to_string()),
            false => Cow::Borrowed(value),
        };
        self.and(name, value)
    }

    /// With one more, of our own making.
    pub(super) fn and(&self, name: &'static str, value: Cow<'a, str>) -> Labels<'a> {
        let mut labels = self.clone();
        labels.0.push((name, value));
        labels
    }
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| (*name, &**value).encode(encoder.encode_label()))
    }
}

/// A family: its name without what its type and unit add, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) help: &'static str,
}

/// A family without a unit.
pub(super) const fn of(name: &'static str, help: &'static str) -> Family {
    Family { name, unit: None, help }
}

impl Family {
    /// The same in a base unit, with which its name ends.
    pub(super) const fn in_unit(self, unit: &'static str) -> Family {
        Family { unit: Some(unit), ..self }
    }

    fn unit(self) -> Option<Unit> {
        self.unit.map(|unit| Unit::Other(unit.to_owned()))
    }
}

/// How many values lay at or below each of a few bounds, not those below the bound before, in
/// seconds.
pub(super) struct Distribution {
    pub(super) sum: f64,
    pub(super) count: u64,
    pub(super) buckets: Vec<(f64, u64)>,
}

/// Where families are written. One without samples is left out.
pub(super) struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Counts that only grow.
    pub(super) fn counters<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
        self.family(family, MetricType::Counter, samples, |metric, (labels, value)| {
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)
        })
    }

    /// The same of times, in seconds.
    pub(super) fn sums<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        let family = family.in_unit("seconds");
        self.family(family, MetricType::Counter, samples, |metric, (labels, value)| {
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
        })
    }

    /// Numbers as they are now.
    pub(super) fn gauges<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
        self.family(family, MetricType::Gauge, samples, |metric, (labels, value)| {
            metric.encode_family(&labels)?.encode_gauge(&value)
        })
    }

    /// The same with fractions.
    pub(super) fn levels<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        self.family(family, MetricType::Gauge, samples, |metric, (labels, value)| {
            metric.encode_family(&labels)?.encode_gauge(&value)
        })
    }

    /// Texts: samples that are always 1.
    pub(super) fn infos<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = Labels<'a>>,
    ) -> fmt::Result {
        self.family(family, MetricType::Info, samples, |metric, labels| metric.encode_info(&labels))
    }

    /// Distributions that only grow.
    pub(super) fn histograms<'a>(
        &mut self,
        family: Family,
        samples: impl IntoIterator<Item = (Labels<'a>, Distribution)>,
    ) -> fmt::Result {
        self.family(family, MetricType::Histogram, samples, |metric, (labels, of)| {
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(of.sum, of.count, &of.buckets, None)
        })
    }

    fn family<T>(
        &mut self,
        family: Family,
        kind: MetricType,
        samples: impl IntoIterator<Item = T>,
        write: impl Fn(&mut prometheus_client::encoding::MetricEncoder<'_>, T) -> fmt::Result,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let unit = family.unit();
        let encoder = &mut self.0;
        let mut metric =
            encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
        samples.try_for_each(|sample| write(&mut metric, sample))
    }
}
