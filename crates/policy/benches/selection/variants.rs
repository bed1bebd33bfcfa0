//! What is measured under a name of its own.

use anabranch_policy::{LatencyParameters, Parameters, Policy, Scope};

/// Every policy with its defaults, and `latency` averaged per node, which shares state between
/// workers.
pub(crate) fn policies() -> Vec<(String, Parameters)> {
    let mut variants = Vec::new();
    for policy in Policy::ALL {
        variants.push((policy.name().to_owned(), Parameters::of(policy)));
        if policy == Policy::Latency {
            let latency = LatencyParameters { per_node: true, ..LatencyParameters::default() };
            let parameters = Parameters { latency, ..Parameters::of(policy) };
            variants.push((format!("{policy}/node"), parameters));
        }
    }
    variants
}

/// The scopes of `queue-depth` other than the default.
pub(crate) fn scopes() -> Vec<(String, Parameters)> {
    let others = Scope::ALL.into_iter().filter(|&scope| scope != Scope::default());
    let variant = |scope| {
        let parameters = Parameters { scope, ..Parameters::of(Policy::QueueDepth) };
        (format!("{}/{scope}", Policy::QueueDepth), parameters)
    };
    others.map(variant).collect()
}
