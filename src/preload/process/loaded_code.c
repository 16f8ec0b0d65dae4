/* Reading of ELF tables as the loader has mapped them. Sources: the System V ABI (DT_HASH) and glibc's dl-lookup.c
   (DT_GNU_HASH). */
#include "process/glibc_symver.h"

#include "process/loaded_code.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct place {
    uintptr_t code;
    struct sg_loaded found;
};

/* Fills in a library's extent and dynamic section, and says whether `code` lies in one of its segments. For
   dl_iterate_phdr(), which ends at the first library that says so. */
static int loaded_match(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    struct place *place = user;
    struct sg_loaded *found = &place->found;
    bool within = false;
    *found = (struct sg_loaded){.base = info->dlpi_addr,
        .start = UINTPTR_MAX,
        .path = info->dlpi_name ? info->dlpi_name : ""};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        if (segment->p_type == PT_DYNAMIC)
            found->dynamic = (const ElfW(Dyn) *)start;
        if (segment->p_type != PT_LOAD)
            continue;
        within = within || (place->code >= start && place->code < end);
        found->start = start < found->start ? start : found->start;
        found->end = end > found->end ? end : found->end;
    }
    return within;
}

/* dl_iterate_phdr() stops at the library that has the address. */
bool sg_loaded_at(const void *code, struct sg_loaded *ret)
{
    struct place place = {.code = (uintptr_t)code};
    if (!dl_iterate_phdr(loaded_match, &place))
        return false;
    *ret = place.found;
    return true;
}

/* glibc turns these entries into addresses where it can write to them, which is nearly everywhere. */
static const void *loaded_table(const struct sg_loaded *library, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = library->dynamic;
    while (entry && entry->d_tag != DT_NULL && entry->d_tag != tag)
        entry++;
    if (!entry || entry->d_tag != tag)
        return NULL;
    uintptr_t value = entry->d_un.d_ptr;
    return (const void *)(value < library->base ? value + library->base : value);
}

/* How many symbols a library has, by the table that finds them. The newer kind has chains of the symbols of a bucket one
   behind another, the last of which has its lowest bit set. */
static uint32_t loaded_symbols(const struct sg_loaded *library)
{
    const uint32_t *old = loaded_table(library, DT_HASH), *table = loaded_table(library, DT_GNU_HASH);
    if (old || !table)
        return old ? old[1] : 0;
    uint32_t buckets = table[0], first = table[1], last = 0;
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return 0;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static bool is_exported(const ElfW(Sym) * symbol)
{
    unsigned binding = symbol->st_info >> 4, type = symbol->st_info & 0xf;
    return symbol->st_shndx != SHN_UNDEF && (binding == STB_GLOBAL || binding == STB_WEAK) &&
           (type == STT_FUNC || type == STT_NOTYPE);
}

/* Looks through all symbols of the library for that value. Several names may have it: cuMemAlloc and cuMemAlloc_v2 in
   some drivers. The preferred one is taken, else the first. */
const char *sg_loaded_name(const void *address, bool (*prefers)(const char *name))
{
    struct sg_loaded library;
    if (!sg_loaded_at(address, &library))
        return NULL;
    const ElfW(Sym) *symbols = loaded_table(&library, DT_SYMTAB);
    const char *names = loaded_table(&library, DT_STRTAB), *first = NULL;
    uint32_t count = symbols && names ? loaded_symbols(&library) : 0;
    for (uint32_t i = 1; i < count; i++) {
        if (library.base + symbols[i].st_value != (uintptr_t)address || !is_exported(&symbols[i]))
            continue;
        const char *name = names + symbols[i].st_name;
        if (prefers(name))
            return name;
        first = first ? first : name;
    }
    return first;
}

bool sg_loaded_of(void *handle, struct sg_loaded *ret)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map)
        return false;
    return sg_loaded_at(map->l_ld, ret);
}

/* The tables by which a library finds its symbols. Either kind of table may be missing. */
struct tables {
    const uint32_t *newer, *older; /* DT_GNU_HASH, DT_HASH */
    const ElfW(Sym) * symbols;
    const char *names;
};

static bool is_named(const struct tables *tables, uint32_t symbol, const char *name)
{
    return strcmp(tables->names + tables->symbols[symbol].st_name, name) == 0;
}

/* Looks in DT_GNU_HASH. A bucket names the first symbol of a chain. Each link is the hash of its symbol, with the
   lowest bit set at the chain's end. For example, hash 0x1c8a1f2e with 64 buckets belongs to bucket 46. That one says
   symbol 310. Links 310 and up are compared until one has the hash, but for that bit, and the name. */
static uint32_t find_by_newer(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->newer;
    uint32_t buckets = table[0], first = table[1], hash = 5381;
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chain = bucket + buckets;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    uint32_t i = buckets ? bucket[hash % buckets] : 0;
    while (i && ((chain[i - first] ^ hash) >> 1 || !is_named(tables, i, name)))
        i = chain[i - first] & 1 ? 0 : i + 1;
    return i;
}

/* Looks in DT_HASH, whose chains name the next symbol, 0 at the end. */
static uint32_t find_by_older(const struct tables *tables, const char *name)
{
    const uint32_t *table = tables->older, *bucket = table + 2, *chain = bucket + table[0];
    uint32_t hash = 0;
    for (const char *at = name; *at; at++) {
        hash = (hash << 4) + (unsigned char)*at;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    uint32_t i = table[0] ? bucket[hash % table[0]] : 0;
    while (i && !is_named(tables, i, name))
        i = chain[i];
    return i;
}

/* The symbol that a library defines under that name; NULL: none. Sources of both tables: the System V ABI, and
   dl-lookup.c of glibc. */
static const ElfW(Sym) * loaded_find(const struct tables *tables, const char *name)
{
    uint32_t at = tables->newer ? find_by_newer(tables, name) : find_by_older(tables, name);
    return at && tables->symbols[at].st_shndx != SHN_UNDEF ? &tables->symbols[at] : NULL;
}

/* The hash table that the library has, the newer kind first. A symbol that is no plain function (an indirect one,
   STT_GNU_IFUNC) is left to dlsym(), since its address is only known to the loader. */
bool sg_loaded_symbol(const struct sg_loaded *library, const char *required, const char *name, void **ret)
{
    const struct tables tables = {.newer = loaded_table(library, DT_GNU_HASH),
        .older = loaded_table(library, DT_HASH),
        .symbols = loaded_table(library, DT_SYMTAB),
        .names = loaded_table(library, DT_STRTAB)};
    if (!(tables.newer || tables.older) || !tables.symbols || !tables.names || loaded_table(library, DT_VERDEF) ||
        !loaded_find(&tables, required))
        return false;
    const ElfW(Sym) *symbol = loaded_find(&tables, name);
    if (symbol && !is_exported(symbol))
        return false;
    *ret = symbol ? (void *)(library->base + symbol->st_value) : NULL;
    return true;
}
