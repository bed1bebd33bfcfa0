#!/usr/bin/env bash
# The long matrices, some hours: every policy under cuts, policies changed 100 times a second, and,
# with three kernels, both roles, the disk of a guest, and Anabranch on a guest.
# What test.sh runs is a part of this. Exit status: 0 when nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
failed=()
run() { # COMMAND...
  printf '\n=== %s\n' "$*"
  "$@" || failed+=("$*")
}

run env ANABRANCH_STORM=3000 cargo test --quiet --test steering storm -- --nocapture
run e2e/fio-nbd-cuts.sh --long
for kernel in 6.1 6.12 new; do
  export LINUXVM_KERNEL=$kernel
  run linuxvm/build.sh $kernel
  run linuxvm/selftest.sh
  run e2e/linux-target.sh --long
  run e2e/linux-host.sh
  run e2e/guest-disk.sh
  run e2e/guest-moves.sh
  run e2e/oldest-kernel.sh
done

printf '\n%s failed\n' ${#failed[@]}
[ ${#failed[@]} = 0 ] || printf '  %s\n' "${failed[@]}"
[ ${#failed[@]} = 0 ]
