#include "selftest/judge_work.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NS_MOST = 2000000000 /* that a process with 16,384 mappings may take to end */ };

/* Adds up what the rows that begin so have read wrong, and names the first that did. */
static json_int_t wrong_words(const struct sg_judging *judging, bool copied, const char **ret_row, bool *ret_known)
{
    json_int_t wrong = 0;
    size_t index;
    json_t *line;
    *ret_row = NULL;
    *ret_known = false;
    json_array_foreach (judging->selftest->lines, index, line) {
        const char *row = json_string_value(json_object_get(line, "row"));
        json_t *words = json_object_get(line, "words");
        if (!words || strcmp(row, "control") == 0 || (strncmp(row, "copied", 6) == 0) != copied)
            continue;
        *ret_known = true;
        wrong += sg_line_number(line, "wrong");
        if (!*ret_row && sg_line_number(line, "wrong"))
            *ret_row = row;
    }
    return wrong;
}

static void judge_words(struct sg_judging *judging, bool copied)
{
    const char *row;
    bool known;
    json_int_t wrong = wrong_words(judging, copied, &row, &known);
    if (!known) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    } else if (wrong) {
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "a page at two addresses has other bytes at each: %lld words were read wrong, first by \"%s\": %s", (long long)wrong,
            row, judging->comes_to);
        sg_verdict_suggest(judging, "%s", judging->setting);
    } else {
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "a page at two addresses has the same bytes at both, by %s",
            copied ? "copies and sets" : "kernels in eleven ways");
    }
}

void sg_judge_aliases(struct sg_judging *judging)
{
    judge_words(judging, true);
}

void sg_judge_kernels(struct sg_judging *judging)
{
    const json_t *control = sg_lines_first(judging->selftest, "control", "found");
    if (!control)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there is no compiler for kernels (libnvrtc), or none for this device");
    else if (!json_equal(json_object_get(control, "found"), json_object_get(control, "of")))
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "kernels do not run here");
    else
        judge_words(judging, false);
}

void sg_judge_order(struct sg_judging *judging)
{
    json_int_t wrong = 0, programs = 0;
    char ways[128] = "";
    size_t at = 0, used = 0;
    const json_t *line;
    while ((line = sg_lines_next(judging->selftest, "order", "way", &at))) {
        programs += sg_line_number(line, "programs");
        wrong += sg_line_number(line, "wrong");
        if (sg_line_number(line, "wrong") && used < sizeof ways)
            used += (size_t)snprintf(ways + used, sizeof ways - used, "%s%s", used ? ", " : "",
                json_string_value(json_object_get(line, "way")));
    }
    if (!programs) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "no program of sets and copies could be run");
    } else if (wrong) {
        sg_verdict_set(judging, SG_SELFTEST_UNUSABLE, "%lld blocks had the bytes of an earlier step, ordered by %s: %s",
            (long long)wrong, ways, judging->comes_to);
        sg_verdict_suggest(judging, "%s", judging->setting);
    } else {
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "%lld random programs on four streams left the right bytes", (long long)programs);
    }
}

void sg_judge_beside_work(struct sg_judging *judging)
{
    const json_t *waits = sg_selftest_fact(judging->selftest, "vmm_waits");
    if (!waits)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "%s",
            sg_lines_first(judging->selftest, "beside work", "outlived") ? "this machine is too busy to tell"
                                                                         : "there are no pages");
    else if (json_is_true(waits))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "cuMemSetAccess and cuMemUnmap wait for the device's work: %s", judging->comes_to);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "pages come and go while copies run");
}

void sg_judge_growth(struct sg_judging *judging)
{
    json_int_t one = sg_judging_fact(judging, "growth.1.ns_a_page"), four = sg_judging_fact(judging, "growth.4.ns_a_page");
    if (four < 0)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "a page takes %.0f µs alone, %.0f where four processes grow", (double)one / 1e3,
            (double)four / 1e3);
}

