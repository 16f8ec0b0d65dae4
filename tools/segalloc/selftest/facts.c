/* Facts of the rows' lines. Those of single lines are in the table of tools/probe/facts.def; tests/gpu/facts.py makes the same ones. */
#include "selftest/selftest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cost.h"
#include "json.h"

static const struct fact_row {
    enum { ONE, EVERY, NAMES } kind;
    const char *name, *row, *key, *more;
} fact_rows[] = {
#define FACT(name, row, key, having) {ONE, name, row, key, having},
#define EACH(name, row, by, key) {EVERY, name, row, by, key},
#define LIST(name, row, key) {NAMES, name, row, key, NULL},
#include "facts.def"
};

enum { NAME_BYTES = 128, POINTS = 16 };

static bool line_is_of(const json_t *line, const char *row)
{
    const char *own = json_string_value(json_object_get(line, "row"));
    return own && strcmp(own, row) == 0;
}

/* Sets a fact, unless it is there already or the value is not known. */
static void fact_set(struct sg_selftest *selftest, const char *name, json_t *value)
{
    json_t *fact = value && !json_is_null(value) && !json_object_get(selftest->facts, name) ? sg_json_object(NULL) : NULL;
    if (!fact) {
        json_decref(value);
        return;
    }
    sg_json_set(fact, "value", value);
    sg_json_set(selftest->facts, name, fact);
}

const json_t *sg_selftest_fact(const struct sg_selftest *selftest, const char *name)
{
    return json_object_get(json_object_get(selftest->facts, name), "value");
}

/* True if the line has each value of "call=cuMemAlloc busy=false bytes=2097152". */
static bool line_has(const json_t *line, const char *having)
{
    while (*having) {
        char key[32], wanted[48];
        int used = 0;
        if (sscanf(having, "%31[^=]=%47[^ ]%n", key, wanted, &used) != 2)
            return false;
        const json_t *value = json_object_get(line, key);
        if (json_is_boolean(value)) {
            if (json_is_true(value) != (strcmp(wanted, "true") == 0))
                return false;
        } else if (json_is_integer(value)) {
            if (json_integer_value(value) != strtoll(wanted, NULL, 10))
                return false;
        } else if (!json_is_string(value) || strcmp(json_string_value(value), wanted) != 0) {
            return false;
        }
        having += used;
        having += *having == ' ';
    }
    return true;
}

/* `pattern` with the value of a member in place of {}, and with _ for its spaces. */
static void fact_name(const char *pattern, const json_t *value, char ret[NAME_BYTES])
{
    char text[48];
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    for (char *at = text; *at; at++)
        *at = *at == ' ' ? '_' : *at;
    size_t before = strcspn(pattern, "{");
    snprintf(ret, NAME_BYTES, "%.*s%s%s", (int)before, pattern, text, pattern + before + (pattern[before] ? 2 : 0));
}

static void facts_of_row(struct sg_selftest *selftest, const struct fact_row *row)
{
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        json_t *value = json_object_get(line, row->key);
        char name[NAME_BYTES];
        if (!line_is_of(line, row->row) || !value)
            continue;
        if (row->kind == EVERY) {
            fact_name(row->name, value, name);
            fact_set(selftest, name, json_incref(json_object_get(line, row->more)));
        } else if (row->kind == NAMES) {
            fact_set(selftest, row->name, json_incref(json_object_get(line, "names")));
        } else if (line_has(line, row->more)) {
            fact_set(selftest, row->name, json_incref(value));
        }
    }
}

/* Points (handles, ns) of the lines about handles of one granule, idle. Returns how many. */
static int cost_points(const struct sg_selftest *selftest, const char *key, double ret_handles[POINTS], double ret_ns[POINTS])
{
    json_int_t granule = json_integer_value(sg_selftest_fact(selftest, "granularity"));
    int count = 0;
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        if (!line_is_of(line, "costs of handles") || !json_is_false(json_object_get(line, "busy")) || count == POINTS ||
            json_integer_value(json_object_get(line, "handle_bytes")) != granule || !json_object_get(line, key))
            continue;
        ret_handles[count] = (double)json_integer_value(json_object_get(line, "handles"));
        ret_ns[count++] = (double)json_integer_value(json_object_get(line, key));
    }
    return count;
}

