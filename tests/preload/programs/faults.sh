#!/bin/sh
# usage: faults.sh LIBRARY START. Whatever call of the driver's fails, once or always, the program gets its memory;
# the driver serves what the library can't.
library=$1
start=$2
status=0
for call in cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess cuMemGetAllocationGranularity cuMemUnmap \
    cuMemRelease cuCtxRecordEvent cuEventCreate cuEventQuery cuDeviceTotalMem cuDeviceGetAttribute; do
    for at in 1 1+ 2 5+; do
        for conf in free_sync:strict free_sync:event; do
            if ! env SEGALLOC_SIM="4GiB,fail=$call:$at" "$start" any >/dev/null 2>&1; then
                continue # the program needs the call itself
            fi
            if ! timeout 60 env LD_PRELOAD="$library" SEGALLOC_CONF=$conf SEGALLOC_SIM="4GiB,fail=$call:$at" \
                "$start" any; then
                echo "not so: $conf works where $call fails at $at"
                status=1
            fi
        done
    done
done
exit $status
