#include "launch/elf_write.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrap.h"

/* The file: one segment to read and execute (header, hash table, symbols, strings, versions, relocations, code), then
   one to write (dynamic section, addresses of targets), a page of the largest size that arm64 has further on. */
enum {
    PAGE = 0x10000,
    PART_MOST = 4 << 20,
    CODE_STEP = 16,
    FIRST_VERSION = 2, /* 1 is the library itself */
    VERSIONS_MOST = 64,
    TARGETS_MOST = 256,
    DYNAMIC_ENTRIES = 16
};

struct part {
    uint8_t *bytes;
    size_t size;
    uint64_t address; /* also its offset in the file */
};

struct writer {
    const struct sg_elf_library *library;
    const char *versions[VERSIONS_MOST];
    size_t version_count;
    const char *targets[TARGETS_MOST];
    size_t target_count;
    struct part hash, symbols, strings, symbol_versions, version_list, relocations, code, dynamic, slots;
    bool full;
};

static void part_add_bytes(struct writer *w, struct part *part, const void *bytes, size_t size)
{
    if (!part->bytes)
        part->bytes = calloc(1, PART_MOST);
    if (!part->bytes || size > PART_MOST - part->size) {
        w->full = true;
        return;
    }
    if (bytes)
        memcpy(part->bytes + part->size, bytes, size);
    part->size += size;
}

static uint32_t add_string(struct writer *w, const char *text)
{
    uint32_t at = (uint32_t)w->strings.size;
    part_add_bytes(w, &w->strings, text, strlen(text) + 1);
    return at;
}

/* The place of a text in a list, which it joins if it is new. */
static size_t place_in(struct writer *w, const char **list, size_t *count, size_t most, const char *text)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i], text) == 0)
            return i;
    }
    if (*count == most) {
        w->full = true;
        return 0;
    }
    list[*count] = text;
    return (*count)++;
}

/* The hash of the format (System V ABI, Hash Table). */
SG_WRAPS static uint32_t elf_hash(const char *name)
{
    uint32_t hash = 0;
    for (; *name; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash ^= (hash >> 24) & 0xf0;
    }
    return hash & 0x0fffffff;
}

/* Symbols: the null one, the targets, the functions. The address of a function's symbol is known later. */
static void add_symbols(struct writer *w)
{
    const struct sg_elf_library *library = w->library;
    Elf64_Sym null = {0};
    uint16_t local = VER_NDX_LOCAL, global = VER_NDX_GLOBAL;
    part_add_bytes(w, &w->strings, "", 1);
    part_add_bytes(w, &w->symbols, &null, sizeof null);
    part_add_bytes(w, &w->symbol_versions, &local, sizeof local);
    for (size_t i = 0; i < library->function_count; i++) {
        if (library->functions[i].target)
            place_in(w, w->targets, &w->target_count, TARGETS_MOST, library->functions[i].target);
    }
    for (size_t i = 0; i < w->target_count; i++) {
        Elf64_Sym symbol = {.st_name = add_string(w, w->targets[i]), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE)};
        part_add_bytes(w, &w->symbols, &symbol, sizeof symbol);
        part_add_bytes(w, &w->symbol_versions, &global, sizeof global);
    }
    for (size_t i = 0; i < library->function_count; i++) {
        const struct sg_elf_function *f = library->functions + i;
        Elf64_Sym symbol = {
            .st_name = add_string(w, f->name), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1,
            .st_size = CODE_STEP,
        };
        if (f->target)
            symbol.st_value = (place_in(w, w->targets, &w->target_count, TARGETS_MOST, f->target) + 1) * CODE_STEP;
        uint16_t version = VER_NDX_GLOBAL;
        if (f->version)
            version = (uint16_t)(FIRST_VERSION +
                                 place_in(w, w->versions, &w->version_count, VERSIONS_MOST, f->version));
        part_add_bytes(w, &w->symbols, &symbol, sizeof symbol);
        part_add_bytes(w, &w->symbol_versions, &version, sizeof version);
    }
}