void sg_judge_captures(struct sg_judging *judging)
{
    const json_t *skipped = sg_lines_first(judging->selftest, "context event", "skipped"), *line;
    size_t at = 0;
    int ways = 0;
    while ((line = sg_lines_next(judging->selftest, "context event", "capture", &at))) {
        ways++;
        if (sg_line_number(line, "record") == 0 && sg_line_number(line, "end_of_capture") != 0) {
            sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
                "cuCtxRecordEvent by %s succeeds in a %s capture, whose end then answers %d: %s",
                json_string_value(json_object_get(line, "recorded_by")), json_string_value(json_object_get(line, "capture")),
                (int)sg_line_number(line, "end_of_capture"), judging->comes_to);
            return;
        }
    }
    if (ways)
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "an event over a context is refused in a capture, or leaves it whole");
    else
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "%s",
            skipped ? json_string_value(json_object_get(skipped, "skipped")) : "no capture could be begun");
}

void sg_judge_exit(struct sg_judging *judging)
{
    json_int_t longest = 0;
    size_t at = 0;
    const json_t *line;
    while ((line = sg_lines_next(judging->selftest, "exit", "exit_ns", &at)))
        longest = sg_line_number(line, "exit_ns") > longest ? sg_line_number(line, "exit_ns") : longest;
    /* The row goes on where a process could not be made: with too few mappings, or at a call that has been named. */
    if (sg_lines_first(judging->selftest, "exit", "error") && judging->calls)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "not known, since %s fails here too", judging->call[0].name);
    else if (sg_lines_first(judging->selftest, "exit", "error"))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "a process with many mappings can't be made: %s", judging->comes_to);
    else if (!sg_lines_first(judging->selftest, "exit", "exit_ns"))
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    else if (longest > EXIT_NS_MOST)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "a process with 16,384 mappings takes %.1f s to end: %s", (double)longest / 1e9,
            judging->comes_to);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "a process with 16,384 mappings ends within %.0f ms", (double)longest / 1e6);
}

void sg_judge_contexts(struct sg_judging *judging)
{
    static const char *const calls[][2] = {{"unmap", "cuMemUnmap"}, {"handle", "cuMemRelease"}, {"range", "cuMemAddressFree"}};
    static const char *const rows[] = {"reset", "last release"};
    int known = 0;
    for (int row = 0; row < 2; row++) {
        const json_t *line = sg_lines_first(judging->selftest, rows[row], "unmap");
        known += line != NULL;
        for (size_t i = 0; line && i < sizeof calls / sizeof *calls; i++) {
            int code = (int)sg_line_number(line, calls[i][0]);
            if (!code)
                continue;
            if (sg_judging_note_call(judging, calls[i][1], code, SG_SELFTEST_DIFFERS))
                sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "not known, since %s fails here too", calls[i][1]);
            else
                sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "after a context's %s, %s of its memory answers %d (%s): %s",
                    row ? "last release" : "reset", calls[i][1], code, sg_judging_code_name(code), judging->comes_to);
            return;
        }
    }
    if (known)
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "memory of a context that has ended can be given back");
    else
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
}

/* Bytes in a second as people write them: "13.4 GB/s". */
static const char *judge_speed(json_int_t bytes_per_s, char ret[32])
{
    snprintf(ret, 32, "%.1f GB/s", (double)bytes_per_s / 1e9);
    return ret;
}

void sg_judge_transfer(struct sg_judging *judging)
{
    const json_t *arrived = sg_lines_first(judging->selftest, "transfer", "copied");
    json_int_t pinned = sg_judging_fact(judging, "transfer.pinned_code"), wrong = sg_line_number(arrived, "wrong");
    char to[32], on[32], back[32];
    judge_speed(sg_judging_fact(judging, "transfer.host_to_device.bytes_per_s"), to);
    judge_speed(sg_judging_fact(judging, "transfer.device_to_device.bytes_per_s"), on);
    judge_speed(sg_judging_fact(judging, "transfer.device_to_host.bytes_per_s"), back);
    if (!arrived)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "no copy could be made");
    else if (wrong)
        sg_verdict_set(judging, SG_SELFTEST_UNUSABLE,
            "of %lld words that were copied to the device and back %lld did not arrive: %s",
            (long long)sg_line_number(arrived, "copied"), (long long)wrong, judging->comes_to);
    else if (pinned)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "cuMemHostAlloc answers %lld (%s) for 16 MiB: copies wait for the host, %s to the device and %s back",
            (long long)pinned, sg_judging_code_name((int)pinned), to, back);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "%s to the device, %s back, %s on it", to, back, on);
}

