#!/usr/bin/env bash
# Makes docs/REPRODUCTION.md: the published tables beside the light simulation, the engine
# simulation and live runs. About an hour and a half on two cores, on a machine that does nothing
# else: a live cell that shares its processors measures them. What a results directory holds
# already is not run again, so that this may be interrupted.
#
#   tests/reproduction.sh [DIR]      results go to DIR, target/reproduction by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=${1:-target/reproduction}
mkdir -p "$dir"

cargo build --release --quiet
cargo build --release --quiet -p anabranch-lab --example reproduction
bin=${CARGO_TARGET_DIR:-target}/release
lab() { "$bin/anabranch" lab run "$@" --out "$dir"; }

# Quick cells: as long as a live run can be had often.
length=(--ramp 400ms --window 800ms)
# In this order, so that a run that is cut short has something of every mail.
tables=(
  service-time-4k service-time-mixed delay-30ms-rw symmetric-read biased-rw biased-congested-rw
  size-delay-rw two-hosts-read service-time-standby size-delay-opposite delay-30ms-read
  delay-30ms-write symmetric-rw symmetric-write biased-read biased-write biased-congested-read
  biased-congested-write size-delay-read size-delay-write two-hosts-rw two-hosts-write
)
# Beyond the mails, for the comparison of simulated with live.
beyond=(twenty-to-one eight-unequal path-fails open-loop-90 low-queue-depth path-slows brownout)
mapfile -t grid < <(cd scenarios && ls grid-2013-*.toml | sed 's/\.toml$//')

lab "${tables[@]}" "${beyond[@]}" accounting-512k --mode light "${length[@]}"
lab "${grid[@]}" --mode live --keep-depth \
  --policies multi-queue,single-queue "${length[@]}"
lab "${tables[@]:0:10}" "${beyond[@]}" --mode live "${length[@]}"
lab "${tables[@]:0:10}" "${beyond[@]}" --mode sim "${length[@]}"
lab "${tables[@]:10}" --mode live "${length[@]}"

"$bin/examples/reproduction" docs/reproduction.toml scenarios "$dir" >docs/REPRODUCTION.md.new
mv docs/REPRODUCTION.md.new docs/REPRODUCTION.md