/* cost = a + b x handles, by least squares of the relative error: what a call costs, and each handle. */
static void facts_fit_cost(struct sg_selftest *selftest, const char *call, const char *key)
{
    double handles[POINTS], ns[POINTS], total = 0, mean_handles = 0, mean_ns = 0, spread = 0, slope = 0;
    char name[NAME_BYTES];
    int count = cost_points(selftest, key, handles, ns);
    if (count < 2)
        return;
    for (int i = 0; i < count; i++) {
        double most = ns[i] > 1 ? ns[i] : 1, weight = 1 / (most * most);
        total += weight;
        mean_handles += weight * handles[i];
        mean_ns += weight * ns[i];
    }
    mean_handles /= total;
    mean_ns /= total;
    for (int i = 0; i < count; i++) {
        double most = ns[i] > 1 ? ns[i] : 1, weight = 1 / (most * most);
        spread += weight * (handles[i] - mean_handles) * (handles[i] - mean_handles);
        slope += weight * (handles[i] - mean_handles) * (ns[i] - mean_ns);
    }
    slope = spread > 0 && slope > 0 ? slope / spread : 0;
    double first = mean_ns - slope * mean_handles;
    snprintf(name, sizeof name, "cost.%s.call", call);
    fact_set(selftest, name, json_integer((json_int_t)llround(first > 0 ? first : 0)));
    snprintf(name, sizeof name, "cost.%s.handle", call);
    fact_set(selftest, name, json_integer((json_int_t)llround(slope)));
}

static int facts_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median cost of a call that takes one handle. */
static void cost_each(struct sg_selftest *selftest, const char *call, const char *key)
{
    double handles[POINTS], ns[POINTS];
    char name[NAME_BYTES];
    int count = cost_points(selftest, key, handles, ns);
    for (int i = 0; i < count; i++)
        ns[i] /= handles[i];
    qsort(ns, (size_t)count, sizeof *ns, facts_by_value);
    snprintf(name, sizeof name, "cost.%s", call);
    if (count)
        fact_set(selftest, name, json_integer((json_int_t)llround(ns[count / 2])));
}

/* Answers about an address, and events over a context beside captures. */
static void facts_of_answers(struct sg_selftest *selftest)
{
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        char name[NAME_BYTES], text[64];
        const json_t *attribute = json_object_get(line, "attribute"), *capture = json_object_get(line, "capture");
        if (line_is_of(line, "pointers") && attribute) {
            json_int_t code = json_integer_value(json_object_get(line, "code"));
            json_t *from = json_object_get(line, "from_first_mapping");
            fact_name("pointer.{}", attribute, name);
            snprintf(text, sizeof text, "code %lld", (long long)code);
            fact_set(selftest, name, code ? json_string(text) : json_incref(from ? from : json_object_get(line, "value")));
        } else if (line_is_of(line, "context event") && capture) {
            const char *by = json_string_value(json_object_get(line, "recorded_by"));
            snprintf(text, sizeof text, "context_event.%s", json_string_value(capture));
            snprintf(name, sizeof name, "%s.%.*s", text, (int)strcspn(by, " "), by);
            fact_set(selftest, name, json_pack("[O,O]", json_object_get(line, "record"), json_object_get(line, "end_of_capture")));
        }
    }
}

static void facts_of_mappings(struct sg_selftest *selftest)
{
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        if (!line_is_of(line, "addresses of a handle") || !json_integer_value(json_object_get(line, "code")))
            continue;
        fact_set(selftest, "addresses.stopped_at", json_incref(json_object_get(line, "stopped_at")));
        fact_set(selftest, "addresses.stopped_code", json_incref(json_object_get(line, "code")));
    }
}