void sg_judge_managed(struct sg_judging *judging)
{
    const json_t *line = sg_lines_first(judging->selftest, "managed memory", "managed_bytes");
    const json_t *skipped = sg_lines_first(judging->selftest, "managed memory", "skipped");
    json_int_t bytes = sg_line_number(line, "managed_bytes"), wrong = sg_line_number(line, "wrong");
    if (!line)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "%s",
            skipped ? json_string_value(json_object_get(skipped, "skipped")) : "none could be had");
    else if (wrong)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "%lld words that host and device wrote in turn were wrong: %s",
            (long long)wrong, judging->comes_to);
    else if (sg_line_number(line, "taken") < bytes / 2)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "managed memory that the device has written takes nothing of the device: what is free by cuMemGetInfo is "
            "then too much");
    else if (sg_line_number(line, "kept") > bytes / 2)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "managed memory that is freed stays taken: it is memory that nobody can have");
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "host and device read what the other wrote");
}

/* The first line of the peers that says that something is wrong; false: none does. */
static bool judge_peer_faults(struct sg_judging *judging)
{
    static const struct {
        const char *key, *member, *format;
    } faults[] = {
        {"copied_to", "code", "cuMemcpyPeer to device %lld answers %lld (%s): %s"},
        {"peer", "enable",
            "device %lld can be reached by its own word, and cuCtxEnablePeerAccess answers %lld (%s): %s"},
        {"pages_of", "code", "pages of device %lld that two devices are to use: cuMemSetAccess answers %lld (%s): %s"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const json_t *line;
        size_t at = 0;
        while ((line = sg_lines_next(judging->selftest, "peers", faults[i].key, &at))) {
            json_int_t code = sg_line_number(line, faults[i].member);
            if (!code)
                continue;
            char text[sizeof judging->verdict->text];
            snprintf(text, sizeof text, faults[i].format, (long long)sg_line_number(line, faults[i].key),
                (long long)code, sg_judging_code_name((int)code), judging->comes_to);
            sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "%s", text);
            return true;
        }
    }
    return false;
}

/* Words that did not arrive, as where an IOMMU stands between the devices. */
static bool judge_peer_words(struct sg_judging *judging)
{
    static const char *const keys[] = {"to_device", "written_to"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *line;
        size_t at = 0;
        while ((line = sg_lines_next(judging->selftest, "peers", keys[i], &at))) {
            const json_t *how = json_object_get(line, "how");
            if (!sg_line_number(line, "wrong"))
                continue;
            sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "%lld words did not arrive on another device, by %s: %s",
                (long long)sg_line_number(line, "wrong"), how ? json_string_value(how) : "cuMemcpyPeer",
                "an IOMMU between them, perhaps; no program on several devices can be trusted (NCCL_P2P_DISABLE=1)");
            return true;
        }
    }
    return false;
}

void sg_judge_peers(struct sg_judging *judging)
{
    json_int_t devices = sg_judging_fact(judging, "devices");
    const json_t *copied = sg_lines_first(judging->selftest, "peers", "to_device");
    char speed[32];
    if (devices < 2)
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "there is one device");
    else if (judge_peer_words(judging) || judge_peer_faults(judging))
        return;
    else if (sg_judging_fact(judging, "peer_access") == 0)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "of %lld devices: devices can't reach each other's memory",
            (long long)devices);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "devices reach each other's memory; copies between them: %s",
            judge_speed(sg_line_number(copied, "bytes_per_s"), speed));
}

/* A container may have no /dev/shm, or one that it may not write to. */
void sg_judge_shared_memory(struct sg_judging *judging)
{
    if (access("/dev/shm", W_OK | X_OK) == 0)
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "/dev/shm can be written to");
    else
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "/dev/shm is not there, or can't be written to: %s", judging->comes_to);
}
