/* Marks: how far each stream has come, seen by the GPU itself.

   Nouns. A *word* of pinned memory belongs to each stream of a context. A *mark* is a number that a stream writes to its word
   behind a piece of work (cuStreamWriteValue32). A block *needs* a mark where work before that mark used it.

   How. The streams that use a block need not be told by anybody: calls that set or copy bytes name them. A free by stream
   order adds the streams that the core would wait for. When the memory serves again, the stream that gets it copies the words to the
   host, as its first work on it. A word below a mark that is needed says that a stream was still at work on the
   block when its next owner began. Where the memory is for any stream, the host looks at the words itself.

   Why that is no false alarm. A mark follows its work at once, before the core notes the work. So whoever is ordered
   after that work, by an event, a wait or the legacy stream's rules, has got that order after the mark was written. Nothing
   of the block is touched, so no stream has to be fresh. Two threads that give one stream work at once could write their
   numbers in the wrong order: then only the first of them writes one.

   Why the streams that the core names are not enough. A fault of the allocator may be that it has forgotten a stream. A
   call that names the block's bytes shows its use without the core.

   Why the words are the host's memory. A stream writes them without a kernel, and the host reads them without a call.
   Most of the time all marks that a block needs are there already, and nothing is copied.

   Limits. None before the process has made a stream. 256 streams of a context, eight marks for a block. None while a capture is
   active, nor where a stream may wait for the program (held.h). 256 marks of a stream are on their way at most, since each takes some of
   its room.

   Other contexts. The words of another context than the next owner's may go with it, so no stream copies them. The host looks
   at them instead, once the next owner's stream has come to its first work. A mark that is missing even then was missing
   before. One that came in between is not seen.

   For example, stream 5 sets bytes of a block of stream 3, and then writes 12 to word 1. The block needs 12 of word 1. Stream
   3 frees the block, and 5 was not recorded. The core serves the memory to stream 3 again. Its first work there is a copy
   of the words, and word 1 is 11. So stream 5 had not set those bytes when their next owner began. */
#ifndef SG_CHECK_MARKS_H
#define SG_CHECK_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "check/shadow.h"
#include "core/core.h"

enum { SG_MARK_STREAMS = 256 };

struct sg_lane;

/* The words of a context's streams, and who has which. Guarded by SG_LOCK_CHECK, but for what is written there. */
struct sg_words {
    _Atomic uint32_t *word;  /* pinned, written by the device; NULL: none */
    CUdeviceptr copies;      /* a place on the device for each batch, through which it reads the words; 0: none yet */
    bool copies_asked;       /* they are there, or a thread asks the driver for them */
    uint32_t life;           /* of the context: one more with each end */
    bool closed; /* the context may be about to end: the words are not read before the program gives it work again */
    unsigned used;
    struct sg_word {
        CUstream stream;
        uint64_t key; /* of the table; 0: the stream is gone, and another may have the word once it has come to `last` */
        uint32_t last; /* the number that was written last */
        uint32_t noted; /* the latest one behind work that the core has noted: a free covers these */
        bool writes;   /* a thread is about to write one */
    } stream[SG_MARK_STREAMS];
};

/* Work was given to a stream, by this thread; before the core notes it. A mark is written behind it. */
void sg_marks_worked(CUstream stream, bool per_thread);

/* The core has noted the work that this thread gave last. Before that no free waits for it, nor needs its mark. */
void sg_marks_noted(void);

/* The work that this thread has just given a stream used the block that holds `address`, if there is one. */
void sg_marks_used(CUdeviceptr address);

/* The program has made a stream, so there are several. */
void sg_marks_stream_made(void);

/* A stream is about to be destroyed. */
void sg_marks_stream_gone(CUstream stream);

/* The block needs the latest mark of a stream by that handle. */
void sg_marks_need(struct sg_freed *block, CUcontext context, CUstream stream, bool per_thread);

/* True if a mark is not written yet; *ret is the first such. The marks of a freed block stay as they are, since several owners of
   its memory may look at them at once. */
bool sg_marks_left(const struct sg_marks *marks, struct sg_mark *ret);

/* The number of the lane's first words that have all marks in them which are not written yet. Under SG_LOCK_CHECK. */
unsigned sg_marks_words(const struct sg_marks *marks, const struct sg_lane *lane);

/* True if a mark of that lane was not written yet when the first `count` of its words were copied. Takes SG_LOCK_CHECK, as the next
   two do. */
bool sg_mark_is_missing(const struct sg_mark *mark, struct sg_lane *lane, const uint32_t *words, unsigned count);

/* True if a mark is not written now. */
bool sg_mark_is_out(const struct sg_mark *mark);

/* The stream of a mark; NULL: it is not known any more. */
CUstream sg_mark_stream(const struct sg_mark *mark);

#endif
