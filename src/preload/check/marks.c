/* A word is chosen under SG_LOCK_CHECK, and the number is written without it. `writes` keeps a second thread from writing
   to that word meanwhile.

   Why a second thread writes none. Threads 1 and 2 give stream 5 work, and would write 7 and 8. Were 8 written first, the
   word would end at 7, and a block that needs 8 would never have it. Work without a mark is only not looked at.

   Why a word is given to another stream only at its end. Stream 5 is gone, and a block needs 12 of its word, where 11 stands.
   A new stream that wrote 12 there would say that the work of stream 5 was over.

   A block from its first use to its next owner. Streams 3 and 5 of one context have words 0 and 1, where 7 and 11 stand.

      1. Stream 3 sets the block: it writes 8 to word 0, and the block needs 8 of word 0.
      2. Stream 5 copies from the block: it writes 12 to word 1, and the block needs 12 of word 1 too.
      3. Stream 3 frees it. The core knows of stream 3 alone, whose latest number is 9 by now: the block needs 9 of word 0.
      4. It serves again, on stream 3. Word 0 is 9 and word 1 still 11, so 12 is left. Stream 3 copies words 0 and 1.
      5. The copies arrive: 9 and 11. Stream 5 was at work on the block when stream 3 began to use it anew.

   Had the core known of stream 5, stream 3 would have waited for it, and the copy would have 12.

   Numbers go round after 2^32 pieces of work, so they are compared by their difference. */
#include "check/marks.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check/live.h"
#include "check/samples.h"
#include "check/state.h"
#include "check/work.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/stream_handle.h"

enum { OUT = 256 }; /* marks of a stream that are on their way, where one has room for some 1,024 pieces of work */

static atomic_bool several; /* streams: one was made beside the legacy one */

/* A stream of each thread is one for each. Handles are even, so no other key is like that. */
static uint64_t marks_key(CUstream named)
{
    return named == CU_STREAM_PER_THREAD ? (uint64_t)syscall(SYS_gettid) << 8 | 3 : (uint64_t)(uintptr_t)named;
}

/* The number in a word now. The device writes there at any time. */
static uint32_t word_read(const struct sg_words *words, unsigned at)
{
    return atomic_load_explicit(&words->word[at], memory_order_relaxed);
}

/* The place of a stream; SG_MARK_STREAMS: none. With `make` it gets one: a new one, or one of a stream that is gone and has
   come to its end. Under SG_LOCK_CHECK. */
static unsigned word_find(struct sg_lane *lane, CUstream named, bool make)
{
    struct sg_words *words = sg_lane_words(lane);
    uint64_t key = marks_key(named);
    unsigned at = 0;
    while (at < words->used && words->stream[at].key != key)
        at++;
    if (at < words->used || !make)
        return at < words->used ? at : SG_MARK_STREAMS;
    for (at = 0; at < words->used; at++)
        if (!words->stream[at].key && word_read(words, at) == words->stream[at].last)
            break;
    if (at == SG_MARK_STREAMS)
        return at;
    words->used += at == words->used;
    words->stream[at].stream = named;
    words->stream[at].key = key;
    return at;
}

/* Writes a mark on the stream, and notes it for the thread. */
static void marks_write(struct sg_lane *lane, CUstream named)
{
    struct sg_thread *self = sg_this_thread();
    struct sg_words *words = sg_lane_words(lane);
    sg_process_lock(SG_LOCK_CHECK);
    words->closed = false; /* the program uses the context, so it has not ended */
    unsigned at = words->word ? word_find(lane, named, true) : SG_MARK_STREAMS;
    struct sg_word *own = at < SG_MARK_STREAMS ? &words->stream[at] : NULL;
    if (own && (own->writes || own->last - word_read(words, at) >= OUT))
        own = NULL;
    if (own)
        own->writes = true;
    uint32_t number = own ? own->last + 1 : 0, life = words->life;
    sg_process_unlock(SG_LOCK_CHECK);
    if (!own)
        return;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)(words->word + at);
    bool well = sg_real()->cuStreamWriteValue32_v2(named, address, number, 0) == CUDA_SUCCESS;
    sg_process_lock(SG_LOCK_CHECK);
    own->writes = false;
    if (well)
        own->last = number;
    sg_process_unlock(SG_LOCK_CHECK);
    if (well) {
        self->rare.mark.lane = lane;
        self->rare.mark.life = life;
        self->rare.mark.stream = (uint16_t)at;
        self->rare.mark.number = number;
    }
}

