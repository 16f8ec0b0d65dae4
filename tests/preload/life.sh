#!/bin/sh
# usage: life.sh LIBRARY LIFE TRACE_COUNTS. What is left of a process that uses CUDA, by how it ends.
library=$1
life=$2
counts=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

fault() {
    echo "not so: $*"
    status=1
}

run() {
    rm -f "$work"/*
    LD_PRELOAD=$library SEGALLOC_TRACE=$work/trace SEGALLOC_STATS=$work/stats "$life" "$1" 2>"$work.err"
    code=$?
    cat "$work.err" >&2
    [ "$code" = "$2" ] || fault "$1: exit status $code"
    grep -qv -e "^Killed" -e "^Terminated" "$work.err" && fault "$1: silent"
    rm -f "$work.err"
}

# FILE ALLOCATIONS FREES END
trace() {
    got=$("$counts" "$1")
    [ "$got" = "$2 $3 $4" ] || fault "$1 has $got, not $2 $3 $4"
}

run exit 0
trace "$work/trace" 1001 1001 closed
[ -s "$work/stats" ] || fault "exit: statistics written"
run _exit 0
trace "$work/trace" 1000 1000 killed
[ -s "$work/stats" ] || fault "_exit: statistics written"
run kill 137
trace "$work/trace" 1000 1000 killed
run terminate 143
trace "$work/trace" 1000 1000 killed
[ -s "$work/stats" ] || fault "terminate: statistics written"
run fork_late 0
trace "$work/trace" 2001 2001 closed
[ "$(ls "$work")" = "stats
trace" ] || fault "fork_late: one trace, but $(ls "$work")"
run fork_busy 0
run fork_early 0
[ "$(ls "$work" | grep -c '^trace')" = 2 ] || fault "fork_early: two traces"
for file in "$work"/trace*; do
    trace "$file" 1000 1000 closed
done
run exec 0
[ "$(ls "$work" | grep -c '^trace')" = 2 ] || fault "exec: two traces"
trace "$work/trace" 1000 1000 killed

# Nothing is written unless asked for.
rm -f "$work"/*
(cd "$work" && LD_PRELOAD=$library "$life" exit 2>&1) || fault "silent run"
[ -z "$(ls "$work")" ] || fault "nothing written: $(ls "$work")"
exit $status
