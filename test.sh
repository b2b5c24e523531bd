#!/bin/bash
# The main job: set up what is missing, then measure.
set -euo pipefail
# Also where it is empty; build.sh adds more.
export PATH="${PATH:+$PATH:}/usr/bin:/bin"

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

usage() {
    cat <<'TEXT'
Usage: sudo ./test.sh CONFIG OUT [OPTION ...]

Sets the machine up (build.sh), brings the topology of CONFIG up, runs the scenario matrix and appends one row per
scenario to the CSV file OUT. OPTIONs are those of `containernet-env run`, for example:

    sudo ./test.sh configs/3node-3ms.json out.csv --quick

Exit status: 0 done, 1 the run failed, 2 usage or config, 3 the machine lacks something, 130 and 143 interrupted.
TEXT
}

case "${1-}" in
-h | --help)
    usage
    exit 0
    ;;
esac
if [ $# -lt 2 ]; then
    usage >&2
    exit 2
fi

# One process from here to the end: a signal always meets what runs.
exec "$root/build.sh" -- run "$@"
