#include "doctor/pack.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "analysis/summary.h"
#include "config/conf_read.h"
#include "json.h"
#include "reader/trace_reader.h"
#include "report/report.h"
#include "selftest/selftest.h"
#include "tool.h"

enum { HEAD_RECORDS = 4096, BATCH = 512 };

extern char **environ;

static json_t *pack_system(void)
{
    struct utsname system;
    json_t *result = sg_json_object(NULL);
    bool known = uname(&system) == 0;
    sg_json_set_text(result, "kernel", known ? system.release : NULL);
    sg_json_set_text(result, "machine", known ? system.machine : NULL);
    sg_json_set_text(result, "glibc", gnu_get_libc_version());
    return result;
}

static json_t *pack_driver(const struct sg_probe *probe)
{
    json_t *result = sg_json_object(NULL), *devices = sg_json_array();
    sg_json_set_flag(result, "found", probe->driver);
    sg_json_set_signed(result, "version", probe->version);
    sg_json_set_signed(result, "cuInit", probe->result);
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++) {
        json_t *device = sg_json_object(NULL);
        sg_json_set_text(device, "name", probe->device[i].name);
        SG_JSON_NUMBERS(device, {"bytes", probe->device[i].bytes});
        sg_json_set_flag(device, "vmm", probe->device[i].vmm);
        sg_json_add(devices, device);
    }
    sg_json_set(result, "devices", devices);
    return result;
}

/* The words that stand for a value which may name anything: a path, a text. NULL for the value of other types. */
static const char *pack_stand_in(const struct sg_option_info *info)
{
    if (strcmp(info->type, "PATH") == 0)
        return "(a path)";
    return strcmp(info->type, "TEXT") == 0 ? "(a text)" : NULL;
}

/* The options of a trace as one text, with stand-ins and without paths: each trace has one. For example,
   "trace:/home/ann/run.trace,guard_site:train_acme.py:2" becomes "guard_site:(a text)". */
static json_t *pack_trace_options(const char *options)
{
    struct sg_conf conf;
    char text[1024];
    sg_conf_init(&conf);
    sg_conf_apply(&conf, SG_CONF_ARGUMENT, options, NULL, NULL);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        const struct sg_option_info *info = sg_option_info((enum sg_option)i);
        if (pack_stand_in(info) && conf.source[i] != SG_CONF_DEFAULT)
            sg_conf_set(&conf, (enum sg_option)i, strcmp(info->type, "PATH") == 0 ? "" : pack_stand_in(info));
    }
    sg_conf_print(&conf, text, sizeof text);
    return sg_json_text(text);
}

/* Options that are not the built-in defaults, each with its source. */
static json_t *pack_options(const struct sg_conf *conf)
{
    json_t *result = sg_json_object(NULL);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        char value[SG_PATH_BYTES];
        const struct sg_option_info *info = sg_option_info((enum sg_option)i);
        if (conf->source[i] == SG_CONF_DEFAULT)
            continue;
        json_t *option = sg_json_object(NULL);
        const char *stand_in = pack_stand_in(info);
        sg_json_set_text(option, "value",
            stand_in ? stand_in : sg_conf_format(conf, (enum sg_option)i, value, sizeof value));
        sg_json_set_text(option, "source", sg_conf_source_name((enum sg_conf_source)conf->source[i]));
        sg_json_set(result, info->name, option);
    }
    return result;
}

/* Names of variables that change what CUDA, PyTorch or the library does. Their values may name anything. */
static json_t *pack_variables(void)
{
    static const char *const ours[] = {"SEGALLOC_", "PYTORCH_", "CUDA_", "NCCL_", "LD_PRELOAD", "LD_LIBRARY_PATH"};
    json_t *names = sg_json_array();
    for (char **entry = environ; *entry; entry++)
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (strncmp(*entry, ours[i], strlen(ours[i])) == 0) {
                char name[128];
                snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
                sg_json_add(names, sg_json_text(name));
                break;
            }
    return names;
}

/* True for records that hold texts of the program, or say which card it is. */
static bool pack_leaves_out(const struct segalloc_trace_record *record)
{
    return record->kind == SEGALLOC_RECORD_DEFINE_TEXT || record->kind == SEGALLOC_RECORD_DEFINE_UUID;
}

