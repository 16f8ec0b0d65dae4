/* Files of a self-test: facts.json with the verdicts, and the user's configuration for the card. */
#include "selftest/selftest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/conf_card.h"
#include "json.h"
#include "tool.h"
#include "trace/writer/path_pattern.h"
#include "trace/writer/replaced_file.h"

enum { SETTINGS_BYTES = 512 };

/* The file of facts of a card. False: there is no home folder. */
static bool keep_facts_path(const char *device, int driver, char ret[4096])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char name[128];
    bool own = state && *state == '/';
    if (!own && (!home || *home != '/'))
        return false;
    return snprintf(ret, 4096, "%s%s/segalloc/%s/facts.json", own ? state : home, own ? "" : "/.local/state",
               sg_conf_card_name(device, driver, name, sizeof name)) < 4096;
}

/* Writes a text to a file that is replaced in one step, with its folders. 0, or -errno. */
static int keep_write(const char *path, const char *text)
{
    struct sg_replaced_file file;
    size_t length = strlen(text);
    int error = sg_path_make_parents(path);
    if (!error)
        error = sg_replaced_file_open(&file, path, 0666);
    if (error)
        return error;
    ssize_t written = write(file.fd, text, length);
    return sg_replaced_file_close(&file, written == (ssize_t)length ? 0 : written < 0 ? -errno : -ENOSPC);
}

/* facts.json as tests/gpu/run writes it, and the verdicts beside. */
static json_t *keep_facts(const struct sg_selftest *selftest)
{
    char settings[SETTINGS_BYTES], when[32];
    time_t now = time(NULL);
    struct tm utc;
    json_t *result = sg_json_object("segalloc.facts/1"), *machine = sg_json_object(NULL), *own = sg_json_object(NULL);
    json_t *verdicts = sg_json_array();
    sg_json_set_text(machine, "name", selftest->device);
    sg_json_set_flag(machine, "assumed", selftest->simulated);
    sg_json_set(result, "machine", machine);
    sg_json_set(result, "facts", json_incref(selftest->facts));
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    sg_json_set_text(own, "when", when);
    sg_json_set_text(own, "segalloc", SEGALLOC_VERSION);
    sg_json_set_text(own, "result", sg_selftest_word(selftest->level));
    sg_json_set_text(own, "settings", sg_selftest_settings(selftest, settings, sizeof settings));
    for (int i = 0; i < SG_SELFTEST_CHECKS; i++) {
        json_t *verdict = sg_json_object(NULL);
        sg_json_set_text(verdict, "check", selftest->verdict[i].check);
        sg_json_set_text(verdict, "verdict", sg_selftest_word(selftest->verdict[i].level));
        sg_json_set_text(verdict, "text", selftest->verdict[i].text);
        sg_json_add(verdicts, verdict);
    }
    sg_json_set(own, "verdicts", verdicts);
    sg_json_set(result, "selftest", own);
    return result;
}

bool sg_selftest_keep(struct sg_selftest *selftest, const char *path)
{
    char own[4096];
    const char *verb = selftest->launch.verb;
    if (!path && !keep_facts_path(selftest->device, selftest->driver, own)) {
        sg_tool_message(verb, "no facts are kept, since neither HOME nor XDG_STATE_HOME is a folder; -o FILE names one");
        return false;
    }
    json_t *facts = keep_facts(selftest);
    char *text = json_dumps(facts, JSON_INDENT(1));
    int error = text ? keep_write(path ? path : own, text) : -ENOMEM;
    free(text);
    json_decref(facts);
    if (error) {
        sg_tool_message(verb, "the facts can't be written to %s: %s", path ? path : own, strerror(-error));
        return false;
    }
    snprintf(selftest->facts_path, sizeof selftest->facts_path, "%s", path ? path : own);
    return true;
}

json_t *sg_selftest_last(const char *device, int driver)
{
    char path[4096];
    json_t *facts = keep_facts_path(device, driver, path) ? json_load_file(path, 0, NULL) : NULL;
    if (!json_is_string(json_object_get(json_object_get(facts, "selftest"), "result"))) {
        json_decref(facts);
        return NULL;
    }
    return facts;
}

bool sg_selftest_apply(struct sg_selftest *selftest)
{
    const char *verb = selftest->launch.verb;
    char path[SG_PATH_BYTES], settings[SETTINGS_BYTES], text[SETTINGS_BYTES + 512];
    if (!sg_conf_card_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), selftest->device, selftest->driver, path)) {
        sg_tool_message(verb, "nothing is applied, since neither HOME nor XDG_CONFIG_HOME is a folder");
        return false;
    }
    sg_selftest_settings(selftest, settings, sizeof settings);
    for (char *at = settings; *at; at++)
        *at = *at == ',' ? '\n' : *at;
    snprintf(text, sizeof text, "# Written by segalloc selftest --apply, for %s under a driver for CUDA %d.%d.\n%s%s", selftest->device,
        selftest->driver / 1000, selftest->driver % 1000 / 10, settings, *settings ? "\n" : "");
    int error = *settings ? keep_write(path, text) : unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
    if (error) {
        sg_tool_message(verb, "the settings can't be written to %s: %s", path, strerror(-error));
        return false;
    }
    snprintf(selftest->conf_path, sizeof selftest->conf_path, "%s", path);
    return true;
}
