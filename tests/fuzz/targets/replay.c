/* Records through the core on a card that only keeps the books, by the rules of segalloc or PyTorch. The first four bytes
   choose how; records of 32 bytes follow, as they stand in a trace. */
#include "config/conf_read.h"
#include "player.h"

#include "size.h"
#include "target.h"
#include "reader/trace_check.h"

enum { CHOICES = 4, RECORDS_MOST = 1024 };

struct input {
    const uint8_t *at;
    size_t left; /* whole records */
};

static const char *const confs[] = {
    "", "reserve_slack:1.0", "expandable_segments:False", "free_sync:event", "free_sync:strict,page_size_mb:6",
    "max_split_size_mb:64", "alias:off,reserve_slack:1.0", "ipc:always", "garbage_collection_threshold:0.6,limit:0.8",
    "roundup_power2_divisions:8,pending_limit:16MiB",
    "expandable_segments:False,max_split_size_mb:64,garbage_collection_threshold:0.5",
};
static const char *const torch_confs[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:8",
    "expandable_segments:True,max_split_size_mb:32,garbage_collection_threshold:0.5",
};

/* The next ones, without those that a reader would have refused. */
static size_t next_records(void *source, struct segalloc_trace_record *out, size_t n)
{
    struct input *input = source;
    size_t done = 0;
    while (done < n && input->left) {
        memcpy(&out[done], input->at, sizeof *out);
        input->at += sizeof *out;
        input->left--;
        done += !sg_trace_check_record(&out[done]);
    }
    return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t cards[] = {64 * SG_MIB, 300 * SG_MIB, SG_GIB + 512, 8 * SG_GIB};
    static const uint64_t granules[] = {2 * SG_MIB, 2 * SG_MIB, 2 * SG_MIB, SG_MIB / 16};
    if (size < CHOICES)
        return 0;
    struct input input = {data + CHOICES, (size - CHOICES) / sizeof(struct segalloc_trace_record)};
    input.left = input.left < RECORDS_MOST ? input.left : RECORDS_MOST;
    struct sg_play play = {.card_bytes = cards[data[1] % 4],
        .granularity = granules[data[1] / 4 % 4],
        .next = next_records,
        .source = &input,
        .stop_at_oom = data[1] >= 0xf0};
    struct sg_play_result result;
    char error[SG_PLAY_ERROR] = "";
    sg_conf_init(&play.conf);
    if (data[0] % 4 == 3) {
        play.policy = SG_POLICY_PYTORCH;
        FUZZ_EXPECT(sg_torch_conf_parse(torch_confs[data[2] % (sizeof torch_confs / sizeof *torch_confs)], &play.torch,
                        error) == 0);
    } else {
        (void)sg_conf_apply(&play.conf, SG_CONF_ARGUMENT, confs[data[2] % (sizeof confs / sizeof *confs)], NULL, NULL);
        play.as_recorded = data[0] % 4 == 0;
        play.ordered = data[0] % 4 == 1;
        play.run_ahead = data[3] % 64;
        play.possible_users = data[3] & 64;
    }
    if (sg_play_run(&play, &result, error) != 0)
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
    else if (!play.as_recorded && play.policy == SG_POLICY_SEGALLOC) /* where the trace says what the driver answered */
        FUZZ_EXPECT(result.peak_allocated >= result.peak_requested);
    return 0;
}
