/* One of several processes on a card, told by its standard input what to do, a word a line:
     take MIB    allocates; says "taken", or "refused"
     give        frees what was taken last; says "given"
     hold        says how many MiB are reserved
     free        says how many MiB the device has left, by the driver alone
   A line that it doesn't know ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"
#include "served.h"

enum { BLOCKS = 64, MIB_BYTES = 1 << 20 };

int main(void)
{
    static void *blocks[BLOCKS];
    int count = 0, size;
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "take %d", &size) == 1 && count < BLOCKS) {
            int result = cudaMalloc(&blocks[count], (size_t)size * MIB_BYTES);
            count += result == cudaSuccess;
            puts(result == cudaSuccess ? "taken" : "refused");
        } else if (strcmp(line, "give\n") == 0 && count > 0) {
            puts(cudaFree(blocks[--count]) == cudaSuccess ? "given" : "not given");
        } else if (strcmp(line, "hold\n") == 0) {
            printf("%llu\n", (unsigned long long)statistic(0, "reserved_bytes") / MIB_BYTES);
        } else {
            break;
        }
        fflush(stdout);
    }
    return failures;
}
