# Sourced by target.sh, host.sh and the scripts that use them: start, reach and end one guest.
# A guest has a name; everything about it lives in $LINUXVM_CACHE/run/NAME.
LINUXVM=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LINUXVM_CACHE=${LINUXVM_CACHE:-/var/tmp/anabranch-linuxvm}
LINUXVM_KERNEL=${LINUXVM_KERNEL:-6.1}      # a flavour of build.sh
LINUXVM_CPUS=${LINUXVM_CPUS:-2}            # also: how many I/O queues a Linux host asks for
LINUXVM_BOOT_LIMIT=${LINUXVM_BOOT_LIMIT:-300} # seconds

guest_dir() { echo "$LINUXVM_CACHE/run/$1"; }
guest_alive() { # NAME
  local pid
  pid=$(cat "$(guest_dir "$1")/qemu.pid" 2>/dev/null) || return 1
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = qemu-system-x86 ]
}
# Starts qemu with a guest. The caller has written share/settings.
guest_launch() { # NAME ROLE_SCRIPT MEMORY_MIB [user network option [qemu option]...]
  local dir images=$LINUXVM_CACHE/$LINUXVM_KERNEL i
  dir=$(guest_dir "$1")
  if guest_alive "$1"; then
    echo "guest $1 runs already" >&2
    return 1
  fi
  if [ ! -e "$images/recipe" ]; then
    echo "no guest image: run $LINUXVM/build.sh $LINUXVM_KERNEL" >&2
    return 1
  fi
  rm -f "$dir"/*.sock "$dir"/qemu.pid "$dir"/share/{ready,role.status,role.log}
  cp "$2" "$dir/share/role.sh"
  # The clock options matter: with the HPET an emulated guest is four times slower.
  local clock="tsc=reliable clocksource=tsc no_timer_check random.trust_cpu=on"
  local args=(
    -M pc -accel tcg,thread=multi -cpu max -smp "$LINUXVM_CPUS" -m "$3"
    -nodefaults -no-user-config -no-reboot -display none -daemonize -pidfile "$dir/qemu.pid"
    -kernel "$images/vmlinuz" -initrd "$images/initramfs.cpio"
    -append "console=ttyS0 loglevel=6 panic=-1 nokaslr mitigations=off net.ifnames=0 $clock"
    -serial "file:$dir/console.log"
    -netdev "user,id=net,ipv6=off${4:-}" -device virtio-net-pci,netdev=net,romfile=
    -virtfs "local,path=$dir/share,mount_tag=share,security_model=none,multidevs=remap"
    -device virtio-serial-pci -device virtio-rng-pci -qmp "unix:$dir/qmp.sock,server=on,wait=off"
    "${@:5}"
  )
  for i in 0 1 2 3; do
    args+=(-chardev "socket,id=c$i,path=$dir/ctl$i.sock,server=on,wait=off")
    args+=(-device "virtserialport,chardev=c$i,name=ctl$i")
  done
  nice -n "${LINUXVM_NICE:-0}" qemu-system-x86_64 "${args[@]}"
}
# Boots a guest and waits until its role is ready.
guest_start() { # as guest_launch
  local dir images=$LINUXVM_CACHE/$LINUXVM_KERNEL start=$SECONDS
  dir=$(guest_dir "$1")
  guest_launch "$@" || return 1
  until [ -e "$dir/share/ready" ]; do
    if ! guest_alive "$1"; then
      echo "guest $1 ended while it booted:" >&2
      tail -n 5 "$dir/console.log" >&2
      return 1
    fi
    if [ $((SECONDS - start)) -gt "$LINUXVM_BOOT_LIMIT" ]; then
      echo "guest $1 is not ready after $LINUXVM_BOOT_LIMIT s; see $dir/console.log" >&2
      return 1
    fi
    sleep 0.1
  done
  cat "$dir/share/role.log"
  [ "$(cat "$dir/share/role.status")" = 0 ] || return 1
  echo "guest $1: Linux $(cat "$images/version"), ready after $((SECONDS - start)) s"
}
guest_exec() { # NAME [-t SECONDS] COMMAND...
  local dir
  dir=$(guest_dir "$1")
  shift
  python3 "$LINUXVM/vmctl.py" "$dir" "$@"
}
guest_qmp() { # NAME COMMAND [ARGUMENTS]: asks its qemu
  python3 "$LINUXVM/qmp.py" "$(guest_dir "$1")/qmp.sock" "${@:2}"
}
guest_stop() { # NAME: ends the very process that guest_start made
  local pid i
  guest_alive "$1" || return 0
  pid=$(cat "$(guest_dir "$1")/qemu.pid")
  kill "$pid"
  for i in $(seq 50); do
    guest_alive "$1" || return 0
    sleep 0.1
  done
  kill -9 "$pid"
}
