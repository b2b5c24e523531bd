#!/bin/bash
# From a fresh machine to one that can run: a Python environment, then `containernet-env setup` does the rest.
set -euo pipefail
# sudo and cron reset PATH; programs of administrators and an unpacked Go are still to be found.
export PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"

usage() {
    cat <<'TEXT'
Usage: sudo ./build.sh [-- VERB ...]

Installs, builds and starts what runs need, and only what is missing: a Python environment in .venv, packages
(Debian, Ubuntu), the Docker engine, the programs in /var/cache/containernet-env and the images. Running it again
costs less than a second.
With `-- VERB ...` it becomes `containernet-env VERB ...` afterwards; test.sh uses that.

Each step is one line; details are in .build/. Exit status: 0 done, 3 the machine lacks something (the message says
what to do), 130 and 143 interrupted; an interrupted set-up is finished by the next one.
TEXT
}

readonly VENV_MB=350 LOCK_TIMEOUT_S=1800
root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
venv=$root/.venv
stamp=$venv/.installed
log=$root/.build/python.log
child=

die() { # MESSAGE REMEDY
    printf 'Error: %s\n  %s\n' "$1" "$2" >&2
    exit 3
}

stop() { # SIGNAL_NUMBER
    trap '' INT TERM HUP
    if [ -n "$child" ]; then
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    exit $((128 + $1))
}

# Runs a program in a group of its own, so that `stop` ends it with all that it started. Output goes to the log.
logged() {
    local status=0
    set -m
    "$@" </dev/null >>"$log" 2>&1 &
    child=$!
    set +m
    wait "$child" || status=$?
    child=
    return "$status"
}

step() { # NAME TEXT START_S
    printf '  %-15s %s  (%d s)\n' "$1" "$2" $((SECONDS - $3))
}

failed() { # MESSAGE REMEDY
    tail -n 8 "$log" | sed 's/^/    /' >&2
    die "$1" "$2 Details: $log"
}

suits() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}

find_python() {
    local name
    for name in python3.14 python3.13 python3.12 python3.11 python3 /usr/bin/python3; do
        if suits "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Runs apt-get or dpkg, again while another package manager holds a lock of theirs: they say which, and end.
patiently() { # COMMAND...
    local began=$SECONDS held told=
    until logged env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 "$@"; do
        held=$(tail -n 4 "$log" | grep -Eom 1 'Could not get lock .*|dpkg .*locked by another process.*') || return 1
        [ $((SECONDS - began)) -lt "$LOCK_TIMEOUT_S" ] || return 1
        [ "$held" = "$told" ] || echo "  waiting for another package manager: $held"
        told=$held
        logged sleep 2
    done
}

apt() {
    patiently apt-get --yes --no-install-recommends "$@"
}

install_python() {
    local began=$SECONDS version
    command -v apt-get >/dev/null ||
        die "no Python 3.11 to 3.14 with venv is installed, and this system has no apt-get" \
            "Install one of them by hand, then run again."
    patiently dpkg --configure -a || true
    # One broken source among several is no reason to stop: the installation decides.
    apt update || true
    apt install python3 python3-venv || true
    for version in 3.14 3.13 3.12 3.11; do
        find_python >/dev/null && break
        apt install "python$version" "python$version-venv" || true
    done
    find_python >/dev/null ||
        failed "no Python 3.11 to 3.14 with venv could be installed" "Check the network and the package sources."
    step python "installed $($(find_python) --version)" "$began"
}

require_disk() {
    local free_mb
    free_mb=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge "$VENV_MB" ] ||
        die "not enough disk: .venv needs $VENV_MB MB in $root, $free_mb MB are free" "Make room, then run again."
    echo "  disk            .venv needs $VENV_MB MB, $free_mb MB are free"
}

install_package() { # WANTED_STAMP
    local began=$SECONDS python
    mkdir -p "$root/.build"
    exec 9>"$root/.build/python.lock"
    if ! flock -n 9; then
        echo "  waiting for another build.sh in this clone"
        logged flock -w "$LOCK_TIMEOUT_S" 9 || die "another build.sh does not end" "End it, then run again."
        if [ "$(cat "$stamp" 2>/dev/null)" = "$1" ]; then
            exec 9>&-
            return
        fi
    fi
    : >"$log"
    require_disk
    # Without its stamp an environment was interrupted; one of another place has that place's paths in it.
    if [ "$(tail -n 1 "$stamp" 2>/dev/null)" != "$root" ] || ! [ -x "$venv/bin/python" ]; then
        find_python >/dev/null || install_python
        python=$(find_python)
        rm -rf "$venv"
        logged "$python" -m venv "$venv" || failed "no Python environment could be made with $python" "Run again."
    fi
    rm -f "$stamp"
    logged "$venv/bin/python" -m pip install --no-input --disable-pip-version-check \
        --constraint "$root/constraints.txt" --editable "$root" ||
        failed "the Python packages could not be installed" \
            "Check the network (a proxy is taken from HTTPS_PROXY, its certificate from PIP_CERT)."
    printf '%s\n' "$1" >"$stamp.partial"
    mv "$stamp.partial" "$stamp"
    exec 9>&-
    step .venv "$("$venv/bin/python" --version), containernet-env and what it needs" "$began"
}

case "${1-}" in
-h | --help)
    usage
    exit 0
    ;;
'' | --) ;;
*)
    usage >&2
    exit 2
    ;;
esac

[ "$(id -u)" -eq 0 ] || die "the set-up needs root: it installs packages and starts the Docker engine" "Run: sudo $0 $*"
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 15' TERM

wanted=$(cat "$root"/{pyproject.toml,setup.py,constraints.txt} | sha256sum)$'\n'$root
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || ! [ -x "$venv/bin/python" ]; then
    install_package "$wanted"
fi
exec "$venv/bin/containernet-env" setup "$@"
