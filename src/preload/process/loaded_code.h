/* The loaded library that an address lies in, and the names that it exports. All of it is read from the tables that the
   loader has mapped.

   Why not dladdr(): it takes the lock that another thread holds during the whole of a dlopen(), with the constructors
   of what it loads. A look-up under a lock of the CUDA runtime must not wait for that one. A constructor that allocates
   waits for the runtime.

   How. dl_iterate_phdr() gives each library's segments. Its dynamic section leads to the symbol table and to a hash
   table of names, of the older kind (DT_HASH) or the newer one (DT_GNU_HASH).

   Limits. A library whose symbols have versions (DT_VERDEF) is left to dlsym(), since several definitions may have one
   name.

   For example, cuGetProcAddress answers 0x7f30a0012340. It lies in the segments of libcuda.so.1, which count from
   0x7f30a0000000. The symbol with value 0x12340 is "cuMemAlloc_v2", so our hook of that name is answered instead. */
#ifndef SG_LOADED_CODE_H
#define SG_LOADED_CODE_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct sg_loaded {
    uintptr_t base, start, end; /* what its addresses count from; its segments lie in [start, end) */
    const char *path;           /* empty for the program itself. Good while the library is loaded */
    const ElfW(Dyn) * dynamic;  /* NULL: none */
};

/* The library that has `code` in one of its segments. False: no library has. Takes no lock of the loader's that is held
   while what it loads is made ready. */
bool sg_loaded_at(const void *code, struct sg_loaded *ret);

/* The name under which a library exports `address`, which is a function's beginning. `prefers` chooses among several.
   NULL: nobody exports it. The text is the library's. Locks as
   sg_loaded_at(). Example: libcuda.so.1 jumps to the functions of another library, and cuGetProcAddress answers an
   address of that one. Its name there is "cuMemAlloc_v2". */
const char *sg_loaded_name(const void *address, bool (*prefers)(const char *name));

/* The library behind a handle of dlopen(). False: the handle is none of a library's. */
bool sg_loaded_of(void *handle, struct sg_loaded *ret);

/* dlsym() for a symbol of that library, without the loader's lock. False: the library does not define `required`, or
   the symbol's address is only known to the loader; ask dlsym(). *ret is NULL where the library has no such symbol. */
bool sg_loaded_symbol(const struct sg_loaded *library, const char *required, const char *name, void **ret);

#endif
