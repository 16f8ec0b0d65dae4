#!/bin/sh
# Runs a program under the library in $PRELOAD. Usage: says.sh PATTERN PROGRAM ARGUMENT…
# It is to succeed, and to say one line of the library's, which has PATTERN.
set -eu
pattern=$1
shift
lines=$(LD_PRELOAD=$PRELOAD "$@" 2>&1 >/dev/null) || { echo "$lines"; exit 1; }
echo "$lines"
[ "$(echo "$lines" | grep -c '^segalloc: ')" = 1 ]
echo "$lines" | grep -q "^segalloc: .*$pattern"
