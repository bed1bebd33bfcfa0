#!/usr/bin/env bash
# What a platform does with a guest while that works: it plugs in a second disk, which grows and
# goes, and moves the guest to another qemu on another host process, and back, while paths are lost.
# A guest whose paths stay away waits instead of seeing errors.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/guest.sh"
. "$E2E/guest-ext4.sh"
first=$NAME
second=$NAME-moved

start_hosts() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 \
    --namespace mem:128MiB,bs=4096 --namespace mem:32MiB
  spawn_ready other serve --socket "$work/other.sock" -o json
  start_serve
  local daemon
  for daemon in host other; do
    connect 1 --reconnect-delay 1 --keep-alive-tmo 2
    connect 2 --reconnect-delay 1 --keep-alive-tmo 2
  done
  host export add "$(head_of 1)" --nbd "$work/moved.sock"
  daemon=host
  export_nbd 1 "$work/nbd.sock"
  export_nbd 2 "$work/plugged.sock"
  uri="nbd+unix:///$(head_of 1)?socket=$work/nbd.sock"
  make_file_system
}
host() { # VERB ARGUMENT...: of the host that $daemon names
  local verb=$1
  shift
  "$ANABRANCH" "$verb" --socket "$work/${daemon:-host}.sock" "$@"
}
boot() {
  at_exit+=(end_guests)
  linux start "$work/nbd.sock" "$(head_of 1)"
}
end_guests() {
  NAME=$first end_guest
  NAME=$second end_guest
}
asks() { # STATE: what qemu says of the guest
  equals "$(linux qmp query-status | json .status)" "$1" "the guest"
}

plug() {
  linux qmp blockdev-add '{"driver": "nbd", "node-name": "more", "export": "'"$(head_of 2)"'",
    "server": {"type": "unix", "path": "'"$work/plugged.sock"'"}, "reconnect-delay": 60,
    "discard": "unmap", "cache": {"direct": true}}'
  linux qmp device_add '{"driver": "virtio-blk-pci", "drive": "more", "id": "more",
    "werror": "stop", "rerror": "stop"}'
  within 10 plugged_has 32
}
plugged_has() { # MIB, as the guest sees it
  linux exec "[ \"\$(cat /sys/block/vdb/size)\" = $(($1 * 2048)) ]"
}
plugged_keeps() { # MIB: 4 MiB from there on
  linux exec "
    dd if=/dev/urandom of=/tmp/random bs=1048576 count=4 &&
    dd if=/tmp/random of=/dev/vdb bs=1048576 seek=$1 oflag=direct conv=fsync &&
    dd if=/dev/vdb bs=1048576 skip=$1 count=4 iflag=direct | cmp - /tmp/random"
}
namespace_has() { # MIB
  [ "$(nbdinfo --size "nbd+unix:///?socket=$work/plugged.sock")" = $(($1 * 1048576)) ]
}
plugs_and_grows() {
  plug
  plugged_keeps 0
  ctl ns resize 2 64MiB
  within 10 namespace_has 64
  unexport 2
  export_nbd 2 "$work/plugged.sock"
  # qemu connects again, and learns the size, with the next command of the guest.
  linux exec "dd if=/dev/vdb of=/dev/null bs=4096 count=1 iflag=direct"
  linux qmp block_resize '{"node-name": "more", "size": 67108864}'
  within 10 plugged_has 64
  plugged_keeps 60
}
patience() { # TIME: how long I/O waits for a path
  local controller
  for controller in nvme0 nvme1; do host set $controller fast_io_fail_tmo "$1"; done
}
# The first disk has no such rule, and is not in use meanwhile.
stops_and_goes_on() {
  local job
  patience 1
  ctl cut 1
  ctl cut 2
  within 10 live_paths 0
  plugged_keeps 30 &
  job=$!
  within 60 asks io-error
  ctl restore 1
  ctl restore 2
  within 30 live_paths 2
  linux qmp cont
  wait $job
  patience off
}
unplug() {
  linux qmp device_del '{"id": "more"}'
  within 30 linux qmp blockdev-del '{"node-name": "more"}'
}

moves_there_and_back() {
  linux up
  linux exec "(sh /role.sh work 25; echo \$? >/tmp/outcome) </dev/null >/tmp/work 2>&1 &"
  ctl cut 1
  linux move "$work/moved.sock" "$(head_of 1)" "$second"
  asks_of_all "$second"
  ctl restore 1
  daemon=other within 30 live_paths 2
  ctl cut 2
  NAME=$second linux move "$work/nbd.sock" "$(head_of 1)" "$first"
  asks_of_all "$first"
  ctl restore 2
  within 120 linux exec "cat /tmp/outcome"
  linux exec "tail -n 30 /tmp/work"
  equals "$(linux exec "cat /tmp/outcome")" 0 "what the guest did meanwhile"
  [ "$(daemon=other paths_of 1 | awk '{ commands += $4 } END { print commands }')" -gt 0 ]
}
asks_of_all() { # NAME: it runs there
  NAME=$1 within 10 asks running
}

must "guest image" prepare_guest
must "two hosts with two paths each, an export with ext4 on it" start_hosts
must "a guest boots with it" boot
step "a second disk is plugged in, and grows" plugs_and_grows
step "without a path for long the guest is stopped, and goes on" stops_and_goes_on
step "the second disk is unplugged" unplug
step "the guest moves to the other host and back" moves_there_and_back
step "all is there after a new mount" is_there
step "no complaint in the guest's log" complains_of_nothing
must "the guest ends" linux stop
step "fsck finds nothing" in_order
must "our hosts end in order" terminate serve
must "the other one" terminate other
must "our target ends in order" terminate target
