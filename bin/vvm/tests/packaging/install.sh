#!/bin/sh
# Installs, upgrades, removes and purges the package. It runs as root in a copy of this system whose changes are
# thrown away (deb.rs). $1 and $2 are the packages of two versions.
set -eu

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

is() {
    [ "$1" = "$2" ] || fail "$3: $1, not $2"
}

export DEBIAN_FRONTEND=noninteractive
admin=127.0.0.1:9823

# Becomes a command of the user of the node, as the unit starts it.
become_vvm() {
    cd /var/lib/vvm
    exec setpriv --reuid vvm --regid vvm --clear-groups --no-new-privs \
        env VVM__HTTP__LISTEN=127.0.0.1:9822 VVM__ADMIN__LISTEN="$admin" "$@"
}

as_vvm() {
    (become_vvm "$@")
}

# Starts the node of the package, waits until it leads, and stops it.
node_works() {
    become_vvm /usr/bin/vvm serve --config /etc/vvm/vvm.toml 2>/tmp/node.log &
    node=$!
    for _ in $(seq 300); do
        if vvm status --admin "$admin" 2>/dev/null | grep -q "leads seat 1"; then
            kill -TERM "$node"
            wait "$node" || fail "the node ended with $?: $(cat /tmp/node.log)"
            return
        fi
        sleep 0.1
    done
    fail "the node does not lead: $(cat /tmp/node.log)"
}

! getent passwd vvm >/dev/null || fail "this system has a user vvm already"

echo "== install"
dpkg -i "$1" >/tmp/install.log 2>&1 || fail "$(cat /tmp/install.log)"
grep -q "no node is started" /tmp/install.log || fail "no word about the start: $(cat /tmp/install.log)"
grep -q "systemctl enable --now vvm" /tmp/install.log || fail "no word about the next step"
is "$(getent passwd vvm | cut -d: -f6,7)" "/var/lib/vvm:/usr/sbin/nologin" "the user"
is "$(stat -c %U:%G:%a /etc/vvm)" "root:vvm:750" "the folder of the configuration"
is "$(stat -c %U:%G:%a /var/lib/vvm)" "vvm:vvm:750" "the folder of the data"
is "$(stat -c %U:%G:%a /usr/bin/vvm)" "root:root:755" "the program"
[ ! -e /etc/systemd/system/multi-user.target.wants/vvm.service ] || fail "the unit is enabled"
for file in /lib/systemd/system/vvm.service /usr/share/man/man1/vvm-serve.1.gz \
    /usr/share/bash-completion/completions/vvm /usr/share/doc/vvm/copyright; do
    [ -s "$file" ] || fail "$file is missing"
done
if command -v systemd-analyze >/dev/null; then
    systemd-analyze verify --man=no /lib/systemd/system/vvm.service || fail "the unit"
fi
as_vvm vvm doctor --config /etc/vvm/vvm.toml || fail "the doctor"
node_works
[ -s /var/lib/vvm/data/vvm.redb ] || fail "the node has no data"

echo "== upgrade"
echo "# by the operator" >>/etc/vvm/vvm.toml
chmod 0700 /etc/vvm
dpkg -i "$2" >/tmp/upgrade.log 2>&1 || fail "$(cat /tmp/upgrade.log)"
is "$(dpkg-query -W -f '${Version}' vvm)" "9.9.9" "the version"
grep -q "# by the operator" /etc/vvm/vvm.toml || fail "the configuration of the operator is gone"
is "$(stat -c %a /etc/vvm)" 700 "the rights that the operator set"
! grep -q "no node is started" /tmp/upgrade.log || fail "an upgrade is told as an installation"
chmod 0750 /etc/vvm
as_vvm vvm doctor --config /etc/vvm/vvm.toml | grep -q "demo/shop fits its deployment" \
    || fail "the doctor does not find the data of the version before"
node_works

echo "== remove"
dpkg -r vvm >/tmp/remove.log 2>&1 || fail "$(cat /tmp/remove.log)"
for file in /usr/bin/vvm /lib/systemd/system/vvm.service /usr/share/doc/vvm /usr/share/vvm; do
    [ ! -e "$file" ] || fail "$file is left"
done
grep -q "# by the operator" /etc/vvm/vvm.toml || fail "the configuration of the operator is gone"
[ -s /var/lib/vvm/data/vvm.redb ] || fail "the data of the node are gone"

echo "== purge"
dpkg -P vvm >/tmp/purge.log 2>&1 || fail "$(cat /tmp/purge.log)"
[ ! -e /etc/vvm ] || fail "/etc/vvm is left"
grep -q "The data of the node stay in /var/lib/vvm" /tmp/purge.log || fail "no word about the data"
[ -s /var/lib/vvm/data/vvm.redb ] || fail "the data of the node are gone"

echo "== install again, and purge without data"
dpkg -i "$1" >/tmp/install.log 2>&1 || fail "$(cat /tmp/install.log)"
node_works
rm -r /var/lib/vvm/*
dpkg -P vvm >/tmp/purge.log 2>&1 || fail "$(cat /tmp/purge.log)"
[ ! -e /var/lib/vvm ] || fail "an empty folder is left"
is "$(dpkg --audit)" "" "dpkg --audit"
echo "== done"
