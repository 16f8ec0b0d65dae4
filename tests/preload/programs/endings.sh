#!/bin/sh
# usage: endings.sh LIBRARY ENDINGS TRACE_COUNTS
library=$1
endings=$2
counts=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for i in 1 2 3 4 5 6 7 8 9 10; do
    rm -f "$work"/*
    SEGALLOC_TRACE=$work/trace SEGALLOC_STATS=$work/stats timeout 20 env LD_PRELOAD="$library" "$endings"
    code=$?
    case $code:$("$counts" "$work/trace") in
    7:*closed) ;;
    *)
        echo "not so: status $code, trace $("$counts" "$work/trace")"
        exit 1
        ;;
    esac
done
