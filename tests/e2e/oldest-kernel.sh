#!/usr/bin/env bash
# Linux 6.1, the oldest that is promised, with Anabranch on it: the demo, and a disk of the kernel's
# NBD client whose blocks lie behind the kernel's own target. Beside it the kernel's host, connected
# to the same ports: attribute files say the same. The guest has two NUMA nodes and a card on each.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/guest.sh"
linux() { "$ROOT/tests/linuxvm/machine.sh" "$@"; }

boot() {
  at_exit+=(end_guest)
  linux start "$ANABRANCH"
}
complains_of_nothing() {
  linux exec dmesg >"$work/dmesg"
  grep -E 'EXT4-fs \(nbd0\): (mounted|unmounting)' "$work/dmesg"
  ! grep -iE 'I/O error|EXT4-fs (error|warning)|blocked for more|BUG:|WARNING:' "$work/dmesg"
}

must "guest image" prepare_guest
must "a guest boots, its kernel's target has two ports" boot
step "the demo" linux demo
step "numa: each node's worker keeps to the card of its node" linux nodes
must "serve, connected through both" linux serve
must "the kernel's NBD client, ext4" linux attach
step "it writes and verifies while ports go and come" linux work 20
step "all is there after a new mount, fsck finds nothing" linux detach
step "attribute files say what the kernel's say" linux compare
step "no complaint in the guest's log" complains_of_nothing
must "serve ends in order" linux finish
must "the guest ends" linux stop
