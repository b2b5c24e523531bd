#!/usr/bin/env bash
# Every test and lint of the project, after setting up what they need.
set -uo pipefail

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$root" || exit 3

usage() {
    cat <<'TEXT'
Usage: sudo ./check.sh [RING ...]

Sets the machine up (build.sh), installs the tools for development into .venv, then runs the named rings of tests, or
all of the first table. None of them judges time, so rings that use the cores run beside those that use the engine.
  lint    ruff, mypy, shellcheck, gofmt, go vet; no gating test judges time
  exact   simulated time, seeded: go test, tests/unit, tests/input
  local   real processes and sockets, no root: go test -tags plumbing, tests/local
  root    network namespaces and links of this machine: go test -tags root, tests/root
  docker  runs with containers: tests/docker, but for those tests that take longest
  faults  runs that meet real faults, one of each mechanism: tests/faults
  vm      netem, Open vSwitch and cgroup v2 in an emulated machine (QEMU): where the files that it proves have changed
and only by name:
  docker-all  the docker ring with the tests that take longest
  faults-all  each fault at every moment of a run, in under half an hour
  seeds       the searches of the exact class over many more seeds
  soak        an hour of quick runs: what grows
  measure     figures in real time, beside the last ones of this machine; nothing is judged
One line per step; the output of a step that fails is shown, all of it is in .build/. The environment variable
CONTAINERNET_ENV_SEED (a number) gives the exact class other seeds. Exit status: 0 all passed, 1 something failed,
3 the machine lacks something.
TEXT
}

readonly ALL=(lint exact local root docker faults vm)
readonly BY_NAME=(docker-all faults-all seeds soak measure)
# In the background, shells ignore SIGINT, with nohup SIGHUP: so would the programs that tests end.
readonly PYTEST=(env "--default-signal=INT,HUP" .venv/bin/python -m pytest -q -rs -p no:cacheprovider --durations=25)
readonly GOGC_SHORT=500 # of Go's compiler and tests: with 100, garbage collection takes a fifth of their CPU time
readonly GO_MODULES=(benchmark_image link_emulator disk_emulator replicas_image bench/load/peers tests/docker/small_proxy)
readonly SCRIPTS=(build.sh test.sh check.sh .ci/run tests/vm/inside/boot etcd_image/wait-at-gate
    proxy_image/start-etcd-and-proxy zookeeper_image/start-zookeeper)
readonly LANES=(engine_lane root_lane go_lane python_lane) # side by side
readonly OUTCOMES=.build/check-outcomes

named=("$@")
rings=("$@")
export CONTAINERNET_ENV_SEED=${CONTAINERNET_ENV_SEED:-0}
unset PYTHONDONTWRITEBYTECODE # without compiled modules, each process of pytest takes 8 s of CPU time more
for ring in "$@"; do
    case " ${ALL[*]} ${BY_NAME[*]} -h --help " in
    *" $ring "*) ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    case "$ring" in -h | --help) usage && exit 0 ;; esac
