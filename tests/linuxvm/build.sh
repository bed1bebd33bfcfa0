#!/usr/bin/env bash
# Makes a bootable guest (kernel + initramfs) per kernel flavour, from Debian packages alone.
#
#   build.sh [6.1|6.12|new]...        (default: 6.1)
#
#   6.1   linux-image-amd64 of bookworm
#   6.12  linux-image-amd64 of bookworm-backports
#   new   linux-image-amd64 of trixie-backports
#
# Nothing gets installed: packages are downloaded with a private apt state, derived from the
# machine's own Debian source file, and unpacked below $LINUXVM_CACHE. A flavour that this very
# recipe made before is left alone.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${LINUXVM_CACHE:-/var/tmp/anabranch-linuxvm}
APT=$CACHE/apt
DEBS=$CACHE/debs
USERLAND=$CACHE/userland

# What the guests need besides the kernel, and which programs of it go into the initramfs.
PACKAGES=(nvme-cli fio iproute2 nbd-client e2fsprogs busybox-static dash)
PROGRAMS=(
  bin/dash usr/sbin/nvme usr/bin/fio sbin/tc bin/ip bin/ss sbin/nbd-client sbin/mke2fs sbin/e2fsck
)
MODULES=(
  virtio_pci virtio_net virtio_console virtio_rng 9p 9pnet_virtio af_packet virtio_blk ext4
  nbd fuse
  nvme-core nvme-fabrics nvme-tcp nvmet nvmet-tcp configfs null_blk
  crc32c-intel crc32c_generic crct10dif_generic crc-t10dif crc64-rocksoft
  sha256_generic hmac ffdhe dh_generic tls
  sch_ingress cls_flower act_gact tcp_diag inet_diag
)

say() { printf 'linuxvm build, %3s s: %s\n' "$SECONDS" "$*" >&2; }
die() { echo "linuxvm build: $*" >&2; exit 1; }

for tool in apt-get apt-cache dpkg depmod modprobe cpio xz awk; do
  command -v "$tool" >/dev/null || die "'$tool' is missing (packages: apt dpkg kmod cpio xz-utils)"
done

flavours=("$@")
[ $# -gt 0 ] || flavours=(6.1)
suite_of() {
  case $1 in
    6.1) echo bookworm ;;
    6.12) echo bookworm-backports ;;
    new) echo trixie-backports ;;
    *) die "unknown flavour '$1' (there are 6.1, 6.12 and new)" ;;
  esac
}

