#include "api/exports.h"

#include <assert.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The rows of entry.def, unsupported.def and twin.def. */
enum {
    EXPORTS = 0
#define ENTRY(name, symbol, version) +1
#define ENTRY_STREAM(name, symbol, version, variant) +1
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(name, symbol, version) +1
#define UNSUPPORTED_STREAM(name, symbol, version, variant) +1
#include "unsupported.def"
#define TWIN(name, symbol, version) +1
#include "twin.def"
};

static const struct sim_export *exports;
static size_t export_count;

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static struct {
    ElfW(Sym) * first;
    size_t count;
    int protection; /* of the memory that they lie in */
} symbols;

static struct hidden {
    ElfW(Sym) * symbol, before;
} hidden[2 * EXPORTS];

static size_t hidden_count;

static uintptr_t export_address(sim_driver_fn *function)
{
    uintptr_t address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static const uintptr_t library_base = (uintptr_t)&__ehdr_start;

/* The loader has made addresses of what the dynamic section says, or has left offsets. */
static uintptr_t library_address(ElfW(Addr) value)
{
    return value < library_base ? library_base + value : value;
}

static int library_protection(uintptr_t address)
{
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(library_base + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++, segment++)
        if (segment->p_type == PT_LOAD && address - library_base >= segment->p_vaddr &&
            address - library_base < segment->p_vaddr + segment->p_memsz)
            return PROT_READ | (segment->p_flags & PF_W ? PROT_WRITE : 0) | (segment->p_flags & PF_X ? PROT_EXEC : 0);
    return PROT_READ;
}

static void exports_find_symbols(void)
{
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols.first = (ElfW(Sym) *)library_address(d->d_un.d_ptr);
        if (d->d_tag == DT_HASH)
            symbols.count = ((const uint32_t *)library_address(d->d_un.d_ptr))[1]; /* chains, one for each symbol */
    }
    symbols.protection = library_protection((uintptr_t)symbols.first);
}

static bool exports_protect(int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)symbols.first / page * page;
    uintptr_t end = (uintptr_t)(symbols.first + symbols.count);
    return mprotect((void *)begin, end - begin, protection) == 0;
}

static void export_hide(sim_driver_fn *function)
{
    uintptr_t value = function ? export_address(function) - library_base : 0;
    for (size_t i = 0; value && i < symbols.count; i++) {
        if (symbols.first[i].st_value != value)
            continue;
        hidden[hidden_count++] = (struct hidden){&symbols.first[i], symbols.first[i]};
        symbols.first[i].st_shndx = SHN_UNDEF;
        symbols.first[i].st_value = 0;
    }
}

void sim_exports_set(const struct sim_export *table, size_t count)
{
    assert(count <= EXPORTS);
    exports = table;
    export_count = count;
}

void sim_exports_follow(int driver)
{
    static int followed;
    if (!symbols.count)
        exports_find_symbols();
    if (driver == followed || !exports || !symbols.count || !exports_protect(symbols.protection | PROT_WRITE))
        return;
    while (hidden_count) {
        hidden_count--;
        *hidden[hidden_count].symbol = hidden[hidden_count].before;
    }
    for (unsigned i = 0; i < export_count; i++) {
        if (exports[i].version <= (unsigned)driver)
            continue;
        export_hide(exports[i].legacy);
        export_hide(exports[i].per_thread);
    }
    followed = driver;
    exports_protect(symbols.protection);
}
