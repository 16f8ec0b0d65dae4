/* The tags of memory in a trace: what each had, and how often it was paused.

   Nouns. A *tag* is a name under which the program pauses memory (docs/pause.md). A block of a paused tag is alive, and takes
   nothing of the device.

   How. A TAG names the tag of its thread's next allocation, a TAG_PAGES the bytes of a tag's pages. A PAUSE or RESUME takes effect
   at the PAUSE_END of its thread. All figures are sums over the devices.

   For example, 3 MiB of "kv" are allocated, in 4 MiB of pages, and paused: peak_requested 3 MiB, peak_reserved 4 MiB, pauses 1. The
   device's live bytes fall by 3 MiB. */
#ifndef SG_ANALYSIS_TAGS_H
#define SG_ANALYSIS_TAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

enum { SG_TAG_BOOK_TAGS = 32, SG_TAG_BOOK_NAME = 64 };

struct sg_tag_row {
    char name[SG_TAG_BOOK_NAME]; /* "": the trace has no such tag */
    bool discard;                /* a pause saves no contents */
    uint64_t requested, reserved, peak_requested, peak_reserved, peak_saved; /* bytes */
    uint64_t pauses, resumes;
    uint64_t live[SEGALLOC_TRACE_DEVICES], pages[SEGALLOC_TRACE_DEVICES]; /* bytes of each device */
    uint64_t paused;                                                      /* devices on which it is paused, a bit each */
};

struct sg_tag_book {
    struct sg_tag_row row[SG_TAG_BOOK_TAGS]; /* by number; the first is none */
    uint8_t next[UINT16_MAX + 1];            /* tag of the next allocation of each thread */
    struct {
        uint8_t tag, device;
        uint16_t thread;
        bool pause;
    } order; /* under way; tag 0: none */
};

/* Takes a record about tags in; any other does nothing. `device`: its ordinal. Returns by how much the live bytes of the
   device change: a pause takes them away, a resume brings them back. */
int64_t sg_tag_book_take(struct sg_tag_book *book, const struct segalloc_trace_record *record, uint32_t device);

/* The tag of the allocation that is this record, which is noted. */
uint8_t sg_tag_book_allocate(struct sg_tag_book *book, const struct segalloc_trace_record *record, uint32_t device);

/* Notes a free. True: the block was not paused, so the device's live bytes fall. */
bool sg_tag_book_free(struct sg_tag_book *book, uint8_t tag, uint32_t device, uint64_t size);

#endif
