#include "reader/dictionary.h"

#include "growing_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sg_dictionary_add(struct sg_dictionary *dictionary, const struct segalloc_trace_record *record)
{
    int error = 0;
    if (record->kind == SEGALLOC_RECORD_DEFINE_STREAM) {
        uint32_t index = record->stream;
        if (index >= SG_DICTIONARY_STREAMS)
            return -ERANGE;
        error = sg_growing_array((void **)&dictionary->stream, &dictionary->streams, &dictionary->stream_room, index,
                                 sizeof(*dictionary->stream));
        if (!error)
            dictionary->stream[index] = (struct sg_stream_info){
                .handle = record->id, .context = (uint32_t)(record->size >> 32), .device = (uint32_t)record->size,
                .flags = record->flags, .known = true};
    } else if (record->kind == SEGALLOC_RECORD_DEFINE_THREAD) {
        uint32_t index = record->thread;
        error = sg_growing_array((void **)&dictionary->thread, &dictionary->threads, &dictionary->thread_room, index,
                                 sizeof(*dictionary->thread));
        if (!error)
            dictionary->thread[index] = (struct sg_thread_info){.id = record->id, .flags = record->flags, .known = true};
    } else if (record->kind == SEGALLOC_RECORD_SITE) {
        uint32_t index = record->thread;
        error = sg_growing_array((void **)&dictionary->thread, &dictionary->threads, &dictionary->thread_room, index,
                                 sizeof(*dictionary->thread));
        if (!error) {
            dictionary->thread[index].site = (uint32_t)record->id;
            dictionary->thread[index].phase = (uint32_t)record->size;
        }
    } else if (record->kind == SEGALLOC_RECORD_DEFINE_DEVICE) {
        uint32_t index = record->stream;
        if (index >= SG_DICTIONARY_DEVICES)
            return -ERANGE;
        dictionary->device[index] = (struct sg_device_info){record->id, record->size, true};
        if (index >= dictionary->devices)
            dictionary->devices = index + 1;
    } else {
        error = sg_site_book_add(&dictionary->book, record);
    }
    return error;
}

void sg_dictionary_free(struct sg_dictionary *dictionary)
{
    free(dictionary->stream);
    free(dictionary->thread);
    sg_site_book_free(&dictionary->book);
    memset(dictionary, 0, sizeof(*dictionary));
}

const struct sg_stream_info *sg_dictionary_stream(const struct sg_dictionary *dictionary, uint32_t index)
{
    static const struct sg_stream_info unknown;
    return index < dictionary->streams ? &dictionary->stream[index] : &unknown;
}

const struct sg_thread_info *sg_dictionary_thread(const struct sg_dictionary *dictionary, uint32_t index)
{
    static const struct sg_thread_info unknown;
    return index < dictionary->threads ? &dictionary->thread[index] : &unknown;
}
