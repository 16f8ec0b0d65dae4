#include "reader/trace_output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rest.h"
#include "trace_file.h"

/* A file that is being written, with its block at hand. */
struct sg_trace_output {
    int fd, error;
    uint64_t sum, total;
    struct {
        struct segalloc_trace_block header;
        struct segalloc_trace_record record[SG_BLOCK_RECORDS];
    } block;
};

_Static_assert(sizeof(((struct sg_trace_output *)0)->block) == SEGALLOC_TRACE_BLOCK, "a block is full");

/* Begins a block. */
static void output_next_block(struct sg_trace_output *output)
{
    output->block.header = (struct segalloc_trace_block){.magic = SEGALLOC_BLOCK_MAGIC,
                                                         .sequence = output->block.header.sequence + 1};
    output->sum = SG_FNV_BASIS;
}

int sg_trace_output_open(int fd, const struct segalloc_trace_header *from, const char *conf, const char *command,
                         struct sg_trace_output **ret)
{
    struct segalloc_trace_header header = *from;
    header.magic = SEGALLOC_TRACE_MAGIC;
    header.version = SEGALLOC_TRACE_VERSION;
    header.header_bytes = sizeof(header);
    header.conf_bytes = (uint32_t)strlen(conf ? conf : "");
    header.command_bytes = (uint32_t)strlen(command ? command : "");
    size_t texts = (size_t)header.conf_bytes + header.command_bytes;
    header.data_offset = (sizeof(header) + texts + 4095) / 4096 * 4096;
    char *start = calloc(1, header.data_offset);
    struct sg_trace_output *output = calloc(1, sizeof(*output));
    int error = start && output ? 0 : -ENOMEM;
    if (!error) {
        memcpy(start, &header, sizeof(header));
        memcpy(start + sizeof(header), conf ? conf : "", header.conf_bytes);
        memcpy(start + sizeof(header) + header.conf_bytes, command ? command : "", header.command_bytes);
        error = sg_write_all(fd, start, header.data_offset);
    }
    free(start);
    if (error) {
        free(output);
        return error;
    }
    output->fd = fd;
    output_next_block(output);
    output->block.header.sequence = 0;
    *ret = output;
    return 0;
}

/* Puts a record into the block at hand, which has room. */
static void output_append(struct sg_trace_output *output, const struct segalloc_trace_record *record)
{
    output->block.record[output->block.header.count++] = *record;
    output->sum = sg_checksum_add(output->sum, record);
    output->total++;
}

/* Writes the block at hand, `size` bytes of it. After an error nothing is written any more. */
static void output_flush(struct sg_trace_output *output, size_t size)
{
    output->block.header.checksum = sg_checksum_end(output->sum);
    if (!output->error)
        output->error = sg_write_all(output->fd, &output->block, size);
}

int sg_trace_output_put(struct sg_trace_output *output, const struct segalloc_trace_record *record)
{
    if (output->block.header.count == SG_BLOCK_RECORDS) {
        output_flush(output, sizeof(output->block));
        output_next_block(output);
    }
    output_append(output, record);
    return output->error;
}

int sg_trace_output_close(struct sg_trace_output *output, uint64_t dropped)
{
    struct segalloc_trace_record end = {.kind = SEGALLOC_RECORD_END, .id = output->total, .size = dropped};
    sg_trace_output_put(output, &end);
    output_flush(output, sizeof(output->block.header) + output->block.header.count * sizeof(end));
    int error = output->error;
    free(output);
    return error;
}
