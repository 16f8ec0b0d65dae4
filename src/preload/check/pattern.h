/* The words that freed memory is filled with, and where in a block they stand.

   Nouns. A *word* is 4 bytes and names one free: its number, mixed. A *stamp* is two bytes of its own that one stream writes
   as its last work on a block. The *tail* is the last 512 bytes of a block, which no program was ever given. A *window*
   is a part of a large block that is filled, where the rest is left as it is.

   Why stamps. The body of a block may only be filled when no other stream can still be at work on it. The tail is
   nobody's, so each stream that used the block writes its stamp there in its own order, and nothing waits for anything.
   A stamp that is missing when the memory serves again shows which stream had not come to the free.

   Why the canary has two rows. An overrun of one byte meets the bytes directly behind its block. A write of one byte in front of a
   block meets the last bytes of the block before. Stamps are written between the two, since nothing orders them after the
   write of the canary. One call of the driver sets both rows, and one reads them.

   Why two places for stamps. The next block may end at the same byte, and nothing orders its stamps after the look at
   the former ones. So it has its stamps in the other place, and its own place is not looked at.

   Why these words. The top byte of a word is 0xa5: so it is no small number, no float near 1, and no text. The other
   three are mixed from the number of the free, so neighbouring frees differ in all of them. A word of another free at a
   place says that this place was never filled by the later one.

   Example, a block of 1,000 bytes: 24 bytes of rounding and the tail, 1,536 in all. Its canary is bytes 1,000 to 1,127 and
   1,408 to 1,535. Streams 3 and 5 used it, and it was allocated for 3. Stream 3 writes the first quarter of the tail, bytes 1,024
   to 1,151. Stream 5 writes stamp 5 of the first place, bytes 1,162 and 1,163. Had stream 3 been alone it would have filled
   all 1,536 bytes. The next block there has its stamps from byte 1,280 on. */
#ifndef SG_CHECK_PATTERN_H
#define SG_CHECK_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SG_TAIL = 512,         /* bytes; a block's unit in the core, so blocks stay aligned */
    SG_TAIL_STAMPS = 128,  /* where two places for stamps begin in it; its last quarter is behind them */
    SG_STAMPS = 128,       /* bytes of a place: two for each slot of a stream */
    SG_CANARY = 128,       /* bytes of a row of the canary: one row behind the block, one at the end of the tail */
    SG_CANARY_BYTE = 0xdb, /* behind a block while it is allocated; no zero, no small number, no text */
    SG_FILL_WHOLE = 65536, /* bytes of a block that are filled whole. It is not to be noticed:
                                64 KiB are a twentieth of a microsecond at 1.3 TB/s, less than a launch takes */
    SG_WINDOW = 1024,      /* bytes of a window */
    SG_WINDOWS = 8, /* windows of a larger block, the one at its start with them; one more ends where the tail begins */
    SG_PITCH_MOST = 0x7fffffff /* between rows of one call of the driver: CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU */
};

/* Which bytes of a block are filled, by the offset in the block.

   For example, a block of 8 MiB and 512 bytes. Its body is 8,388,608 bytes: `pitch` is (8,388,608 - 1,024) / 8, which is
   1,048,448. The seed says `first` 300,000. The windows are at 0, at 300,000, at 1,348,448 and so on. The seventh of those
   with a pitch begins at 6,590,688, and the last one at 8,387,584. With the tail that are 9,728 bytes, set by three calls
   of the driver. */
struct sg_fill {
    uint64_t room;    /* bytes of the block, the tail with them */
    bool has_tail;
    bool has_body;    /* else only the tail has stamps */
    bool whole;       /* of the body; else its windows */
    uint64_t pitch;   /* from the start of a window to that of the next one */
    uint64_t first;   /* where the second window starts; the first one is at 0 */
    uint32_t windows; /* how many there are with a pitch */
    uint32_t word;
    uint64_t stamps;  /* the slots that wrote stamps, a bit each */
    unsigned place;   /* of the stamps: 0 or 1 */
};

/* Bytes in front of the tail. */
static inline uint64_t sg_fill_body(const struct sg_fill *fill)
{
    return fill->has_tail ? fill->room - SG_TAIL : fill->room;
}

/* The word of the free of that number; never one that four canary bytes, or four zeros, make. */
uint32_t sg_pattern_word(uint64_t number);

/* The stamp of a slot in that free, and where in the block it stands. */
uint16_t sg_pattern_stamp(uint32_t word, unsigned slot);
uint64_t sg_fill_stamp_at(const struct sg_fill *fill, unsigned slot);

/* Plans the fill of a block of `room` bytes; the place of its stamps is kept. `seed` says where the windows lie. */
void sg_fill_plan(uint64_t room, bool has_tail, bool thorough, uint64_t seed, struct sg_fill *ret);

/* The word that should stand at `offset`, and as a mask which of its bits were written; 0: nothing was filled there. */
uint32_t sg_fill_expected(const struct sg_fill *fill, uint64_t offset, uint32_t *ret);

/* True if any of `bytes` bytes from `offset` on are filled, or have stamps. */
bool sg_fill_reaches(const struct sg_fill *fill, uint64_t offset, uint64_t bytes);

/* The slots whose stamps have bytes at `offset` to `offset` + 3, a bit each. */
uint64_t sg_fill_stamps_at(const struct sg_fill *fill, uint64_t offset);

#endif
