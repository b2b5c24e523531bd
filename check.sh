#!/usr/bin/env bash
# Every test and lint of the project, after setting up what they need.
set -uo pipefail

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$root" || exit 3

usage() {
    cat <<'TEXT'
Usage: sudo ./check.sh [lint] [unit] [input] [root] [docker] [vm] [faults] [docker-all] [faults-all] [soak]

Sets the machine up (build.sh), installs the tools for development into .venv, then runs the rings that are named,
or all of them but the last two:
  lint    ruff, mypy, shellcheck, gofmt, go vet
  unit    go test and tests/unit: no root, no network, no containers
  input   generated bad input: tests/input and Go's fuzzer; 5,000 inputs each, or CONTAINERNET_ENV_INPUTS of them
  root    go test -tags root and tests/root: network namespaces and links of this machine
  docker  tests/docker: containers; but for those tests that take longest
  vm      tests/vm: links by netem, Open vSwitch and cgroup v2, in a virtual machine (QEMU, emulated, no KVM)
  faults  tests/faults: runs that are struck by faults, each fault at one moment of a run
and only by name:
  docker-all  the docker ring with the tests that take longest
  faults-all  each fault at every moment, in under half an hour
  soak        an hour of quick runs: what grows
One line per step; the output of a step that fails is shown, all of it is in .build/. Exit status: 0 all passed,
1 something failed, 3 the machine lacks something.
TEXT
}

readonly ALL=(lint unit input root docker vm faults)
readonly BY_NAME=(docker-all faults-all soak)
readonly PYTEST=(-q -rs -p no:cacheprovider --durations=40)
readonly GO_MODULES=(benchmark_image link_emulator replicas_image bench/load/nethttp bench/load/zookeeper_peer
  tests/docker/small_proxy)
readonly SCRIPTS=(build.sh test.sh check.sh .ci/run tests/vm/inside/boot etcd_image/wait-at-gate
  proxy_image/start-etcd-and-proxy zookeeper_image/start-zookeeper)
passed=0
failed=()
skipped=()

rings=("$@")
for ring in "$@"; do
    case "$ring" in
    lint | unit | input | root | docker | vm | faults | docker-all | faults-all | soak) ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
