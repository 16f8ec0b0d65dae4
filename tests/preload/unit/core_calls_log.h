/* Logs of core_calls: text, a line a call. "program N: …" begins a program. */
#ifndef CORE_CALLS_LOG_H
#define CORE_CALLS_LOG_H

#include <stdbool.h>
#include <stddef.h>

struct log {
    char *text;
    size_t length;
};

/* Read from a file into memory that the caller frees, and written there. False: it can't be, or is empty. */
bool read_log(const char *path, struct log *ret);
bool write_log(const char *path, const struct log *log);

/* Returns how many lines differ. Prints the first to standard error with those before it, or all. For example:

     program 7: free_sync stream
       cuEventQuery 2080: driver -> 0
     - cuMemFree_v2 >>>4110000<<<: free(4110000 context 3000, stream) tick(0) -> 0
     + cuMemFree_v2 >>>4100000<<<: free(4110000 context 3000, stream) tick(0) -> 0

   Lines that are new or gone are passed over until the logs are alike again. */
int compare_logs(const struct log *wanted, const struct log *got, bool all);

#endif
