#!/usr/bin/env bash
# The whole library in full: every scenario, variant and run, light; the cells with the 15 s window
# of `latency` among them. What comes out is what docs/results holds: the same on every machine.
#
#   tests/lab-full.sh [DIR]          results go to DIR, target/lab-full by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=${1:-target/lab-full}
cargo build --release --quiet
bin=${CARGO_TARGET_DIR:-target}/release
"$bin/anabranch" lab run scenarios/*.toml --mode light --out "$dir"
"$bin/anabranch" lab report "$dir"
mkdir -p docs/results
cp "$dir/summary.json" docs/results/light.json
