#!/bin/sh
# usage: interrupted.sh LIBRARY INTERRUPTED TRACE_COUNTS HOW. Natively, preloaded, and with all files asked for, which are
# whole at the end.
library=$1
interrupted=$2
counts=$3
how=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

"$interrupted" "$how" >"$work/native" || exit 1
LD_PRELOAD=$library "$interrupted" "$how" >"$work/out" || exit 1
cmp "$work/native" "$work/out" || exit 1
LD_PRELOAD=$library SEGALLOC_TRACE=$work/trace SEGALLOC_STATS=$work/stats SEGALLOC_CONF=oom_report:never \
    "$interrupted" "$how" >"$work/out" || exit 1
cmp "$work/native" "$work/out" || exit 1
case $("$counts" "$work/trace") in
*" closed") ;;
*)
    echo "not so: the trace has $("$counts" "$work/trace")"
    exit 1
    ;;
esac
[ -s "$work/stats" ] || {
    echo "no statistics"
    exit 1
}
