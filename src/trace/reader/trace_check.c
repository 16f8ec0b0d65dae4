#include "reader/trace_check.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

enum { FIRST_BLOCK_STEP = 4096 };

static bool size_is_power_of_two(uint64_t value)
{
    return value && (value & (value - 1)) == 0;
}

/* The fault of a device's sizes, in bytes; NULL: there is none. 0 means unknown. */
static const char *device_fault(uint64_t granularity, uint64_t bytes)
{
    if (granularity && (!size_is_power_of_two(granularity) || granularity < SEGALLOC_TRACE_GRANULARITY_LEAST ||
                        granularity > SEGALLOC_TRACE_GRANULARITY_MOST))
        return "a device's granularity is no power of two from 64 KiB to 1 GiB";
    if (bytes > SEGALLOC_TRACE_DEVICE_MOST)
        return "a device has more than 64 TiB";
    return bytes && bytes < granularity ? "a device has less memory than its granularity" : NULL;
}

bool sg_trace_check_header(const struct segalloc_trace_header *header, uint64_t *ret_offset, char fault[SG_TRACE_FAULT])
{
    uint64_t first = header->data_offset, texts = (uint64_t)header->conf_bytes + header->command_bytes;
    const char *device = device_fault(header->granularity, header->device_bytes);
    /* The fault may be of either field; the one whose value alone is wrong is named. */
    bool granular = device && device_fault(header->granularity, 0);
    const struct {
        bool wrong;
        size_t offset;
        uint64_t value;
        const char *text;
    } fields[] = {
#define FIELD(name, wrong, text) {wrong, offsetof(struct segalloc_trace_header, name), header->name, text}
        FIELD(version, header->version != SEGALLOC_TRACE_VERSION,
            "the version of the trace format is not 1, which this segalloc reads"),
        FIELD(header_bytes, header->header_bytes < sizeof *header, "the header is shorter than version 1 has it"),
        FIELD(data_offset,
            first % FIRST_BLOCK_STEP || first > SEGALLOC_TRACE_HEADER_MOST || first < header->header_bytes,
            "the first block does not begin at a multiple of 4096 bytes after the header, up to 16 MiB"),
        FIELD(conf_bytes, header->header_bytes + texts > first, "the texts are longer than the header has room for"),
        FIELD(pid, header->pid > INT32_MAX, "no process has this number"),
        FIELD(imported, header->imported > 1, "whether it was imported is 0 or 1"),
        FIELD(devices, header->devices > SEGALLOC_TRACE_DEVICES, "more devices than 64"),
        FIELD(granularity, granular, device),
        FIELD(device_bytes, device && !granular, device),
#undef FIELD
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].wrong)
            continue;
        snprintf(fault, SG_TRACE_FAULT, "%s: %" PRIu64, fields[i].text, fields[i].value);
        *ret_offset = fields[i].offset;
        return false;
    }
    return true;
}

const char *sg_trace_check_record(const struct segalloc_trace_record *record)
{
    bool of_device = record->kind == SEGALLOC_RECORD_DEFINE_DEVICE || record->kind == SEGALLOC_RECORD_STATISTIC ||
                     record->kind == SEGALLOC_RECORD_DEFINE_MODEL || record->kind == SEGALLOC_RECORD_DEFINE_UUID;
    if (of_device && record->stream >= SEGALLOC_TRACE_DEVICES)
        return "a record is of a device that cannot be";
    switch (record->kind) {
    case SEGALLOC_RECORD_DEFINE_DEVICE:
        return device_fault(record->id, record->size);
    case SEGALLOC_RECORD_DEFINE_CARD:
        if (record->size > SEGALLOC_TRACE_DEVICE_MOST || record->id > SEGALLOC_TRACE_DEVICE_MOST)
            return "a card has more memory than there can be";
        break;
    case SEGALLOC_RECORD_DEFINE_STREAM:
        if ((uint32_t)record->size >= SEGALLOC_TRACE_DEVICES)
            return "a stream is of a device that cannot be";
        break;
    case SEGALLOC_RECORD_SLOT:
    case SEGALLOC_RECORD_SLOT_GONE:
    case SEGALLOC_RECORD_ORDER:
    case SEGALLOC_RECORD_COMPLETE:
        if (record->id >= SEGALLOC_TRACE_SLOTS)
            return "a record is of a slot that cannot be";
        break;
    case SEGALLOC_RECORD_DEFINE_SITE:
        if (record->id >> 32 >= SEGALLOC_TRACE_NAMES || (uint32_t)record->id >= SEGALLOC_TRACE_NAMES)
            return "a record is of a text that cannot be";
        break;
    case SEGALLOC_RECORD_DEFINE_PHASE:
    case SEGALLOC_RECORD_SITE:
        if (record->id >= SEGALLOC_TRACE_NAMES || record->size >= SEGALLOC_TRACE_NAMES)
            return "a record is of a site, a phase or a text that cannot be";
        break;
    default:
        break;
    }
    if (record->kind >= SEGALLOC_RECORD_DEFINE_TEXT && record->kind <= SEGALLOC_RECORD_DEFINE_PHASE &&
        record->stream >= SEGALLOC_TRACE_NAMES)
        return "a definition has a number that cannot be";
    /* Later kinds may use the field for something else, and are not judged by it. */
    bool known = record->kind <= SEGALLOC_RECORD_DEFINE_DEVICE;
    return known && record->stream >= SEGALLOC_TRACE_STREAMS ? "a record is of a stream that cannot be" : NULL;
}
