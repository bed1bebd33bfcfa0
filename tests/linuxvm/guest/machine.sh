#!/bin/sh
# In the guest: a machine that runs Anabranch itself. Its kernel is the target behind two ports, the
# NBD client in front, and a second host to compare with. `boot` prepares that, the other verbs use
# it (machine.sh lists them).
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
. /share/settings
tree=/tmp/sys
socket=/tmp/nbd.sock
# Of the kernel's own host: another host than ours to the target.
host_id=6c696e75-786e-766d-6574-686f73740001
die() { echo "machine.sh: $*" >&2; exit 1; }
target() { sh /share/nvmet.sh "$@"; }
disk() { DISK=/dev/nbd0 sh /share/disk.sh "$@"; }
# With the libraries that it was linked to, whatever the guest has.
program="/tmp/lib/loader --library-path /tmp/lib /tmp/lib/anabranch"
anabranch() { $program "$@"; }

boot() {
  modprobe -a nbd fuse ext4 nvme-fabrics nvme-tcp || die "no modules for nbd, fuse, ext4 and nvme"
  cp -r /share/lib /tmp/lib || die "cannot copy the program"
  mkdir -p /mnt
  target boot
}
demo() { anabranch demo; }
# A host of its own: a path through the card of each node, that of node 1 first, and a worker on each
# node. Under numa each keeps to its own.
nodes() {
  for card in /sys/class/net/eth[12]; do
    node=$(cat "$(readlink -f "$card/device")/../numa_node")
    ip addr add "10.9.$node.1/24" dev "${card##*/}" && ip link set "${card##*/}" up || die "no $card"
  done
  cat >/tmp/nodes.toml <<END
workers = 2
iopolicy = "numa"
[[subsystem]]
nqn = "nqn.2026-01.org.anabranch:target"
path = [
  { traddr = "10.9.1.1", trsvcid = 4430 },
  { traddr = "10.9.0.1", trsvcid = 4430 },
]
END
  $program target --socket /tmp/nodes-target.sock --listen 10.9.0.1:4430 --listen 10.9.1.1:4430 \
    </dev/null >/tmp/nodes-target.log 2>&1 &
  target=$!
  await grep -q '^control socket' /tmp/nodes-target.log
  $program serve --socket /tmp/nodes.sock --config /tmp/nodes.toml </dev/null >/tmp/nodes.log 2>&1 &
  serve=$!
  await grep -q '2 of 2 controllers live' /tmp/nodes.log
  anabranch bench --socket /tmp/nodes.sock nvme0n1 --rw randread --bs 4k --numjobs 2 --runs 1 \
    --runtime 1s || die "bench failed"
  right=0
  for controller in 0 1; do
    node=$(anabranch get --socket /tmp/nodes.sock nvme$controller numa_node)
    used=$(anabranch get --socket /tmp/nodes.sock nvme0c${controller}n1 numa_nodes)
    echo "nvme$controller is on node $node and used by the worker of $used"
    [ "$node" = $((1 - controller)) ] && [ "$used" = "$node" ] && right=$((right + 1))
  done
  kill $serve $target
  wait $serve && wait $target && [ $right = 2 ]
}
await() { # COMMAND...: until it says yes
  n=0
  until "$@"; do
    n=$((n + 1))
    [ $n -lt 600 ] || die "not in a minute: $*"
    sleep 0.1
  done
}
serve() {
  mkdir -p $tree
  cat >/tmp/anabranch.toml <<END
attr_fs = "$tree"
[[subsystem]]
nqn = "$NQN"
$(for port in $PORTS; do
    printf '[[subsystem.path]]\ntraddr = "127.0.0.1"\ntrsvcid = "%s"\n' "${port#*:}"
    printf 'reconnect_delay = "1s"\nkeep_alive_tmo = "15s"\n'
  done)
[[export]]
device = "nvme0n1"
nbd = "unix:$socket"
END
  $program serve --config /tmp/anabranch.toml </dev/null >/tmp/serve.log 2>&1 &
  serve=$!
  echo $serve >/tmp/serve.pid
  # Its device is there when it exports it.
  until grep -q '^export ' /tmp/serve.log && anabranch list | grep -q nvme0n1; do
    kill -0 $serve || { cat /tmp/serve.log >&2; die "serve ended"; }
    sleep 0.1
  done
  anabranch list-subsys
}
live() { grep -lx live $tree/class/nvme/nvme*/state 2>/dev/null | wc -l; }
await_live() { # HOW_MANY
  n=0
  while [ "$(live)" != "$1" ]; do
    n=$((n + 1))
    [ $n -lt 600 ] || { cat /tmp/serve.log >&2; die "there are $(live) live paths, not $1"; }
    sleep 0.1
  done
}
attach() {
  await_live 2
  nbd-client -unix $socket -N nvme0n1 /dev/nbd0 -b 4096 -C 2 || die "nbd-client failed"
  mke2fs -q -t ext4 /dev/nbd0 || die "no file system"
  disk up
}
# Ports go and come, each alone and both at once.
work() { # SECONDS
  disk work "$1" &
  work=$!
  while kill -0 $work 2>/dev/null; do
    for ports in 1 2 '1 2'; do
      for port in $ports; do target portdown "$port"; done
      [ "$ports" = '1 2' ] && await_live 0 || await_live 1
      for port in $ports; do target portup "$port"; done
      await_live 2
    done
  done
  wait $work
}
detach() {
  disk down && disk up && disk same && disk down || return
  e2fsck -fn /dev/nbd0 || die "the file system is not in order"
  nbd-client -d /dev/nbd0
}
# The kernel's own host, connected to the same ports: what both show must be the same, but for what
# belongs to the host, to its limits, or to the moment.
compare() {
  for port in $PORTS; do
    nvme connect -t tcp -a 127.0.0.1 -s "${port#*:}" -n "$NQN" -c 1 -k 15 \
      -q "nqn.2014-08.org.nvmexpress:uuid:$host_id" -I $host_id || die "the kernel does not connect"
  done
  n=0
  until [ -e /sys/class/nvme/nvme1/nvme0c1n1/size ] && [ -e /sys/block/nvme0n1/size ]; do
    n=$((n + 1))
    [ $n -lt 300 ] || die "the kernel has no second path"
    sleep 0.1
  done
  for policy in /sys $tree; do
    echo round-robin >$policy/class/nvme-subsystem/nvme-subsys0/iopolicy || die "no round-robin"
  done
  same=0
  different=0
  for object in class/nvme-subsystem/nvme-subsys0 class/nvme/nvme0 class/nvme/nvme1 \
    class/nvme/nvme0/nvme0c0n1 class/nvme/nvme1/nvme1c1n1 class/nvme/nvme1/nvme0c1n1 \
    block/nvme0n1; do
    for dir in "$object" "$object/diag" "$object/queue"; do compare_files "$dir"; done
  done
  echo "$same files say the same, $different do not"
  nvme disconnect -n "$NQN"
  [ $different = 0 ] && [ $same -ge 50 ]
}
compare_files() { # DIRECTORY
  for file in "$tree/$1"/*; do
    name=${file##*/}
    theirs=/sys/$1/$name
    [ -f "$file" ] && [ -f "$theirs" ] || continue
    case $name in
      hostid | hostnqn | cntlid | stat | nuse | discard_max_bytes | max_hw_sectors_kb) continue ;;
      write_zeroes_max_bytes | write_cache | *_count) continue ;;
    esac
    # The kernel leaves the blanks in that Identify has behind short names.
    ours=$(stat -c %a "$file"; cat "$file" 2>/dev/null)
    theirs=$(stat -c %a "$theirs"; sed 's/ *$//' "$theirs" 2>/dev/null)
    if [ "$ours" = "$theirs" ]; then
      same=$((same + 1))
    else
      different=$((different + 1))
      echo "$1/$name: mode and text are" $ours, "the kernel's" $theirs
    fi
  done
}
finish() {
  kill "$(cat /tmp/serve.pid)"
  n=0
  while kill -0 "$(cat /tmp/serve.pid)" 2>/dev/null; do
    n=$((n + 1))
    [ $n -lt 300 ] || die "serve does not end"
    sleep 0.1
  done
  cat /tmp/serve.log
  [ -z "$(ls -A $tree)" ] || die "the attribute tree is still there"
}

verb=$1
shift
case $verb in
  boot | demo | nodes | serve | attach | work | detach | compare | finish) $verb "$@" ;;
  *) die "no verb '$verb'" ;;
esac
