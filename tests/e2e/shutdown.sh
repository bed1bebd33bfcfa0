#!/usr/bin/env bash
# SIGTERM: the host takes no more I/O, finishes what is in flight, and says what it could not.
# SIGKILL: whoever starts it again has all that was acknowledged.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need fio fio

kept=(--ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=write --bs=64k --iodepth=8
  --offset=32m --size=16m --verify=crc32c)

setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  start_serve
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
}
start_job() {
  fio --name=job --ioengine=nbd --uri="nbd+unix:///?socket=$work/nbd.sock" --rw=randrw --bs=4k \
    --iodepth=16 --time_based --runtime=300 --size=32m >"$work/fio.log" 2>&1 &
  job_pid=$!
  started+=("$job_pid")
  within 10 busy
}
busy() { [ "$(paths_of 1 | awk '{ n += $4 } END { print n }')" -gt 1000 ]; }
in_flight() {
  [ "$(host show-topology -o json |
    jq '[.[].Subsystems[].Namespaces[].Paths[].Diag.in_flight] | add')" -gt 0 ]
}
ends_under_load() {
  local start=$SECONDS
  terminate serve
  [ $((SECONDS - start)) -le 5 ] || die "took $((SECONDS - start)) s"
  [ ! -e "$work/host.sock" ] || die "the control socket is still there"
}
no_controller_is_left() {
  equals "$(ctl status -o json | jq '[.. | .controllers? // empty | length] | add // 0')" 0 \
    "controllers at the target"
}
restart() {
  start_serve
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
}
stall() {
  ctl stall 1
  ctl stall 2
  within 10 in_flight
}
keep_something() {
  fio --name=kept "${kept[@]}" --do_verify=0
}
killed_under_load() {
  local status=0
  kill -9 "$serve_pid"
  wait "$serve_pid" || status=$?
  equals $status 137 "exit status"
  # Its client hears of it.
  ! wait "$job_pid" || die "fio noticed nothing"
}
what_was_acknowledged_is_there() {
  fio --name=kept "${kept[@]}" --verify_only
}
# What nobody has answered may still be sent again, after what the next one's clients have written.
nobody_begins_before_it_has_ended() {
  kill "$serve_pid"
  within 10 grep -q 'ending: no new I/O' "$work/serve.log"
  ! "$ANABRANCH" serve --socket "$work/host.sock" 2>"$work/second.log" || die "a second one began"
  grep -q 'another instance is running' "$work/second.log"
  [ -S "$work/nbd.sock" ] || die "the address of the export is free"
  host show-topology >/dev/null
  [ -d "/proc/$serve_pid" ] || die "it had ended by then"
}
ends_and_counts() {
  local start=$SECONDS status=0
  wait "$serve_pid" || status=$?
  cat "$work/serve.log"
  equals $status 1 "exit status"
  [ $((SECONDS - start)) -le 10 ] || die "took $((SECONDS - start)) s"
  grep -Eq '[1-9][0-9]* .*unanswered|unanswered.* [1-9][0-9]*' "$work/serve.log"
}

must "two paths and an export" setup
must "a fio job runs" start_job
must "SIGTERM under load: exit status 0" ends_under_load
step "controllers were shut down" no_controller_is_left
must "the host starts again" restart
must "blocks are written and acknowledged" keep_something
must "a fio job runs beside them" start_job
must "SIGKILL under load: the client hears of it" killed_under_load
must "the host starts again, with the same sockets" restart
step "what was acknowledged is there" what_was_acknowledged_is_there
must "a fio job runs again" start_job
must "both ports fall silent" stall
must "SIGTERM with I/O that nobody answers: nobody begins in its place" nobody_begins_before_it_has_ended
must "it ends, with exit status 1 and the number" ends_and_counts
must "the target ends in order" terminate target
