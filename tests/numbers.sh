#!/usr/bin/env bash
# Measures the numbers of docs/PERFORMANCE.md on this machine, and prints them as a table.
#
#   numbers.sh [ID...]       of: N3 N4 N5 N7 N8 N10 N11 N12 (all but N4 take 20 minutes)
#
# N4 compares with SPDK, if SPDK names a tree in which spdk_nvme_perf and nvmf_tgt were built. With
# 2 GiB of free huge pages these are used, as SPDK's users do.
#
# ROUNDS (5) is how often each is measured; what is compared runs in turn within a round. A figure
# is the median of the rounds, with the least and the greatest. Exit status 0 whatever came out.
#
# Rates and times depend on what else the machine does: chrt -r 10 numbers.sh, or nice -n -10.
# Memory, wake-ups and system calls hardly do. As root, and with perf, system calls are counted.
#
# A congestion control that paces (bbr) would be what is measured: a connection over loopback then
# takes one of several rates. As root all runs in a network namespace of its own, with reno.
if [ "$(id -u)" = 0 ] && [ -z "${NUMBERS_OWN_NET:-}" ]; then
  # shellcheck disable=SC2016  # the inner shell expands
  NUMBERS_OWN_NET=1 exec unshare --net sh -euc 'ip link set lo up
    echo reno >/proc/sys/net/ipv4/tcp_congestion_control
    exec "$@"' sh "$0" "$@"
