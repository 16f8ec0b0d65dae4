/* Overflow in a rehearsal. A card that is too small may do with part of the memory on another device or in the host's, which has its
   cost. */
#include "rehearse/rehearse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/conf_read.h"
#include "size.h"
#include "tool.h"

int sg_rehearse_read_overflow(struct sg_rehearse *rehearse, const char *places)
{
    static char setting[64];
    struct sg_conf conf;
    int length = snprintf(setting, sizeof setting, "overflow:%s", places);
    sg_conf_init(&conf);
    if (length >= (int)sizeof setting || strchr(places, ':') ||
        sg_conf_apply(&conf, SG_CONF_ARGUMENT, setting, NULL, NULL))
        return sg_tool_usage(rehearse->verb,
            "--overflow takes host=SIZE, such as host=4GiB, peer, peer=SIZE, or peer and host with a comma, not \"%s\"",
            places);
    rehearse->overflow = sg_conf_overflows(&conf) ? setting : NULL;
    rehearse->overflow_peer = conf.overflow.peer;
    rehearse->overflow_where = !conf.overflow.peer   ? "of the host's memory"
                               : !conf.overflow.host ? "on another device"
                                                     : "elsewhere";
    return 0;
}

/* Bytes over the link. Kernels that say nothing may have touched each far byte, and copies and sets alone are too few then. */
static uint64_t overflow_link_bytes(const struct sg_rehearse_overflow *overflow, bool *ret_estimated)
{
    uint64_t twice = 2 * overflow->far.step_bytes;
    *ret_estimated = !overflow->link_bytes || overflow->untold;
    return *ret_estimated && twice > overflow->link_bytes ? twice : overflow->link_bytes;
}

int sg_rehearse_note_far(struct sg_rehearse *rehearse, struct sg_trace_reader *reader,
    const struct sg_rehearse_overflow *link)
{
    struct sg_rehearse_overflow own = *link;
    bool estimated;
    int error = sg_far_read(reader, &own.far);
    if (!error && overflow_link_bytes(&own, &estimated) > overflow_link_bytes(&rehearse->far, &estimated))
        rehearse->far = own;
    return error;
}

double sg_rehearse_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card, bool *ret_estimated)
{
    const struct sg_rehearse_overflow *overflow = &card->overflow;
    double seconds = (double)overflow_link_bytes(overflow, ret_estimated) / (double)rehearse->rate.bytes;
    return overflow->far.steps ? seconds / (double)overflow->far.steps : seconds;
}

/* "1.30 GiB of the host's memory in 2 of 40 steps, about 41 ms a step at 31.5 GB/s". */
void sg_rehearse_print_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    const struct sg_far *far = &card->overflow.far;
    char size[SG_SIZE_TEXT];
    bool estimated;
    double seconds = sg_rehearse_bill(rehearse, card, &estimated);
    printf("%s %s", sg_size_format(far->peak_bytes, size), rehearse->overflow_where);
    if (far->of_steps)
        printf(" in %" PRIu64 " of %" PRIu64 " step%s", far->steps, far->of_steps, sg_plural(far->of_steps));
    printf(", %s %.3g %s%s at %.3g GB/s", estimated ? "estimated at" : "about", seconds < 1 ? seconds * 1e3 : seconds,
        seconds < 1 ? "ms" : "s", far->of_steps ? " a step" : " in all", (double)rehearse->rate.bytes / 1e9);
}

json_t *sg_rehearse_json_bill(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    const struct sg_far *far = &card->overflow.far;
    if (!far->peak_bytes)
        return json_null();
    bool estimated;
    double seconds = sg_rehearse_bill(rehearse, card, &estimated);
    json_t *bill = sg_json_object(NULL);
    SG_JSON_NUMBERS(bill, {"bytes_peak", far->peak_bytes}, {"blocks", far->blocks});
    sg_json_set_known(bill, "steps", far->steps, far->of_steps);
    sg_json_set_known(bill, "of_steps", far->of_steps, far->of_steps);
    SG_JSON_NUMBERS(bill, {"link_bytes", overflow_link_bytes(&card->overflow, &estimated)});
    sg_json_set_flag(bill, "estimated", estimated);
    sg_json_set(bill, "seconds_a_step", sg_json_real(seconds, 6));
    SG_JSON_NUMBERS(bill, {"rate_bytes_per_s", rehearse->rate.bytes});
    sg_json_set_text(bill, "rate_source", rehearse->rate.source);
    return bill;
}
