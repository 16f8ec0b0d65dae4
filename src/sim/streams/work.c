#include "streams/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hazard/owner.h"
#include "space/link.h"
#include "space/managed.h"

int sim_deps_add(struct sim_deps **deps, CUstream stream, uint64_t position)
{
    if (stream->completed >= position)
        return 0;
    struct sim_deps *d = *deps;
    unsigned kept = 0;
    bool known = false;
    for (unsigned i = 0; d && i < d->count; i++) {
        if (d->at[i].stream == stream) {
            known = true;
            if (d->at[i].position < position)
                d->at[i].position = position;
        }
        if (d->at[i].stream->completed >= d->at[i].position)
            sim_stream_unref(d->at[i].stream);
        else
            d->at[kept++] = d->at[i];
    }
    if (d)
        d->count = kept;
    if (known)
        return 0;
    if (!d || kept == d->room) {
        unsigned room = d ? 2 * d->room : 2;
        struct sim_deps *grown = realloc(d, sizeof *grown + room * sizeof grown->at[0]);
        if (!grown)
            return -ENOMEM;
        grown->count = kept;
        grown->room = room;
        *deps = d = grown;
    }
    sim_stream_ref(stream);
    d->at[d->count++] = (struct sim_dep){stream, position};
    return 0;
}

void sim_deps_free(struct sim_deps *deps)
{
    for (unsigned i = 0; deps && i < deps->count; i++)
        sim_stream_unref(deps->at[i].stream);
    free(deps);
}

struct sim_work *sim_work_new(size_t payload, sim_work_fn run, sim_work_fn finish)
{
    struct sim_work *work = calloc(1, sizeof *work + payload);
    if (work) {
        work->run = run;
        work->finish = finish;
        work->bytes = payload;
    }
    return work;
}

struct sim_work *sim_work_copy(const struct sim_work *work)
{
    struct sim_work *copy = sim_work_new(work->bytes, work->run, work->finish);
    if (copy) {
        copy->host_function = work->host_function;
        copy->may_wait = work->may_wait;
        copy->capturable = work->capturable;
        copy->node = work->node;
        copy->busy_ns = work->busy_ns;
        copy->blocked = work->blocked;
        copy->unknown = work->unknown;
        copy->host_sees = work->host_sees;
        copy->name = work->name;
        for (unsigned i = 0; i < work->touch_count; i++) {
            const struct sim_touch *touch = &work->touches[i];
            sim_work_touch(copy, touch->address, touch->bytes, touch->write);
            if (copy->touch_count > i) {
                copy->touches[i].settled = touch->settled;
                copy->touches[i].owner = sim_owner_ref(touch->owner);
            }
        }
        memcpy(copy->payload, work->payload, work->bytes);
    }
    return copy;
}

void sim_work_touch(struct sim_work *work, uint64_t address, uint64_t bytes, bool write)
{
    if (sim.config.hazard || sim_managed_any() || sim_link_any())
        sim_work_touch_kept(work, address, bytes, write);
}

void sim_work_touch_kept(struct sim_work *work, uint64_t address, uint64_t bytes, bool write)
{
    if (!bytes)
        return;
    struct sim_touch *grown = realloc(work->touches, (work->touch_count + 1) * sizeof *grown);
    if (!grown)
        return;
    work->touches = grown;
    grown[work->touch_count++] = (struct sim_touch){.address = address, .bytes = bytes, .write = write};
}

/* Bytes between two rows may be another stream's: an allocator looks at the ends of a row of bytes, and others write between. */
void sim_work_touch_rows(struct sim_work *work, uint64_t address, uint64_t width, uint64_t pitch, uint64_t rows,
    bool write)
{
    enum { ROWS_APART = 16 };
    if (rows > ROWS_APART || pitch == width) {
        sim_work_touch(work, address, (rows - 1) * pitch + width, write);
        return;
    }
    for (uint64_t row = 0; row < rows; row++)
        sim_work_touch(work, address + row * pitch, width, write);
}

void sim_work_free(struct sim_work *work)
{
    for (unsigned i = 0; i < work->touch_count; i++)
        sim_owner_unref(work->touches[i].owner);
    free(work->touches);
    sim_clock_clear(&work->after);
    sim_deps_free(work->deps);
    free(work);
}

int sim_work_depend(struct sim_work *work, CUstream stream, uint64_t position)
{
    return sim_deps_add(&work->deps, stream, position);
}
