#!/bin/sh
# usage: refused.sh LIBRARY REFUSED. Each call of the driver's memory management fails, once or from then on, with each
# error that drivers have been seen to give, and for want of memory: the program does not notice. With alias:on no call is
# made before those that serve it.
library=$1
refused=$2
status=0
for call in cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess cuMemUnmap cuMemRelease; do
    for fault in 1:999 2:600 2:999 2:1 2:101 2:800 2:2 5:999 9:600 9:2 1+:999 2+:2 9+:600 9+:999 9+:1 9+:101 9+:800 \
        9+:2; do
        how=
        case $call:$fault in
        cuMemUnmap:*+* | cuMemRelease:*+*) how=lossy ;;
        cuMemCreate:*+:2) how=full ;;
        esac
        if ! said=$(timeout 60 env LD_PRELOAD="$library" SEGALLOC_SIM="512MiB,fail=$call:$fault" \
            SEGALLOC_CONF=reserve_slack:1.0,alias:on "$refused" $how 2>&1); then
            echo "not so: nothing is noticed under fail=$call:$fault"
            echo "$said"
            status=1
        fi
    done
done
exit $status
