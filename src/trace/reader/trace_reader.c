#include "reader/trace_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/record_batches.h"
#include "reader/rmm_csv.h"
#include "reader/trace_input.h"

static const struct sg_trace_format *const formats[] = {&sg_format_segalloc, &sg_format_rmm_csv,
                                                       &sg_format_torch_snapshot};

/* Recognises the format of a file by its first bytes, and has it read its header. */
static int reader_open_format(struct sg_trace_reader *reader)
{
    while (reader->size < 256 && sg_trace_more(reader))
        ;
    if (reader->error[0])
        return -EIO;
    if (!reader->size && !reader->info.end_text)
        return sg_trace_fail(reader, "the file is empty");
    if (!reader->format) {
        for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]) && !reader->format; i++)
            if (formats[i]->detect(reader->data, reader->size))
                reader->format = formats[i];
        if (!reader->format && reader->info.end_text)
            return sg_trace_fail(reader, "%s", reader->info.end_text);
        if (!reader->format)
            return sg_trace_fail(reader,
                "neither a trace of segalloc, nor a memory snapshot of PyTorch's, nor RMM's CSV, whose first "
                "line is '%s'",
                SG_RMM_HEADER);
    }
    reader->info.format = reader->format->name;
    reader->info.compressed = sg_source_compressed(reader->source);
    reader->info.conf = reader->info.command = "";
    int status = reader->format->open(reader);
    reader->shown = reader->info;
    return status;
}

int sg_trace_open(const char *path, struct sg_trace_reader **ret, char *error)
{
    struct sg_trace_reader *reader = calloc(1, sizeof(*reader));
    if (!reader) {
        snprintf(error, SG_TRACE_ERROR, "out of memory");
        return -ENOMEM;
    }
    int status = sg_source_open(path, &reader->source);
    if (status == -ENOTSUP)
        sg_trace_fail(reader, "compressed with zstd, which this build cannot read");
    else if (status < 0)
        sg_trace_fail(reader, "%s", strerror(-status));
    else
        status = reader_open_format(reader);
    if (status < 0) {
        memcpy(error, reader->error, SG_TRACE_ERROR);
        sg_trace_close(reader);
        return status;
    }
    *ret = reader;
    return 0;
}

/* Begins to read in batches where that pays: for a file that has to be parsed or decompressed. A thread that waits on a pipe
   could not be stopped. */
static void reader_start_batches(struct sg_trace_reader *reader)
{
    bool worth = reader->format == &sg_format_rmm_csv || reader->info.compressed;
    reader->begun = true;
    if (worth && sg_source_size(reader->source))
        reader->batches = sg_batches_start(reader, reader->keep_bytes);
}

void sg_trace_keep(struct sg_trace_reader *reader, uint64_t bytes)
{
    reader->keep_bytes = bytes;
}

size_t sg_trace_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n)
{
    uint64_t records = reader->shown.records;
    size_t count;
    if (!reader->begun)
        reader_start_batches(reader);
    if (reader->batches) {
        count = sg_batches_take(reader->batches, out, n);
    } else {
        count = reader->error[0] ? 0 : reader->format->read(reader, out, n);
        reader->shown = reader->info;
    }
    reader->shown.records = records + count;
    return count;
}

void sg_trace_close(struct sg_trace_reader *reader)
{
    if (!reader)
        return;
    sg_batches_stop(reader->batches);
    if (reader->format)
        reader->format->close(reader);
    sg_source_close(reader->source);
    free(reader->text);
    free(reader);
}

int sg_trace_rewind(struct sg_trace_reader *reader)
{
    if (!sg_source_size(reader->source))
        return -ESPIPE;
    if (!reader->begun)
        return 0;
    /* Kept batches are read again as they are; else everything is begun anew, the format's state included. */
    if (reader->batches && sg_batches_restart(reader->batches))
        return 0;
    sg_batches_stop(reader->batches);
    reader->batches = NULL;
    reader->keep_bytes = 0; /* a reading that was not kept whole is not kept again */
    int status = sg_source_rewind(reader->source);
    if (status < 0)
        return status;
    reader->format->close(reader);
    reader->state = NULL;
    reader->size = 0;
    reader->source_end = false;
    reader->error[0] = '\0';
    free(reader->text);
    reader->text = NULL;
    memset(&reader->info, 0, sizeof(reader->info));
    status = reader_open_format(reader);
    reader->begun = status < 0; /* where it failed there is no first record to be at */
    return status;
}

const char *sg_trace_error(const struct sg_trace_reader *reader)
{
    if (reader->batches && !sg_batches_have_failed(reader->batches))
        return NULL;
    return reader->error[0] ? reader->error : NULL;
}

const struct sg_trace_info *sg_trace_info(const struct sg_trace_reader *reader)
{
    return &reader->shown;
}

double sg_trace_progress(const struct sg_trace_reader *reader)
{
    uint64_t size = sg_source_size(reader->source);
    /* Bytes read of the file, compressed as it is: what a thread has read ahead counts too. */
    double kept = reader->batches ? sg_batches_progress(reader->batches) : -1;
    return kept >= 0 ? kept : size ? (double)sg_source_position(reader->source) / (double)size : -1;
}
