/* Advice: steps against the problems that were found. The configuration of the process is known, so that no line tells
   anyone to set what is set. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/conf_read.h"
#include "plain_text.h"
#include "report/findings.h"
#include "size.h"

#define WASTE_WORTH_A_LINE 0.97 /* utilization below which a line is worth reading */

static uint64_t advice_sum(const struct sg_findings *findings, enum sg_stat stat)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < findings->devices; i++)
        total += findings->device[i].stats.value[stat];
    return total;
}

/* A command or a file as a line has it, or the word that stands for one that is too long or no plain text. */
static const char *advice_shown_text(const char *text, const char *word)
{
    enum { MOST = 300 };
    char plain[MOST + 1];
    if (!*text || strlen(text) > MOST)
        return word;
    snprintf(plain, sizeof plain, "%s", text);
    return strcmp(sg_plain_text(plain), text) == 0 ? text : word;
}

static void about_serving(const struct sg_findings *findings, const struct sg_conf *conf, sg_advice_fn *say, void *user)
{
    char line[1024];
    if (!findings->passed_on)
        return;
    if (conf->backend != SG_BACKEND_NATIVE) {
        say(user, "backend:native serves allocations; the backend in force passes all of them on to the driver.");
        return;
    }
    snprintf(line, sizeof(line), "`segalloc doctor -- %s` says which allocations segalloc does not get, and why.",
        advice_shown_text(findings->command, "CMD"));
    say(user, line);
}

static void about_running_out(const struct sg_findings *findings, sg_advice_fn *say, void *user)
{
    char line[1024], a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (!findings->ooms)
        return;
    for (uint32_t i = 0; i < findings->devices; i++) {
        const struct sg_findings_device *device = &findings->device[i];
        if (!device->stats.value[SG_STAT_ooms] || !device->limit_bytes || device->limit_bytes >= device->total_bytes)
            continue;
        snprintf(line, sizeof(line),
                 "The limit of %s kept device %u from the rest of its %s: a higher one would let more succeed.",
                 sg_size_format(device->limit_bytes, a), device->ordinal, sg_size_format(device->total_bytes, b));
        say(user, line);
    }
    if (findings->trace) {
        snprintf(line, sizeof(line),
            "`segalloc rehearse -- %s` says how large a card is enough: the trace shows no more "
            "than the program did after the failure, `segalloc replay %s --min-limit` no more than a lower bound.",
            advice_shown_text(findings->command, "CMD"), advice_shown_text(findings->path, "FILE"));
        say(user, line);
    }
}

/* An allocation failed for which there would not have been room had nothing been idle. */
static bool is_too_much(const struct sg_findings *findings)
{
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        for (uint32_t j = 0; j < findings->devices; j++) {
            const struct sg_findings_device *device = &findings->device[j];
            uint64_t most = device->limit_bytes ? device->limit_bytes : device->total_bytes;
            if (device->ordinal == failure->device && failure->live_bytes + failure->bytes > most)
                return true;
        }
    }
    return false;
}

/* One block of much of the card among few: a pool of the program's own. RMM's takes half of what is free by default,
   XLA's three quarters, TensorFlow's nearly all. PyTorch's tensors are many. */
static void about_a_pool(const struct sg_findings *findings, sg_advice_fn *say, void *user)
{
    enum { PART_OF_CARD = 45, FEW = 64 };
    char line[1024], a[SG_SIZE_TEXT];
    for (uint32_t i = 0; i < findings->devices && !findings->torch && !findings->imported; i++) {
        const struct sg_findings_device *device = &findings->device[i];
        const uint64_t *value = device->stats.value, total = device->total_bytes;
        uint64_t percent = total ? (uint64_t)(100 * ((double)device->largest_request / (double)total)) : 0;
        if (percent < PART_OF_CARD || percent > 100 || value[SG_STAT_allocs] > FEW ||
            device->largest_request < device->stats.peak[SG_STAT_requested_bytes] / 2)
            continue;
        snprintf(line, sizeof line,
            "One block of %s is %" PRIu64 " %% of device %u: a pool of the program's own, if it is none of its arrays. What is in it is "
            "not seen here. Leave it out: rmm.mr.CudaMemoryResource() for RMM, cupy.cuda.set_allocator(None) for CuPy, "
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform for JAX, TF_FORCE_GPU_ALLOW_GROWTH=true for TensorFlow (docs/recipes.md).",
            sg_size_format(device->largest_request, a), percent, device->ordinal);
        say(user, line);
    }
}

