/* This machine beside what the allocator takes for granted. Rows of tools/probe are asked in a process of their own, and facts are made of
   their lines. Each check of checks.def draws a verdict from both.

   For example, a driver whose cuMemSetAccess fails with 999. The row "handles" has "access": 999, so the check "pages" differs. Memory is
   served from fixed segments, and the setting expandable_segments:False says so to the library without being asked. Rows that failed at the
   same call are not judged again. The status is 3. */
#ifndef SG_SELFTEST_H
#define SG_SELFTEST_H

#include <jansson.h>
#include <stdbool.h>

#include "launch/launch.h"

/* From harmless to fatal: the worst verdict decides the exit status. */
enum sg_selftest_level {
    SG_SELFTEST_AS_ASSUMED,
    SG_SELFTEST_LEFT_OUT, /* not to be had here, or it failed at a call that another check names */
    SG_SELFTEST_DIFFERS,  /* the allocator can live with that */
    SG_SELFTEST_UNUSABLE  /* … or it can't */
};

enum { SG_SELFTEST_DEVICES = 64, SG_SELFTEST_SETTINGS = 512 };

enum {
#define CHECK(name, rows, worst, setting, comes_to) SG_SELFTEST_CHECK_##name,
#include "selftest/checks.def"
    SG_SELFTEST_CHECKS
};

struct sg_selftest_verdict {
    const char *check;
    enum sg_selftest_level level;
    char text[400];
    char setting[64]; /* the default that it would change, "alias:off"; "": none */
};

/* One device. Another one has another struct, and a process of its own. */
struct sg_selftest {
    struct sg_launch launch;
    int ordinal;    /* of the device that is asked */
    int devices;    /* that the driver has; 0: not known */
    double until_s; /* it is given up after so many seconds; what was not asked by then is left out */
    bool given_up;
    json_t *lines; /* that the rows have printed, in their order */
    json_t *facts; /* {name: {"value": …}} */
    struct sg_selftest_verdict verdict[SG_SELFTEST_CHECKS];
    enum sg_selftest_level level; /* the worst of them */
    char device[128];             /* the driver's name for it; "": there is none */
    int driver;                   /* 13000 is 13.0 */
    bool simulated;
    double seconds;
    char problem[400]; /* why there is nothing to judge; "": there is */
    bool apply_failed; /* the settings were to be written, and could not be */
    char facts_path[4096], conf_path[4096]; /* files that were written; "": none */
};

/* Asks the rows of a device; their lines go to `lines`. False where there is no driver or no device, with the reason in `problem`. */
bool sg_selftest_ask(struct sg_selftest *selftest);

/* The other side: the process of the rows. argv[1] is --rows, or a part that a row has started. -1: it is neither. */
int sg_selftest_rows(int argc, char **argv);

/* Makes facts of the lines, as tests/gpu/facts.py does. */
void sg_selftest_find_facts(struct sg_selftest *selftest);

/* The value of a fact; NULL: it is not known. */
const json_t *sg_selftest_fact(const struct sg_selftest *selftest, const char *name);

/* Draws a verdict for each check. */
void sg_selftest_judge(struct sg_selftest *selftest);

/* The settings of all verdicts, "alias:off,mapping_limit:1500", or "". Returns `buffer`. */
char *sg_selftest_settings(const struct sg_selftest *selftest, char *buffer, size_t size);

/* The verdicts of several devices, in the order in which they were asked. `left` of them were not, since the time was over. */
struct sg_selftest_run {
    struct sg_selftest *device[SG_SELFTEST_DEVICES];
    int count, left, first_left;  /* first_left: the ordinal of the first that was not asked */
    enum sg_selftest_level level; /* the worst of them */
};
void sg_selftest_print_text(const struct sg_selftest_run *run);
void sg_selftest_print_json(const struct sg_selftest_run *run);

/* The word of a level, as JSON and the file of facts have it. */
const char *sg_selftest_word(enum sg_selftest_level level);

/* Writes facts.json with the verdicts beside, to `path`, or for NULL to the folder of this card. False after a line on stderr. */
bool sg_selftest_keep(struct sg_selftest *selftest, const char *path);

/* Writes settings to the user's configuration for this card and driver, as a part of the file that bears marks. Whatever else is in the
   file stays, also between the marks, and wins where it names the same option. Without settings the part goes, and a file that then is empty. False after a line. */
bool sg_selftest_apply(struct sg_selftest *selftest, const char *settings);

/* The file of facts that sg_selftest_keep() wrote last for a card; to be given up. NULL: there is none. */
json_t *sg_selftest_last(const char *device, int driver);

#endif
