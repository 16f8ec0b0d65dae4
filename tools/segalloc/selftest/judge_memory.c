#include "selftest/judge_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "driver/cost.h"

enum {
    SLOW_TIMES = 5,          /* what a call may cost more than assumed */
    PAGE_GRANULES_MOST = 16, /* larger pages than these leave too little of a card for small blocks */
    INFO_SLOW_NS = 2000000   /* of cuMemGetInfo, which programs call at every step */
};

void sg_judge_totals(struct sg_judging *judging)
{
    json_int_t total = sg_judging_fact(judging, "total_bytes"), info = sg_judging_fact(judging, "info_total_bytes");
    json_int_t available = sg_line_number(sg_lines_first(judging->selftest, "device", "free_bytes"), "free_bytes");
    char text[SG_SIZE_TEXT], other[SG_SIZE_TEXT];
    sg_size_format((uint64_t)total, text);
    sg_size_format((uint64_t)info, other);
    if (total <= 0)
        sg_verdict_set(judging, SG_SELFTEST_UNUSABLE, "cuDeviceTotalMem says 0: %s", judging->comes_to);
    else if (info < total - total / 20 || info > total + total / 20)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "cuDeviceTotalMem says %s, and cuMemGetInfo %s (a quota, or another's layer): the smaller one holds", text, other);
    else if (available > total)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "more is free than the device has, %s: what is free is not believed", text);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "%s, and cuMemGetInfo says %s", text, other);
}

/* The first names of a list, with commas between them. */
static void names_join(const json_t *names, char *ret, size_t size)
{
    size_t used = 0, count = json_array_size(names);
    *ret = '\0';
    for (size_t i = 0; i < count && i < 6 && used < size; i++)
        used += (size_t)snprintf(ret + used, size - used, "%s%s", i ? ", " : "", json_string_value(json_array_get(names, i)));
    if (count > 6 && used < size)
        snprintf(ret + used, size - used, " and %zu more", count - 6);
}

void sg_judge_calls(struct sg_judging *judging)
{
    size_t at = 0;
    const json_t *line;
    sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "the driver has all that the allocator makes");
    while ((line = sg_lines_next(judging->selftest, "calls", "need", &at))) {
        const char *need = json_string_value(json_object_get(line, "need"));
        char names[200];
        if (!sg_line_number(line, "lacking"))
            continue;
        names_join(json_object_get(line, "names"), names, sizeof names);
        if (strcmp(need, "required") == 0) {
            sg_verdict_set(judging, SG_SELFTEST_UNUSABLE, "this driver has no %s: %s", names, judging->comes_to);
            return;
        }
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "this driver has no %s: %s", names,
            strcmp(need, "vmm") == 0 ? "memory is served from fixed segments" : "the library does without");
        if (strcmp(need, "vmm") == 0)
            return;
    }
}

void sg_judge_plain(struct sg_judging *judging)
{
    json_int_t take = sg_judging_fact(judging, "cost.cuMemAlloc_v2"), give = sg_judging_fact(judging, "cost.cuMemFree_v2");
    sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "cuMemAlloc and cuMemFree of 2 MiB take %.0f and %.0f µs", (double)take / 1e3,
        (double)give / 1e3);
}

/* The line of handles with one property. */
static const json_t *handle_line(const struct sg_judging *judging, const char *property)
{
    size_t at = 0;
    const json_t *line;
    while ((line = sg_lines_next(judging->selftest, "handles", "handle", &at)))
        if (strcmp(json_string_value(json_object_get(line, "handle")), property) == 0)
            return line;
    return NULL;
}

void sg_judge_pages(struct sg_judging *judging)
{
    static const char *const calls[][2] = {{"granularity_code", "cuMemGetAllocationGranularity"}, {"create", "cuMemCreate"},
        {"map", "cuMemMap"}, {"access", "cuMemSetAccess"}};
    json_int_t granule = sg_judging_fact(judging, "granularity");
    char text[SG_SIZE_TEXT];
    size_t at = 0;
    const json_t *line;
    if (!sg_judging_has_pages(judging)) {
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "the device has no virtual memory management: %s", judging->comes_to);
        return;
    }
    sg_size_format((uint64_t)granule, text);
    sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "of %s and its multiples", text);
    if (granule < 65536 || (granule & (granule - 1)) || granule > (json_int_t)SG_GIB)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "the granularity is %s, no power of two from 64 KiB to 1 GiB: %s", text,
            judging->comes_to);
    /* A device may lack properties. Pages that could be created with one are to be mapped. */
    while ((line = sg_lines_next(judging->selftest, "handles", "handle", &at))) {
        bool bare = strcmp(json_string_value(json_object_get(line, "handle")), "bare") == 0;
        for (size_t i = bare ? 0 : 2; i < sizeof calls / sizeof *calls; i++)
            if (sg_line_number(line, calls[i][0])) {
                sg_judging_call(judging, SG_SELFTEST_DIFFERS, calls[i][1], (int)sg_line_number(line, calls[i][0]));
                return;
            }
    }
}

