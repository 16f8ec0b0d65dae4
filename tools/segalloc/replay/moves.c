#include "inspect/core_state.h"
#include "replay/moves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/symbols.h"
#include "idmap.h"
#include "live_groups.h"
#include "reader/dictionary.h"
#include "replay/playback.h"

/* Places of a key's parts, of 64 bits. */
enum { CLASS_AT = 0, SITE_AT = 7, PHASE_AT = 27 };

struct moved {
    uint64_t pages, bytes;
};

struct watcher {
    struct sg_moves *moves;
    struct sg_dictionary dictionary;
    struct sg_idmap known; /* key -> number of a group, from 1 */
    size_t room;
    struct moved before[SG_DICTIONARY_DEVICES], *waiting; /* waiting: by thread, for the request that it is at */
    int status;
};

/* The group of a request; NULL: no host memory. */
static struct sg_move *moves_group_of(struct watcher *watcher, const struct segalloc_trace_record *record)
{
    struct sg_moves *moves = watcher->moves;
    const struct sg_thread_info *thread = sg_dictionary_thread(&watcher->dictionary, record->thread);
    unsigned class = sg_live_class(record->size);
    uint32_t site = sg_site_book_shown(&watcher->dictionary.book, thread->site);
    uint64_t key = (uint64_t) class << CLASS_AT | (uint64_t)site << SITE_AT | (uint64_t)thread->phase << PHASE_AT;
    uint64_t number = sg_idmap_get(&watcher->known, key);
    if (number)
        return &moves->move[number - 1];
    if (moves->count == watcher->room) {
        size_t room = watcher->room ? 2 * watcher->room : 64;
        struct sg_move *larger = realloc(moves->move, room * sizeof *larger);
        if (!larger)
            return NULL;
        moves->move = larger;
        watcher->room = room;
    }
    char text[SG_SITE_TEXT];
    struct sg_move *move = &moves->move[moves->count];
    *move = (struct sg_move){.size_class = class};
    if (*sg_site_book_line(&watcher->dictionary.book, site, text))
        move->site = strdup(text);
    if (*sg_site_book_phase(&watcher->dictionary.book, thread->phase, text))
        move->phase = strdup(text);
    return sg_idmap_put(&watcher->known, key, ++moves->count) ? move : NULL;
}

/* Pages that have moved since the record before belong to the thread of this one. */
static void note_moves(struct watcher *watcher, uint32_t thread, struct sg_core *core)
{
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        struct moved now = {.pages = sg_core_counter(core, (int)i, SG_STAT_pages_moved)};
        if (now.pages == watcher->before[i].pages)
            continue;
        now.bytes = sg_core_counter(core, (int)i, SG_STAT_bytes_moved);
        watcher->waiting[thread].pages += now.pages - watcher->before[i].pages;
        watcher->waiting[thread].bytes += now.bytes - watcher->before[i].bytes;
        watcher->before[i] = now;
    }
}

static bool may_move(uint8_t kind)
{
    return kind == SEGALLOC_RECORD_ALLOCATE || kind == SEGALLOC_RECORD_ALLOCATE_FAILURE ||
           kind == SEGALLOC_RECORD_SLOW_BEGIN || kind == SEGALLOC_RECORD_SLOW_STEP || kind == SEGALLOC_RECORD_TURN;
}

static bool moves_take_record(void *user, const struct segalloc_trace_record *record, uint64_t request,
    struct sg_core *core)
{
    struct watcher *watcher = user;
    (void)request;
    watcher->status = sg_dictionary_add(&watcher->dictionary, record);
    if (watcher->status || !may_move(record->kind))
        return !watcher->status;
    note_moves(watcher, record->thread, core);
    struct moved *waiting = &watcher->waiting[record->thread];
    bool ends = record->kind == SEGALLOC_RECORD_ALLOCATE || record->kind == SEGALLOC_RECORD_ALLOCATE_FAILURE;
    if (!ends || !waiting->pages)
        return true;
    struct sg_move *move = moves_group_of(watcher, record);
    if (!move) {
        watcher->status = -ENOMEM;
        return false;
    }
    move->requests++;
    move->pages += waiting->pages;
    move->bytes += waiting->bytes;
    watcher->moves->pages += waiting->pages;
    watcher->moves->bytes += waiting->bytes;
    *waiting = (struct moved){0};
    return true;
}

static int moves_by_bytes(const void *a, const void *b)
{
    const struct sg_move *one = a, *other = b;
    return (one->bytes < other->bytes) - (one->bytes > other->bytes);
}

int sg_moves_read(struct sg_trace_reader *reader, struct sg_moves *ret)
{
    struct watcher watcher = {.moves = ret, .waiting = calloc(SG_DICTIONARY_THREADS, sizeof *watcher.waiting)};
    *ret = (struct sg_moves){0};
    watcher.dictionary.book.resolve = sg_symbols_line;
    if (sg_trace_info(reader)->header.imported)
        watcher.status = -ENODATA;
    else if (!watcher.waiting || !sg_idmap_init(&watcher.known))
        watcher.status = -ENOMEM;
    int status = watcher.status ? watcher.status : sg_playback(reader, moves_take_record, &watcher, &ret->diverged);
    if (!status)
        status = watcher.status;
    if (ret->count)
        qsort(ret->move, ret->count, sizeof *ret->move, moves_by_bytes);
    sg_idmap_fini(&watcher.known);
    sg_dictionary_free(&watcher.dictionary);
    free(watcher.waiting);
    return status;
}

void sg_moves_free(struct sg_moves *moves)
{
    for (size_t i = 0; i < moves->count; i++) {
        free(moves->move[i].site);
        free(moves->move[i].phase);
    }
    free(moves->move);
    *moves = (struct sg_moves){0};
}
