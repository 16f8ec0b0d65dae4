/* Files of a self-test: facts.json with the verdicts, and the user's configuration for the card. */
#include "selftest/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rest.h"
#include "config/conf_card.h"
#include "json.h"
#include "tool.h"
#include "trace/writer/path_pattern.h"
#include "trace/writer/replaced_file.h"

enum { CONF_MOST = 1 << 20 /* bytes of a file of settings */ };

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
    int error = sg_path_make_parents(path);
    if (!error)
        error = sg_replaced_file_open(&file, path, 0666);
    if (error)
        return error;
    return sg_replaced_file_close(&file, sg_write_all(file.fd, text, strlen(text)));
}

/* facts.json as tests/gpu/run writes it, and the verdicts beside. */
static json_t *keep_facts(const struct sg_selftest *selftest)
{
    char settings[SG_SELFTEST_SETTINGS], when[32];
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

/* The marks around what is ours in a file of settings, each a line. The second one has the settings too, behind a colon: whatever else
   stands between the two is the user's. */
static const char begin_mark[] = "# Written by segalloc selftest --apply",
                  end_mark[] = "# End of what segalloc selftest has written";

/* The text of a file, to be freed; "" where there is none. NULL: *ret_error says why, -errno. */
static char *keep_read(const char *path, int *ret_error)
{
    char *text = calloc(1, CONF_MOST + 1);
    int fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t length = 0;
    ssize_t got = 1;
    *ret_error = !text ? -ENOMEM : fd < 0 && errno != ENOENT ? -errno : 0;
    while (fd >= 0 && got > 0 && length <= CONF_MOST) {
        got = read(fd, text + length, CONF_MOST + 1 - length);
        length += got > 0 ? (size_t)got : 0;
        *ret_error = got < 0 ? -errno : length > CONF_MOST ? -EFBIG : 0;
    }
    if (fd >= 0)
        close(fd);
    if (!*ret_error)
        return text;
    free(text);
    return NULL;
}

/* True if the list, "alias:off,mapping_limit:1500", which ends with its line, has that setting. */
static bool keep_lists(const char *list, const char *setting, size_t length)
{
    for (size_t item; *list && *list != '\n'; list += item + (list[item] == ',')) {
        item = strcspn(list, ",\n");
        if (item == length && strncmp(list, setting, length) == 0)
            return true;
    }
    return false;
}

/* Takes our part out of the text. Lines between the marks that the second one does not name stay where they are. One whose
   end is missing was edited: its mark alone goes, and all else is taken to be the user's. */
static void keep_cut(char *text)
{
    char *begin = strstr(text, begin_mark), *to = begin;
    if (!begin || (begin > text && begin[-1] != '\n'))
        return;
    char *end = strstr(begin, end_mark), *list = end ? end + strlen(end_mark) : NULL,
         *from = begin + strcspn(begin, "\n");
    if (list && strncmp(list, ": ", 2) == 0) {
        for (from += *from == '\n'; from < end;) {
            size_t length = strcspn(from, "\n"), whole = length + 1;
            if (!keep_lists(list + 2, from, length)) {
                memmove(to, from, whole);
                to += whole;
            }
            from += whole;
        }
    }
    from = list ? list + strcspn(list, "\n") : from;
    from += *from == '\n';
    memmove(to, from, strlen(from) + 1);
}

/* Our part of the file: "" without settings. */
static void keep_own_part(const struct sg_selftest *selftest, const char *settings, char *ret, size_t size)
{
    char lines[SG_SELFTEST_SETTINGS];
    *ret = '\0';
    if (!*settings)
        return;
    snprintf(lines, sizeof lines, "%s", settings);
    for (char *at = lines; (at = strchr(at, ','));)
        *at = '\n';
    snprintf(ret, size,
        "%s, for %s under a driver for CUDA %d.%d. Lines outside of this part stay, and win.\n%s\n%s: %s\n", begin_mark,
        selftest->device, selftest->driver / 1000, selftest->driver % 1000 / 10, lines, end_mark, settings);
}

bool sg_selftest_apply(struct sg_selftest *selftest, const char *settings)
{
    const char *verb = selftest->launch.verb;
    selftest->apply_failed = true;
    char path[SG_PATH_BYTES], own[2 * SG_SELFTEST_SETTINGS + 512];
    if (!sg_conf_card_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), selftest->device, selftest->driver, path)) {
        sg_tool_message(verb, "nothing is applied, since neither HOME nor XDG_CONFIG_HOME is a folder");
        return false;
    }
    keep_own_part(selftest, settings, own, sizeof own);
    int error;
    char *others = keep_read(path, &error), *text = others ? malloc(strlen(own) + strlen(others) + 1) : NULL;
    if (others)
        keep_cut(others);
    if (text) {
        /* Ours come first: of two lines for one option the later one holds. */
        strcat(strcpy(text, own), others);
        error = *text ? keep_write(path, text) : unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
    } else if (!error) {
        error = -ENOMEM;
    }
    free(text);
    free(others);
    if (error) {
        sg_tool_message(verb, "the settings can't be written to %s: %s", path, strerror(-error));
        return false;
    }
    selftest->apply_failed = false;
    snprintf(selftest->conf_path, sizeof selftest->conf_path, "%s", path);
    return true;
}
