/* Which structures the loaded PyTorch has, by its release. */
#ifndef SG_TORCH_LAYOUT_H
#define SG_TORCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

struct sg_torch_layout {
    unsigned from, to; /* releases 2.N */
    size_t map_bytes;  /* between the counts of its statistics (torch_counts.h) */
    bool snapshot;     /* the structures of its snapshot are those of torch_snapshot.c */
    int spare_pool;    /* how far setUseOnOOM() stands before shareIpcHandle() in the table of functions; 0: unknown */
};

/* Of the release that `version` names, as the library that has `code` says it; NULL: not known. `version` gets the text. */
const struct sg_torch_layout *sg_torch_layout(const void *code, char *version, size_t size);

/* The releases that are known. */
unsigned sg_torch_layout_first(void);
unsigned sg_torch_layout_last(void);

#endif