void sg_judge_exported(struct sg_judging *judging)
{
    const json_t *fd = handle_line(judging, "fd"), *rdma = handle_line(judging, "rdma"), *fabric = handle_line(judging, "fabric");
    if (!sg_judging_has_pages(judging) || sg_line_number(handle_line(judging, "bare"), "create"))
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    else if (!sg_judging_fact(judging, "posix_handles") || sg_line_number(fd, "create"))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "no file descriptors of pages (cuMemCreate answers %d): %s",
            (int)sg_line_number(fd, "create"), judging->comes_to);
    else if (sg_line_number(fd, "export") > 0)
        sg_judging_call(judging, SG_SELFTEST_DIFFERS, "cuMemExportToShareableHandle", (int)sg_line_number(fd, "export"));
    else if (!sg_judging_fact(judging, "rdma_vmm") || sg_line_number(rdma, "create"))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "network cards can't reach pages (GPUDirect RDMA): what is registered with one needs ipc:always");
    else if (sg_judging_fact(judging, "fabric_handles") && sg_line_number(fabric, "create"))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "the device has fabric handles, and cuMemCreate answers %d (is IMEX running?): pages stay on this machine",
            (int)sg_line_number(fabric, "create"));
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "as file descriptors%s, and for network cards",
            sg_judging_fact(judging, "fabric_handles") ? " and fabric handles" : "");
}

void sg_judge_pointers(struct sg_judging *judging)
{
    const json_t *range = sg_lines_first(judging->selftest, "pointers", "address_range_code");
    json_int_t ipc = sg_judging_fact(judging, "pointer.plain_ipc");
    if (ipc > 0)
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "legacy IPC is refused for the driver's own memory, %d (%s): tensors can't be sent to other processes by it",
            (int)ipc, sg_judging_code_name((int)ipc));
    else if (!sg_judging_has_pages(judging) || !range)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    else if (sg_line_number(range, "address_range_code"))
        sg_judging_call(judging, SG_SELFTEST_DIFFERS, "cuMemGetAddressRange", (int)sg_line_number(range, "address_range_code"));
    else if (sg_line_number(range, "address_range_bytes") != sg_line_number(range, "mapping_bytes"))
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "cuMemGetAddressRange tells %lld bytes of a mapping of %lld: %s",
            (long long)sg_line_number(range, "address_range_bytes"), (long long)sg_line_number(range, "mapping_bytes"), judging->comes_to);
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "an address in the second of several mappings is that mapping's");
}

void sg_judge_names(struct sg_judging *judging)
{
    static const char *const wrong[][2] = {{"not_exported", "is answered by a function that is not exported"},
        {"exported_but_not_answered", "is exported, and cuGetProcAddress does not answer it"},
        {"new_forms", "is a form of a call that is hooked in another"}};
    const json_t *all = sg_lines_first(judging->selftest, "names", "hooked");
    const json_t *skipped = sg_lines_first(judging->selftest, "names", "skipped");
    if (skipped) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "%s", json_string_value(json_object_get(skipped, "skipped")));
        return;
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const json_t *line = sg_lines_first(judging->selftest, "names", wrong[i][0]);
        char names[200];
        if (!sg_line_number(line, wrong[i][0]))
            continue;
        names_join(json_object_get(line, "names"), names, sizeof names);
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "%s: %s: %s", names, wrong[i][1], judging->comes_to);
        return;
    }
    sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "%lld of %lld hooked calls are there, each by one function",
        (long long)(sg_line_number(all, "hooked") - sg_line_number(all, "absent")), (long long)sg_line_number(all, "hooked"));
}

