#!/usr/bin/env bash
# nbdinfo, nbdcopy and qemu use the export as any other disk, whole and byte for byte.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need nbdinfo libnbd-bin
need nbdcopy libnbd-bin
need qemu-img qemu-utils
uri="nbd+unix:///?socket=$work/nbd.sock"

setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:1GiB
  start_serve
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
  head -c 1G /dev/urandom >"$work/image"
}
flags() {
  nbdinfo --json "$uri" >"$work/info.json"
  local filter bad=0
  for filter in '.["export-size"] == 1073741824' '.is_read_only == false' \
    '.can_flush' '.can_fua' '.can_multi_conn' '.can_trim' '.can_zero' \
    '.block_size_minimum | . == 1 or . == 512 or . == 4096' \
    '.block_size_preferred >= 4096' '.block_size_maximum >= 33554432'; do
    json ".exports[0] | $filter" "$work/info.json" >/dev/null && continue
    echo "not so: $filter"
    bad=1
  done
  [ $bad = 0 ] || jq . "$work/info.json"
  return $bad
}
copy_in_and_out() {
  nbdcopy --flush "$work/image" "$uri"
  nbdcopy "$uri" "$work/copy"
  cmp "$work/image" "$work/copy"
}
qemu_in_and_out() {
  head -c 1G /dev/urandom >"$work/image"
  qemu-img convert -n -f raw -O raw "$work/image" "$uri"
  qemu-img compare -f raw -F raw "$work/image" "$uri"
  qemu-img convert -f raw -O raw "$uri" "$work/copy"
  cmp "$work/image" "$work/copy"
}
by_what_it_says_of_itself() {
  local wwid
  wwid=$(host get "$(head_of 1)" wwid)
  host export add "$wwid" --name same --nbd "$work/wide.sock"
  [ "$(nbdinfo --size "nbd+unix:///same?socket=$work/wide.sock")" = 1073741824 ]
  host export list -o json | json '.exports | length == 2 and all(.present)' >/dev/null
  host export rm same
}
for_readers_only() {
  local ro="nbd+unix:///ro?socket=$work/ro.sock"
  host export add "$(head_of 1)" --name ro --nbd "$work/ro.sock" --read-only
  nbdinfo --is read-only "$ro"
  if nbdinfo --is read-only "$uri"; then
    echo "so is the other"
    return 1
  fi
  nbdinfo --size "$ro"
  host export list | grep "^ro .* ro "
  host export list -o json | json '[.exports[].read_only] == [false, true]' >/dev/null
  if nbdcopy "$work/image" "$ro"; then
    echo "it was written"
    return 1
  fi
  host export rm ro
}
who_uses_what() { # `export list` says how many connections each export has
  clients_are() { # NUMBER OF-THE-OTHER
    host export list -o json |
      json "[.exports[].clients] == [$1, $2]" >/dev/null
  }
  host export add "$(head_of 1)" --name other --nbd "$work/other.sock"
  within 10 clients_are 0 0
  python3 -c '
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.recv(18)
s.sendall(struct.pack(">I8sII", 1, b"IHAVEOPT", 1, 5) + b"other")
while s.recv(4096): pass
' "$work/other.sock" &
  within 10 clients_are 0 1
  host export list | grep "^other .* rw  *1  *python3.*\[$!\]  *nbd"
  host export list -o json |
    json --argjson pid $! '.exports[1].used_by | length == 1 and .[0].pid == $pid' >/dev/null
  kill $!
  within 10 clients_are 0 0
  host export rm other
}
for_another_group() {
  local group
  group=$(id -gn)
  host export add "$(head_of 1)" --name group --nbd "$work/group.sock" --group "$group"
  [ "$(stat -c '%a %G' "$work/group.sock")" = "660 $group" ]
  host export rm group
  host export add "$(head_of 1)" --name all --nbd "$work/all.sock" --mode 0666
  [ "$(stat -c '%a %G' "$work/all.sock")" = "666 $group" ]
  if host export add "$(head_of 1)" --name few --nbd "$work/all.sock" --mode 0600; then
    echo "one socket has two modes"
    return 1
  fi
  host export rm all
}
both_paths_carried_it() { [ "$(paths_of 1 | awk '$4 > 0' | wc -l)" = 2 ]; }

must "two paths and an export of 1 GiB" setup
step "nbdinfo shows size, flags and block sizes" flags
step "nbdcopy in and out" copy_in_and_out
step "qemu-img convert and compare" qemu_in_and_out
step "a read-only export" for_readers_only
step "who uses which export" who_uses_what
step "a socket for a group, and one for all" for_another_group
rm -f "$work/image" "$work/copy"
step "both paths carried it" both_paths_carried_it
step "an export by the device's wwid" by_what_it_says_of_itself
step "requests of 32 MiB, and odd ones" python3 "$E2E/nbd_requests.py" "$work/nbd.sock"
step "the export is still whole" nbdinfo "$uri"
