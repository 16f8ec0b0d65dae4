#include "torch_feed.h"

#include <errno.h>
#include <stdlib.h>

#include "meta.h"
#include "torch_hash.h"

/* A live block by the id that the trace gives it. */
struct entry {
    uint64_t id;
    struct sg_torch_block *block;
    struct entry *next; /* spare ones */
    UT_hash_handle hh;
};

struct sg_torch_feed {
    struct sg_torch *torch;
    struct entry *live, *spare;
};

struct sg_torch_feed *sg_torch_feed_create(struct sg_torch *torch)
{
    struct sg_torch_feed *feed = sg_meta_noted(calloc(1, sizeof *feed));
    if (feed)
        feed->torch = torch;
    return feed;
}

void sg_torch_feed_destroy(struct sg_torch_feed *feed)
{
    if (!feed)
        return;
    struct entry *entry = feed->live, *next;
    HASH_CLEAR(hh, feed->live);
    for (; entry; entry = next) {
        next = entry->hh.next;
        free(entry);
    }
    for (entry = feed->spare; entry; entry = next) {
        next = entry->next;
        free(entry);
    }
    free(feed);
}

static struct entry *find(const struct sg_torch_feed *feed, uint64_t id)
{
    struct entry *entry;
    HASH_FIND(hh, feed->live, &id, sizeof id, entry);
    return entry;
}

static void drop(struct sg_torch_feed *feed, struct entry *entry)
{
    entry->next = feed->spare;
    feed->spare = entry;
}

static int allocate(struct sg_torch_feed *feed, const struct segalloc_trace_record *record)
{
    if (find(feed, record->id))
        return -EEXIST;
    struct entry *entry = feed->spare;
    if (entry)
        feed->spare = entry->next;
    else
        entry = sg_meta_noted(malloc(sizeof *entry));
    if (!entry)
        return -ENOMEM;
    int error = sg_torch_alloc(feed->torch, record->size, record->stream, &entry->block);
    if (error) {
        drop(feed, entry);
        return error;
    }
    entry->id = record->id;
    HASH_ADD(hh, feed->live, id, sizeof entry->id, entry);
    if (!entry->hh.tbl) {
        sg_torch_free(feed->torch, entry->block);
        drop(feed, entry);
        return -ENOMEM;
    }
    return 0;
}

static int play(struct sg_torch_feed *feed, const struct segalloc_trace_record *record)
{
    struct entry *entry;
    switch (record->kind) {
    case SEGALLOC_RECORD_ALLOCATE:
        return allocate(feed, record);
    case SEGALLOC_RECORD_FREE:
        entry = find(feed, record->id);
        if (entry) {
            sg_torch_free(feed->torch, entry->block);
            HASH_DELETE(hh, feed->live, entry);
            drop(feed, entry);
        }
        return 0;
    case SEGALLOC_RECORD_RECORD_STREAM:
        entry = find(feed, record->id);
        return entry ? sg_torch_record_stream(feed->torch, entry->block, record->stream) : 0;
    case SEGALLOC_RECORD_EMPTY_CACHE:
        sg_torch_empty_cache(feed->torch);
        return 0;
    default:
        return 0;
    }
}

int sg_torch_feed(struct sg_torch_feed *feed, const struct segalloc_trace_record *records, size_t count,
                  size_t *ret_done)
{
    int error = 0;
    size_t done = 0;
    while (done < count && (error = play(feed, &records[done])) == 0)
        done++;
    *ret_done = done;
    return error;
}