done
[ ${#rings[@]} -gt 0 ] || rings=("${ALL[@]}")

asked() {
    [[ " ${rings[*]} " == *" $1 "* ]]
}

seconds_since() { # START in the form of EPOCHREALTIME
    awk -v begin="${1/,/.}" -v end="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", end - begin }'
}

step() { # NAME COMMAND...
    local name=$1 began=$EPOCHREALTIME status=0 log
    shift
    log=.build/check-${name//[^A-Za-z0-9]/-}.log
    "$@" </dev/null >"$log" 2>&1 || status=$?
    if [ "$status" -ge 128 ]; then
        cat "$log"
        printf '  stopped  %s\n' "$name"
        exit "$status"
    fi
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        printf '  ok       %-28s (%s s)\n' "$name" "$(seconds_since "$began")"
    else
        failed+=("$name")
        cat "$log"
        printf '  FAILED   %-28s (%s s), exit status %d, log %s\n' "$name" "$(seconds_since "$began")" "$status" "$log"
    fi
    last_log=$log
}

pytest_step() { # RING [OPTION...]
    if ! compgen -G "tests/$1/test_*.py" >/dev/null; then
        skipped+=("pytest tests/$*: no tests there")
        return
    fi
    pytest_report "pytest tests/$*" .venv/bin/python -m pytest "tests/$1" "${PYTEST[@]}" "${@:2}"
}

# pytest's own reasons for skipping and its closing line stay visible.
pytest_report() { # NAME COMMAND...
    local name=$1
    step "$@"
    if [ ${#failed[@]} -eq 0 ] || [ "${failed[-1]}" != "$name" ]; then
        grep '^SKIPPED' "$last_log" | sed 's/^/           /'
        tail -n 1 "$last_log"
    fi
}

# What the vm ring, which has begun before, said and how it ended.
vm_ends() {
    local status=0
    wait "$vm" || status=$?
    cat .build/vm.log
    return "$status"
}

go_in() { # MODULE ARGUMENT...
    local module=$1
    shift
    (cd "$module" && GOFLAGS=-buildvcs=false GOWORK=off GOTOOLCHAIN=local "$go" "$@")
}

gofmt_is_clean() {
    local unformatted
    unformatted=$("$(dirname "$go")/gofmt" -l "${GO_MODULES[@]}") || return 1
    [ -z "$unformatted" ] || { printf 'not formatted by gofmt:\n%s\n' "$unformatted" && return 1; }
}

# The fuzzer leaves its shared memory behind where it is stopped: in .build, and not in /tmp.
fuzz() { # MODULE PACKAGE TARGET WORKERS
    local files
    files=$(mktemp -d -p .build) || return
    step "go fuzz $3" env TMPDIR="$root/$files" GOFLAGS=-buildvcs=false GOWORK=off GOTOOLCHAIN=local \
        "$go" -C "$1" test "$2" -run '^$' -fuzz "^$3\$" -fuzztime "${CONTAINERNET_ENV_INPUTS:-5000}x" -parallel "$4"
    rm -rf "$files"
}

# A tool that handles the signal itself ends with a status of its own, and the next one must not begin.
trap 'exit 130' INT
trap 'exit 143' TERM

began=$EPOCHREALTIME
./build.sh || exit $?
stamp=.venv/.dev-installed
wanted=$(cat .venv/.installed)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    step "tools for development" .venv/bin/python -m pip install --no-input --disable-pip-version-check \
        --constraint constraints.txt --editable ".[dev]"
    [ ${#failed[@]} -eq 0 ] || exit 3
    printf '%s\n' "$wanted" >"$stamp.partial"
    mv "$stamp.partial" "$stamp"
fi
go=$(.venv/bin/python -c 'from containernet_env.setup import go; print(go.find().path)') || exit 3

# Packages and disks take a minute; the emulated machine is busy for minutes and judges times coarsely. Both are beside
# rings that judge none. The machine's tests end with this script, and what makes it ready with the shell between.
if asked vm; then
    # shellcheck disable=SC2016 # the shell between expands them
    setpriv --pdeathsig TERM bash -c 'setpriv --pdeathsig TERM "$1" -m tests.vm.prepare && exec "$@"' \
        bash .venv/bin/python -m pytest tests/vm "${PYTEST[@]}" </dev/null >.build/vm.log 2>&1 &
    vm=$!
    trap 'kill "$vm" 2>/dev/null' EXIT
fi

if asked lint; then
    step "ruff check" .venv/bin/ruff check .
    step "ruff format" .venv/bin/ruff format --check .
    step "mypy" .venv/bin/mypy
    step "shellcheck" .venv/bin/shellcheck "${SCRIPTS[@]}"
    step "gofmt" gofmt_is_clean
    for module in "${GO_MODULES[@]}"; do
        step "go vet $module" go_in "$module" vet ./...
    done
    step "go vet -tags root" go_in link_emulator vet -tags root ./...
fi
if asked unit; then
    # Some tests run the real server.
    find_etcd='from containernet_env.base import programs; print(programs.path("etcd"))'
    ETCD_BINARY=$(.venv/bin/python -c "$find_etcd") || exit 3
    export ETCD_BINARY
    # And ZooKeeper's, where Debian's package is installed (apt-get install zookeeper) or the variable names another one.
    if [ -z "${ZOOKEEPER_CLASSPATH:-}" ] && [ -e /usr/share/java/zookeeper.jar ]; then
        export ZOOKEEPER_CLASSPATH=/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar
    fi
    # Those that run at the same time mostly wait, so more of them than there are cores.
    for module in "${GO_MODULES[@]}"; do
        step "go test $module" go_in "$module" test -parallel 8 ./...
    done
    pytest_step unit
fi
if asked input; then
    pytest_step input
    fuzz benchmark_image ./internal/api FuzzRequest 2
    fuzz benchmark_image ./internal/api FuzzHost 2
    fuzz benchmark_image ./internal/spec FuzzParseBody 2
    fuzz benchmark_image ./internal/allow FuzzParse 2
    fuzz benchmark_image ./internal/http1 FuzzAnswers 2
    fuzz benchmark_image ./internal/http1 FuzzConn 2
    fuzz benchmark_image ./internal/store/zookeeper FuzzConn 2
    fuzz benchmark_image ./internal/store/zookeeper FuzzPieces 2
    fuzz benchmark_image ./internal/store/zookeeper/jute FuzzAnswer 2
    fuzz benchmark_image ./internal/store/zookeeper/jute FuzzPath 2
    fuzz link_emulator ./control FuzzServe 1 # its emulator keeps a core busy
fi
if asked vm; then
    pytest_report "pytest tests/vm" vm_ends
    trap - EXIT
fi
if asked root; then
    # One package at a time: they share the machine's processors, and some of them measure.
    step "go test -tags root" go_in link_emulator test -tags root -count=1 -p 1 ./...
    pytest_step root
fi
if asked docker-all; then
    pytest_step docker
elif asked docker; then
    pytest_step docker -m "not long"
fi
if asked faults-all; then
    pytest_step faults
elif asked faults; then
    pytest_step faults -m "not long"
fi
if asked soak; then
    step "soak" .venv/bin/python -m tests.faults.soak --minutes 60
fi
for ring in "${ALL[@]}" "${BY_NAME[@]}"; do
    asked "$ring" || skipped+=("$ring: not asked for")
done

printf '\n%d steps passed, %d failed in %s s\n' "$passed" "${#failed[@]}" "$(seconds_since "$began")"
[ ${#skipped[@]} -eq 0 ] || printf '  not run: %s\n' "${skipped[@]}"
[ ${#failed[@]} -eq 0 ] || { printf '  failed: %s\n' "${failed[@]}" && exit 1; }
