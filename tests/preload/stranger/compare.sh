#!/bin/sh
# usage: compare.sh PROGRAM [LIBRARY]. Runs PROGRAM, which must succeed and find every fact true; with LIBRARY once more
# with that preloaded, and its output and exit status must be the same.
program=$1
library=${2-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$program" >"$work/native" 2>&1 </dev/null
native=$?
if [ $native != 0 ] || grep -E ': no$|^[1-9][0-9]* wrong|, [1-9][0-9]* wrong' "$work/native"; then
    cat "$work/native"
    echo "native: exit status $native"
    exit 1
fi
[ -n "$library" ] || exit 0
LD_PRELOAD=$library SEGALLOC_CONF=oom_report:never "$program" >"$work/preloaded" 2>&1 </dev/null
preloaded=$?
if ! diff -U2 "$work/native" "$work/preloaded" || [ $native != $preloaded ]; then
    echo "preloaded: exit status $preloaded"
    exit 1
fi
