/* What libsegalloc.so is as a file: what it exports, in which version nodes, and what it needs of the machine. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct {
    const char *bytes;
    const ElfW(Shdr) *sections;
    int section_count;
} file;

static const ElfW(Shdr) *section(unsigned type)
{
    for (int i = 0; i < file.section_count; i++) {
        if (file.sections[i].sh_type == type)
            return &file.sections[i];
    }
    fail_msg("no section of type %u", type);
    return NULL;
}

static const void *content(const ElfW(Shdr) *of)
{
    return file.bytes + of->sh_offset;
}

static const char *strings_of(const ElfW(Shdr) *of)
{
    return content(&file.sections[of->sh_link]);
}

static int open_library(void **state)
{
    (void)state;
    struct stat info;
    int fd = open(getenv("SEGALLOC_LIBRARY"), O_RDONLY);
    if (fd < 0 || fstat(fd, &info) < 0)
        return -1;
    file.bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const ElfW(Ehdr) *header = (const void *)file.bytes;
    file.sections = (const void *)(file.bytes + header->e_shoff);
    file.section_count = header->e_shnum;
    return 0;
}

static const char *const names[] = {
#define HOOK(symbol, base, version, threads, parameters) #symbol,
#include "process/hooks.def"
#define EXPORT(name, library) #name,
#include "process/exports.def"
};

static bool in_tables(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Version index of a defined dynamic symbol, -1 if there is none. */
static int defined(const char *name)
{
    const ElfW(Shdr) *table = section(SHT_DYNSYM);
    const ElfW(Sym) *symbols = content(table);
    const uint16_t *versions = content(section(SHT_GNU_versym));
    for (size_t i = 1; i < table->sh_size / sizeof *symbols; i++) {
        if (symbols[i].st_shndx != SHN_UNDEF && strcmp(strings_of(table) + symbols[i].st_name, name) == 0)
            return versions[i] & 0x7fff;
    }
    return -1;
}

static void exports_the_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (defined(names[i]) != VER_NDX_GLOBAL)
            fail_msg("%s: version index %d, expected no node", names[i], defined(names[i]));
}

static void exports_nothing_else(void **state)
{
    (void)state;
    const ElfW(Shdr) *table = section(SHT_DYNSYM);
    const ElfW(Sym) *symbols = content(table);
    const uint16_t *versions = content(section(SHT_GNU_versym));
    int own = 0;
    for (size_t i = 1; i < table->sh_size / sizeof *symbols; i++) {
        const char *name = strings_of(table) + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || in_tables(name) || strcmp(name, "SEGALLOC_0") == 0)
            continue;
        if (strncmp(name, "segalloc_", 9) != 0 || (versions[i] & 0x7fff) <= VER_NDX_GLOBAL)
            fail_msg("exports %s", name);
        own++;
    }
    assert_true(own > 0);
}

/* A sanitizer's runtime is needed then, and what that needs. */
static void skip_if_sanitized(void)
{
#ifdef SANITIZED
    skip();
#endif
}

static void needs_only_libc(void **state)
{
    (void)state;
    skip_if_sanitized();
    static const char *const allowed[] = {"libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"};
    const ElfW(Shdr) *table = section(SHT_DYNAMIC);
    const char *soname = NULL;
    for (const ElfW(Dyn) *entry = content(table); entry->d_tag != DT_NULL; entry++) {
        const char *text = strings_of(table) + entry->d_un.d_val;
        bool good = entry->d_tag != DT_NEEDED;
        for (size_t i = 0; !good && i < sizeof allowed / sizeof *allowed; i++)
            good = strcmp(allowed[i], text) == 0;
        if (!good)
            fail_msg("needs %s", text);
        if (entry->d_tag == DT_SONAME)
            soname = text;
    }
    assert_non_null(soname);
    assert_string_equal(soname, "libsegalloc.so.0");
}

static void needs_no_newer_glibc(void **state)
{
    (void)state;
    skip_if_sanitized();
    const ElfW(Shdr) *table = section(SHT_GNU_verneed);
    const char *at = content(table);
    int seen = 0;
    for (unsigned i = 0; i < table->sh_info; i++) {
        const ElfW(Verneed) *need = (const void *)at;
        const char *inner = at + need->vn_aux;
        for (int j = 0; j < need->vn_cnt; j++) {
            const ElfW(Vernaux) *node = (const void *)inner;
            const char *name = strings_of(table) + node->vna_name;
            int major, minor;
            if (sscanf(name, "GLIBC_%d.%d", &major, &minor) != 2 || major > 2 || minor > 17)
                fail_msg("needs %s of %s", name, strings_of(table) + need->vn_file);
            inner += node->vna_next;
            seen++;
        }
        at += need->vn_next;
    }
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_the_tables),
        cmocka_unit_test(exports_nothing_else),
        cmocka_unit_test(needs_only_libc),
        cmocka_unit_test(needs_no_newer_glibc),
    };
    return cmocka_run_group_tests(tests, open_library, NULL);
}
