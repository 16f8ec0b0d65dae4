/* What a program had in use where a card was full. */
#include <stdlib.h>
#include <string.h>

#include "reader/dictionary.h"
#include "idmap.h"
#include "rehearse/rehearse.h"
#include "reader/trace_reader.h"

struct block {
    uint64_t bytes, key; /* blocks of one key are told together */
    uint32_t site;
    bool alive;
};

struct pass {
    struct sg_dictionary dictionary;
    struct sg_idmap live; /* id -> index in `block`, from 1 */
    struct block *block;
    uint32_t blocks, room;
    uint32_t device;
    uint64_t events;
};

static uint32_t device_of(const struct pass *pass, const struct segalloc_trace_record *record)
{
    return sg_dictionary_stream(&pass->dictionary, record->stream)->device;
}

static bool take(struct pass *pass, const struct segalloc_trace_record *record)
{
    if (pass->blocks == pass->room) {
        uint32_t room = pass->room ? 2 * pass->room : 1024;
        struct block *larger = realloc(pass->block, room * sizeof *larger);
        if (!larger)
            return false;
        pass->block = larger;
        pass->room = room;
    }
    struct block *block = &pass->block[pass->blocks++];
    *block = (struct block){.bytes = record->size, .alive = device_of(pass, record) == pass->device,
        .site = sg_dictionary_thread(&pass->dictionary, record->thread)->site};
    return sg_idmap_put(&pass->live, record->id, pass->blocks);
}

/* False: no host memory, or a record that is none. */
static bool step(struct pass *pass, const struct segalloc_trace_record *record)
{
    if (sg_dictionary_add(&pass->dictionary, record) != 0)
        return false;
    if (record->kind == SEGALLOC_RECORD_FREE) {
        uint64_t number = sg_idmap_take(&pass->live, record->id);
        if (number)
            pass->block[number - 1].alive = false;
    }
    return record->kind != SEGALLOC_RECORD_ALLOCATE || take(pass, record);
}

/* Up to the event, which counts what the program did as a replay does. */
static bool read_until(struct pass *pass, struct sg_trace_reader *reader, uint64_t event)
{
    struct segalloc_trace_record batch[256];
    for (size_t n; (n = sg_trace_read(reader, batch, 256)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            if (batch[i].kind < SEGALLOC_RECORD_DONE && ++pass->events == event)
                return true;
            if (!step(pass, &batch[i]))
                return false;
        }
    }
    return false;
}

static int by_key(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* By the line that asked for them, and where that is not known by their size. */
static void group(struct pass *pass, struct sg_rehearse_in_use in_use[SG_REHEARSE_IN_USE])
{
    const struct sg_site_book *book = &pass->dictionary.book;
    uint32_t alive = 0;
    for (uint32_t i = 0; i < pass->blocks; i++) {
        if (!pass->block[i].alive)
            continue;
        struct block block = pass->block[i];
        block.site = sg_site_book_shown(book, block.site);
        block.key = block.site ? block.site : UINT64_C(1) << 63 | block.bytes;
        pass->block[alive++] = block;
    }
    if (alive)
        qsort(pass->block, alive, sizeof *pass->block, by_key);
    for (uint32_t i = 0, end; i < alive; i = end) {
        struct sg_rehearse_in_use sum = {.each = pass->block[i].site ? 0 : pass->block[i].bytes};
        for (end = i; end < alive && pass->block[end].key == pass->block[i].key; end++) {
            sum.bytes += pass->block[end].bytes;
            sum.blocks++;
        }
        int at = SG_REHEARSE_IN_USE;
        while (at > 0 && in_use[at - 1].bytes < sum.bytes)
            at--;
        if (at == SG_REHEARSE_IN_USE)
            continue;
        memmove(&in_use[at + 1], &in_use[at], (size_t)(SG_REHEARSE_IN_USE - 1 - at) * sizeof *in_use);
        sg_site_book_line(book, pass->block[i].site, sum.site);
        in_use[at] = sum;
    }
}

void sg_rehearse_hold(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_card *card)
{
    struct pass pass = {.device = device};
    memset(card->in_use, 0, sizeof card->in_use);
    if (sg_trace_rewind(reader) == 0 && sg_idmap_init(&pass.live) && read_until(&pass, reader, card->ends_at_event))
        group(&pass, card->in_use);
    sg_idmap_fini(&pass.live);
    sg_dictionary_free(&pass.dictionary);
    free(pass.block);
}