/* A number as it is; one beyond 2^63 - 1, as hashes are, as a text, since many readers of JSON would round it. */
static json_t *pack_number(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return number > INT64_MAX ? sg_json_text(text) : sg_json_number(number);
}

/* The first records: kind, flags, thread, stream, id, size, time. */
static json_t *pack_head(struct sg_trace_reader *reader)
{
    static struct segalloc_trace_record record[BATCH];
    json_t *rows = sg_json_array();
    size_t n;
    while (json_array_size(rows) < HEAD_RECORDS && (n = sg_trace_read(reader, record, BATCH)) > 0) {
        for (size_t i = 0; i < n && json_array_size(rows) < HEAD_RECORDS; i++) {
            const struct segalloc_trace_record *at = &record[i];
            const char *kind = sg_record_kind_name(at->kind);
            bool out = pack_leaves_out(at);
            json_t *row = sg_json_array();
            sg_json_add(row, kind ? sg_json_text(kind) : sg_json_number(at->kind));
            for (int column = 0; !out && column < 6; column++) {
                const uint64_t numbers[] = {at->flags, at->thread, at->stream, at->id, at->size, at->time_ns};
                sg_json_add(row, pack_number(numbers[column]));
            }
            sg_json_add(rows, row);
        }
    }
    return rows;
}

/* The findings of a run that checked itself, wherever they stand in the trace, with numbers for places. */
static json_t *pack_checked(const char *path)
{
    struct sg_findings findings;
    char error[SG_FINDINGS_ERROR];
    if (sg_findings_read(path, /* cards */ false, &findings, error))
        return json_null();
    findings.book.redacted = true;
    json_t *result = sg_report_checked_json(&findings);
    sg_findings_free(&findings);
    return result;
}

/* The head of a trace, NULL where it can't be read, after a line. */
static json_t *pack_trace(const char *verb, const char *path)
{
    struct sg_trace_reader *reader;
    char error[SG_TRACE_ERROR];
    if (sg_trace_open(path, &reader, error)) {
        sg_tool_message(verb, "%s: %s", path, error);
        return NULL;
    }
    json_t *result = sg_json_object(NULL);
    const struct sg_trace_info *info = sg_trace_info(reader);
    sg_json_set_text(result, "format", info->format);
    sg_json_set_flag(result, "imported", info->header.imported);
    sg_json_set(result, "options", pack_trace_options(info->conf));
    sg_json_set(result, "check", pack_checked(path));
    sg_json_set(result, "head", pack_head(reader));
    sg_json_set_text(result, "problem", sg_trace_error(reader) ? "damaged" : NULL);
    sg_trace_close(reader);
    return result;
}

int sg_doctor_pack(const struct sg_examination *examination, const char *path, const char *trace)
{
    const struct sg_probe *probe = &examination->probe;
    const char *verb = examination->launch.verb;
    json_t *head = trace ? pack_trace(verb, trace) : json_null();
    if (!head)
        return SG_EXIT_ERROR;
    json_t *result = sg_json_object("segalloc.pack/1");
    json_t *facts = probe->devices ? sg_selftest_last(probe->device[0].name, probe->version) : NULL;
    sg_json_set_text(result, "segalloc", SEGALLOC_VERSION);
    sg_json_set(result, "system", pack_system());
    sg_json_set(result, "driver", pack_driver(probe));
    sg_json_set_flag(result, "library_found", examination->library_found);
    sg_json_set(result, "options", pack_options(&examination->conf));
    sg_json_set(result, "variables", pack_variables());
    sg_json_set(result, "facts", facts ? facts : json_null());
    sg_json_set(result, "trace", head);
    int fd = sg_tool_create(verb, path, path, false);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        json_decref(result);
        return SG_EXIT_ERROR;
    }
    sg_json_write(file, result);
    bool whole = fputc('\n', file) != EOF;
    if (fclose(file) != 0 || !whole) {
        sg_tool_message(verb, "%s: %s", path, strerror(errno));
        (void)unlink(path);
        return SG_EXIT_ERROR;
    }
    printf("%s has versions, options%s%s: no names of programs, files, users or hosts. Look at it before you send it.\n", path,
        facts ? ", the last self-test" : "", trace ? ", the head of the trace" : "");
    if (!facts)
        puts("No self-test is in it: segalloc selftest takes a minute");
    return SG_EXIT_OK;
}
