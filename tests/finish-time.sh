#!/usr/bin/env bash
# Makes docs/policies/finish-time-evidence.md: every policy on the library of scenarios and on 200
# random ones, light. Some minutes; what comes out is the same on every machine.
#
#   tests/finish-time.sh [SEEDS]     random scenarios, FIRST..LAST
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seeds=${1:-38367..38566}
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
  cat <<TEXT

## Made to break it

[Scenarios](../../crates/lab/tests/nasty) in which what was learned is wrong, or nothing can be learned;
read as the table above.

TEXT
  "$evaluate" --own-length crates/lab/tests/nasty/*.toml | sed -n '/^| row | limit/,$p'
  cat <<TEXT

## What its parts are worth

Without spill (\`finish_time_tail\`), without probes (\`finish_time_probes\`), without both, over the
library; read as the table above.

TEXT
  parts=finish-time,finish-time/no-spill,finish-time/no-probes,finish-time/neither
  "$evaluate" --library --policies "$parts" | sed -n '/^| row | limit/,$p'
} >"$page.new"
mv "$page.new" "$page"
