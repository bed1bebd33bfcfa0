#!/usr/bin/env bash
# fio writes and verifies over NBD while paths are cut or silent: no wrong byte, no I/O error.
#
#   fio-nbd-cuts.sh          one minute of cuts, two silences, a control run that must fail
#   fio-nbd-cuts.sh --long   every policy, digests on and off, ten minutes each
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need fio fio
runtime=60
[ "${1:-}" != --long ] || runtime=600

# One after the other each port is cut for 3 s, and live again before the next cut.
cut_in_turn() {
  local port
  for port in 1 2; do
    ctl cut $port
    sleep 3
    ctl restore $port
    within 20 live_paths 2
  done
}
cut_both() {
  ctl cut 1
  ctl cut 2
  sleep 3
  ctl restore 1
  ctl restore 2
  within 20 live_paths 2
}
cut_until() { # END, in seconds of this script
  cut_in_turn
  cut_both
  while [ $SECONDS -lt $(($1 - 15)) ]; do cut_in_turn; done
}
job() { # NAME OPTION...
  local name=$1
  shift
  fio --name="$name" --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" \
    --size=32m --offset_increment=32m --numjobs=4 --iodepth=8 \
    --verify=crc32c --output-format=json --output="$work/fio-$name.json" "$@"
}
survives_cuts() { # POLICY
  local end=$((SECONDS + runtime)) fio
  set_policy "$1"
  job cuts --rw=randrw --bssplit=4k/50:128k/50 --verify_backlog=256 --time_based --runtime=$runtime &
  fio=$!
  started+=("$fio")
  sleep 2
  cut_until $end || return 1
  wait $fio
  json '[.jobs[].error] | all(. == 0)' "$work/fio-cuts.json"
  json '[.jobs[] | .read.total_ios, .write.total_ios] | all(. > 0)' "$work/fio-cuts.json"
}
# Each port falls silent for as long as there is any load. Nothing but the policy helps: keep-alive
# and the commands' time limit are far longer, and a controller that is reset fails the step.
reads_outlast_a_silence() {
  local fio port before
  set_policy finish-time
  for port in 1 2; do
    before=$(reads)
    # (fio would let all reads wait for writes that it verifies.)
    job silence-$port --rw=randread --bs=4k --verify=0 --time_based --runtime=6 &
    fio=$!
    started+=("$fio")
    within 20 more_reads_than "$before"
    ctl stall $port
    wait $fio
    ctl restore $port
    json '[.jobs[].error] | all(. == 0)' "$work/fio-silence-$port.json"
  done
  host show-topology -o json |
    json '[.[].Subsystems[].Namespaces[].Paths[].Diag.rescued_reads] | add | ., . > 0'
  ! grep -e '-> resetting' "$work/serve.log"
}
reads() {
  host show-topology -o json | jq '[.[].Subsystems[].Namespaces[].Paths[].Diag.reads] | add'
}
more_reads_than() { [ "$(reads)" -gt $(($1 + 1000)) ]; }
# The check must be able to fail: one block of the target's file changes behind its back.
control_run() {
  job control --rw=write --bs=64k --do_verify=0
  job control --rw=read --bs=64k
  printf 'not what was written' |
    dd of="$work/disk" bs=1 seek=$((5 * 1024 * 1024 + 4096)) conv=notrunc status=none
  if job control --rw=read --bs=64k 2>"$work/control.err"; then
    echo "fio did not notice a corrupt block"
    return 1
  fi
  grep 'verify' "$work/control.err"
}

setup() { # CONNECT_OPTION...
  truncate -s 128M "$work/disk"
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace "file:$work/disk"
  start_serve
  connect 1 --reconnect-delay 1 "$@"
  connect 2 --reconnect-delay 1 "$@"
  export_nbd 1 "$work/nbd.sock"
}
teardown() {
  terminate serve
  terminate target
}

must "two paths and an export" setup
step "fio under cuts (round-robin)" survives_cuts round-robin
if [ "${1:-}" = --long ]; then
  for policy in numa queue-depth service-time latency finish-time queue-length \
    historical-service-time io-affinity; do
    step "fio under cuts ($policy)" survives_cuts $policy
  done
fi
step "a corrupt block is found" control_run
must "host and target end in order" teardown
must "two paths, a patient keep-alive" setup --keep-alive-tmo 600
step "reads outlast a silent path (finish-time)" reads_outlast_a_silence
must "host and target end in order" teardown
if [ "${1:-}" = --long ]; then
  must "two paths with digests" setup --hdr-digest --data-digest
  step "fio under cuts (digests)" survives_cuts round-robin
  must "host and target end in order" teardown
fi
