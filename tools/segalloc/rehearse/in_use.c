/* Memory that a program had in use where a card was full, and at its peak. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "analysis/roles.h"
#include "rehearse/rehearse.h"
#include "reader/trace_reader.h"

/* Adds a group to the sums, and to the largest if it is one of them. */
static void add_group(struct sg_rehearse_held *held, const struct sg_rehearse_in_use *sum)
{
    int at = SG_REHEARSE_IN_USE;
    held->bytes += sum->bytes;
    held->blocks += sum->blocks;
    while (at > 0 && held->group[at - 1].bytes < sum->bytes)
        at--;
    if (at == SG_REHEARSE_IN_USE)
        return;
    memmove(&held->group[at + 1], &held->group[at], (size_t)(SG_REHEARSE_IN_USE - 1 - at) * sizeof *sum);
    held->group[at] = *sum;
}

static int by_site(const void *a, const void *b)
{
    const struct sg_group *x = a, *y = b;
    int order = x->site && y->site ? strcmp(x->site, y->site) : (x->site != NULL) - (y->site != NULL);
    return order ? order : x->site ? 0 : (int)x->size_class - (int)y->size_class;
}

/* The groups of a device, by the line that asked for them, and where that is not known by their size. */
static void held_list_groups(struct sg_groups *groups, uint32_t device, struct sg_rehearse_held *held)
{
    if (groups->count)
        qsort(groups->group, groups->count, sizeof *groups->group, by_site);
    for (size_t i = 0, end; i < groups->count; i = end) {
        struct sg_rehearse_in_use sum = {.blocks = 0};
        for (end = i; end < groups->count && by_site(&groups->group[i], &groups->group[end]) == 0; end++) {
            bool own = groups->group[end].device == device;
            sum.bytes += own ? groups->group[end].bytes : 0;
            sum.blocks += own ? groups->group[end].blocks : 0;
        }
        if (groups->group[i].site)
            snprintf(sum.site, sizeof sum.site, "%s", groups->group[i].site);
        if (sum.blocks)
            add_group(held, &sum);
    }
}

/* Roles of a device's blocks after a request; none where there was no request before that. */
static void held_find_roles(struct sg_trace_reader *reader, uint32_t device, uint64_t request,
    struct sg_rehearse_held *held)
{
    struct sg_roles_moment moment = {.device = device, .request = request};
    if (held->blocks && request && sg_roles_read(reader, &moment, 1) == 0)
        held->roles = moment.roles;
}

void sg_rehearse_hold(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_card *card)
{
    struct sg_groups groups;
    card->held = (struct sg_rehearse_held){.blocks = 0};
    if (sg_groups_read_before(reader, card->ends_at_event, &groups) == 0)
        held_list_groups(&groups, device, &card->held);
    sg_groups_free(&groups);
    held_find_roles(reader, device, card->ends_at_event - 1, &card->held);
}

void sg_rehearse_hold_peak(struct sg_trace_reader *reader, uint32_t device, struct sg_rehearse_held *ret)
{
    struct sg_groups groups;
    *ret = (struct sg_rehearse_held){.blocks = 0};
    if (sg_trace_rewind(reader) != 0)
        return;
    if (sg_groups_read(reader, SG_MOMENT_PEAK, 0, &groups) == 0)
        held_list_groups(&groups, device, ret);
    held_find_roles(reader, device, groups.moment.request[device], ret);
    sg_groups_free(&groups);
}