static void about_waste(const struct sg_findings *findings, const struct sg_conf *conf, sg_advice_fn *say, void *user)
{
    char line[1024], a[SG_SIZE_TEXT];
    uint64_t idle = findings->peak_reserved - findings->peak_allocated;
    bool wasted = !is_too_much(findings) && findings->utilization >= 0 && findings->utilization < WASTE_WORTH_A_LINE &&
                  idle <= findings->peak_reserved;
    if (wasted && findings->peak_pending <= idle / 2) {
        sg_size_format(idle, a);
        if (!conf->expandable_segments) {
            snprintf(line, sizeof(line),
                     "expandable_segments:True lets pages go where they are needed; %s lay idle in fixed segments.", a);
            say(user, line);
        } else if (conf->reserve_slack != 1.0) {
            snprintf(line, sizeof(line),
                     "reserve_slack:1.0 moves idle pages before it takes new ones: up to %s less reserved, "
                     "for more calls of the driver.",
                     a);
            say(user, line);
        }
    }
    uint64_t rounded =
        findings->peak_allocated > findings->peak_requested ? findings->peak_allocated - findings->peak_requested : 0;
    bool rounding = false;
    for (int i = 0; i < SG_ROUNDUP_INTERVALS; i++)
        rounding |= conf->roundup_divisions[i] != 0;
    if (findings->knows_reserved && rounding && rounded > findings->peak_requested / 20) {
        snprintf(line, sizeof(line), "Without roundup_power2_divisions up to %s less would be allocated.",
                 sg_size_format(rounded, a));
        say(user, line);
    }
}

static void about_waiting(const struct sg_findings *findings, const struct sg_conf *conf, sg_advice_fn *say, void *user)
{
    char line[1024], a[SG_SIZE_TEXT];
    uint64_t strict_ns = advice_sum(findings, SG_STAT_strict_wait_ns);
    bool waits = conf->free_sync == SG_FREE_SYNC_AUTO || conf->free_sync == SG_FREE_SYNC_STRICT;
    if (waits && strict_ns > findings->duration_ns / 20 && strict_ns > 10000000) {
        snprintf(line, sizeof(line),
                 "free_sync:event frees without waiting for the device; frees waited %.2f s of %.2f s here.",
                 (double)strict_ns / 1e9, (double)findings->duration_ns / 1e9);
        say(user, line);
    }
    if (conf->pending_limit == SG_AUTO && findings->peak_pending > findings->peak_reserved / 10 &&
        findings->peak_pending) {
        snprintf(line, sizeof(line),
                 "pending_limit:%" PRIu64 "MiB would halve the %s that were freed but not usable yet, by waiting "
                 "for the oldest.",
                 findings->peak_pending / 2 / SG_MIB + 1, sg_size_format(findings->peak_pending, a));
        say(user, line);
    }
}

static void about_the_file(const struct sg_findings *findings, sg_advice_fn *say, void *user)
{
    char line[1024];
    uint64_t doubled = advice_sum(findings, SG_STAT_double_frees);
    if (doubled) {
        snprintf(line, sizeof(line), "%" PRIu64 " free%s of addresses that held no block: an error in the program.",
            doubled, sg_plural(doubled));
        say(user, line);
    }
    if (findings->dropped) {
        snprintf(line, sizeof(line),
            "%" PRIu64 " event%s missing from the trace: the disk was full or too slow. Write it to another "
            "file system.",
            findings->dropped, findings->dropped == 1 ? " is" : "s are");
        say(user, line);
    }
    if (findings->repeated) {
        snprintf(line, sizeof(line),
            "%" PRIu64 " allocation%s at addresses that were in use: the trace contradicts itself.", findings->repeated,
            findings->repeated == 1 ? " is" : "s are");
        say(user, line);
    }
}

void sg_findings_advice(const struct sg_findings *findings, sg_advice_fn *say, void *user)
{
    struct sg_conf conf;
    sg_conf_init(&conf);
    sg_conf_apply(&conf, SG_CONF_ENVIRONMENT, findings->conf, NULL, NULL);
    about_serving(findings, &conf, say, user);
    about_running_out(findings, say, user);
    about_a_pool(findings, say, user);
    about_waste(findings, &conf, say, user);
    about_waiting(findings, &conf, say, user);
    about_the_file(findings, say, user);
}
