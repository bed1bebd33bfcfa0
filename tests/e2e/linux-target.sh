#!/usr/bin/env bash
# Our host against the Linux kernel's target: namespaces merge, ANA states are the kernel's, and
# I/O follows ANA changes and lost ports without an error.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/guest.sh"
need fio fio
linux() { "$ROOT/tests/linuxvm/target.sh" "$@"; }
nqn=nqn.2026-01.test.linuxvm:target
fio_options=(--ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --verify=crc32c
  --randrepeat=0 --output-format=json)

boot() {
  HOSTPORTS=$(free_ports 2)
  export HOSTPORTS
  at_exit+=(end_guest)
  linux start
}
connect_both() { # OPTION...
  local port
  for port in $HOSTPORTS; do
    host connect -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" "${patient[@]}" "$@"
  done
  within 20 live_paths 2
}
discovers() {
  "$ANABRANCH" discover -t tcp -a 127.0.0.1 -s "${HOSTPORTS% *}" -o json |
    json --arg nqn "$nqn" '[.records[].subnqn] | index($nqn) != null'
}
one_head_per_namespace() {
  host show-topology
  host show-topology -o json | json '[.[].Subsystems[].Namespaces[] | [.NSID, (.Paths | length)]]
    | sort == [[1, 2], [2, 2]]'
}
ana_states_are() { # NSID STATE_OF_FIRST STATE_OF_SECOND
  equals "$(paths_of "$1" | sort | cut -f 3 | xargs)" "$2 $3" "ANA states of namespace $1"
}
initial_ana_states() {
  ana_states_are 1 optimized non-optimized
  ana_states_are 2 non-optimized optimized
}
job() { # NAME OPTION...
  timeout 300 fio --name="$1" "${fio_options[@]}" --output="$work/fio-$1.json" "${@:2}"
}
verify() {
  job large --rw=write --bs=1m --size=16m --iodepth=4
  job small --rw=randwrite --bs=4k --size=4m --iodepth=16
}
start_job() {
  # Not through a function: fio itself must get the signal that ends it.
  fio --name=long "${fio_options[@]}" --output="$work/fio-long.json" --rw=randwrite --bs=16k \
    --size=16m --iodepth=4 --verify_backlog=32 --time_based --runtime=600 &
  job_pid=$!
  started+=("$job_pid")
  within 30 served_by 1 nvme0
}
ana_change_moves_io() {
  linux ana 1 1 inaccessible
  linux ana 2 1 optimized
  within 60 served_by 1 nvme1
  ana_states_are 1 inaccessible optimized
  linux ana 1 1 optimized
  linux ana 2 1 non-optimized
  within 60 served_by 1 nvme0
}
port_loss_is_survived() {
  linux portdown 1
  within 60 served_by 1 nvme1
  within 60 live_paths 1
  linux portup 1
  within 60 live_paths 2
  within 60 served_by 1 nvme0
}
namespace_comes_and_goes() {
  linux nsdown 2
  within 30 equals_heads 1
  linux nsup 2
  within 30 equals_heads 2
}
equals_heads() {
  equals "$(host show-topology -o json | jq '[.[].Subsystems[].Namespaces[]] | length')" "$1" heads
}
silence_is_noticed() {
  linux drop 1
  within 90 served_by 1 nvme1
  linux undrop 1
  within 90 live_paths 2
}
end_job() {
  local status=0
  kill "$job_pid"
  wait "$job_pid" || status=$?
  # fio says in the same file that it got a signal.
  sed '/^fio: /d' "$work/fio-long.json" |
    json '.jobs[0].error == 0 and .jobs[0].write.total_ios > 0'
  [ $status = 0 ] || [ $status = 128 ] # fio's way to say that it was interrupted
}
digests() {
  unexport 1
  host disconnect -n $nqn
  connect_both --hdr-digest --data-digest
  export_nbd 1 "$work/nbd.sock"
  verify
}

must "guest image" prepare_guest
must "a Linux target boots" boot
must "our host starts" start_serve
step "discovery" discovers
must "two ports connect" connect_both
step "one head per namespace, two paths each" one_head_per_namespace
step "ANA states are the kernel's" initial_ana_states
must "export of namespace 1" export_nbd 1 "$work/nbd.sock"
step "fio verifies" verify
must "a long fio job starts on the optimized path" start_job
step "an ANA change moves the I/O, and back" ana_change_moves_io
step "a lost port is survived, its return noticed" port_loss_is_survived
step "a namespace leaves and comes back" namespace_comes_and_goes
[ "${1:-}" != --long ] || step "silence is noticed by keep-alive" silence_is_noticed
must "the long job saw no error" end_job
step "fio verifies with digests" digests
must "our host ends in order" terminate serve
step "no complaint in the kernel's log" no_complaint linux exec
