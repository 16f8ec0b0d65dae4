#include "doctor/examination.h"
#include "doctor/registration.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "monitor/nvml.h"
#include "selftest/selftest.h"
#include "size.h"

static const char *const answer_words[] = {
#define ANSWER(name, word) word,
    SG_DOCTOR_ANSWERS(ANSWER)
#undef ANSWER
};

/* Names of the checks that differed in a self-test. */
static json_t *selftest_differing(const json_t *selftest)
{
    json_t *names = sg_json_array();
    const json_t *verdict;
    size_t index;
    json_array_foreach(json_object_get(selftest, "verdicts"), index, verdict)
    {
        const char *word = json_string_value(json_object_get(verdict, "verdict"));
        if (word && strcmp(word, sg_selftest_word(SG_SELFTEST_AS_ASSUMED)) != 0 &&
            strcmp(word, sg_selftest_word(SG_SELFTEST_LEFT_OUT)) != 0)
            sg_json_add(names, json_incref(json_object_get(verdict, "check")));
    }
    return names;
}

/* The use of each device by anybody, as NVML has it. */
static void print_nvml(void)
{
    struct sg_nvml_device device[SG_NVML_DEVICES];
    char used[SG_SIZE_TEXT], total[SG_SIZE_TEXT];
    unsigned count = sg_nvml_read(device);
    for (unsigned i = 0; i < count; i++) {
        if (device[i].total_bytes)
            printf("  NVML     %u %s: %s of %s in use by anybody\n", device[i].index, device[i].uuid,
                sg_size_format(device[i].used_bytes, used), sg_size_format(device[i].total_bytes, total));
        else
            printf("  NVML     %u %s: no figures of memory\n", device[i].index, device[i].uuid);
    }
}

/* The last result of `segalloc selftest` for the first device under this driver. */
static void print_selftest(const struct sg_probe *probe)
{
    if (!probe->devices)
        return;
    json_t *facts = sg_selftest_last(probe->device[0].name, probe->version);
    const json_t *selftest = json_object_get(facts, "selftest");
    json_t *names = selftest_differing(selftest);
    if (!facts)
        puts("  selftest not run for this GPU and driver: segalloc selftest takes a minute");
    else
        printf("  selftest %.10s: %s", json_string_value(json_object_get(selftest, "when")),
            json_array_size(names) ? "differs in " : "all as assumed\n");
    for (size_t i = 0; facts && i < json_array_size(names); i++)
        printf("%s%s", json_string_value(json_array_get(names, i)), i + 1 < json_array_size(names) ? ", " : "\n");
    json_decref(names);
    json_decref(facts);
}

static json_t *json_selftest(const struct sg_probe *probe)
{
    json_t *facts = probe->devices ? sg_selftest_last(probe->device[0].name, probe->version) : NULL;
    const json_t *selftest = json_object_get(facts, "selftest");
    if (!facts)
        return json_null();
    json_t *result = sg_json_object(NULL);
    sg_json_set(result, "when", json_incref(json_object_get(selftest, "when")));
    sg_json_set(result, "result", json_incref(json_object_get(selftest, "result")));
    sg_json_set(result, "differs", selftest_differing(selftest));
    json_decref(facts);
    return result;
}

static void print_machine(const struct sg_examination *examination)
{
    const struct sg_probe *probe = &examination->probe;
    char size[SG_SIZE_TEXT];
    if (examination->library_found)
        printf("  library  %s (needs glibc %s, here is %s)\n", examination->library,
            *examination->glibc ? examination->glibc : "of any age", gnu_get_libc_version());
    if (probe->driver)
        printf("  driver   for CUDA %d.%d, %d device%s\n", probe->version / 1000, probe->version % 1000 / 10,
            probe->devices, sg_plural((uint64_t)probe->devices));
    else
        puts("  driver   none");
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++)
        printf("  device   %d: %s, %s, %s virtual memory management\n", i, probe->device[i].name,
            sg_size_format(probe->device[i].bytes, size), probe->device[i].vmm ? "with" : "without");
    if (!examination->launch.sim)
        print_nvml();
    print_selftest(probe);
}

/* The meaning of a mode of PyTorch, by its first word. */
static const char *pytorch_means(const char *mode)
{
    if (strchr(mode, ','))
        return "every tensor came here until PyTorch began a pool of its own, as CUDA graphs do";
    if (strcmp(mode, "direct") == 0)
        return "its cache is off, every tensor comes here";
    if (strcmp(mode, "beneath") == 0)
        return "its cache is on, what that takes comes here";
    return "its tensors come here by its pluggable allocator";
}

static const char nccl_module[] = "libnccl.so"; /* as modules.def has it */

/* NCCL takes its buffers from the driver, so that they are neither served nor paused. */
static bool doctor_saw_nccl(const struct sg_examination *examination)
{
    for (size_t i = 0; i < examination->watch.count; i++)
        if (sg_watched_has(&examination->watch.process[i], nccl_module))
            return true;
    return false;
}

