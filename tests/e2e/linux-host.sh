#!/usr/bin/env bash
# The Linux kernel's host against our target: it discovers, connects, merges and verifies, with and
# without digests, and follows ANA changes and lost ports without a complaint about our wire.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/guest.sh"
linux() { "$ROOT/tests/linuxvm/host.sh" "$@"; }

boot() {
  at_exit+=(end_guest)
  linux start
}
serve_target() {
  read -ra ports < <(free_ports 2)
  # The guest sees this machine's 127.0.0.1 as 10.0.2.2.
  start_target --listen "127.0.0.1:${ports[0]}" --listen "127.0.0.1:${ports[1]}" \
    --advertise 10.0.2.2 --namespace mem:64MiB
  ctl ana 2 1 non-optimized
}
discovers() {
  linux discover "${ports[0]}" | tee "$work/discovered"
  local port
  for port in "${ports[@]}"; do grep -q "trsvcid: *$port" "$work/discovered"; done
  grep -q "subnqn: *$nqn" "$work/discovered"
  grep -q 'traddr: *10.0.2.2' "$work/discovered"
}
live() { # COUNT
  equals "$(linux paths | grep -c state=live)" "$1" "live paths"
}
state() { # PORT PATTERN: of the controller on that port
  linux paths | tee "$work/paths"
  grep -q "trsvcid=$1,.*$2" "$work/paths"
}
connects_all() {
  linux connect-all "${ports[0]}" "${patient[@]}"
  within 20 live 2
  linux exec nvme list-subsys
}
ana_states() {
  state "${ports[0]}" 'state=live ns1/grp1=optimized'
  state "${ports[1]}" 'state=live ns1/grp1=non-optimized'
  # nvme-cli says it for the head: both paths and what they are worth.
  linux exec 'nvme list-subsys $(sh /share/role.sh device 1)' | tee "$work/subsys"
  equals "$(grep -c 'live \(non-\)\?optimized' "$work/subsys")" 2 "paths in nvme list-subsys"
}
verify() {
  linux verify 1 16 128k 8 write
  linux verify 1 4 4k 16 randwrite
}
start_job() {
  linux verify 1 16 16k 4 write --verify_backlog=32 --time_based --runtime=600 &
  job_pid=$!
  started+=("$job_pid")
  within 60 served_on "${ports[0]}"
}
# Does the controller on this port, and no other, complete I/O?
served_on() { # PORT
  local before after name
  name=$(linux paths | awk -v port="trsvcid=$1" '$2 ~ port { print $1 }')
  before=$(linux ios | sort)
  sleep 1.5
  after=$(linux ios | sort)
  equals "$(comm -13 <(echo "$before") <(echo "$after") | sed 's/.*@//;s/ .*//' | xargs)" \
    "$name" "who serves"
}
ana_change_moves_io() {
  ctl ana 1 1 inaccessible
  ctl ana 2 1 optimized
  within 60 served_on "${ports[1]}"
  state "${ports[0]}" grp1=inaccessible
  ctl ana 1 1 optimized
  ctl ana 2 1 non-optimized
  within 60 served_on "${ports[0]}"
}
port_loss_is_survived() {
  ctl cut 1
  within 60 served_on "${ports[1]}"
  within 60 live 1
  ctl restore 1
  within 60 live 2
  within 60 served_on "${ports[0]}"
}
end_job() {
  linux stopio
  wait "$job_pid"
}
digests() {
  local port
  linux disconnect "$nqn"
  for port in "${ports[@]}"; do
    linux connect "$port" "$nqn" --hdr-digest --data-digest "${patient[@]}"
  done
  within 20 live 2
  verify
}
# Linux remembers the number of a controller that it is still connecting again, and takes no path
# that has the same one: who starts anew must not count as it did before.
new_path_after_restart() {
  linux connect "${ports[0]}" "$nqn" "${patient[@]}"
  within 20 live 1
  terminate target
  start_target --listen "127.0.0.1:${ports[1]}" --advertise 10.0.2.2 --namespace mem:64MiB
  linux connect "${ports[1]}" "$nqn" "${patient[@]}"
  within 20 live 1
  linux disconnect "$nqn"
}

must "guest image" prepare_guest
must "a Linux host boots" boot
must "our target starts" serve_target
step "nvme discover lists both ports" discovers
must "nvme connect-all brings two live paths" connects_all
step "ANA states in sysfs and nvme list-subsys" ana_states
step "fio verifies" verify
must "a long fio job starts on the optimized path" start_job
step "an ANA change moves the I/O, and back" ana_change_moves_io
step "a lost port is survived, its return noticed" port_loss_is_survived
must "the long job saw no error" end_job
step "fio verifies with digests" digests
step "nvme disconnect" linux disconnect "$nqn"
must "a target started anew is taken beside a path that is still lost" new_path_after_restart
step "no complaint in the kernel's log" no_complaint linux exec
must "our target ends in order" terminate target
