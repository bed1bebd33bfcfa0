#!/bin/sh
# In the guest: the Linux kernel's NVMe/TCP target. `boot` builds it from /share/settings, the
# other verbs change it while it runs (target.sh lists them).
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
. /share/settings
NVMET=/sys/kernel/config/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN
die() { echo "nvmet.sh: $*" >&2; exit 1; }

boot() {
  modprobe -a configfs nvmet nvmet-tcp || die "no nvmet modules"
  modprobe null_blk nr_devices=0 || die "no null_blk module"
  grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
  mkdir "$SUBSYSTEM" || die "cannot make the subsystem"
  echo 1 >"$SUBSYSTEM/attr_allow_any_host"
  for e in $NAMESPACES; do # NSID:GROUP:MIB
    rest=${e#*:}
    namespace "${e%%:*}" "${rest%:*}" "${rest#*:}" || die "cannot make namespace $e"
  done
  for e in $PORTS; do # PORT:TRSVCID
    port "${e%%:*}" "${e#*:}" || die "cannot make port $e"
  done
  for e in $ANA; do # PORT:GROUP=STATE
    rest=${e#*:}
    ana "${e%%:*}" "${rest%=*}" "${rest#*=}" || die "cannot set ANA $e"
  done
  for e in $PORTS; do portup "${e%%:*}" || die "port $e does not come up"; done
  status
}
namespace() { # NSID GROUP MIB: on a null block device that keeps its data in memory
  disk=/sys/kernel/config/nullb/ns$1
  mkdir "$disk" && echo 1 >"$disk/memory_backed" && echo "$3" >"$disk/size" &&
    echo "$BLOCK_BYTES" >"$disk/blocksize" && echo 0 >"$disk/irqmode" &&
    echo 1 >"$disk/discard" && echo 1 >"$disk/power" || return 1
  device=/dev/nullb$(cat "$disk/index")
  [ -e "$device" ] || device=/dev/ns$1 # newer kernels name it after the directory
  ns=$SUBSYSTEM/namespaces/$1
  mkdir "$ns" && printf %s "$device" >"$ns/device_path" &&
    printf '6c696e75-786e-766d-6574-%012x\n' "$1" >"$ns/device_uuid" &&
    echo "$2" >"$ns/ana_grpid" && echo 1 >"$ns/enable"
}
port() { # PORT TRSVCID
  p=$NVMET/ports/$1
  mkdir "$p" && echo tcp >"$p/addr_trtype" && echo ipv4 >"$p/addr_adrfam" &&
    echo 0.0.0.0 >"$p/addr_traddr" && echo "$2" >"$p/addr_trsvcid"
}
ana() { # PORT GROUP STATE
  group=$NVMET/ports/$1/ana_groups/$2
  [ -d "$group" ] || mkdir "$group"
  echo "$3" >"$group/ana_state"
}
portup() { ln -s "$SUBSYSTEM" "$NVMET/ports/$1/subsystems/$NQN"; }
portdown() { rm "$NVMET/ports/$1/subsystems/$NQN"; } # closes the listener and its connections
nsup() { echo 1 >"$SUBSYSTEM/namespaces/$1/enable"; }
nsdown() { echo 0 >"$SUBSYSTEM/namespaces/$1/enable"; }
service() { cat "$NVMET/ports/$1/addr_trsvcid"; }
# Silence on one port: both directions dropped, no FIN and no RST.
drop() {
  modprobe -a sch_ingress cls_flower act_gact
  tc qdisc show dev eth0 | grep -q clsact || tc qdisc add dev eth0 clsact
  tc filter add dev eth0 ingress pref "$1" protocol ip flower ip_proto tcp \
    dst_port "$(service "$1")" action drop &&
    tc filter add dev eth0 egress pref "$1" protocol ip flower ip_proto tcp \
      src_port "$(service "$1")" action drop
}
undrop() {
  tc filter del dev eth0 ingress pref "$1"
  tc filter del dev eth0 egress pref "$1"
}
reset() { # RST every connection of one port; the listener stays
  modprobe -a tcp_diag inet_diag
  ss -K -t state established "sport = :$(service "$1")"
}
status() {
  for p in "$NVMET"/ports/*; do
    n=${p##*/} up=down
    [ -e "$p/subsystems/$NQN" ] && up=up
    printf 'port %s tcp/%s %s connections=%s' "$n" "$(service "$n")" $up \
      "$(ss -Htn state established "sport = :$(service "$n")" | wc -l)"
    for g in "$p"/ana_groups/*; do printf ' grp%s=%s' "${g##*/}" "$(cat "$g/ana_state")"; done
    echo
  done
  for n in "$SUBSYSTEM"/namespaces/*; do
    echo "ns ${n##*/} enable=$(cat "$n/enable") grp=$(cat "$n/ana_grpid")" \
      "uuid=$(cat "$n/device_uuid")"
  done
}

verb=$1
shift
case $verb in
  boot | ana | portup | portdown | nsup | nsdown | drop | undrop | reset | status) $verb "$@" ;;
  *) die "no verb '$verb'" ;;
esac
