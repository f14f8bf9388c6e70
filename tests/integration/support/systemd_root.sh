#!/bin/bash
# Runs systemd as the first process of its own namespaces, over this machine's files. Written files are
# discarded afterwards. Call: `unshare --mount --pid --fork --uts --ipc --cgroup --net systemd_root.sh FOLDER
# PROGRAM...`. FOLDER is an empty folder of the machine. Its `tree` is copied over the files, and `/out` is
# its `out`. PROGRAM runs as a unit once the system is up, with its output in out/log. Then the system is
# powered off.
set -e
work=$1
shift
mkdir -p "$work"/{root,low,up,tree,out}
root=$work/root
mount --make-rprivate /
mount --bind / "$work/low" # without the file systems that are mounted below
mount -t tmpfs none "$work/up" -o size=2g
mkdir "$work/up"/{upper,work}
mount -t overlay none -o "lowerdir=$work/low,upperdir=$work/up/upper,workdir=$work/up/work" "$root"
cp -a "$work/tree/." "$root/"
hostname units
mount -t tmpfs none "$root/dev"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
  read -r name major minor <<< "$node"
  mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs none "$root/dev/shm"
touch "$root/dev/console"
mount -t proc none "$root/proc"
mount -t sysfs -o ro none "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/tmp"
ip link set lo up
mkdir -p "$root/out"
mount --bind "$work/out" "$root/out"
# None of this machine's own services runs in the namespaces.
rm -rf "$root"/etc/systemd/system/*.wants
mkdir -p "$root/etc/systemd/system/basic.target.wants"
cat > "$root/etc/systemd/system/trial.service" << UNIT
[Unit]
DefaultDependencies=no
After=sysinit.target dbus.socket
[Service]
Type=oneshot
TimeoutStartSec=infinity
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ExecStart=$*
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=append:/out/log
StandardError=append:/out/log
UNIT
ln -sf ../trial.service "$root/etc/systemd/system/basic.target.wants/trial.service"
ln -sf /usr/lib/systemd/system/basic.target "$root/etc/systemd/system/default.target"
cd "$root"
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=podman PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --log-target=console --show-status=no
