/* The buffer is filled by vsnprintf(), which says how long the text would have been. The rest that is beyond its end is
   dropped, and so is all that is added later. For example, 4,090 bytes are there and 20 come: 5 of them stay, and the length is 4,095.

   A text that is too long is cut at a byte; its last one becomes the end of the line. */
#include "check/finding_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/size.h"
#include "process/log.h"
#include "sites/sites.h"

enum { SITE_BYTES = 400 };

void sg_text_print(struct sg_finding_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(text->at + text->length, SG_FINDING_TEXT_BYTES - text->length, format, arguments);
    va_end(arguments);
    if (wrote > 0)
        text->length += (size_t)wrote < SG_FINDING_TEXT_BYTES - text->length ? (size_t)wrote
                                                                             : SG_FINDING_TEXT_BYTES - text->length - 1;
}

void sg_text_write(struct sg_finding_text *text)
{
    if (text->length && text->at[text->length - 1] != '\n')
        text->at[text->length - 1] = '\n';
    sg_log_write(text->at, text->length);
}

void sg_text_note(struct sg_finding_text *text, const char *what, const struct sg_check_note *note)
{
    char site[SITE_BYTES];
    sg_text_print(text, "%s", what);
    if (sg_sites_describe(note->site, site, sizeof site))
        sg_text_print(text, " at %s", site);
    if (note->has_stream)
        sg_text_print(text, " on stream 0x%" PRIxPTR, (uintptr_t)note->stream);
    sg_text_print(text, ", thread %ld, event %" PRIu64, note->thread, note->event);
}

void sg_text_size(struct sg_finding_text *text, uint64_t bytes)
{
    char size[SG_SIZE_TEXT];
    sg_text_print(text, "%" PRIu64 " byte%s", bytes, sg_plural(bytes));
    if (bytes >= SG_KIB)
        sg_text_print(text, " (%s)", sg_size_format(bytes, size));
}

void sg_text_block(struct sg_finding_text *text, const struct sg_freed *block)
{
    sg_text_print(text, "  block    ");
    sg_text_size(text, block->bytes);
    sg_text_print(text, " at 0x%" PRIx64 " on device %d\n", (uint64_t)block->base, block->device);
    sg_text_note(text, "           allocated", &block->allocated);
    sg_text_print(text, "\n");
    if (!block->freed.event)
        return;
    sg_text_note(text, "           freed", &block->freed);
    sg_text_print(text, "%s%s\n", block->order ? ", " : "", block->order ? block->order : "");
}

void sg_text_json(struct sg_finding_text *text, const char *key, const char *value)
{
    sg_text_print(text, ",\"%s\":\"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            sg_text_print(text, "\\%c", *value);
        else if ((unsigned char)*value >= ' ')
            sg_text_print(text, "%c", *value);
    }
    sg_text_print(text, "\"");
}

void sg_text_json_note(struct sg_finding_text *text, const char *what, const struct sg_check_note *note)
{
    char site[SITE_BYTES];
    sg_text_print(text, ",\"%s\":{\"event\":%" PRIu64 ",\"thread\":%ld,\"ns\":%" PRIu64, what, note->event,
        note->thread, note->ns);
    if (note->has_stream)
        sg_text_print(text, ",\"stream\":%" PRIuPTR, (uintptr_t)note->stream);
    if (sg_sites_describe(note->site, site, sizeof site))
        sg_text_json(text, "site", site);
    sg_text_print(text, "}");
}

const char *sg_text_number(uint64_t number, char ret[32])
{
    char plain[24];
    int digits = snprintf(plain, sizeof plain, "%" PRIu64, number), at = 0;
    for (int i = 0; i < digits; i++) {
        if (i && (digits - i) % 3 == 0)
            ret[at++] = ',';
        ret[at++] = plain[i];
    }
    ret[at] = '\0';
    return ret;
}
