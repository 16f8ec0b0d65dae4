/* Parts of what a finding says. A text is made in one buffer on the stack and written by one call, as the lines of log.h.

   Why one call. Several threads and processes write to standard error, and lines of one text are to stay together.

   For example, sg_text_note(text, "freed", note) adds "freed at train.py:20 in step on stream 0x55d0, thread 4711, event
   2". A text of more than 4 KiB is cut. */
#ifndef SG_FINDING_TEXT_H
#define SG_FINDING_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "check/shadow.h"

enum { SG_FINDING_TEXT_BYTES = 4096 };

/* All zero at first. */
struct sg_finding_text {
    char at[SG_FINDING_TEXT_BYTES];
    size_t length;
};

__attribute__((format(printf, 2, 3))) void sg_text_print(struct sg_finding_text *text, const char *format, ...);

/* Writes the text to standard error by one call. One that was cut ends with its line. */
void sg_text_write(struct sg_finding_text *text);

/* "allocated at train.py:12 in step on stream 0x55d0, thread 4711, event 1204". A site of 0 has no place. */
void sg_text_note(struct sg_finding_text *text, const char *what, const struct sg_check_note *note);

/* "5000 bytes (4.88 KiB)". */
void sg_text_size(struct sg_finding_text *text, uint64_t bytes);

/* A block: where it was, who allocated it, and who freed it in which order. A live one has no free. */
void sg_text_block(struct sg_finding_text *text, const struct sg_freed *block);

/* A member that is a string, without what would end it or the line. */
void sg_text_json(struct sg_finding_text *text, const char *key, const char *value);

/* A note as an object: "freed":{"event":2,"thread":4711,"ns":1205,"stream":94,"site":"train.py:20"}. */
void sg_text_json_note(struct sg_finding_text *text, const char *what, const struct sg_check_note *note);

/* "213,440". */
const char *sg_text_number(uint64_t number, char ret[32]);

#endif
