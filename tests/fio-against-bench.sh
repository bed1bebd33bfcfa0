#!/usr/bin/env bash
# Measures fio against our own load generator, both through one NBD export, and ours on the device
# itself beside them, where two shaped paths are the limit. docs/PERFORMANCE.md has a table.
#
#   fio-against-bench.sh [SECONDS [ROUNDS]]     length of one run (10), rounds (6); 6 minutes
#
# Rounds are interleaved; ratios are taken round by round. Exit status: 0 when bench through NBD is
# within 5 % of fio's throughput and within 15 % of its 99th percentile (medians), else 1.
#
# RATES="40mbit 20mbit" are the paths'. Take rates that the processors can fill with ease: the
# links must be the limit, or what is compared is how the two get along with a busy machine. On a
# machine with other work: chrt -r 10 fio-against-bench.sh
. "$(dirname "${BASH_SOURCE[0]}")/e2e/lib.sh"
need fio fio
seconds=${1:-10}
rounds=${2:-6}
read -r fast slow <<<"${RATES:-40mbit 20mbit}"
uri=nbd+unix:///nvme0n1?socket=$work/nbd.sock

setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:256MiB \
    --shape "1:rate=$fast,delay=200us" --shape "2:rate=$slow,delay=200us"
  start_serve
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
}
# One line of figures: load, round, generator, IOPS, bytes/s, mean ns, p99 ns.
run_fio() { # LOAD ROUND OPTION...: latency from the submission, of reads and writes together
  local load=$1 round=$2 out=$work/fio.json
  shift 2
  fio --name=load --ioengine=nbd --uri="$uri" --time_based --runtime="$seconds" \
    --norandommap --randrepeat=0 --unified_rw_reporting=mixed --lat_percentiles=1 \
    --output-format=json --output="$out" "$@" >&2
  jq -er --arg load "$load" --arg round "$round" '.jobs[0] | select(.error == 0) | .mixed
    | [$load, $round, "fio", .iops, .bw_bytes, .lat_ns.mean, .lat_ns.percentile["99.000000"]]
    | @tsv' "$out"
}
run_bench() { # LOAD ROUND GENERATOR OPTION...
  local load=$1 round=$2 generator=$3
  shift 3
  "$ANABRANCH" bench --socket "$work/host.sock" --runs 1 --randseed "$round" \
    --runtime "${seconds}s" -o json "$@" |
    jq -er --arg load "$load" --arg round "$round" --arg generator "$generator" '.median
      | [$load, $round, $generator, .iops, .bytes_per_s, .lat_ns.mean, .lat_ns.p99] | @tsv'
}
rounds_of() { # LOAD FIO_OPTION...: bench takes the same words
  local load=$1 round words=()
  shift
  for word in "$@"; do words+=("${word%%=*}" "${word#*=}"); done
  for round in $(seq "$rounds"); do
    run_fio "$load" "$round" "$@" >>"$work/figures"
    run_bench "$load" "$round" bench "${words[@]}" --nbd "$uri" >>"$work/figures"
    run_bench "$load" "$round" direct "${words[@]}" nvme0n1 >>"$work/figures"
    echo "$load: round $round of $rounds" >&2
  done
}

setup >"$work/setup.log"
echo "paths of $fast and $slow, $rounds rounds of $seconds s, $(fio --version)"
rounds_of '4k randread, depth 32' --rw=randread --bs=4k --iodepth=32
rounds_of '4k/64k randrw 70:30, depth 32' --rw=randrw --rwmixread=70 --bssplit=4k/50:64k/50 \
  --iodepth=32
terminate serve
terminate target
python3 - "$work/figures" <<'END'
import sys
from statistics import median

runs = {}
for line in open(sys.argv[1]):
    load, round_, generator, *figures = line.rstrip("\n").split("\t")
    runs.setdefault(load, {}).setdefault(generator, []).append([float(f) for f in figures])

names = {"fio": "fio, NBD", "bench": "bench, NBD", "direct": "bench, direct"}
bounds = [0.05, 0.05, None, 0.15]
good = True
for load, by in runs.items():
    print(f"\n{load}\n")
    print("| | IOPS | MiB/s | mean | p99 |\n| --- | --- | --- | --- | --- |")
    for generator, name in names.items():
        iops, rate, mean, p99 = (median(column) for column in zip(*by[generator]))
        print(f"| {name} | {iops:.0f} | {rate / 2**20:.2f} | {mean / 1e6:.2f} ms | {p99 / 1e6:.2f} ms |")
    for generator in ("bench", "direct"):
        cells = []
        for i, bound in enumerate(bounds):
            ratios = [run[i] / fio[i] for run, fio in zip(by[generator], by["fio"])]
            cells.append(f"{median(ratios):.3f} [{min(ratios):.3f} {max(ratios):.3f}]")
            if generator == "bench" and bound and abs(median(ratios) - 1) > bound:
                good = False
        print(f"| {names[generator]} / fio | " + " | ".join(cells) + " |")
print("\nbench through NBD is " + ("" if good else "NOT ") +
      "within 5 % of fio's throughput and 15 % of its p99")
sys.exit(not good)
END
