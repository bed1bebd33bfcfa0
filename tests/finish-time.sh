#!/usr/bin/env bash
# Makes docs/policies/finish-time-evidence.md: every policy on the library of scenarios and on 200
# random ones, light. Some minutes; what comes out is the same on every machine.
#
#   tests/finish-time.sh [SEEDS]     random scenarios, FIRST..LAST
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seeds=${1:-10001..10200}
page=docs/policies/finish-time-evidence.md

cargo build --release --quiet -p anabranch-lab --example evaluate
evaluate=${CARGO_TARGET_DIR:-target}/release/examples/evaluate
{
  cat <<TEXT
# \`finish-time\`: the evidence

Made by \`tests/finish-time.sh\`: the library of scenarios in its own length, and random scenarios with
the seeds $seeds ([their distribution](../../crates/lab/src/scenario/random/mod.rs)), one run of each
policy in the light simulation. \`evaluate --print SEED\` prints a random one, \`anabranch lab run\` runs
it.

TEXT
  "$evaluate" --library --own-length --seeds "$seeds"
} >"$page.new"
mv "$page.new" "$page"
