#!/usr/bin/env bash
# fio and our own load generator through one NBD export: both do what they say, neither disturbs
# the other's data. What they measure is compared by tests/fio-against-bench.sh.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need fio fio

uri=nbd+unix:///nvme0n1?socket=$work/nbd.sock
run_fio() { # NAME OPTION...: 64 MiB in two halves, the first one is fio's
  local name=$1
  shift
  fio --name="$name" --ioengine=nbd --uri="$uri" --size=32m --output-format=json \
    --output="$work/fio-$name.json" "$@"
  json '[.jobs[].error] | all(. == 0)' "$work/fio-$name.json"
}
run_bench() { # NAME OPTION...
  local name=$1
  shift
  "$ANABRANCH" bench --nbd "$uri" --runs 1 --runtime 2s -o json "$@" >"$work/bench-$name.json"
}
commands() { # completed by all paths
  paths_of 1 | awk '{ sum += $4 } END { print sum }'
}
# Every request of 4 KiB is one command of one path, so both generators can be counted after.
counts_are_true() {
  local before after
  before=$(commands)
  run_bench count --rw randrw --bs 4k --iodepth 8 --numjobs 2
  after=$(commands)
  equals "$(jq '.runs[0].load | .reads + .writes' "$work/bench-count.json")" $((after - before)) \
    "requests that bench counts"
  run_fio count --rw=randrw --bs=4k --iodepth=8 --numjobs=2 --group_reporting \
    --time_based --runtime=2
  equals "$(jq '.jobs[0] | .read.total_ios + .write.total_ios' "$work/fio-count.json")" \
    $(($(commands) - after)) "requests that fio counts"
  json '.median | .iops > 100 and .lat_ns.p50 > 0 and .lat_ns.p99 >= .lat_ns.p50' \
    "$work/bench-count.json"
}
side_by_side() {
  local fio
  run_fio own --rw=randwrite --bssplit=4k/50:64k/50 --iodepth=8 --verify=crc32c --do_verify=0
  run_fio own --rw=randwrite --bssplit=4k/50:64k/50 --iodepth=8 --verify=crc32c \
    --verify_backlog=64 --time_based --runtime=3 &
  fio=$!
  run_bench verify --verify --rw randrw --bssplit 4k/50:64k/50 --iodepth 8 --numjobs 3 \
    --workers 2 --offset 32m --size 32m
  json '.runs[0].load | .reads > 0 and .writes > 0 and .blocks_verified > 0
    and .verify_errors == 0 and .errors == 0' "$work/bench-verify.json"
  wait $fio
}
fails() { # PATTERN OPTION...
  local pattern=$1 status=0
  shift
  "$ANABRANCH" bench --runs 1 "$@" >/dev/null 2>"$work/err" || status=$?
  equals $status '[12]' "exit status of 'bench $*'"
  grep -q -- "$pattern" "$work/err" && return
  echo "'bench $*' does not say '$pattern':"
  cat "$work/err"
  return 1
}
refusals() {
  fails "no export 'other'" --nbd "nbd+unix:///other?socket=$work/nbd.sock"
  fails 'no such file' --nbd "nbd+unix:///x?socket=$work/absent.sock"
  fails 'connection refused' --nbd "nbd://127.0.0.1:$(free_ports 1)/x"
  fails 'TLS' --nbd nbds://127.0.0.1/x
  fails '1048576' --nbd "$uri" --bs 2m
  fails 'past the device' --nbd "$uri" --offset 64m
  fails 'cannot be used with' --nbd "$uri" --bare
}
# A server that ends in the middle of a run ends the run, at once and in one sentence.
server_goes_away() {
  local start=$SECONDS bench
  fails 'closed\|reset\|pipe' --nbd "$uri" --rw randread --iodepth 8 --runtime 60s &
  bench=$!
  sleep 2
  kill "$serve_pid"
  wait $bench
  [ $((SECONDS - start)) -lt 40 ]
}
setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  start_serve
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
}

must "two paths and an export" setup
step "both generators count what the paths have carried" counts_are_true
step "both verify their own half at the same time" side_by_side
step "what cannot be is refused" refusals
step "a server that goes away ends the run" server_goes_away
must "the target ends in order" terminate target
