#!/bin/sh
# In the guest: a file system on the disk that qemu offers, or on $DISK. `boot` finds the disk, the
# other verbs use it (disk.sh lists them).
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
disk=${DISK:-/dev/vda}
die() { echo "disk.sh: $*" >&2; exit 1; }

boot() {
  cp "$0" /role.sh # for when the share is gone
  modprobe -a virtio_blk ext4 || die "no modules for a disk and ext4"
  n=0
  while [ ! -b $disk ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done
  [ -b $disk ] || die "there is no disk"
  mkdir -p /mnt
}
up() { mount -t ext4 -o discard $disk /mnt; }
down() { umount /mnt; }
# Files that are written at random, made durable and verified; beside them a journal that is never
# at rest: copies come, get another name, and go.
work() { # SECONDS
  rm -rf /mnt/[0-9]* || die "what was there before does not go"
  fio --name=files --directory=/mnt --numjobs=2 --size=24m --rw=randwrite --bsrange=1k-64k \
    --ioengine=libaio --iodepth=8 --fsync=16 --verify=crc32c --verify_backlog=64 \
    --time_based --runtime="$1" --output=/tmp/fio &
  fio=$!
  n=0
  while kill -0 $fio 2>/dev/null || [ $n -le 3 ]; do
    n=$((n + 1))
    mkdir /mnt/$n && cp /bin/busybox /mnt/$n/new && sync && mv /mnt/$n/new /mnt/$n/copy ||
      die "copy $n failed"
    [ $n -le 3 ] || rm -r /mnt/$((n - 3)) || die "copy $((n - 3)) does not go"
  done
  wait $fio || { cat /tmp/fio >&2; die "fio failed"; }
  sync || die "sync failed"
  echo $n >/tmp/copies
}
# The last copies are what they are of, as the disk has them.
same() {
  n=$(cat /tmp/copies) || die "no work was done"
  echo 3 >/proc/sys/vm/drop_caches
  for i in $((n - 2)) $((n - 1)) $n; do
    cmp /bin/busybox /mnt/$i/copy || die "copy $i is another file"
  done
  [ ! -e /mnt/$((n - 3)) ] || die "copy $((n - 3)) is there again"
}

verb=$1
shift
case $verb in
  boot | up | down | work | same) $verb "$@" ;;
  *) die "no verb '$verb'" ;;
esac
