#!/usr/bin/env bash
# Tests everything: form, lints, unit and simulation tests, the program end to end, and a real
# Linux kernel on either side of the wire.
#
#   ./test.sh              all parts, about 20 minutes on two cores
#   ./test.sh PART...      only these: packages format lints build tests instructions, or a
#                          script's name below tests/e2e without its ending (fio-nbd-cuts,
#                          linux-target, ...)
#
# A part that fails does not keep the others from running; the summary at the end has them all.
# A part that this machine cannot run says why and stands in the summary as NOT RUN.
# Exit status: 0 when nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

# A clone that is built once has no use for what makes the next build of it short: 2 GiB, not 5.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0
need=4 # GiB, for a first build and all tests
free=$(df --output=avail -BG . | tail -1 | tr -dc 0-9)
[ "$free" -ge "$need" ] ||
  echo "only $free GiB are free at $PWD: a first build and all tests take $need GiB" >&2

# Program or file to look for, and the Debian package that has it.
tools=(
  cc:gcc jq:jq python3:python3 fio:fio nbdinfo:libnbd-bin nbdcopy:libnbd-bin qemu-img:qemu-utils
  qemu-io:qemu-utils tshark:tshark dumpcap:wireshark-common
  qemu-system-x86_64:qemu-system-x86 depmod:kmod cpio:cpio xz:xz-utils
  /sbin/mkfs.ext4:e2fsprogs curl:curl promtool:prometheus
  nvme:nvme-cli ip:iproute2 fusermount3:fuse3 valgrind:valgrind chromium:chromium
  /usr/share/doc/fio/examples/fio-rand-read.fio:fio-examples
)
e2e=(
  demo mistakes shutdown nbd-clients nvme-cli fio-nbd-cuts fio-against-bench wire-tshark idle
  metrics report-browser lab-signal guest-disk guest-moves linux-host linux-target
  oldest-kernel
)
parts=(packages format lints build tests instructions "${e2e[@]}")

run_packages() {
  local tool missing=()
  for tool in "${tools[@]}"; do
    [ -e "${tool%%:*}" ] || command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing packages: ${missing[*]}"
    echo "install them as root: apt-get install --no-install-recommends ${missing[*]}"
    return 77
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q=2 &&
    apt-get install -q=2 -y --no-install-recommends "${missing[@]}" >/dev/null && return 0
  echo "apt-get could not install: ${missing[*]}"
  return 77
}
run_format() { cargo fmt --all --check; }
run_lints() {
  cargo clippy --workspace --all-targets --quiet -- -D warnings &&
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --quiet
}
run_build() { cargo build --workspace --quiet && cargo test --workspace --no-run --quiet; }
run_tests() { cargo test --workspace --no-fail-fast --quiet; }
run_instructions() { # instructions per selection, command and I/O, against their snapshots
  if ! command -v valgrind >/dev/null; then
    echo "no valgrind, which counts them"
    return 77
  fi
  (
    # Flags of the caller's would count something else.
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
    cargo bench --quiet -p anabranch-policy --bench selection -- instructions &&
      cargo bench --quiet -p anabranch-lab --bench engine
  )
}

wanted=("${parts[@]}")
if [ $# -gt 0 ]; then
  wanted=("$@")
  for part in "${wanted[@]}"; do
    if [[ " ${parts[*]} " != *" $part "* ]]; then
      echo "no part '$part'; there are: ${parts[*]}" >&2
      exit 2
    fi
  done
fi

summary=()
failed=0 not_run=0
for part in "${wanted[@]}"; do
  printf '\n=== %s\n' "$part"
  start=$SECONDS
  if [[ " ${e2e[*]} " = *" $part "* ]]; then
    "tests/e2e/$part.sh"
  else
    "run_$part"
  fi
  case $? in
    0) result=ok ;;
    77) result="NOT RUN" not_run=$((not_run + 1)) ;;
    *) result=FAILED failed=$((failed + 1)) ;;
  esac
  summary+=("$(printf '%-8s %-17s %4s s' "$result" "$part" $((SECONDS - start)))")
done

printf '\n=== summary\n'
printf '%s\n' "${summary[@]}"
printf '%s parts in %s s: %s failed, %s not run\n' \
  ${#wanted[@]} "$SECONDS" "$failed" "$not_run"
[ "$failed" = 0 ]
