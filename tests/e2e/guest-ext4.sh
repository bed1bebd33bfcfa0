# Sourced by the scripts whose guest has ext4 on an export; $uri is that.
PATH=$PATH:/sbin:/usr/sbin
need mkfs.ext4 e2fsprogs
need nbdcopy libnbd-bin
linux() { "$ROOT/tests/linuxvm/disk.sh" "$@"; }

make_file_system() { # of 128 MiB
  truncate -s 128M "$work/image"
  mkfs.ext4 -q "$work/image"
  nbdcopy "$work/image" "$uri"
}
is_there() {
  linux down
  linux up
  linux same
  linux down
}
complains_of_nothing() {
  linux exec dmesg >"$work/dmesg"
  grep -E 'EXT4-fs \(vda\): (mounted|unmounting)' "$work/dmesg"
  ! grep -iE 'I/O error|EXT4-fs (error|warning)|blocked for more|BUG:|WARNING:' "$work/dmesg"
}
in_order() {
  nbdcopy "$uri" "$work/after"
  e2fsck -fn "$work/after"
}