void sg_judge_addresses(struct sg_judging *judging)
{
    const json_t *line = sg_lines_first(judging->selftest, "addresses", "ranges");
    if (!line)
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    else if (sg_line_number(line, "code"))
        sg_judging_call(judging, SG_SELFTEST_DIFFERS, "cuMemAddressReserve", (int)sg_line_number(line, "code"));
    else
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "twice the device can be reserved ten times");
}

/* Larger pages cost fewer calls for the same memory. */
static void suggest_page_size(struct sg_judging *judging, json_int_t times)
{
    json_int_t granules = 2, granule = sg_judging_fact(judging, "granularity");
    while (granules < times && granules < PAGE_GRANULES_MOST)
        granules *= 2;
    if (granule > 0 && granules * granule >= (json_int_t)(2 * SG_MIB))
        sg_verdict_suggest(judging, "page_size_mb:%lld", (long long)(granules * granule / (json_int_t)SG_MIB));
}

void sg_judge_costs(struct sg_judging *judging)
{
    static const struct {
        const char *fact, *call;
        json_int_t assumed_ns;
    } costs[] = {
#define COST(name, call_ns, handle_ns) {NULL, #name, (handle_ns) + (call_ns)},
#include "driver/cost.def"
    };
    static const char *const facts[SG_COST_CALLS][2] = {[SG_COST_create] = {"cost.cuMemCreate", "cuMemCreate"},
        [SG_COST_map] = {"cost.cuMemMap", "cuMemMap"}, [SG_COST_set_access] = {"cost.cuMemSetAccess.handle", "cuMemSetAccess"},
        [SG_COST_unmap] = {"cost.cuMemUnmap.handle", "cuMemUnmap"}, [SG_COST_release] = {"cost.cuMemRelease", "cuMemRelease"}};
    json_int_t info = sg_judging_fact(judging, "cost.cuMemGetInfo_v2"), worst = 0;
    int slowest = -1;
    if (sg_judging_fact(judging, "cost.cuMemCreate") < 0) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
        return;
    }
    for (int i = 0; i < SG_COST_CALLS; i++) {
        json_int_t ns = sg_judging_fact(judging, facts[i][0]), times = ns / costs[i].assumed_ns;
        if (times >= SLOW_TIMES && times > worst) {
            worst = times;
            slowest = i;
        }
    }
    if (slowest >= 0) {
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS,
            "%s takes %.0f µs a page, and %.0f are assumed: growing and moving are slow, and larger pages need fewer calls",
            facts[slowest][1], (double)sg_judging_fact(judging, facts[slowest][0]) / 1e3, (double)costs[slowest].assumed_ns / 1e3);
        suggest_page_size(judging, worst);
    } else if (info > INFO_SLOW_NS) {
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "cuMemGetInfo takes %.1f ms: programs that ask at every step wait for it",
            (double)info / 1e6);
    } else {
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "a page takes %.0f µs to create, %.0f to give access, %.0f to unmap",
            (double)sg_judging_fact(judging, "cost.cuMemCreate") / 1e3,
            (double)sg_judging_fact(judging, "cost.cuMemSetAccess.handle") / 1e3,
            (double)sg_judging_fact(judging, "cost.cuMemUnmap.handle") / 1e3);
    }
}

void sg_judge_mappings(struct sg_judging *judging)
{
    json_int_t stopped = sg_judging_fact(judging, "addresses.stopped_at"), code = sg_judging_fact(judging, "addresses.stopped_code");
    enum { LEAST = 1024 };
    if (stopped > 0) {
        json_int_t most = stopped - stopped / 4;
        sg_verdict_set(judging, SG_SELFTEST_DIFFERS, "after %lld mappings cuMemSetAccess answers %lld (%s): %s", (long long)stopped,
            (long long)code, sg_judging_code_name((int)code), judging->comes_to);
        sg_verdict_suggest(judging, "mapping_limit:%lld", (long long)(most > LEAST ? most : LEAST));
        (void)sg_judging_note_call(judging, "cuMemSetAccess", (int)code, SG_SELFTEST_UNUSABLE);
    } else if (stopped == 0) {
        sg_judging_call(judging, SG_SELFTEST_DIFFERS, "cuMemSetAccess", (int)code);
    } else if (!sg_lines_first(judging->selftest, "addresses of a handle", "addresses")) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "there are no pages");
    } else {
        sg_verdict_set(judging, SG_SELFTEST_AS_ASSUMED, "a page can have 16,384 addresses");
    }
}
