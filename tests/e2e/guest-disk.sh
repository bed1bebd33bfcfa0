#!/usr/bin/env bash
# The disk of a virtual machine: a Linux guest works on ext4 while paths are cut or silent, and while
# the host is restarted. It sees no error, what it wrote is there, and the file system is in order.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/guest.sh"
. "$E2E/guest-ext4.sh"

start_host() {
  start_serve
  connect 1 --reconnect-delay 1 --keep-alive-tmo 2
  connect 2 --reconnect-delay 1 --keep-alive-tmo 2
  export_nbd 1 "$work/nbd.sock"
}
disk() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:128MiB,bs=4096
  start_host
  uri="nbd+unix:///$(head_of 1)?socket=$work/nbd.sock"
  make_file_system
}
boot() {
  at_exit+=(end_guest)
  linux start "$work/nbd.sock" "$(head_of 1)"
  linux up
}
lose() { # cut|stall PORT...: until the host has noticed, then back
  local port
  for port in "${@:2}"; do ctl "$1" "$port"; done
  within 30 live_paths $((2 - ($# - 1)))
  for port in "${@:2}"; do ctl restore "$port"; done
  within 30 live_paths 2
}
survives_losses() {
  local job end=$((SECONDS + 20))
  linux work 20 &
  job=$!
  while [ $SECONDS -lt $end ]; do
    lose cut 1
    lose stall 2
    lose cut 1 2
    lose stall 1
    lose cut 2
  done
  wait $job
}
written() {
  host show-topology -o json |
    jq '[.[].Subsystems[].Namespaces[].Paths[].Diag.written_bytes] | add'
}
has_written_since() { [ "$(written)" -gt $(($1 + 4 * 1024 * 1024)) ]; }
survives_restart() {
  local job
  linux work 8 &
  job=$!
  within 60 has_written_since "$(written)"
  terminate serve
  start_host
  within 60 has_written_since 0
  wait $job
}

must "guest image" prepare_guest
must "two paths, an export with ext4 on it" disk
must "a guest boots with it" boot
step "it writes and verifies while paths are lost" survives_losses
must "and while the host is restarted" survives_restart
step "all is there after a new mount" is_there
step "no complaint in the guest's log" complains_of_nothing
must "the guest ends" linux stop
step "fsck finds nothing" in_order
must "our host ends in order" terminate serve
must "our target ends in order" terminate target
