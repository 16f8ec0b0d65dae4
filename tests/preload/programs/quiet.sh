#!/bin/sh
# usage: quiet.sh LIBRARY NO_CUDA. Programs that don't use CUDA are the same with the library as without.
library=$1
no_cuda=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/there" || exit 1
cd "$work/there" || exit 1
status=0

same() {
    "$@" >"$work/out" 2>"$work/err" </dev/null
    native=$?
    env LD_PRELOAD="$library" SEGALLOC_TRACE="$work/there/trace" SEGALLOC_STATS="$work/there/stats" \
        SEGALLOC_CONF=no_such_option:1 "$@" >"$work/out2" 2>"$work/err2" </dev/null
    if [ $? != $native ] || ! cmp -s "$work/out" "$work/out2" || ! cmp -s "$work/err" "$work/err2"; then
        echo "differs: $*"
        cat "$work/err2"
        status=1
    fi
    if [ -n "$(ls -A "$work/there")" ]; then
        echo "left a file: $*"
        status=1
    fi
}

same bash -c true
same bash -c 'exit 3'
same bash -c 'echo $(ls /); (exit 1) | cat'
same git --version
same ls /
same ls /no/such/file
if command -v python3 >/dev/null; then
    same python3 -c pass
    same python3 -c 'import os; print(len(os.listdir("/proc/self/task")))'
    same python3 -c 'import os; pid = os.fork(); os._exit(0) if pid == 0 else os.wait(); print(os.system("true"))'
    same python3 -c 'import ctypes; print(ctypes.CDLL(None).no_such_symbol)'
fi

LD_PRELOAD=$library "$no_cuda" || status=1

# Only shown: a timing is no test.
start_up() {
    before=$(date +%s%N)
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        env "$@" true
    done
    echo $((($(date +%s%N) - before) / 20000))
}
native=$(start_up A=b)
echo "start-up: $(($(start_up LD_PRELOAD="$library") - native)) us for env and true, two programs"
exit $status
