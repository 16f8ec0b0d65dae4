#!/bin/sh
# usage: conf.sh LIBRARY START. What the configuration does in a process that uses CUDA.
library=$1
start=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# EXPECTED_STATUS LINES_ON_STDERR SERVED VARIABLE=VALUE…
try() {
    code=$1
    lines=$2
    served=$3
    shift 3
    env LD_PRELOAD="$library" "$@" "$start" "$served" >"$work/out" 2>"$work/err"
    got=$?
    if [ $got != "$code" ] || [ "$(wc -l <"$work/err")" != "$lines" ] || [ -s "$work/out" ]; then
        echo "not so: $* gives $code and $lines lines, but $got and:"
        cat "$work/err"
        status=1
    fi
}

try 0 0 served A=b
try 0 1 passed CUDA_INJECTION64_PATH=/no/such/tool.so
try 0 0 served CUDA_INJECTION64_PATH=
try 0 0 passed SEGALLOC_CONF=backend:cudaMallocAsync
try 0 0 passed PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
try 0 0 served PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync SEGALLOC_CONF=backend:native
try 0 1 served SEGALLOC_CONF=max_splitsize_mb:128
try 0 2 served SEGALLOC_CONF=max_splitsize_mb:128,reserve_slack:0.5
try 125 1 served SEGALLOC_CONF=max_splitsize_mb:128,abort_conf:True
try 0 1 served SEGALLOC_CONF_FILE="$work/none"
echo "oom_report:never # a comment" >"$work/conf"
try 0 0 served SEGALLOC_CONF_FILE="$work/conf"
options=$(grep -c '^OPTION' "$(dirname "$0")/../../../src/config/options.def")
try 0 "$options" served SEGALLOC_CONF=confirm_conf:True
try 0 "$options" served SEGALLOC_CONF=confirm_conf:True,reserve_slack:1.02
grep -q '^segalloc: reserve_slack:1.02 (SEGALLOC_CONF)$' "$work/err" || {
    echo "not so: each option is said with its value, but:"
    cat "$work/err"
    status=1
}
try 0 1 served SEGALLOC_TRACE="$work/conf/below/trace"
try 0 1 served SEGALLOC_STATS="$work/conf/below/stats"
exit $status