void sg_doctor_print_text(const struct sg_examination *examination)
{
    static const char *const openings[] =
        {[SG_DOCTOR_READY] = "ready: ", [SG_DOCTOR_SERVED] = "served: ", [SG_DOCTOR_PARTLY] = "partly served: "};
    const char *opening = examination->answer <= SG_DOCTOR_PARTLY ? openings[examination->answer] : "not served: ";
    printf("%s%s\n", opening, examination->because);
    if (!examination->running)
        print_machine(examination);
    for (size_t i = 0; i < examination->watch.count; i++) {
        const struct sg_watched *process = &examination->watch.process[i];
        const struct sg_doctor_served *served = &examination->served[i];
        if (!process->driver && !process->runtime && i > 0)
            continue;
        printf("  process  %d %s: library %s, driver %s, %" PRIu64 " allocation%s served, %" PRIu64 " passed on\n",
            (int)process->pid, sg_doctor_name(process), process->library ? "loaded" : "not loaded",
            process->driver ? "loaded" : "not loaded", served->served, sg_plural(served->served), served->passed_on);
    }
    if (*examination->total.untracked_by)
        printf("  order    of streams lost at %s, which this version does not know: freed memory waits for all work\n",
            examination->total.untracked_by);
    if (examination->total.failed)
        printf("  failed   %" PRIu64 " allocation%s, by whichever call, for want of memory\n",
            examination->total.failed, sg_plural(examination->total.failed));
    if (examination->total.vmm_errors)
        printf("  errors   %" PRIu64 " call%s of the driver's memory management failed; memory was had without\n",
            examination->total.vmm_errors, sg_plural(examination->total.vmm_errors));
    if (strncmp(examination->total.aliases, "off", 3) == 0)
        printf("  aliases  %s\n", examination->total.aliases);
    sg_registration_print(examination);
    if (*examination->total.pytorch)
        printf("  PyTorch  %s: %s\n", examination->total.pytorch, pytorch_means(examination->total.pytorch));
    if (doctor_saw_nccl(examination))
        printf("  NCCL     loaded: a pause leaves its buffers on the card, and ncclCommSuspend() of NCCL 2.29.7 gives "
               "them back\n");
    if (examination->command)
        printf("  command  ended with status %d\n", examination->watch.status);
}

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

static void json_found(json_t *object, const struct sg_doctor_served *served)
{
    SG_JSON_NUMBERS(object, {"failures", served->failed}, {"vmm_errors", served->vmm_errors},
        {"untracked_order", *served->untracked_by != '\0'});
    sg_json_set_text(object, "untracked_by", text_or_null(served->untracked_by));
    sg_json_set_text(object, "pytorch_mode", text_or_null(served->pytorch));
    sg_json_set_text(object, "aliases", text_or_null(served->aliases));
}

static json_t *doctor_json_process(const struct sg_watched *process, const struct sg_doctor_served *served)
{
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"pid", (uint64_t)process->pid});
    sg_json_set_text(result, "program", process->program);
    sg_json_set_flag(result, "watched", process->seen);
    sg_json_set_flag(result, "dynamic", process->dynamic);
    sg_json_set_flag(result, "library", process->library);
    sg_json_set_flag(result, "driver", process->driver);
    sg_json_set_flag(result, "runtime", process->runtime);
    sg_json_set_flag(result, "pytorch", process->torch);
    sg_json_set_flag(result, "nccl", sg_watched_has(process, nccl_module));
    SG_JSON_NUMBERS(result, {"served", served->served}, {"passed_on", served->passed_on});
    json_found(result, served);
    return result;
}

static json_t *doctor_json_devices(const struct sg_probe *probe)
{
    json_t *devices = sg_json_array();
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++) {
        json_t *device = sg_json_object(NULL);
        sg_json_set_text(device, "name", probe->device[i].name);
        SG_JSON_NUMBERS(device, {"bytes", probe->device[i].bytes});
        sg_json_set_flag(device, "vmm", probe->device[i].vmm);
        sg_json_add(devices, device);
    }
    return devices;
}

/* How memory will be registered; null where nobody may. */
static json_t *doctor_json_registration(const struct sg_examination *examination)
{
    const struct sg_registration found = sg_doctor_registration(examination);
    if (!found.matters)
        return json_null();
    json_t *result = sg_json_object(NULL);
    sg_json_set_text(result, "way", sg_registration_word(found.way));
    sg_json_set_text(result, "module", found.module);
    sg_json_set_flag(result, "verbs", found.verbs);
    sg_json_set_text(result, "set", found.set);
    return result;
}

void sg_doctor_print_json(const struct sg_examination *examination)
{
    const struct sg_doctor_served *total = &examination->total;
    json_t *result = sg_json_object("segalloc.doctor/1"), *processes = sg_json_array();
    sg_json_set_text(result, "answer", answer_words[examination->answer]);
    sg_json_set_text(result, "because", examination->because);
    SG_JSON_NUMBERS(result, {"served", total->served}, {"passed_on", total->passed_on}, {"outside", total->outside});
    sg_json_set_text(result, "library", examination->library);
    json_found(result, total);
    sg_json_set_text(result, "glibc_needed", examination->glibc);
    sg_json_set_text(result, "glibc", gnu_get_libc_version());
    sg_json_set_signed(result, "driver_version", examination->probe.version);
    sg_json_set(result, "devices", doctor_json_devices(&examination->probe));
    sg_json_set(result, "selftest", json_selftest(&examination->probe));
    sg_json_set(result, "nvml", examination->launch.sim ? sg_json_array() : sg_nvml_json());
    sg_json_set(result, "registration", doctor_json_registration(examination));
    for (size_t i = 0; i < examination->watch.count; i++)
        sg_json_add(processes, doctor_json_process(&examination->watch.process[i], &examination->served[i]));
    if (examination->command || examination->running) {
        sg_json_set(result, "processes", json_incref(processes));
        sg_json_set(result, "status", examination->running ? json_null() : json_integer(examination->watch.status));
    }
    json_decref(processes);
    sg_json_print(result);
}