fi
ANABRANCH=${ANABRANCH:-${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/release/anabranch}
. "$(dirname "${BASH_SOURCE[0]}")/e2e/lib.sh"
rounds=${ROUNDS:-5}
idle_seconds=20
fault_seconds=5

figure() { # ID WHAT BAR VALUE: of one round
  printf '%s\t%s\t%s\t%s\n' "$@" >>"$work/figures"
}
calc() { # EXPRESSION
  jq -n "$1"
}

# ---- rates of 4 KiB random reads, host and target in one process

placements='1/1:one_core 1/0:two_cores' # CPUs of host and target : in words
count_calls=()
if perf stat -e raw_syscalls:sys_enter true 2>/dev/null; then
  count_calls=(perf stat -x "," -e raw_syscalls:sys_enter -o "$work/calls")
fi
load() { # ROUND CPUS DEPTH OPTION...: report in $work/load.json
  "${count_calls[@]}" "$ANABRANCH" bench --rw randread --bs 4k --runs 1 --runtime 1s -o json \
    --randseed "$1" --cpus "$2" --iodepth "$3" "${@:4}" >"$work/load.json"
}
measure_N3() { # ROUND
  local at depth bar
  for at in $placements; do
    for depth in 1 32 128; do
      load "$1" "${at%:*}" $depth --bare
      [ $depth = 1 ] && bar=0.85 || bar=0.7
      figure N3 "${at#*:}, depth $depth: to the bare exchange" ">= $bar" \
        "$(json .ratio.median "$work/load.json")"
    done
  done
}
measure_N5() { # ROUND: the bare exchange over two connections says what TCP has of it
  local at depth paths calls iops bare
  for at in $placements; do
    for depth in 32 128; do
      iops=() bare=()
      for paths in 1 2; do
        load "$1" "${at%:*}" $depth --paths $paths --bare
        iops+=("$(json .median.iops "$work/load.json")")
        bare+=("$(json .bare_median.iops "$work/load.json")")
        [ ${#count_calls[@]} -gt 0 ] || continue
        load "$1" "${at%:*}" $depth --paths $paths
        calls=$(awk -F, '/sys_enter/ { print $1 }' "$work/calls")
        figure N5 "${at#*:}, depth $depth, paths $paths: system calls per I/O, both ends" '' \
          "$(json "$calls / .runs[0].load.reads" "$work/load.json")"
      done
      figure N5 "${at#*:}, depth $depth: two paths to one" '>= 0.97' \
        "$(calc "${iops[1]} / ${iops[0]}")"
      figure N5 "${at#*:}, depth $depth: bare exchange over two connections to one" '' \
        "$(calc "${bare[1]} / ${bare[0]}")"
    done
  done
}

# ---- beside SPDK's initiator: one connection, target on CPU 0

spdk_memory=(--iova-mode va)
huge_pages=$(awk '/^HugePages_Free:/ { print $2 }' /proc/meminfo)
[ "$huge_pages" -ge 1024 ] && grep -q hugetlbfs /proc/mounts || spdk_memory+=(--no-huge)
# The two initiators in turn on the target at this port. SPDK's polls, so it needs the other CPU and
# takes a whole one. Ours does not, so it may as well be beside a target that sleeps; on the other
# CPU it may look for work before it sleeps, as long as a wake-up takes.
# PORT DEPTH WHAT PLACE...: of ours, CPU:SPIN
beside_spdk() {
  local port=$1 depth=$2 what=$3 place where before theirs best=0 thrift=0 ratio
  "$SPDK/build/bin/spdk_nvme_perf" "${spdk_memory[@]}" -s 512 -c 0x2 -t 2 \
    -q "$depth" -o 4096 -w randread -r "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:$port
      subnqn:$nqn hostnqn:nqn.2026-01.org.anabranch:spdk-host" >"$work/perf.log" 2>&1
  theirs=$(awk '/^Total / { print $3 }' "$work/perf.log")
  for place in "${@:4}"; do
    where="on CPU ${place%:*}, spin ${place#*:}"
    printf 'workers = 1\nspin = "%s"\n[[subsystem]]\nnqn = "%s"\n[[subsystem.path]]\n%s\n%s\n' \
      "${place#*:}" "$nqn" 'traddr = "127.0.0.1"' "trsvcid = $port" >"$work/serve.toml"
    start_serve --config "$work/serve.toml"
    taskset -acp "${place%:*}" "$serve_pid" >"$work/taskset.log"
    within 20 live_paths 1
    mapfile -t before < <(idle)
    host bench nvme0n1 --rw randread --bs 4k --runs 1 --runtime 2s --iodepth "$depth" -o json \
      >"$work/load.json"
    mapfile -t -O 2 before < <(idle)
    terminate serve
    ratio=$(json ".median.iops / $theirs" "$work/load.json")
    figure N4 "$what, depth $depth: IOPS to SPDK's, $where" '' "$ratio"
    best=$(calc "[$best, $ratio] | max")
    ratio=$(json ".runs[0].load.reads / ((${before[2]} - ${before[0]}) / 1e9) / $theirs" \
      "$work/load.json")
    figure N4 "$what, depth $depth: I/Os per CPU second to SPDK's, $where" '' "$ratio"
    thrift=$(calc "[$thrift, $ratio] | max")
  done
  figure N4 "$what, depth $depth: SPDK's IOPS, thousands" '' "$(calc "$theirs / 1000")"
  figure N4 "$what, depth $depth: IOPS to SPDK's, best placement" \
    "$([ "$depth" = 1 ] && echo '>= 1.0' || echo '>= 1.2')" "$best"
  figure N4 "$what, depth $depth: I/Os per CPU second to SPDK's, best" '>= 2' "$thrift"
}
start_nvmf_tgt() { # PORT
  "$SPDK/build/bin/nvmf_tgt" "${spdk_memory[@]}" -s 1024 -m 0x1 -u -r "$work/spdk.sock" \
    >"$work/nvmf_tgt.log" 2>&1 &
  nvmf_tgt_pid=$!
  started+=("$nvmf_tgt_pid")
  within 30 rpc spdk_get_version
  rpc nvmf_create_transport -t TCP
  rpc bdev_malloc_create -b Malloc0 256 4096
  rpc nvmf_create_subsystem "$nqn" -a -s SPDK001 -r
  rpc nvmf_subsystem_add_ns "$nqn" Malloc0
  rpc nvmf_subsystem_add_listener "$nqn" -t tcp -f ipv4 -a 127.0.0.1 -s "$1"
}
rpc() { python3 "$SPDK/scripts/rpc.py" -s "$work/spdk.sock" "$@" >"$work/rpc.log"; }
measure_N4() {
  local depth port
  : "${SPDK:?N4 needs SPDK: a tree in which it was built}"
  start_target --listen 127.0.0.1:0 --namespace mem:256MiB,bs=4096
  taskset -acp 0 "$target_pid" >"$work/taskset.log"
  for depth in 1 32 128; do beside_spdk "$(port_of 1)" $depth "target" 0:0 1:0 1:50us; done
  terminate target
  nqn=nqn.2026-01.org.anabranch:spdk port=$(free_ports 1)
  start_nvmf_tgt "$port"
  for depth in 1 32 128; do beside_spdk "$port" $depth "SPDK's nvmf_tgt" 1:0 1:50us; done
  terminate nvmf_tgt
}

# ---- what connected paths and namespaces cost

# Of a host with one worker and a path to each port of the target.
configuration() { # LINE...: for each path
  local port
  printf 'workers = 1\niopolicy = "%s"\n' "${policy:-queue-depth}"
  printf '[[subsystem]]\nnqn = "%s"\n' "$nqn"
  for port in $(json '.listeners[]' "$work/target.json" | sed 's/.*://'); do
    printf '[[subsystem.path]]\ntraddr = "127.0.0.1"\ntrsvcid = %s\n' "$port"
    printf '%s\n' "$@"
  done
}
# A target with so many ports and namespaces, and a host.
set_up() { # PORTS NAMESPACES LINE...: lines of each path in the configuration
  local i arguments=()
  for i in $(seq "$1"); do
    arguments+=(--listen 127.0.0.1:0)
    [ -z "${shape:-}" ] || arguments+=(--shape "$i:$shape")
  done
  for _ in $(seq "$2"); do arguments+=(--namespace mem:1MiB); done
  start_target "${arguments[@]}"
  configuration "${@:3}" >"$work/serve.toml"
  start_serve --config "$work/serve.toml"
  within 20 live_paths "$1"
}
tear_down() {
  terminate serve
  terminate target
}
idle() { # CPU time in ns and wake-ups of the host so far
  cat "/proc/$serve_pid/task"/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
  cat "/proc/$serve_pid/task"/*/status |
    awk '/^voluntary_ctxt_switches/ { sum += $2 } END { print sum }'
}
measure_N7() { # ROUND
  local paths before after
  for paths in 2 100; do
    set_up $paths 1
    mapfile -t before < <(idle)
    sleep $idle_seconds
    mapfile -t after < <(idle)
    tear_down
    figure N7 "$paths paths, nothing to do: % of a core" '< 1' \
      "$(calc "(${after[0]} - ${before[0]}) / $idle_seconds / 1e7")"
    figure N7 "$paths paths, nothing to do: wake-ups per second" '' \
      "$(calc "(${after[1]} - ${before[1]}) / $idle_seconds")"
  done
}
memory() { # KiB of the host alone: resident, and mapped for data
  awk '/^Private_Dirty:/ { print $2 }' "/proc/$serve_pid/smaps_rollup"
  awk '/^VmData:/ { print $2 }' "/proc/$serve_pid/status"
}
measure_N8() { # ROUND
  local few paths namespaces
  set_up 1 1
  mapfile -t few < <(memory)
  tear_down
  set_up 65 1
  mapfile -t paths < <(memory)
  tear_down
  set_up 1 257
  mapfile -t namespaces < <(memory)
  tear_down
  figure N8 'one path, one worker: KiB resident' '' "${few[0]}"
  figure N8 'per further path: KiB resident' '<= 256' "$(calc "(${paths[0]} - ${few[0]}) / 64")"
  figure N8 'per further path: KiB mapped' '' "$(calc "(${paths[1]} - ${few[1]}) / 64")"
  figure N8 'per further namespace: KiB resident' '<= 4' \
    "$(calc "(${namespaces[0]} - ${few[0]}) / 256")"
}

# ---- a path that fails under load

# Load on two paths; after a second one of them fails. The paths' delay leaves the processors time.
fault() { # ROUND FAULT PATTERN: report in $work/load.json
  local shape=delay=1ms
  set_up 2 1 'keep_alive_tmo = "1s"' 'io_timeout = "1s"' 'reconnect_delay = "1s"'
  host bench nvme0n1 --rw "$3" --bs 4k --iodepth 32 --runs 1 --runtime ${fault_seconds}s \
    --randseed "$1" -o json >"$work/load.json" &
  sleep 1
  ctl "$2" 1
  wait $!
  ctl restore 1
  tear_down
}
of_fault() { # ID WHAT BAR OF_GAP
  local ms='/ 1e6'
  figure "$1" "$2: longest latency, ms" "$3" \
    "$(json ".runs[0].load.lat_ns.max $ms" "$work/load.json")"
  figure "$1" "$2: longest time without an I/O's end, ms" "$4" \
    "$(json ".runs[0].load.longest_gap_ns $ms" "$work/load.json")"
}
measure_N10() { # ROUND: bench fails when an I/O does
  local policy
  for policy in queue-depth finish-time; do
    fault "$1" cut randread
    of_fault N10 "cut, reads, $policy" '<= 100' ''
  done
}
measure_N11() { # ROUND
  local policy
  for policy in queue-depth finish-time; do
    fault "$1" stall randread
    of_fault N11 "stall, reads, $policy" '<= 1200' ''
    fault "$1" stall randwrite
    of_fault N11 "stall, writes, $policy" '' ''
  done
}

# ---- from nothing to the first I/O

measure_N12() {
  local as=() begun
  # Whoever is not root is nobody in particular already.
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  mkdir -m 700 "$work/home"
  {
    configuration
    printf '[[export]]\ndevice = "nvme0n1"\nnbd = "%s"\n' "$work/home/nbd.sock"
  } >"$work/serve.toml"
  chmod a+rx "$work"
  [ ${#as[@]} = 0 ] || chown 65534:65534 "$work/home"
  begun=${EPOCHREALTIME/./}
  HOME=$work/home "${as[@]}" "$ANABRANCH" serve --config "$work/serve.toml" \
    --socket "$work/home/host.sock" 2>"$work/serve.log" >&2 &
  serve_pid=$!
  started+=("$serve_pid")
  # The first answer ends the run, at the earliest after 1 ms.
  until "$ANABRANCH" bench --nbd "nbd+unix:///nvme0n1?socket=$work/home/nbd.sock" --runs 1 \
    --runtime 1ms >/dev/null 2>&1; do
    kill -0 "$serve_pid"
  done
  figure N12 'exec of serve to the end of the first read, two paths, ms' '< 400' \
    "$(calc "(${EPOCHREALTIME/./} - $begun) / 1000")"
  terminate serve
  terminate target
  rm -r "${work:?}/home"
}

ids=("$@")
[ $# -gt 0 ] || ids=(N3 ${SPDK:+N4} N5 N7 N8 N10 N11 N12)
for id in "${ids[@]}"; do
  for round in $(seq "$rounds"); do
    echo "$id: round $round of $rounds" >&2
    "measure_$id" "$round"
  done
done
python3 - "$work/figures" <<'END'
import sys
from statistics import median

rows = {}
for line in open(sys.argv[1]):
    id_, what, bar, value = line.rstrip("\n").split("\t")
    rows.setdefault((id_, what, bar), []).append(float(value))


def shown(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


print(f"{open('/proc/sys/net/ipv4/tcp_congestion_control').read().strip()}\n")
print("| id | what | bar | measured |\n| --- | --- | --- | --- |")
for (id_, what, bar), values in rows.items():
    least, middle, greatest = (shown(f(values)) for f in (min, median, max))
    print(f"| {id_} | {what.replace('_', ' ')} | {bar} | {middle} [{least} {greatest}] |")
END