/* True if a default stream has nothing left to do. Calls without a stream work there, and most of them return when their work is over:
   it needs no mark. One that is still to be written would keep the stream busy, and the core from using what is free. */
static bool default_is_idle(CUstream stream, CUstream named)
{
    return (!stream || stream == CU_STREAM_LEGACY || named == CU_STREAM_PER_THREAD) &&
           sg_real()->cuStreamQuery(named) == CUDA_SUCCESS;
}

void sg_marks_stream_made(void)
{
    atomic_store_explicit(&several, true, memory_order_relaxed);
}

void sg_marks_worked(CUstream stream, bool per_thread)
{
    CUcontext context;
    sg_this_thread()->rare.mark.lane = NULL;
    if (per_thread)
        sg_marks_stream_made();
    struct sg_core *core = atomic_load_explicit(&several, memory_order_relaxed) ? sg_enter() : NULL;
    if (!core)
        return;
    if (sg_check_parts & SG_CHECK_FILL && sg_check_driver->ctx_get_current(&context) == CUDA_SUCCESS && context) {
        struct sg_lane *lane = sg_work_try(context);
        if (lane) {
            CUstream named = sg_stream_named(stream, per_thread);
            if (!default_is_idle(stream, named) && sg_work_may(context, named))
                marks_write(lane, named);
            sg_work_leave();
        }
    }
    sg_leave();
}

/* Threads give a stream work at once, so an earlier mark may be noted later. */
void sg_marks_noted(void)
{
    const struct sg_thread *self = sg_this_thread();
    struct sg_lane *lane = self->rare.mark.lane;
    if (!lane)
        return;
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_words *words = sg_lane_words(lane);
    struct sg_word *own = &words->stream[self->rare.mark.stream];
    if (words->life == self->rare.mark.life && (int32_t)(self->rare.mark.number - own->noted) > 0)
        own->noted = self->rare.mark.number;
    sg_process_unlock(SG_LOCK_CHECK);
}

/* A mark of a context that has ended counts as written: its work is over. The words of that context are not there any more,
   so they are not read. Nor are those of one that may be about to end. Under SG_LOCK_CHECK. */
static bool mark_is_written(const struct sg_mark *mark)
{
    const struct sg_words *words = sg_lane_words(mark->lane);
    return words->life != mark->life || words->closed || (int32_t)(word_read(words, mark->stream) - mark->number) >= 0;
}

bool sg_marks_left(const struct sg_marks *marks, struct sg_mark *ret)
{
    bool left = false;
    sg_process_lock(SG_LOCK_CHECK);
    for (unsigned i = 0; i < marks->count && !left; i++) {
        left = !mark_is_written(&marks->mark[i]);
        if (left)
            *ret = marks->mark[i];
    }
    sg_process_unlock(SG_LOCK_CHECK);
    return left;
}

unsigned sg_marks_words(const struct sg_marks *marks, const struct sg_lane *lane)
{
    unsigned count = 0;
    for (unsigned i = 0; i < marks->count; i++)
        if (marks->mark[i].lane == lane && marks->mark[i].stream >= count && !mark_is_written(&marks->mark[i]))
            count = marks->mark[i].stream + 1u;
    return count;
}

/* Forgets those that are written, of a block that is still the program's. Under SG_LOCK_CHECK. */
static void marks_forget(struct sg_marks *marks)
{
    unsigned left = 0;
    for (unsigned i = 0; i < marks->count; i++)
        if (!mark_is_written(&marks->mark[i]))
            marks->mark[left++] = marks->mark[i];
    marks->count = left;
}

