#!/bin/busybox sh
# The first process of a guest. It makes the host's root file system, seen through 9p and never
# written, with a RAM overlay on top, the guest's own, and becomes the parent of the agent there.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in /modules/*; do insmod "$m" || echo "vmtest: insmod $m failed"; done

value() { sed -n "s/.*vmtest\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
modules=$(value modules)
name=$(value name)

die() { echo "vmtest: $*"; poweroff -f; }

nine=trans=virtio,version=9p2000.L,msize=262144
mkdir -p /host /ram /root
mount -t 9p -o $nine,cache=loose,ro host /host || die "no root file system"
mount -t tmpfs -o size=75% tmpfs /ram
mkdir /ram/upper /ram/work
mount -t overlay -o lowerdir=/host,upperdir=/ram/upper,workdir=/ram/work overlay /root ||
	die "no overlay"

for d in proc sys dev; do mount --move /$d /root/$d; done
mount -t tmpfs tmpfs /root/run
mkdir -p /root/dev/shm /root/dev/pts /root/run/lock /root/run/vmtest /root/host-rw
mount -t tmpfs tmpfs /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t 9p -o $nine,cache=none share /root/host-rw || die "no shared folder"
mkdir -p /root/lib/modules
mount -o bind "/root$modules" /root/lib/modules || die "no modules"
echo "$name" > /root/proc/sys/kernel/hostname
ip link set lo up

# A child of process 1 may die and be replaced; process 1 itself must not. ash waits for every
# child there is, so that nothing stays a zombie.
cp /agent /bin/busybox /root/run/vmtest/
cat > /root/run/vmtest/main <<'MAIN'
/run/vmtest/agent
echo "vmtest: the agent ended with $?"
/run/vmtest/busybox poweroff -f
MAIN
exec switch_root /root /run/vmtest/busybox sh /run/vmtest/main