done
[ ${#rings[@]} -gt 0 ] || rings=("${ALL[@]}")

chosen() { # RING
    [[ " ${rings[*]} " == *" $1 "* ]]
}

seconds_since() { # START in the form of EPOCHREALTIME
    awk -v begin="${1/,/.}" -v end="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", end - begin }'
}

outcome() { # passed|failed|skipped|disturbed|ended TEXT
    printf '%s\t%s\n' "$1" "$2" >>"$OUTCOMES"
}

step() { # NAME COMMAND...
    local name=$1 began=$EPOCHREALTIME status=0 log shown
    shift
    log=.build/check-${name//[^A-Za-z0-9]/-}.log
    "$@" </dev/null >"$log" 2>&1 || status=$?
    shown=$(printf '%-36s (%s s)' "$name" "$(seconds_since "$began")")
    grep '^SKIPPED.*disturbed:' "$log" | sed 's/^/disturbed\t/' >>"$OUTCOMES"
    if [ "$status" -eq 0 ]; then
        outcome passed "$name"
        flock "$OUTCOMES" cat <(printf '  ok       %s\n' "$shown") <(pytest_summary "$log")
    else
        outcome failed "$name"
        # One write for each lane, so that no other lane's line stands in it.
        flock "$OUTCOMES" cat "$log" <(printf '  FAILED   %s, exit status %d, log %s\n' "$shown" "$status" "$log")
    fi
}

# pytest's own reasons for skipping and its closing line stay visible.
pytest_summary() { # LOG
    tail -n 1 "$1" | grep -q ' in [0-9.]*s' || return 0
    { grep '^SKIPPED' "$1"; tail -n 1 "$1"; } | sed 's/^/           /'
}

# In a folder of its own: of sessions that end together, pytest lets each remove old folders of the others, and fails.
pytest_step() { # FOLDERS [OPTION...]
    step "pytest $1" "${PYTEST[@]}" --basetemp "$scratch/${1//[^a-z]/-}" "$@"
}

go_in() { # MODULE ARGUMENT...
    local module=$1
    shift
    (cd "$module" && GOFLAGS=-buildvcs=false GOWORK=off GOTOOLCHAIN=local GOGC=$GOGC_SHORT "$go" "$@")
}

gofmt_is_clean() {
    local unformatted
    unformatted=$("$(dirname "$go")/gofmt" -l "${GO_MODULES[@]}" tests/lint) || return 1
    [ -z "$unformatted" ] || { printf 'not formatted by gofmt:\n%s\n' "$unformatted" && return 1; }
}

# Against what hangs: Go's own limit of 10 minutes ends packages that only lack cores.
go_lane() {
    local module
    if chosen lint; then
        step "gofmt" gofmt_is_clean
        for module in "${GO_MODULES[@]}"; do
            step "go vet $module" go_in "$module" vet -tags plumbing,root ./...
        done
        step "go test tests/lint" go_in tests/lint test clocks.go clocks_test.go
        step "go tests judge no time" go_in tests/lint run clocks.go "${GO_MODULES[@]/#/../../}"
    fi
    if chosen local; then # with those of the exact ring
        find_servers
        for module in "${GO_MODULES[@]}"; do
            step "go test -tags plumbing $module" go_in "$module" test -timeout 30m -tags plumbing ./...
        done
        # Its emulator runs in real time. The fuzzer leaves its shared memory behind where it is stopped: not in /tmp.
        mkdir -p .build/fuzz
        step "go fuzz FuzzServe" env TMPDIR="$root/.build/fuzz" GOFLAGS=-buildvcs=false GOWORK=off GOTOOLCHAIN=local \
            "$go" -C link_emulator test -tags plumbing ./systemtest -run '^$' -fuzz '^FuzzServe$' -fuzztime 5000x -parallel 1
        rm -rf .build/fuzz
    elif chosen exact; then
        for module in "${GO_MODULES[@]}"; do
            step "go test $module" go_in "$module" test -timeout 30m ./...
        done
    fi
    if chosen seeds; then
        export CONTAINERNET_ENV_SEEDS=long
        for module in benchmark_image link_emulator; do
            step "go test, many seeds, $module" go_in "$module" test -timeout 2h ./...
        done
    fi
}

# Some tests run etcd's real server.
find_servers() {
    local find_etcd='from containernet_env.base import programs; print(programs.path("etcd"))'
    ETCD_BINARY=$(.venv/bin/python -c "$find_etcd") || exit 3
    export ETCD_BINARY
}

python_lane() {
    if chosen lint; then
        step "ruff check" .venv/bin/ruff check .
        step "ruff format" .venv/bin/ruff format --check .
        step "mypy" .venv/bin/mypy
        step "shellcheck" .venv/bin/shellcheck "${SCRIPTS[@]}"
        pytest_step tests/lint
    fi
    # The order of Python's sets follows its hash seed: with another one, a seed would not replay a failure. The tests
    # that take longest come first.
    ! chosen exact || step "pytest tests/unit tests/input" \
        env PYTHONHASHSEED=0 "GOGC=$GOGC_SHORT" "${PYTEST[@]}" --basetemp "$scratch/exact" -n 2 tests/input tests/unit
    ! chosen local || pytest_step tests/local
    ! chosen seeds || step "pytest, many seeds" \
        env PYTHONHASHSEED=0 CONTAINERNET_ENV_SEEDS=long "${PYTEST[@]}" --basetemp "$scratch/seeds" -n 2 \
        tests/unit tests/input
}

# The ring proves some files: while none of them has changed since it passed, it need not run.
vm() {
    local why log=.build/check-pytest-tests-vm.log
    if [ "${#named[@]}" -eq 0 ] && why=$(.venv/bin/python -m tests.vm.proved); then
        outcome skipped "vm: $why"
        return
    fi
    step "vm: packages and disks" .venv/bin/python -m tests.prepare vm
    pytest_step tests/vm
    if grep -qx "passed	pytest tests/vm" "$OUTCOMES" && grep -q ' passed' "$log" && ! grep -q 'disturbed:' "$log"; then
        .venv/bin/python -m tests.vm.proved --record
    fi
}

# A command with a network, processes and /run of its own: the docker ring counts what is left of those of the machine.
# Bash stays to reap orphans. What the command leaves behind ends with it.
apart() { # COMMAND...
    unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
        mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/cgroup && mount --rbind /sys/fs/cgroup /run/cgroup &&
            mount -t sysfs sysfs /sys && mount --move /run/cgroup /sys/fs/cgroup && ip link set lo up || exit 3
        "$@"
        exit $?' apart "$@"
}

root_lane() {
    chosen root || return 0
    step "go test -tags root link_emulator" apart env GOFLAGS=-buildvcs=false GOWORK=off GOTOOLCHAIN=local \
        "$go" -C link_emulator test -tags root -count=1 -p 1 ./systemtest ./stamp
    step "pytest tests/root" apart "${PYTEST[@]}" --basetemp "$scratch/root" tests/root
}

engine_lane() {
    local marks=(-m "not long") verdicts=tests/docker/test_verdicts.py
    ! chosen docker-all || marks=()
    if chosen docker || chosen docker-all; then pytest_step tests/docker --ignore "$verdicts" "${marks[@]}"; fi
    if chosen faults-all; then pytest_step tests/faults; elif chosen faults; then pytest_step tests/faults -m "not long"; fi
    # Last: beside other rings, their rows say that they share the machine.
    if chosen docker || chosen docker-all; then pytest_step "$verdicts"; fi
    ! chosen soak || step "soak" .venv/bin/python -m tests.faults.soak --minutes 60
}

# A signal ends every lane, whose tests remove what they made; then this script ends by it.
stop() { # STATUS
    trap '' INT TERM
    # SIGTERM for the lanes themselves: in the background, they ignore SIGINT.
    [ ${#lanes[@]} -eq 0 ] || kill -INT -- "${lanes[@]/#/-}" 2>/dev/null
    [ ${#lanes[@]} -eq 0 ] || kill -TERM "${lanes[@]}" 2>/dev/null
    wait
    exit "$1"
}

lanes=()
trap 'stop 130' INT
trap 'stop 143' TERM
began=$EPOCHREALTIME
scratch=$(mktemp -d "${TMPDIR:-/tmp}/check-XXXXXX") || exit 3
trap 'rm -rf --one-file-system "$scratch"' EXIT
./build.sh || exit $?
: >"$OUTCOMES"
stamp=.venv/.dev-installed
wanted=$(cat .venv/.installed)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    step "tools for development" .venv/bin/python -m pip install --no-input --disable-pip-version-check \
        --constraint constraints.txt --editable ".[dev]"
    ! grep -q '^failed' "$OUTCOMES" || exit 3
    printf '%s\n' "$wanted" >"$stamp.partial"
    mv "$stamp.partial" "$stamp"
fi
needed=()
! chosen local || needed+=(local)
if chosen docker || chosen docker-all; then needed+=(docker); fi
[ ${#needed[@]} -eq 0 ] || step "what the tests need" .venv/bin/python -m tests.prepare "${needed[@]}"
go=$(.venv/bin/python -c 'from containernet_env.setup import builds; print(builds.find().path)') || exit 3

# Each lane is a process group. The engine's takes longest and mostly waits: the others leave it the cores.
set -m
for lane in "${LANES[@]}"; do
    {
        trap 'exit 130' INT TERM # once its step has ended: no other one begins
        [ "$lane" = engine_lane ] || renice -n 5 "$BASHPID" >/dev/null
        "$lane"
        outcome ended "$lane"
    } &
    lanes+=($!)
done
set +m
wait "${lanes[@]}"
lanes=()
for lane in "${LANES[@]}"; do
    grep -qx "ended	$lane" "$OUTCOMES" || outcome failed "$lane: it ended before its last step"
done
# Alone: an emulated machine gives up on services that others keep from the cores; figures need the cores, too.
! chosen vm || vm
if chosen measure; then
    if .venv/bin/python -m tests.measure; then outcome passed measure; else outcome failed measure; fi
fi
for ring in "${ALL[@]}" "${BY_NAME[@]}"; do
    chosen "$ring" || outcome skipped "$ring: not named"
done

count() { # passed|failed
    grep -c "^$1" "$OUTCOMES"
}
disturbed=$(awk -F '[][]' '/^disturbed/ { total += $2 } END { print total + 0 }' "$OUTCOMES") # SKIPPED [3] ...
printf '\n%d steps passed, %d failed, %d proofs disturbed, in %s s\n' \
    "$(count passed)" "$(count failed)" "$disturbed" "$(seconds_since "$began")"
grep '^skipped' "$OUTCOMES" | sed 's/^skipped\t/  not run: /'
! grep '^failed' "$OUTCOMES" | sed 's/^failed\t/  failed: /' | grep . || exit 1
