#!/bin/sh
# usage: filtered.sh LIBRARY FILTERED. A program that confines itself after its first use of CUDA, as it goes natively; and
# files that it can't write any more end with a line that says why.
library=$1
filtered=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
# In a thread that first allocates while another one does, glibc asks how many processors there are, and ends the process
# where it may not: the simulated driver's threads do that.
export MALLOC_ARENA_MAX=1

"$filtered" refuse >"$work/out" 2>&1
[ $? = 77 ] && exit 77
confs="free_sync:auto expandable_segments:False reserve_slack:1.0 free_sync:event free_sync:stream trim_idle_s:0.05"
for how in refuse kill; do
    "$(dirname "$0")"/same.sh "$library" "$confs" "$filtered" $how || status=1
done
SEGALLOC_CONF=oom_report:never,trace:$work/trace LD_PRELOAD=$library "$filtered" refuse >"$work/traced" 2>"$work/err"
if ! cmp -s "$work/out" "$work/traced" || [ "$(wc -l <"$work/err")" != 1 ] ||
    ! grep -q 'the operation is not permitted; the trace ends here' "$work/err"; then
    echo "not so: one line says why the trace ends, but:"
    cat "$work/err"
    status=1
fi
exit $status
