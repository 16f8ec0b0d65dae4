/* Structures of the loaded PyTorch, by its release.

   Why a table. DeviceStats and SnapshotInfo are C++ structures without a version. A field that was read at the wrong
   place would be a wrong figure, or a crash.

   How. The release is read from version.py beside PyTorch's libraries. A build on the way to a release ("2.12.0a0+git")
   counts as unknown.

   For example, version.py says '2.11.0+cu130'. The row for 2.11 and 2.12 has no map between the counts, and
   setUseOnOOM() stands three entries before shareIpcHandle(). With 2.13 the map has 32 bytes. */
#ifndef SG_TORCH_LAYOUT_H
#define SG_TORCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

struct sg_torch_layout {
    unsigned from, to; /* releases 2.N */
    size_t map_bytes;  /* between the counts of its statistics (torch_counts.h) */
    bool snapshot;     /* the structures of its snapshot are those of torch_snapshot.c */
    bool retries_in_pools; /* memory is given back and asked for again while a pool is allocated for, but for captures */
    int spare_pool;    /* how far setUseOnOOM() stands before shareIpcHandle() in the table of functions; 0: unknown */
};

/* The layout of the release that the library with `code` is of; NULL: not known. `version` gets the text. */
const struct sg_torch_layout *sg_torch_layout(const void *code, char *version, size_t size);

/* The releases that are known. */
unsigned sg_torch_layout_first(void);
unsigned sg_torch_layout_last(void);

#endif
