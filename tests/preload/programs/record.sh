#!/bin/sh
# usage: record.sh LIBRARY RECORD TRACE_COUNTS. Traces that a program asks for itself, and what is said of one that is missing.
library=$1
record=$2
counts=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# WHAT TRACE VARIABLE=VALUE…: what segalloc_record() answers, and what is in the trace; TRACE is '' where there is none
try() {
    what=$1
    trace=$2
    shift 2
    env LD_PRELOAD="$library" "$@" "$record" "$what" "$work/trace" || status=1
    found=$([ ! -e "$work/trace" ] || "$counts" "$work/trace")
    if [ "$found" != "$trace" ]; then
        echo "not so: $what leaves '$trace', but '$found'"
        status=1
    fi
    rm -f "$work/trace"
}

try begin '1 1 closed' A=b
try add_places '1 1 closed' SEGALLOC_TRACE="$work/trace"
try come_late '' A=b

# WHAT LINE RUN VARIABLE=VALUE…: what is said at the end of a process whose SEGALLOC_RUN is RUN, with its number for @
miss() {
    what=$1
    line=$2
    run=$3
    shift 3
    sh -c 'what=$1; library=$2; record=$3; run=$4; shift 4
        case $run in @*) run=$$$run ;; esac
        exec env LD_PRELOAD="$library" SEGALLOC_RUN="$run" "$@" "$record" "$what" -' \
        - "$what" "$library" "$record" "$run" "$@" 2>"$work/err" || status=1
    if [ "$(cat "$work/err")" != "$line" ]; then
        echo "not so: $what with $run says '$line', but:"
        cat "$work/err"
        status=1
    fi
}

missing="segalloc: no trace in $work/trace"
why="\`segalloc doctor -- CMD\` says why"
miss nothing "$missing: no device memory was asked for; $why" @0 SEGALLOC_TRACE="$work/trace"
miss allocate "$missing: the driver served all allocations; $why" @0 SEGALLOC_TRACE="$work/trace" \
    SEGALLOC_CONF=backend:cudaMallocAsync
miss nothing '' @0
miss nothing '' 'no number' SEGALLOC_TRACE="$work/trace"
miss nothing '' 1 SEGALLOC_TRACE="$work/trace"
miss nothing '' 1@0 SEGALLOC_TRACE="$work/trace"
miss allocate '' @0 SEGALLOC_TRACE="$work/trace"
miss nothing '' @0 SEGALLOC_TRACE="$work/trace" # that one is there
exit $status
