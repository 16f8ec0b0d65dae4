/* The names of the driver: whether those that the library answers for are one exported function each, and which there
   are that no table has. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum { LIST_MAX = 12000 };

static const struct hook {
    const char *symbol, *base;
    int version;
    enum threads { ANY, LEGACY, PER_THREAD } threads;
} hooks[] = {
#define HOOK(symbol, base, version, threads, ...) {#symbol, #base, version, threads},
#include "process/hooks.def"
};
enum { HOOKS = sizeof hooks / sizeof *hooks };

/* Names that drivers of CUDA 12.0 to 13.5 have, by the simulator's tables. */
static const char *const known_names[] = {
#define ENTRY(name, symbol, version) #symbol,
#define ENTRY_STREAM(name, symbol, version, variant) #symbol,
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(name, symbol, version) #symbol,
#define UNSUPPORTED_STREAM(name, symbol, version, variant) #symbol,
#include "unsupported.def"
};
enum { KNOWN = sizeof known_names / sizeof *known_names };

/* Names in a row, as a list of JSON. */
struct list {
    char text[LIST_MAX];
    size_t used;
    int count;
};

static void list_append(struct list *list, const char *name)
{
    list->count++;
    if (list->used + strlen(name) + 8 < sizeof list->text)
        list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s\"%s\"",
            list->used ? ", " : "", name);
}

/* The length of a symbol without _v2, _ptsz and the like. */
static size_t names_stem(const char *symbol)
{
    size_t length = strlen(symbol);
    if (length > 5 && (strcmp(symbol + length - 5, "_ptsz") == 0 || strcmp(symbol + length - 5, "_ptds") == 0))
        length -= 5;
    size_t digits = length;
    while (digits > 2 && symbol[digits - 1] >= '0' && symbol[digits - 1] <= '9')
        digits--;
    return digits < length && digits > 2 && symbol[digits - 1] == 'v' && symbol[digits - 2] == '_' ? digits - 2 : length;
}

static bool same_stem(const char *a, const char *b)
{
    size_t length = names_stem(a);
    return length == names_stem(b) && strncmp(a, b, length) == 0;
}

static bool names_is_known(const char *symbol)
{
    for (int i = 0; i < KNOWN; i++)
        if (same_stem(known_names[i], symbol))
            return true;
    for (int i = 0; i < HOOKS; i++)
        if (same_stem(hooks[i].symbol, symbol))
            return true;
    return false;
}

/* A form of a hooked name that no table has: _v3 where they know _v2. */
static bool names_is_new_form(const char *symbol)
{
    bool hooked = false;
    size_t length = strlen(symbol);
    bool variant = length > 5 && symbol[length - 5] == '_' && symbol[length - 4] == 'p';
    size_t plain = variant ? length - 5 : length;
    if (names_stem(symbol) == plain)
        return false; /* as it was at first */
    for (int i = 0; i < HOOKS; i++) {
        if (strncmp(hooks[i].symbol, symbol, plain) == 0 &&
            (hooks[i].symbol[plain] == '\0' || hooks[i].symbol[plain] == '_'))
            return false;
        hooked = hooked || same_stem(hooks[i].symbol, symbol);
    }
    for (int i = 0; i < KNOWN; i++)
        if (strncmp(known_names[i], symbol, plain) == 0 && known_names[i][plain] == '\0')
            return false;
    return hooked;
}

static uint32_t symbols_by_hash(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(uintptr_t) / 4), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

/* The exported names that begin with "cu". */
static void names_look_through(const struct link_map *map, struct list *unknown, struct list *forms)
{
    const ElfW(Sym) *symbols = NULL;
    const char *text = NULL;
    uint32_t count = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB)
            text = (const char *)d->d_un.d_ptr;
        if (d->d_tag == DT_GNU_HASH)
            count = symbols_by_hash((const uint32_t *)d->d_un.d_ptr);
        if (d->d_tag == DT_HASH && !count)
            count = ((const uint32_t *)d->d_un.d_ptr)[1];
    }
    for (uint32_t i = 0; symbols && text && i < count; i++) {
        const char *name = text + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || strncmp(name, "cu", 2) != 0 || name[2] < 'A' || name[2] > 'Z')
            continue;
        if (!names_is_known(name))
            list_append(unknown, name);
        else if (names_is_new_form(name))
            list_append(forms, name);
    }
}

/* How the two ways to a hooked function compare. */
struct ways {
    int same, neither;
    struct list other, hidden, unanswered;
};

static void ways_compare(const struct hook *hook, struct ways *ways)
{
    Dl_info info;
    void *by_name = dlsym(probe.cu.library, hook->symbol), *asked = NULL;
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags = hook->threads == PER_THREAD ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                   : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (probe.cu.cuGetProcAddress_v2(hook->base, &asked, hook->version, flags, &status) != CUDA_SUCCESS)
        asked = NULL;
    if (by_name == asked) {
        *(asked ? &ways->same : &ways->neither) += 1;
    } else if (!asked) {
        list_append(&ways->unanswered, hook->symbol);
    } else if (dladdr(asked, &info) && info.dli_saddr == asked && info.dli_sname) {
        char pair[160];
        snprintf(pair, sizeof pair, "%s: %s", hook->symbol, info.dli_sname);
        list_append(&ways->other, pair);
    } else {
        list_append(&ways->hidden, hook->symbol);
    }
}

/* The calls that the allocator makes, by src/driver/calls.def, and what it comes to where one is missing. */
static const struct {
    const char *symbol;
    enum need { REQUIRED, VMM, OPTIONAL, NEEDS } need;
} allocator_calls[] = {
#define CALL(name, symbol, need, parameters) {#symbol, need},
#include "driver/calls.def"
#undef CALL
};

bool selftest_calls(void)
{
    static const char *const words[NEEDS] = {"required", "vmm", "optional"};
    static struct list lacking[NEEDS];
    for (size_t i = 0; i < sizeof allocator_calls / sizeof *allocator_calls; i++)
        if (!dlsym(probe.cu.library, allocator_calls[i].symbol))
            list_append(&lacking[allocator_calls[i].need], allocator_calls[i].symbol);
    for (int i = 0; i < NEEDS; i++)
        probe_say("'need': '%s', 'lacking': %d, 'names': [%s]", words[i], lacking[i].count, lacking[i].text);
    return true;
}

bool probe_names(void)
{
    static struct ways ways;
    static struct list unknown, forms;
    struct link_map *map = NULL;
    HAVE(cuGetProcAddress_v2);
    for (int i = 0; i < HOOKS; i++)
        ways_compare(&hooks[i], &ways);
    probe_say("'hooked': %d, 'same': %d, 'absent': %d", HOOKS, ways.same, ways.neither);
    probe_say("'another_exported': %d, 'names': [%s]", ways.other.count, ways.other.text);
    probe_say("'not_exported': %d, 'names': [%s]", ways.hidden.count, ways.hidden.text);
    probe_say("'exported_but_not_answered': %d, 'names': [%s]", ways.unanswered.count, ways.unanswered.text);
    if (dlinfo(probe.cu.library, RTLD_DI_LINKMAP, &map) == 0 && map)
        names_look_through(map, &unknown, &forms);
    probe_say("'in_no_table': %d, 'names': [%s]", unknown.count, unknown.text);
    probe_say("'new_forms': %d, 'names': [%s]", forms.count, forms.text);
    return true;
}
