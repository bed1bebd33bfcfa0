# Sourced by the scripts that need a Linux kernel as the peer.
need qemu-system-x86_64 qemu-system-x86
export NAME=e2e-$$
# What an emulator on two busy cores can keep: a keep-alive of 5 s would be too short.
patient=(--keep-alive-tmo 15 --reconnect-delay 1 --ctrl-loss-tmo 120)

end_guest() {
  linux stop
  rm -rf "${LINUXVM_CACHE:-/var/tmp/anabranch-linuxvm}/run/$NAME"
}
prepare_guest() {
  local kernel=${LINUXVM_KERNEL:-6.1}
  "$ROOT/tests/linuxvm/build.sh" "$kernel" && return
  echo "this machine cannot make the guest image: see above"
  exit 77
}
# No kernel message about NVMe may be a complaint about what we sent. "bad type returned 0" is none:
# so Linux reads a connection that was closed at once, which is how the emulator shows a closed port.
# "Sun disklabel: Csum bad" is none: once in 65,536 times fio's random bytes look like one.
no_complaint() { # COMMAND that runs a command in the guest
  local none='bad type returned 0|^[^a-z]*Dev nvme[0-9]+n[0-9]+ (Sun|SGI) disklabel: csum bad'
  "$@" dmesg | grep -i nvme | grep -viE "$none" >"$work/dmesg" || true
  "$@" dmesg | grep -E 'BUG:|WARNING:|Oops' >>"$work/dmesg" || true
  tail -n 20 "$work/dmesg"
  # Words, not parts: the hash of a pointer may well say "abad6c1d".
  ! grep -Ewi 'BUG:?|WARNING:?|Oops:?|digest error|unsupported|protocol|bad|invalid|I/O error|unexpected' \
    "$work/dmesg"
}
