#!/bin/sh
# usage: same.sh LIBRARY "CONF CONF…" PROGRAM [ARGUMENT…]. The program prints the same with the library as without,
# under each of the configurations; what it says on stderr natively, and at most one report of running out: one
# exactly if RUNS_OUT is set, unless it is not wanted or the library hands everything on.
library=$1
confs=$2
shift 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

"$@" >"$work/native" 2>"$work/native.err"
native=$?
for conf in $confs; do
    LD_PRELOAD=$library SEGALLOC_CONF=$conf "$@" >"$work/out" 2>"$work/err"
    code=$?
    if [ $code != $native ] || ! cmp -s "$work/native" "$work/out"; then
        echo "differs with \"$conf\": exit status $code, natively $native"
        diff "$work/native" "$work/out"
        status=1
    fi
    reports=$(grep -c '^segalloc: out of memory' "$work/err")
    expected=${RUNS_OUT:-$reports}
    case $conf in oom_report:never | backend:*) expected=0 ;; esac
    if [ "$reports" -gt 1 ] || [ "$reports" != "$expected" ]; then
        echo "running out was reported $reports times with \"$conf\""
        status=1
    fi
    if grep -q 'worst  *0 B in use' "$work/err"; then
        echo "$conf: the report names a page that pins memory where there is none"
        status=1
    fi
    sed -e '/^segalloc: out of memory/d' -e '/^  [a-z]/d' "$work/err" >"$work/rest"
    if ! cmp -s "$work/native.err" "$work/rest"; then
        echo "says more with \"$conf\":"
        cat "$work/rest"
        status=1
    fi
done
exit $status
