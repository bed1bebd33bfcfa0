#!/usr/bin/env bash
# Measures our NBD export, behind which there is an NVMe/TCP path to our target, beside qemu-nbd
# with a file in memory, behind which there is nothing. docs/PERFORMANCE.md has a table.
#
#   nbd-against-qemu.sh [SECONDS [ROUNDS]]     length of one run (3), rounds (5); 3.5 minutes
#
# fio is the client of both, in turn; ratios are taken round by round. Processor time is that of
# the server alone. ANABRANCH should be a release build, on a machine with nothing else to do:
# chrt -r 10 nbd-against-qemu.sh
. "$(dirname "${BASH_SOURCE[0]}")/e2e/lib.sh"
need fio fio
need qemu-nbd qemu-utils
seconds=${1:-3}
rounds=${2:-5}
ours="nbd+unix:///nvme0n1?socket=$work/nbd.sock"
theirs="nbd+unix:///?socket=$work/qemu.sock"
loads=("randread 4k 1" "randread 4k 32" "randread 4k 128" "randwrite 4k 32" "read 128k 16"
  "write 128k 16")

setup() {
  start_target --listen 127.0.0.1:0 --namespace mem:512MiB,bs=4096
  start_serve --workers 1
  connect 1
  export_nbd 1 "$work/nbd.sock"
  memory=$(mktemp -d -p /dev/shm)
  at_exit+=(forget)
  truncate -s 512M "$memory/disk"
  qemu-nbd -t -e 4 -f raw --cache=writeback -k "$work/qemu.sock" "$memory/disk" &
  qemu_pid=$!
  started+=("$qemu_pid")
  within 10 test -S "$work/qemu.sock"
  # Neither reads what was never written.
  local uri
  for uri in "$ours" "$theirs"; do
    fio --name=fill --ioengine=nbd --uri="$uri" --rw=write --bs=1m --iodepth=8 --size=512m
  done
}
forget() { rm -rf "$memory"; }
ran_ns() { # PID: what all of its threads have run, those that are gone included
  sed 's/.*) //' "/proc/$1/stat" |
    awk -v tick="$(getconf CLK_TCK)" '{ printf "%.0f\n", ($12 + $13) * 1e9 / tick }'
}
run() { # SERVER PID URI LOAD ROUND: server, load, round, I/Os a second, ns of the server per I/O
  local before rw bs depth
  read -r rw bs depth <<<"$4"
  before=$(ran_ns "$2")
  fio --name=load --ioengine=nbd --uri="$3" --rw="$rw" --bs="$bs" --iodepth="$depth" \
    --size=512m --time_based --runtime="$seconds" --randseed="$5" --norandommap \
    --output-format=json --output="$work/fio.json" >&2
  jq -er --arg server "$1" --arg load "$4" --argjson ran $(($(ran_ns "$2") - before)) \
    '.jobs[0] | select(.error == 0) | (.read.total_ios + .write.total_ios) as $ios
    | [$server, $load, .read.iops + .write.iops, $ran / $ios] | @tsv' "$work/fio.json"
}

must "an export each" setup
echo "$rounds rounds of $seconds s, $(fio --version), $(qemu-nbd --version | head -n 1)"
for round in $(seq "$rounds"); do
  for load in "${loads[@]}"; do
    run ours "$serve_pid" "$ours" "$load" "$round" >>"$work/figures"
    run qemu-nbd "$qemu_pid" "$theirs" "$load" "$round" >>"$work/figures"
  done
done
terminate serve
terminate target
python3 - "$work/figures" <<'END'
import sys
from statistics import median

runs = {}
for line in open(sys.argv[1]):
    server, load, *figures = line.rstrip("\n").split("\t")
    runs.setdefault(load, {}).setdefault(server, []).append([float(f) for f in figures])

def ratio(by, at):
    all = [a[at] / b[at] for a, b in zip(by["ours"], by["qemu-nbd"])]
    return f"{median(all):.2f} [{min(all):.2f} {max(all):.2f}]"

print("\n| load, depth | ours, I/Os a second | qemu-nbd | ratio | processor time per I/O: ours | ratio |")
print("| --- | --- | --- | --- | --- | --- |")
for load, by in runs.items():
    iops = {server: median(run[0] for run in all) for server, all in by.items()}
    ran = median(run[1] for run in by["ours"]) / 1000
    print(f"| {load} | {iops['ours']:.0f} | {iops['qemu-nbd']:.0f} | {ratio(by, 0)} | {ran:.1f} us | {ratio(by, 1)} |")
END
