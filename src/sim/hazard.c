/* The hazard checker, so far: copies and sets that are queued or running, by their arguments. It reports two of them
   that touch the same bytes for different owners, one at least writing, with nothing that puts one after the other; and
   memory unmapped while one may still touch it. Work that is complete orders everything after it. */
#include <stdio.h>
#include <stdlib.h>

#include "extra.h"
#include "hazard.h"
#include "vmm.h"

struct touch {
    struct touch *next;
    CUstream stream; /* with a reference */
    uint64_t position, address, bytes, owner;
    uint64_t place; /* the same for each address of one page of the device */
    int fd;         /* of its device's memory; -1 where the address is the place */
    bool write;
};

struct owned {
    struct owned *next; /* newest first: the newest holds */
    uint64_t address, bytes, owner;
};

static struct touch *touches;
static struct owned *owners;
static uint64_t reports;

static uint64_t owner_at(uint64_t address)
{
    for (const struct owned *o = owners; o; o = o->next) {
        if (address - o->address < o->bytes)
            return o->owner;
    }
    const struct sim_memory *memory = sim_memory_find(address);
    return memory ? memory->buffer_id : 0;
}

static void forget_complete(void)
{
    for (struct touch **link = &touches; *link;) {
        struct touch *t = *link;
        if (t->stream->completed < t->position) {
            link = &t->next;
            continue;
        }
        *link = t->next;
        sim_stream_unref(t->stream);
        free(t);
    }
}

/* Whether work not yet complete at `position` of `first` is waited for by the work at `at` of `stream`. Streams are
   walked once a question, to the furthest position asked for. */
static bool comes_after(CUstream stream, uint64_t at, CUstream first, uint64_t position, uint64_t question)
{
    if (stream == first)
        return position <= at;
    if (stream->question == question && stream->walked >= at)
        return false;
    stream->question = question;
    stream->walked = at;
    for (const struct sim_work *w = stream->head; w && w->position <= at; w = w->next) {
        for (unsigned i = 0; w->deps && i < w->deps->count; i++) {
            const struct sim_dep *dep = &w->deps->at[i];
            if (dep->stream->completed < dep->position &&
                comes_after(dep->stream, dep->position, first, position, question))
                return true;
        }
    }
    return false;
}

static void say(const char *what, const struct touch *t)
{
    fprintf(stderr, "  %s: %s of 0x%llx + %llu for owner %llu, work %llu of stream %llu\n", what,
        t->write ? "write" : "read", (unsigned long long)t->address, (unsigned long long)t->bytes,
        (unsigned long long)t->owner, (unsigned long long)t->position, (unsigned long long)t->stream->id);
}

static void check(const struct touch *now)
{
    static uint64_t question;
    for (const struct touch *t = touches; t; t = t->next) {
        bool overlap = t->fd == now->fd && t->place < now->place + now->bytes && now->place < t->place + t->bytes;
        if (!overlap || t->owner == now->owner || !(t->write || now->write) ||
            comes_after(now->stream, now->position, t->stream, t->position, ++question))
            continue;
        reports++;
        fprintf(stderr, "segalloc simulator: hazard: the same bytes for two owners, in no order\n");
        say("before", t);
        say("now", now);
    }
}

void sim_hazard_touch(CUstream stream, uint64_t position, uint64_t address, uint64_t bytes, bool write)
{
    if (!sim.config.hazard)
        return;
    forget_complete();
    while (bytes) { /* a mapping at a time */
        const struct sim_mapping *mapping = sim_mapping_find(address);
        uint64_t left = mapping ? mapping->range.base + mapping->range.size - address : bytes;
        struct touch *t = calloc(1, sizeof *t);
        if (!t)
            return;
        *t = (struct touch){.stream = stream, .position = position, .address = address,
            .bytes = left < bytes ? left : bytes, .owner = owner_at(address), .write = write, .fd = -1,
            .place = address};
        if (mapping) {
            t->fd = mapping->physical->fd;
            t->place = mapping->physical->offset + (address - mapping->range.base);
        }
        check(t);
        address += t->bytes;
        bytes -= t->bytes;
        sim_stream_ref(stream);
        t->next = touches;
        touches = t;
    }
}

void sim_hazard_unmap(uint64_t address, uint64_t bytes)
{
    if (!sim.config.hazard)
        return;
    forget_complete();
    for (const struct touch *t = touches; t; t = t->next) {
        if (t->address >= address + bytes || address >= t->address + t->bytes)
            continue;
        reports++;
        fprintf(stderr, "segalloc simulator: hazard: 0x%llx + %llu is unmapped while work may touch it\n",
            (unsigned long long)address, (unsigned long long)bytes);
        say("queued", t);
    }
}

void segalloc_sim_owner(uint64_t address, uint64_t bytes, uint64_t owner)
{
    struct owned *made = malloc(sizeof *made);
    if (!made)
        return;
    sim_lock();
    for (struct owned **link = &owners; *link;) {
        struct owned *o = *link;
        if (o->address >= address && o->address + o->bytes <= address + bytes) {
            *link = o->next;
            free(o);
        } else {
            link = &o->next;
        }
    }
    *made = (struct owned){owners, address, bytes, owner};
    owners = made;
    sim_unlock();
}

uint64_t segalloc_sim_hazards(void)
{
    sim_lock();
    uint64_t count = reports;
    sim_unlock();
    return count;
}
