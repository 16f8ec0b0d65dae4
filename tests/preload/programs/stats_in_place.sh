#!/bin/sh
# usage: stats_in_place.sh LIBRARY PROGRAM SEGALLOC. Statistics are written into what is no regular file, which stays what
# it is; behind a link of one's own they replace the file that it names. `segalloc metrics -o` does the same.
library=$1
program=$2
segalloc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

expect() { # WHAT TEST…
    what=$1
    shift
    "$@" || {
        echo "not so: $what"
        status=1
    }
}

run() {
    SEGALLOC_STATS=$1 LD_PRELOAD=$library "$program" any
}

mkfifo "$work/fifo" "$work/unread"
ln -s /dev/null "$work/null"
echo before >"$work/file"
ln -s file "$work/link"
ln -s /proc/self/fd/1 "$work/stdout"

read_of() { # COMMAND… writes to the FIFO, which has a reader before that; what it holds goes to `got`
    exec 3<>"$work/fifo"
    exec 4<"$work/fifo"
    "$@" 3>&- 4>&-
    exec 3>&-
    cat <&4 >"$work/got"
    exec 4<&-
}

read_of run "$work/fifo"
expect 'a FIFO stays one' [ -p "$work/fifo" ]
expect 'its reader got them' grep -q '"schema":"segalloc.stats/1"' "$work/got"
run "$work/unread" 2>"$work/err"
expect 'a FIFO that nobody reads stays one' [ -p "$work/unread" ]
expect 'and a line says so' grep -q "unread" "$work/err"
run "$work/null"
expect 'a link to a device stays one' [ -L "$work/null" ]
expect 'the device stays one' [ -c /dev/null ]
run "$work/link"
expect 'a link stays one' [ -L "$work/link" ]
expect 'its file is replaced' grep -q '"schema":"segalloc.stats/1"' "$work/file"
(echo mine && run "$work/stdout") >"$work/output"
expect 'output stays' grep -q '^mine' "$work/output"
expect 'and goes on' grep -q '"schema":"segalloc.stats/1"' "$work/output"
expect 'the link stays' [ -L "$work/stdout" ]
read_of "$segalloc" metrics -o "$work/fifo"
expect 'metrics: a FIFO stays one' [ -p "$work/fifo" ]
"$segalloc" metrics -o "$work/null"
expect 'metrics: a link to a device stays one' [ -L "$work/null" ]
"$segalloc" metrics -o "$work/plain"
expect 'metrics: a file is made' [ -f "$work/plain" ]
if ls "$work" | grep -q '\.new$'; then
    echo "not so: nothing is left behind"
    status=1
fi
exit $status