static void add_version(struct writer *w, const char *name, uint16_t index, bool last)
{
    Elf64_Verdef version = {
        .vd_version = VER_DEF_CURRENT, .vd_flags = index == VER_NDX_GLOBAL ? VER_FLG_BASE : 0, .vd_ndx = index,
        .vd_cnt = 1, .vd_hash = elf_hash(name), .vd_aux = sizeof version,
        .vd_next = last ? 0 : sizeof version + sizeof(Elf64_Verdaux),
    };
    Elf64_Verdaux aux = {.vda_name = add_string(w, name)};
    part_add_bytes(w, &w->version_list, &version, sizeof version);
    part_add_bytes(w, &w->version_list, &aux, sizeof aux);
}

static void add_versions(struct writer *w)
{
    add_version(w, w->library->soname, VER_NDX_GLOBAL, w->version_count == 0);
    for (size_t i = 0; i < w->version_count; i++)
        add_version(w, w->versions[i], (uint16_t)(FIRST_VERSION + i), i + 1 == w->version_count);
}

static void add_hash(struct writer *w)
{
    uint32_t count = (uint32_t)(w->symbols.size / sizeof(Elf64_Sym));
    size_t words = 2 + (size_t)count * 2;
    uint32_t *table = calloc(words, sizeof *table);
    if (!table) {
        w->full = true;
        return;
    }
    uint32_t *buckets = table + 2, *chain = buckets + count;
    table[0] = table[1] = count;
    const Elf64_Sym *symbols = (const void *)w->symbols.bytes;
    for (uint32_t i = (uint32_t)w->target_count + 1; i < count; i++) {
        uint32_t bucket = elf_hash((const char *)w->strings.bytes + symbols[i].st_name) % count;
        chain[i] = buckets[bucket];
        buckets[bucket] = i;
    }
    part_add_bytes(w, &w->hash, table, words * sizeof *table);
    free(table);
}

#if defined(__aarch64__)
enum { MACHINE = EM_AARCH64, RELOCATION = R_AARCH64_GLOB_DAT };

static void write_return(uint8_t *at)
{
    static const uint32_t code[] = {0x52800000, 0xd65f03c0}; /* mov w0, #0; ret */
    memcpy(at, code, sizeof code);
}

static void write_jump(uint8_t *at, uint64_t address, uint64_t slot)
{
    uint32_t pages = (uint32_t)((slot >> 12) - (address >> 12));
    uint32_t code[] = {
        0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7ffff) << 5, /* adrp x16, slot */
        0xf9400211 | (uint32_t)(slot & 0xfff) / 8 << 10,              /* ldr x17, [x16, slot] */
        0xd61f0220,                                                   /* br x17 */
    };
    memcpy(at, code, sizeof code);
}
#else
enum { MACHINE = EM_X86_64, RELOCATION = R_X86_64_GLOB_DAT };

static void write_return(uint8_t *at)
{
    static const uint8_t code[] = {0x31, 0xc0, 0xc3}; /* xor eax, eax; ret */
    memcpy(at, code, sizeof code);
}

static void write_jump(uint8_t *at, uint64_t address, uint64_t slot)
{
    uint32_t distance = (uint32_t)(slot - (address + 6));
    at[0] = 0xff; /* jmp *slot(%rip) */
    at[1] = 0x25;
    memcpy(at + 2, &distance, sizeof distance);
}
#endif

static void part_place(struct part *part, uint64_t *at)
{
    *at = (*at + 15) & ~(uint64_t)15;
    part->address = *at;
    *at += part->size;
}

/* Where the parts lie. Returns the size of the segment that is read and executed. */
static uint64_t place_parts(struct writer *w)
{
    uint64_t at = sizeof(Elf64_Ehdr) + 4 * sizeof(Elf64_Phdr);
    part_place(&w->hash, &at);
    part_place(&w->symbols, &at);
    part_place(&w->strings, &at);
    part_place(&w->symbol_versions, &at);
    part_place(&w->version_list, &at);
    part_place(&w->relocations, &at);
    part_place(&w->code, &at);
    uint64_t end = at;
    at = (at + PAGE - 1) / PAGE * PAGE;
    part_place(&w->dynamic, &at);
    part_place(&w->slots, &at);
    return end;
}

