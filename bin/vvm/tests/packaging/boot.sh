#!/bin/sh
# Boots systemd as the first process of a copy of this system (deb.rs), which runs the script $2 as a service. The
# output of the script is in the folder $1/out. The copy has a network, a host name and processes of its own, and
# cannot write to the settings of the kernel.
set -eu

mount -t devpts -o newinstance,ptmxmode=0666 none copy/dev/pts
ln -s pts/ptmx copy/dev/ptmx
mount -t tmpfs none copy/run
mount -o bind copy/proc/sys copy/proc/sys
mount -o remount,bind,ro copy/proc/sys
mount -t sysfs -o ro none copy/sys
mount -t cgroup2 none copy/sys/fs/cgroup
mkdir -p copy/var/trial
mount -o bind out copy/var/trial

cat >copy/etc/systemd/system/trial.target <<UNIT
[Unit]
Requires=trial.service
UNIT
cat >copy/etc/systemd/system/trial.service <<UNIT
[Service]
Type=oneshot
ExecStart=/bin/sh /var/trial/$2
ExecStopPost=/bin/systemctl exit 0
StandardOutput=append:/var/trial/log
StandardError=append:/var/trial/log
UNIT

cd copy
mkdir -p var/old
pivot_root . var/old
umount -l /var/old
export container=other
exec /lib/systemd/systemd --unit=trial.target
