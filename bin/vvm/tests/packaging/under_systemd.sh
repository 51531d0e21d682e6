#!/bin/sh
# Runs the node of the package under systemd: start, watchdog, crash, wrong configuration, stop and removal.
set -eu

fail() {
    echo "FAILED: $*"
    systemctl status vvm --no-pager --lines 30 || true
    exit 1
}

property() {
    systemctl show vvm --property "$1" --value
}

# Waits until a property has a value.
until_is() {
    for _ in $(seq 200); do
        [ "$(property "$1")" != "$2" ] || return 0
        sleep 0.1
    done
    fail "$1 is $(property "$1"), not $2"
}

dpkg -i /var/trial/vvm.deb
mkdir -p /etc/systemd/system/vvm.service.d
# A node whose watchdog bites is killed and started again soon.
cat >/etc/systemd/system/vvm.service.d/trial.conf <<UNIT
[Service]
WatchdogSec=3
TimeoutAbortSec=1
RestartSec=200ms
UNIT
systemctl daemon-reload
systemctl start systemd-journald

echo "== start"
systemctl enable --now vvm || fail "the unit does not start"
# The start waits for the message of the node.
vvm status | grep -q "leads seat 1" || fail "the node does not lead after its start"
until_is StatusText "leading seat 1"
[ "$(stat -c %U /var/lib/vvm/data/vvm.redb)" = vvm ] || fail "the node is not the user vvm"
# A proof that the unit takes rights away: seccomp filters, and no new rights.
status=/proc/$(property MainPID)/status
grep -q "^Seccomp:.2" "$status" || fail "no filter of system calls"
grep -q "^NoNewPrivs:.1" "$status" || fail "new rights are possible"
grep -q "^CapBnd:.0000000000000000" "$status" || fail "there are capabilities"

echo "== alive for longer than the watchdog"
sleep 5
[ "$(property NRestarts)" = 0 ] || fail "the watchdog bit a node that works"

echo "== reload"
before=$(property MainPID)
systemctl reload vvm || fail "the reload"
until_is ActiveState active
[ "$(property MainPID)" = "$before" ] || fail "the reload restarted the node"
vvm status | grep -q "leads seat 1" || fail "the node does not lead after the reload"
for _ in $(seq 50); do
    journalctl --unit vvm --quiet | grep -q "reloaded: the ports use" && break
    sleep 0.1
done
journalctl --unit vvm --quiet | grep -q "reloaded: the ports use" || fail "the node did not reload"

echo "== watchdog"
kill -STOP "$(property MainPID)"
until_is NRestarts 1
until_is ActiveState active
until_is StatusText "leading seat 1"

echo "== crash"
kill -KILL "$(property MainPID)"
until_is NRestarts 2
until_is ActiveState active

echo "== stop"
systemctl stop vvm || fail "the stop"
[ "$(property Result)" = success ] || fail "the stop ended as $(property Result)"

echo "== wrong configuration"
cp /etc/vvm/vvm.toml /var/vvm.toml
echo "wrong = 1" >>/etc/vvm/vvm.toml
! systemctl start vvm || fail "a wrong configuration starts"
sleep 1
[ "$(property ActiveState)" = failed ] || fail "the node is started again in vain"
[ "$(property ExecMainStatus)" = 3 ] || fail "it ended with $(property ExecMainStatus)"
cp /var/vvm.toml /etc/vvm/vvm.toml

echo "== upgrade and removal of a node at work"
systemctl start vvm
before=$(property MainPID)
dpkg -i /var/trial/vvm.deb | grep "systemctl restart vvm" || fail "no word about the restart"
[ "$(property MainPID)" = "$before" ] || fail "the upgrade restarted the node"
dpkg -r vvm
[ ! -e "/proc/$before" ] || fail "the node goes on without its program"
[ ! -e /etc/systemd/system/multi-user.target.wants/vvm.service ] || fail "the unit is enabled"
echo "== done"
