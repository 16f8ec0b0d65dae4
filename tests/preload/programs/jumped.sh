#!/bin/sh
# usage: jumped.sh LIBRARY JUMPED. The process ends, wherever in the library a handler's long jump left it.
library=$1
jumped=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for who in self other; do
    for i in 1 2 3 4 5; do
        rm -f "$work"/*
        SEGALLOC_TRACE=$work/trace SEGALLOC_STATS=$work/stats LD_PRELOAD=$library timeout 30 "$jumped" $who $((i * 731))
        code=$?
        if [ $code != 7 ]; then
            echo "not so: $who ends the process in time with status 7, but $code"
            exit 1
        fi
    done
done
