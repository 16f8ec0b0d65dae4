#!/bin/sh
# usage: compare.sh PROGRAM [LIBRARY CONF...]. Runs PROGRAM, which must succeed and find every fact true; with LIBRARY
# again with that preloaded, once for each configuration, and its output and exit status must be the same.
program=$1
library=${2-}
[ $# -lt 2 ] || shift 2
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
for conf; do
    LD_PRELOAD=$library SEGALLOC_CONF=oom_report:never,$conf "$program" >"$work/preloaded" 2>&1 </dev/null
    preloaded=$?
    if ! diff -U2 "$work/native" "$work/preloaded" || [ $native != $preloaded ]; then
        echo "preloaded with $conf: exit status $preloaded"
        exit 1
    fi
done