/* Words that were read wrong at a second address, by kernels and by copies. Kernels that find nothing wrong in words that are wrong say
   nothing. */
static void facts_of_aliases(struct sg_selftest *selftest)
{
    bool known = false, coherent = true, control = false;
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line)
        if (line_is_of(line, "control") && json_object_get(line, "found"))
            control = json_equal(json_object_get(line, "found"), json_object_get(line, "of"));
    json_array_foreach (selftest->lines, index, line) {
        const char *row = json_string_value(json_object_get(line, "row"));
        json_t *wrong = json_object_get(line, "wrong");
        char name[NAME_BYTES];
        bool copied = strncmp(row, "copied", 6) == 0;
        if (!wrong || strcmp(row, "order") == 0 || strcmp(row, "control") == 0 || (!copied && !control))
            continue;
        snprintf(name, sizeof name, "alias.%s", row);
        known = true;
        coherent &= json_integer_value(wrong) == 0;
        fact_set(selftest, name, json_incref(wrong));
    }
    if (known)
        fact_set(selftest, "aliases_coherent", json_boolean(coherent));
}

/* Calls of cuMemUnmap and cuMemSetAccess that had to wait: less than half of the copies outlived them. */
static void facts_of_waits(struct sg_selftest *selftest)
{
    json_int_t outlived = 0, rounds = 0;
    size_t index;
    json_t *line;
    json_array_foreach (selftest->lines, index, line) {
        const char *call = json_string_value(json_object_get(line, "call"));
        if (!line_is_of(line, "beside work") || !call || strcmp(call, "cuMemCreate") == 0 || strcmp(call, "cuMemMap") == 0)
            continue;
        outlived += json_integer_value(json_object_get(line, "outlived"));
        rounds += json_integer_value(json_object_get(line, "rounds"));
    }
    if (rounds)
        fact_set(selftest, "vmm_waits", json_boolean(outlived * 2 < rounds));
}

/* The allocator's own table of costs, beside what was measured. */
static void facts_note_allocator(struct sg_selftest *selftest)
{
    static const char *const symbols[SG_COST_CALLS] = {[SG_COST_create] = "cuMemCreate", [SG_COST_map] = "cuMemMap",
        [SG_COST_set_access] = "cuMemSetAccess", [SG_COST_unmap] = "cuMemUnmap", [SG_COST_release] = "cuMemRelease"};
    static const struct sg_cost assumed[SG_COST_CALLS] = {
#define COST(call, call_ns, handle_ns) [SG_COST_##call] = {call_ns, handle_ns},
#include "driver/cost.def"
    };
    for (int call = 0; call < SG_COST_CALLS; call++) {
        char name[NAME_BYTES];
        bool parted = call == SG_COST_set_access || call == SG_COST_unmap;
        snprintf(name, sizeof name, "cost.%s%s", symbols[call], parted ? ".call" : "");
        json_t *fact = json_object_get(selftest->facts, name);
        if (fact)
            sg_json_set(fact, "allocator", json_integer(assumed[call].call_ns));
        snprintf(name, sizeof name, "cost.%s.handle", symbols[call]);
        fact = json_object_get(selftest->facts, name);
        if (fact)
            sg_json_set(fact, "allocator", json_integer(assumed[call].handle_ns));
    }
}

void sg_selftest_find_facts(struct sg_selftest *selftest)
{
    for (size_t i = 0; i < sizeof fact_rows / sizeof *fact_rows; i++)
        facts_of_row(selftest, &fact_rows[i]);
    cost_each(selftest, "cuMemCreate", "create_ns");
    cost_each(selftest, "cuMemMap", "map_ns");
    cost_each(selftest, "cuMemRelease", "release_ns");
    facts_fit_cost(selftest, "cuMemSetAccess", "access_ns");
    facts_fit_cost(selftest, "cuMemUnmap", "unmap_ns");
    facts_of_answers(selftest);
    facts_of_mappings(selftest);
    facts_of_aliases(selftest);
    facts_of_waits(selftest);
    facts_note_allocator(selftest);
}