static void fill_code(struct writer *w)
{
    write_return(w->code.bytes);
    Elf64_Rela *relocations = (void *)w->relocations.bytes;
    for (size_t i = 0; i < w->target_count; i++) {
        uint64_t slot = w->slots.address + i * 8;
        write_jump(w->code.bytes + (i + 1) * CODE_STEP, w->code.address + (i + 1) * CODE_STEP, slot);
        relocations[i] = (Elf64_Rela){.r_offset = slot, .r_info = ELF64_R_INFO(i + 1, RELOCATION)};
    }
    Elf64_Sym *symbols = (void *)w->symbols.bytes;
    for (size_t i = w->target_count + 1; i < w->symbols.size / sizeof *symbols; i++)
        symbols[i].st_value += w->code.address;
}

static void fill_dynamic(struct writer *w, uint32_t soname, uint32_t needed)
{
    Elf64_Dyn entries[DYNAMIC_ENTRIES] = {
        {DT_SONAME, {soname}},
        {DT_NEEDED, {needed}},
        {DT_HASH, {w->hash.address}},
        {DT_STRTAB, {w->strings.address}},
        {DT_STRSZ, {w->strings.size}},
        {DT_SYMTAB, {w->symbols.address}},
        {DT_SYMENT, {sizeof(Elf64_Sym)}},
        {DT_RELA, {w->relocations.address}},
        {DT_RELASZ, {w->relocations.size}},
        {DT_RELAENT, {sizeof(Elf64_Rela)}},
        {DT_VERSYM, {w->symbol_versions.address}},
        {DT_VERDEF, {w->version_list.address}},
        {DT_VERDEFNUM, {w->version_count + 1}},
    };
    memcpy(w->dynamic.bytes, entries, sizeof entries);
}

static bool part_write(FILE *file, const struct part *part)
{
    return part->size == 0 ||
           (fseek(file, (long)part->address, SEEK_SET) == 0 && fwrite(part->bytes, part->size, 1, file) == 1);
}

static int elf_write_file(const char *path, const struct writer *w, uint64_t end)
{
    uint64_t data = w->dynamic.address, data_bytes = w->slots.address + w->slots.size - data;
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_DYN,
        .e_machine = MACHINE, .e_version = EV_CURRENT, .e_phoff = sizeof header, .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 4,
    };
    Elf64_Phdr segments[4] = {
        {PT_LOAD, PF_R | PF_X, 0, 0, 0, end, end, PAGE},
        {PT_LOAD, PF_R | PF_W, data, data, data, data_bytes, data_bytes, PAGE},
        {PT_DYNAMIC, PF_R | PF_W, data, data, data, w->dynamic.size, w->dynamic.size, 8},
        {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
    };
    FILE *file = fopen(path, "we");
    if (!file)
        return -errno;
    bool good = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(segments, sizeof segments, 1, file) == 1 &&
                part_write(file, &w->hash) && part_write(file, &w->symbols) && part_write(file, &w->strings) &&
                part_write(file, &w->symbol_versions) && part_write(file, &w->version_list) &&
                part_write(file, &w->relocations) && part_write(file, &w->code) && part_write(file, &w->dynamic) &&
                part_write(file, &w->slots);
    int error = good ? 0 : errno ? -errno : -EIO;
    if (fclose(file) != 0 && error == 0)
        error = -errno;
    return error;
}

int sg_elf_write(const char *path, const struct sg_elf_library *library)
{
    struct writer w = {.library = library};
    add_symbols(&w);
    add_versions(&w);
    uint32_t soname = add_string(&w, library->soname), needed = add_string(&w, library->needed);
    add_hash(&w);
    part_add_bytes(&w, &w.code, NULL, (w.target_count + 1) * CODE_STEP);
    part_add_bytes(&w, &w.relocations, NULL, w.target_count * sizeof(Elf64_Rela));
    part_add_bytes(&w, &w.dynamic, NULL, DYNAMIC_ENTRIES * sizeof(Elf64_Dyn));
    part_add_bytes(&w, &w.slots, NULL, (w.target_count + 1) * 8);
    int error = -ENOMEM;
    if (!w.full) {
        uint64_t end = place_parts(&w);
        fill_code(&w);
        fill_dynamic(&w, soname, needed);
        error = elf_write_file(path, &w, end);
    }
    struct part *parts[] = {&w.hash, &w.symbols, &w.strings, &w.symbol_versions, &w.version_list, &w.relocations,
                            &w.code, &w.dynamic, &w.slots};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]->bytes);
    return error;
}
