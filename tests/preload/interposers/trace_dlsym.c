/* A library to preload that defines dlsym, counts the questions for names of CUDA, and hands them on. Built with AUDIT it
   is one for LD_AUDIT, which is asked about each binding. At exit it says that it was asked. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

static int asked;

#ifdef AUDIT
EXPORTED unsigned la_version(unsigned version);
EXPORTED unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie);
EXPORTED uintptr_t la_symbind64(ElfW(Sym) *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
    const char *name);

unsigned la_version(unsigned version)
{
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(ElfW(Sym) *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
    (void)index, (void)from, (void)to, (void)flags;
    asked += strncmp(name, "cu", 2) == 0;
    return symbol->st_value;
}
#else
EXPORTED void *dlsym(void *handle, const char *name);

/* Not counted in a build for coverage: a count behind the last call would keep it from being a jump. */
__attribute__((no_profile_instrument_function)) void *dlsym(void *handle, const char *name)
{
    void *(*real)(void *, const char *);
    void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!symbol)
        symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    memcpy(&real, &symbol, sizeof real);
    asked += strncmp(name, "cu", 2) == 0;
    return real(handle, name); /* a jump: the loader knows its caller by the return address */
}
#endif

__attribute__((destructor)) static void tell(void)
{
    if (asked)
        fprintf(stderr, "tracer: was asked\n");
}
