//! The files: one line for each of `scenarios/*.toml` and `scenarios/jobs/*.fio`, by name. A test
//! says which line is missing.

/// Names with texts, in order.
macro_rules! texts {
    ($ending:literal: $($name:literal)*) => {
        &[$((
            $name,
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../scenarios/",
                $name,
                $ending
            )),
        )),*]
    };
}

pub(super) const SCENARIOS: &[(&str, &str)] = texts! { ".toml":
    "accounting-512k"
    "accounting-512k-full"
    "ana-changes"
    "ana-states"
    "biased-congested-read"
    "biased-congested-rw"
    "biased-congested-write"
    "biased-read"
    "biased-rw"
    "biased-write"
    "brownout"
    "brownout-low-queue-depth"
    "cold-start"
    "congestion-2s"
    "congestion-50ms"
    "delay-30ms-read"
    "delay-30ms-read-full"
    "delay-30ms-rw"
    "delay-30ms-write"
    "eight-unequal"
    "exponential-service"
    "grid-2013-1x1"
    "grid-2013-1x1-full"
    "grid-2013-1x1024"
    "grid-2013-1x128"
    "grid-2013-1x16"
    "grid-2013-1x2"
    "grid-2013-1x2048"
    "grid-2013-1x4"
    "grid-2013-1x8"
    "grid-2013-4x1"
    "grid-2013-4x1024"
    "grid-2013-4x128"
    "grid-2013-4x16"
    "grid-2013-4x2"
    "grid-2013-4x2048"
    "grid-2013-4x4"
    "grid-2013-4x8"
    "hundred-hosts"
    "low-queue-depth"
    "open-loop-110"
    "open-loop-50"
    "open-loop-90"
    "path-delay-rises"
    "path-fails"
    "path-flaps-01hz"
    "path-flaps-10hz"
    "path-flaps-1hz"
    "path-returns"
    "path-silent"
    "path-slows"
    "service-time-4k"
    "service-time-mixed"
    "service-time-mixed-full"
    "service-time-standby"
    "size-delay-opposite"
    "size-delay-read"
    "size-delay-read-full"
    "size-delay-rw"
    "size-delay-write"
    "symmetric-read"
    "symmetric-rw"
    "symmetric-write"
    "twenty-to-one"
    "two-hosts-read"
    "two-hosts-rw"
    "two-hosts-write"
};

pub(super) const JOB_FILES: &[(&str, &str)] = texts! { ".fio":
    "jobs/accounting-512k"
    "jobs/biased-read"
    "jobs/biased-rw"
    "jobs/biased-write"
    "jobs/grid-2013-4x128"
    "jobs/mixed-read"
    "jobs/mixed-rw"
    "jobs/mixed-write"
    "jobs/two-hosts-read"
    "jobs/two-hosts-rw"
    "jobs/two-hosts-write"
};
