/* The books of strict_driver.c: handles, mappings, ranges and events, and the call that is to fail. */
#ifndef STRICT_BOOKS_H
#define STRICT_BOOKS_H

#include <pthread.h>

#include "strict_driver.h"

/* The device whose context is current on this thread. */
extern _Thread_local int strict_current;

enum { HANDLES = 1 << 16, MAPPINGS = 1 << 16, RANGES = 1 << 11, EVENTS = 1 << 14 };

extern struct strict_books {
    pthread_mutex_t mutex;
    int devices;
    uint64_t total, granularity, next_address, host_total;
    struct handle {
        uint64_t bytes;
        int device;
        uint32_t mappings;
        bool held, left; /* not released; a release was made to fail */
    } handle[HANDLES];
    uint32_t handles;
    struct mapping { /* sorted by address */
        CUdeviceptr address;
        uint64_t bytes;
        CUmemGenericAllocationHandle handle;
        uint64_t access; /* bit a device */
        bool stuck;
    } mapping[MAPPINGS];
    uint32_t mappings;
    struct range {
        CUdeviceptr address;
        uint64_t bytes;
        bool live, left;
        uint32_t plain; /* handle of plain memory, 0 of a reservation */
    } range[RANGES];
    uint32_t ranges;
    struct event {
        uint64_t recording;
        bool live, left;
    } event[EVENTS];
    uint32_t events;
    uint64_t recordings, complete;
    uint64_t used[STRICT_DEVICES];
    uint64_t calls, fail_at;
    bool fail_for_ever;
    CUresult fail_with;
    const char *failed;
    unsigned broken;
    char first_broken[200];
} strict;

/* Around each look at the books; the latter returns `result`. */
void strict_enter(void);
CUresult strict_leave(CUresult result);

/* The number of the first mapping that ends after `address`. */
uint32_t strict_first_mapping(CUdeviceptr address);

/* The live range that holds some addresses, and a handle that is held or mapped; NULL: none. */
struct range *strict_range_around(CUdeviceptr address, uint64_t bytes);
struct handle *strict_handle_of(CUmemGenericAllocationHandle handle);

#endif
