/* What a program had in use where a card was full, and at its peak. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "reader/dictionary.h"
#include "idmap.h"
#include "rehearse/rehearse.h"
#include "reader/trace_reader.h"

struct block {
    uint64_t bytes, key; /* blocks of one key are listed together */
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

/* Room for the group among the largest; NULL: it is none of them. */
static struct sg_rehearse_in_use *add_group(struct sg_rehearse_held *held, const struct sg_rehearse_in_use *sum)
{
    int at = SG_REHEARSE_IN_USE;
    held->bytes += sum->bytes;
    held->blocks += sum->blocks;
    while (at > 0 && held->group[at - 1].bytes < sum->bytes)
        at--;
    if (at == SG_REHEARSE_IN_USE)
        return NULL;
    memmove(&held->group[at + 1], &held->group[at], (size_t)(SG_REHEARSE_IN_USE - 1 - at) * sizeof *sum);
    held->group[at] = *sum;
    return &held->group[at];
}

/* By the line that asked for them, and where that is not known by their size. */
static void group(struct pass *pass, struct sg_rehearse_held *held)
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
        struct sg_rehearse_in_use sum = {.blocks = 0};
        for (end = i; end < alive && pass->block[end].key == pass->block[i].key; end++) {
            sum.bytes += pass->block[end].bytes;
            sum.blocks++;
        }
        struct sg_rehearse_in_use *added = add_group(held, &sum);
        if (added)
            sg_site_book_line(book, pass->block[i].site, added->site);
    }
}

void sg_rehearse_hold(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_card *card)
{
    struct pass pass = {.device = device};
    card->held = (struct sg_rehearse_held){.blocks = 0};
    if (sg_trace_rewind(reader) == 0 && sg_idmap_init(&pass.live) && read_until(&pass, reader, card->ends_at_event))
        group(&pass, &card->held);
    sg_idmap_fini(&pass.live);
    sg_dictionary_free(&pass.dictionary);
    free(pass.block);
}

static int by_site(const void *a, const void *b)
{
    const struct sg_group *x = a, *y = b;
    int order = x->site && y->site ? strcmp(x->site, y->site) : (x->site != NULL) - (y->site != NULL);
    return order ? order : x->site ? 0 : (int)x->size_class - (int)y->size_class;
}

void sg_rehearse_hold_peak(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_held *ret)
{
    struct sg_groups groups;
    *ret = (struct sg_rehearse_held){.blocks = 0};
    bool known = sg_trace_rewind(reader) == 0 && sg_groups_read(reader, SG_MOMENT_PEAK, 0, &groups) == 0;
    if (known && groups.count)
        qsort(groups.group, groups.count, sizeof *groups.group, by_site);
    for (size_t i = 0, end; known && i < groups.count; i = end) {
        struct sg_rehearse_in_use sum = {.blocks = 0};
        for (end = i; end < groups.count && by_site(&groups.group[i], &groups.group[end]) == 0; end++) {
            bool own = groups.group[end].device == device;
            sum.bytes += own ? groups.group[end].bytes : 0;
            sum.blocks += own ? groups.group[end].blocks : 0;
        }
        if (groups.group[i].site)
            snprintf(sum.site, sizeof sum.site, "%s", groups.group[i].site);
        if (sum.blocks)
            add_group(ret, &sum);
    }
    if (known)
        sg_groups_free(&groups);
}
