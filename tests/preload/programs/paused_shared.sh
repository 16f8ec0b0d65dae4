#!/bin/sh
# Runs a program under the library in $PRELOAD, which is to succeed, and to say once that part of a tag stays. Usage:
# paused_shared.sh PROGRAM ARGUMENT…
set -eu
lines=$(LD_PRELOAD=$PRELOAD "$@" 2>&1 >/dev/null) || { echo "$lines"; exit 1; }
echo "$lines"
[ "$(echo "$lines" | grep -c 'memory of tag "weights" stays on device 0')" = 1 ]