/* Adds a mark. The later one of two of a stream stays. Where all places are taken, one that is written is forgotten. Under
   SG_LOCK_CHECK. */
static void marks_add(struct sg_marks *marks, struct sg_mark mark)
{
    for (unsigned i = 0; i < marks->count; i++) {
        struct sg_mark *old = &marks->mark[i];
        if (old->lane != mark.lane || old->stream != mark.stream || old->life != mark.life)
            continue;
        if ((int32_t)(mark.number - old->number) > 0)
            old->number = mark.number;
        return;
    }
    if (marks->count == SG_MARKS)
        marks_forget(marks);
    if (marks->count < SG_MARKS)
        marks->mark[marks->count++] = mark;
}

void sg_marks_used(CUdeviceptr address)
{
    const struct sg_thread *self = sg_this_thread();
    struct sg_core *core = self->rare.mark.lane ? sg_enter() : NULL;
    if (!core)
        return;
    struct sg_block_info info;
    if (sg_core_block(core, address, &info) == CUDA_SUCCESS) {
        const struct sg_mark mark = {self->rare.mark.lane, self->rare.mark.life, self->rare.mark.number,
            self->rare.mark.stream};
        sg_process_lock(SG_LOCK_CHECK);
        struct sg_freed *block = sg_live_find(info.base);
        if (block)
            marks_add(&block->marks, mark);
        sg_process_unlock(SG_LOCK_CHECK);
    }
    sg_leave();
}

/* The word stays as it is, since blocks may need marks that are still to be written there. */
void sg_marks_stream_gone(CUstream stream)
{
    sg_process_lock(SG_LOCK_CHECK);
    for (unsigned i = 0; i < SG_LANES; i++) {
        struct sg_words *words = sg_lane_words(sg_lane_at(i));
        for (unsigned at = 0; at < words->used; at++)
            if (words->stream[at].key == (uint64_t)(uintptr_t)stream)
                words->stream[at].key = 0;
    }
    sg_process_unlock(SG_LOCK_CHECK);
}

/* Under SG_LOCK_CHECK. */
static void marks_need_word(struct sg_freed *block, struct sg_lane *lane, unsigned at)
{
    const struct sg_words *words = sg_lane_words(lane);
    const struct sg_mark mark = {lane, words->life, words->stream[at].noted, (uint16_t)at};
    if (words->word && !mark_is_written(&mark))
        marks_add(&block->marks, mark);
}

void sg_marks_need(struct sg_freed *block, CUcontext context, CUstream stream, bool per_thread)
{
    struct sg_lane *lane = sg_lane_of(context, /* make */ false);
    if (!lane)
        return;
    sg_process_lock(SG_LOCK_CHECK);
    unsigned at = word_find(lane, sg_stream_named(stream, per_thread), false);
    if (at < SG_MARK_STREAMS)
        marks_need_word(block, lane, at);
    sg_process_unlock(SG_LOCK_CHECK);
}

bool sg_mark_is_out(const struct sg_mark *mark)
{
    sg_process_lock(SG_LOCK_CHECK);
    bool out = !mark_is_written(mark);
    sg_process_unlock(SG_LOCK_CHECK);
    return out;
}

bool sg_mark_is_missing(const struct sg_mark *mark, struct sg_lane *lane, const uint32_t *words, unsigned count)
{
    if (mark->lane != lane || mark->stream >= count)
        return false;
    sg_process_lock(SG_LOCK_CHECK);
    bool alive = sg_lane_words(lane)->life == mark->life;
    sg_process_unlock(SG_LOCK_CHECK);
    return alive && (int32_t)(words[mark->stream] - mark->number) < 0;
}

CUstream sg_mark_stream(const struct sg_mark *mark)
{
    const struct sg_words *words = sg_lane_words(mark->lane);
    sg_process_lock(SG_LOCK_CHECK);
    CUstream stream = words->life == mark->life ? words->stream[mark->stream].stream : NULL;
    sg_process_unlock(SG_LOCK_CHECK);
    return stream;
}