# The private apt state: the machine's Debian source, and the same stanza for other suites.
prepare_apt() {
  local source suite f
  source=$(grep -lE '^Suites:.*\bbookworm\b' /etc/apt/sources.list.d/*.sources 2>/dev/null |
    head -n 1) || true
  [ -n "$source" ] || die "no bookworm source (deb822) in /etc/apt/sources.list.d"
  mkdir -p "$APT"/{lists/partial,cache/archives/partial,sources,userland} "$DEBS"
  cp "$source" "$APT/sources/base.sources"
  cp "$source" "$APT/userland/base.sources"
  for f in "${flavours[@]}"; do
    suite=$(suite_of "$f")
    [ "$suite" = bookworm ] && continue
    awk 'BEGIN { RS = "" } NR == 1' "$source" | grep -v '^#' |
      sed "s/^Suites:.*/Suites: $suite/" >"$APT/sources/$suite.sources"
  done
}
apt_options() { # directory of source files
  printf '%s\n' -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$1" \
    -o "Dir::State::lists=$APT/lists" -o "Dir::Cache=$APT/cache" \
    -o "Dir::Cache::archives=$APT/cache/archives" -o Dir::Cache::pkgcache= \
    -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=false -q=2
}

# Unpacks the userland packages with everything that they depend on (libraries, in effect).
unpack_userland() {
  local names name dir=$DEBS/userland
  [ "$(cat "$USERLAND/.complete" 2>/dev/null)" = "${PACKAGES[*]}" ] && return
  say "userland: ${PACKAGES[*]}"
  rm -rf "$USERLAND" "$dir"
  mkdir -p "$USERLAND" "$dir"
  names=$(apt-cache "${userland_apt[@]}" depends --recurse --no-recommends --no-suggests \
    --no-conflicts --no-breaks --no-replaces --no-enhances "${PACKAGES[@]}" |
    grep -E '^[a-z0-9]' | sort -u |
    grep -vE '^(perl|libperl|python|libpython|(cdeb|deb)conf|adduser|dpkg$|tar$|passwd)' |
    grep -vE '^(usrmerge|install-info|libdebian-installer|libnewt|libslang|mailcap|netbase)' |
    grep -vE '^(mime|media-types|libpam|lib.*-perl$|init-system|usr-is-merged)')
  # shellcheck disable=SC2086  # one word per package
  (cd "$dir" && apt-get "${userland_apt[@]}" download $names)
  for name in "$dir"/*.deb; do dpkg -x "$name" "$USERLAND"; done
  echo "${PACKAGES[*]}" >"$USERLAND/.complete"
}

# Prints version and package of the kernel image that a flavour stands for.
kernel_of() {
  local pattern version image
  case $1 in
    6.1) pattern='^6[.]1[.]' ;;
    6.12) pattern='~bpo12' ;;
    new) pattern='~bpo13' ;;
  esac
  version=$(apt-cache "${apt[@]}" show linux-image-amd64 | sed -n 's/^Version: //p' |
    grep -E -- "$pattern" | sort -V | tail -n 1)
  [ -n "$version" ] || die "the mirror has no linux-image-amd64 for flavour $1"
  image=$(apt-cache "${apt[@]}" show "linux-image-amd64=$version" | sed -n 's/^Depends: //p' |
    grep -oE 'linux-image-[0-9][^ ,(]*' | head -n 1)
  echo "$version $image"
}
# Downloads one package and unpacks it into a directory.
unpack() { # PACKAGE VERSION DIRECTORY
  local dir=$DEBS/kernel
  rm -rf "$dir"
  mkdir -p "$dir"
  (cd "$dir" && { apt-get "${apt[@]}" download "$1=$2" || apt-get "${apt[@]}" download "$1"; })
  dpkg -x "$dir"/*.deb "$3"
}
unpack_kernel() { # VERSION IMAGE DIRECTORY
  local part
  rm -rf "$3"
  mkdir -p "$3"
  unpack "$2" "$1" "$3"
  # Newer kernels come in parts, named in the dependencies.
  for part in $(apt-cache "${apt[@]}" show "$2=$1" | sed -n 's/^Depends: //p' | head -n 1 |
    tr ',' '\n' | awk '/^ *linux-(binary|modules|base)-[0-9]/ { print $1 }'); do
    unpack "$part" "$1" "$3"
  done
}

# Copies a program and the libraries that the unpacked loader finds for it.
add_program() { # PROGRAM STAGE
  local from=$USERLAND/$1 stage=$2 name path
  [ -e "$from" ] || die "the userland has no $1"
  rm -f "$stage/$1"
  cp -L "$from" "$stage/$1"
  if "$loader" --library-path "$libraries" --list "$from" | grep 'not found' >&2; then
    die "a library of $1 is missing"
  fi
  "$loader" --library-path "$libraries" --list "$from" |
    awk '$2 == "=>" && $1 !~ /\// { print $1, $3 }' |
    while read -r name path; do
      [ -e "$stage/lib/x86_64-linux-gnu/$name" ] ||
        cp -L "$path" "$stage/lib/x86_64-linux-gnu/$name"
    done
}
# Copies the modules with their dependencies, uncompressed: emulated guests load them faster.
add_modules() { # MODULE_BASE KERNEL_VERSION STAGE
  local module path to
  for module in "${MODULES[@]}"; do
    modprobe -d "$1" -S "$2" -a --show-depends "$module" 2>/dev/null |
      awk '$1 == "insmod" { print $2 }' || true # built in, or too new for this kernel
  done | sort -u | while read -r path; do
    to=$3/lib/modules/${path#*/lib/modules/}
    mkdir -p "$(dirname "$to")"
    case $path in
      *.xz) xz -dc "$path" >"${to%.xz}" ;;
      *.zst) zstd -qdc "$path" >"${to%.zst}" ;;
      *) cp "$path" "$to" ;;
    esac
  done
  cp "$1/lib/modules/$2"/modules.{builtin,order}* "$3/lib/modules/$2/"
  sed -i -E 's/\.ko\.(xz|zst)$/.ko/' "$3/lib/modules/$2/modules.order"
  depmod -b "$3" "$2"
}
make_initramfs() { # MODULE_BASE KERNEL_VERSION OUTPUT
  local stage=$CACHE/stage program applet loader libraries
  loader=$(find "$USERLAND" -name ld-linux-x86-64.so.2 | head -n 1)
  libraries=$(find "$USERLAND" -name '*.so.*' -printf '%h\n' | sort -u |
    grep -E 'x86_64-linux-gnu(/ceph)?$' | paste -sd:)
  rm -rf "$stage"
  mkdir -p "$stage"/{bin,sbin,usr/bin,usr/sbin,usr/lib,proc,sys,dev,tmp,run,share,etc/nvme,root} \
    "$stage"/{lib64,lib/x86_64-linux-gnu,"lib/modules/$2"}
  cp "$(find "$USERLAND" -path '*bin/busybox' | head -n 1)" "$stage/bin/busybox"
  # Every applet but these: the shell must be one that runs the real tc and ip.
  "$stage/bin/busybox" --list-full | grep -vE '^(linuxrc|s?bin/ip|sbin/tc|bin/sh)$' |
    while read -r applet; do
      [ -e "$stage/$applet" ] || ln -s /bin/busybox "$stage/$applet"
    done
  cp -L "$loader" "$stage/lib64/ld-linux-x86-64.so.2"
  for program in "${PROGRAMS[@]}"; do add_program "$program" "$stage"; done
  ln -s dash "$stage/bin/sh"
  ln -sf /bin/ip "$stage/sbin/ip"
  add_modules "$1" "$2" "$stage"
  install -m 755 "$HERE/guest/init" "$stage/init"
  install -m 755 "$HERE/guest/agent" "$stage/sbin/agent"
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$stage/etc/passwd"
  printf 'root:x:0:\n' >"$stage/etc/group"
  (cd "$stage" && find . | cpio -o -H newc --quiet -R 0:0) >"$3"
  rm -rf "$stage"
}
build() { # FLAVOUR
  local out=$CACHE/$1 root=$CACHE/kernel-$1 base version image kernel recipe
  recipe=$(cat "$HERE"/build.sh "$HERE"/guest/{init,agent} | sha256sum)
  if [ "$(cat "$out/recipe" 2>/dev/null)" = "$recipe" ]; then
    say "$1: $(cat "$out/version") is there already"
    return
  fi
  prepare_apt
  mapfile -t apt < <(apt_options "$APT/sources")
  mapfile -t userland_apt < <(apt_options "$APT/userland")
  apt-get "${apt[@]}" update
  unpack_userland
  read -r version image < <(kernel_of "$1")
  say "$1: $image ($version)"
  unpack_kernel "$version" "$image" "$root"
  base=$root
  if [ -d "$root/usr/lib/modules" ]; then
    base=$root/merged
    mkdir -p "$base"
    ln -s "$root/usr/lib" "$base/lib"
  fi
  kernel=$(basename "$(echo "$base"/lib/modules/*)")
  mkdir -p "$out"
  cp "$(find "$root" -name 'vmlinuz*' -size +1M | head -n 1)" "$out/vmlinuz"
  depmod -b "$base" "$kernel"
  make_initramfs "$base" "$kernel" "$out/initramfs.cpio"
  rm -rf "$root"
  echo "$kernel" >"$out/version"
  echo "$recipe" >"$out/recipe"
  say "$1: kernel $kernel, initramfs $(du -m "$out/initramfs.cpio" | cut -f 1) MiB"
}

for flavour in "${flavours[@]}"; do
  suite_of "$flavour" >/dev/null
  build "$flavour"
done
