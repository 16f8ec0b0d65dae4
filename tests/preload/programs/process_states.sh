#!/bin/sh
# usage: process_states.sh LIBRARY PROGRAM TRACE_COUNTS. What is left of a process that uses CUDA, by how it ends.
library=$1
program=$2
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
    LD_PRELOAD=$library SEGALLOC_TRACE=$work/trace SEGALLOC_STATS=$work/stats "$program" "$1" 2>"$work.err" &
    process=$!
    wait $process 2>/dev/null
    code=$?
    cat "$work.err" >&2
    [ "$code" = "$2" ] || fault "$1: exit status $code"
    grep -qv -e "^Killed" -e "^Terminated" -e "^Aborted" -e "^Segmentation fault" "$work.err" && fault "$1: silent"
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
for how in abort:134 fault:139 quick_exit:5; do
    run "${how%:*}" "${how#*:}"
    trace "$work/trace" 1000 1000 killed
    [ -s "$work/stats" ] || fault "$how: statistics written"
done
for how in thread last_thread; do
    run $how 0
    trace "$work/trace" 1000 1000 closed
done
run lone_children 0
trace "$work/trace" 2000 2000 closed
[ "$(ls "$work")" = "stats
trace" ] || fault "lone_children: one trace, but $(ls "$work")"
run children_and_kill 137
trace "$work/trace" 1000 1000 killed
grep -q "\"pid\":$process," "$work/stats" || fault "children_and_kill: the statistics are the process's own"
LD_PRELOAD=$library SEGALLOC_CONF=live:True "$program" live_children || fault "live_children: the page went with a child"
run children 0
case $("$counts" "$work/trace") in
*" closed") ;;
*) fault "children: $("$counts" "$work/trace")" ;;
esac
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
(cd "$work" && LD_PRELOAD=$library "$program" exit 2>&1) || fault "silent run"
[ -z "$(ls "$work")" ] || fault "nothing written: $(ls "$work")"
exit $status
