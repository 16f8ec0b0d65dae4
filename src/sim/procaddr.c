/* What the driver has by which name, and since which version: the answers of cuGetProcAddress and of dlsym. Every one comes
   from entry.def, unsupported.def and twin.def. */
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"
#include "undone.h"

typedef void driver_fn(void);

static const struct entry {
    const char *name;
    unsigned version;
    driver_fn *legacy, *per_thread; /* the latter NULL where there is one form for all meanings of the default stream */
} entries[] = {
#define ENTRY(name, symbol, version) {#name, version, (driver_fn *)symbol, NULL},
#define ENTRY_STREAM(name, symbol, version, variant) {#name, version, (driver_fn *)symbol, (driver_fn *)variant},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(name, symbol, version) {#name, version, (driver_fn *)sim_undone_##symbol, NULL},
#define UNSUPPORTED_STREAM(name, symbol, version, variant) \
    {#name, version, (driver_fn *)sim_undone_##symbol, (driver_fn *)sim_undone_##variant},
#include "unsupported.def"
#define TWIN(name, symbol, version) {#name, version, (driver_fn *)sim_undone_##symbol, NULL},
#include "twin.def"
};

enum {
    ENTRIES = sizeof entries / sizeof *entries,
    PER_THREAD_SINCE = 7000, /* the per-thread forms came with CUDA 7.0 */
};

/* A name with per-thread forms is answered by those alone where they are asked for. */
static bool has_per_thread(const char *name, unsigned driver)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].per_thread && entries[i].version <= driver && strcmp(entries[i].name, name) == 0)
            return true;
    return false;
}

/* A version above the driver's asks for the driver's newest form, and so does -1. */
static CUdriverProcAddressQueryResult look_up(const char *name, unsigned version, bool per_thread, driver_fn **ret)
{
    unsigned driver = (unsigned)sim_driver_version(), newest = 0;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    bool own = per_thread && has_per_thread(name, driver);
    *ret = NULL;
    for (unsigned i = 0; i < ENTRIES; i++) {
        const struct entry *entry = &entries[i];
        unsigned since = own && entry->version < PER_THREAD_SINCE ? PER_THREAD_SINCE : entry->version;
        if (entry->version > driver || strcmp(entry->name, name) != 0 || (own && !entry->per_thread))
            continue;
        if (since <= version && entry->version >= newest) {
            newest = entry->version;
            *ret = own ? entry->per_thread : entry->legacy;
        }
        status = *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    return status;
}

static CUresult ask(const char *name, int version, cuuint64_t flags, driver_fn **ret,
    CUdriverProcAddressQueryResult *ret_status)
{
    if (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    if (!name)
        sim_null_read();
    *ret_status = look_up(name, (unsigned)version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, ret);
    return CUDA_SUCCESS;
}

/* The form of CUDA 11.3 says that there is no such function by an error, and leaves *ret. */
CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    SIM_ENTER(cuGetProcAddress);
    driver_fn *found = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = ask(symbol, version, flags, &found, &status);
    if (result != CUDA_SUCCESS || !found)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_FOUND;
    if (!ret)
        sim_null_read();
    memcpy(ret, &found, sizeof found);
    return CUDA_SUCCESS;
}

/* That of CUDA 12 does so by a status and a NULL address. */
CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER(cuGetProcAddress_v2);
    driver_fn *found = NULL;
    CUdriverProcAddressQueryResult how;
    CUresult result = ask(symbol, version, flags, &found, &how);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ret)
        sim_null_read();
    memcpy(ret, &found, sizeof found);
    if (status)
        *status = how;
    return CUDA_SUCCESS;
}

/* dlsym and the loader look names up in the symbol table of this library. A symbol that is undefined there, with the value 0,
   is not found (check_match() of glibc's elf/dl-lookup.c). So functions newer than the driver are made undefined in this
   process's copy of the table. An example: under `driver=12.2` cuCtxRecordEvent, of 12.5, becomes undefined, and dlsym returns
   NULL with the loader's own message. A program that is linked with -z now has bound its calls before, and is not refused. */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static struct {
    ElfW(Sym) * first;
    size_t count;
    int protection; /* of the memory that they lie in */
} symbols;

static struct hidden {
    ElfW(Sym) * symbol, before;
} hidden[2 * ENTRIES];
static size_t hidden_count;

static uintptr_t address_of(driver_fn *function)
{
    uintptr_t address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static const uintptr_t base = (uintptr_t)&__ehdr_start;

/* The loader has made addresses of what the dynamic section says, or has left offsets. */
static uintptr_t loaded(ElfW(Addr) value)
{
    return value < base ? base + value : value;
}

static int protection_at(uintptr_t address)
{
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++, segment++)
        if (segment->p_type == PT_LOAD && address - base >= segment->p_vaddr &&
            address - base < segment->p_vaddr + segment->p_memsz)
            return PROT_READ | (segment->p_flags & PF_W ? PROT_WRITE : 0) | (segment->p_flags & PF_X ? PROT_EXEC : 0);
    return PROT_READ;
}

static void find_symbols(void)
{
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols.first = (ElfW(Sym) *)loaded(d->d_un.d_ptr);
        if (d->d_tag == DT_HASH)
            symbols.count = ((const uint32_t *)loaded(d->d_un.d_ptr))[1]; /* chains, one for each symbol */
    }
    symbols.protection = protection_at((uintptr_t)symbols.first);
}

static bool protect(int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)symbols.first / page * page;
    uintptr_t end = (uintptr_t)(symbols.first + symbols.count);
    return mprotect((void *)begin, end - begin, protection) == 0;
}

static void hide(driver_fn *function)
{
    uintptr_t value = function ? address_of(function) - base : 0;
    for (size_t i = 0; value && i < symbols.count; i++) {
        if (symbols.first[i].st_value != value)
            continue;
        hidden[hidden_count++] = (struct hidden){&symbols.first[i], symbols.first[i]};
        symbols.first[i].st_shndx = SHN_UNDEF;
        symbols.first[i].st_value = 0;
    }
}

void sim_exports_follow(int driver)
{
    static int followed;
    if (!symbols.count)
        find_symbols();
    if (driver == followed || !symbols.count || !protect(symbols.protection | PROT_WRITE))
        return;
    while (hidden_count) {
        hidden_count--;
        *hidden[hidden_count].symbol = hidden[hidden_count].before;
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        if (entries[i].version <= (unsigned)driver)
            continue;
        hide(entries[i].legacy);
        hide(entries[i].per_thread);
    }
    followed = driver;
    protect(symbols.protection);
}
