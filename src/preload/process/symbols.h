/* The meaning of a name: the real dlsym, libcuda's symbols, and our answers in their place.

   Why. This library exports dlsym and the driver's names itself, so a plain dlsym() in it would find its own functions.
   All look-ups of the layer go through here.

   For example, sg_cuda_symbol("cuMemAlloc_v2") finds libcuda's function by the library's own tables. If another
   preloaded library hooks dlsym, that one is asked instead; where it answers our own hook, glibc's dlsym is asked with
   libcuda's handle. */
#ifndef SG_SYMBOLS_H
#define SG_SYMBOLS_H

#include <stdbool.h>

/* A sanitizer's runtime looks its own names up before it has made ready what its checks need. clang goes on noting
   calls and atomics where it is only told not to check. */
#if defined(__has_attribute)
#if __has_attribute(disable_sanitizer_instrumentation)
#define SG_UNCHECKED __attribute__((disable_sanitizer_instrumentation))
#endif
#endif
#ifndef SG_UNCHECKED
#define SG_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))
#endif

typedef void *sg_dlsym_fn(void *handle, const char *name);

/* glibc's own dlsym. Its RTLD_NEXT is relative to this library. */
sg_dlsym_fn *sg_dlsym(void);

/* The dlsym that comes after ours: another preloaded library's, or glibc's. Names that are not ours go on to it, and
   the driver's functions are asked of it. Such a library answers as if ours were not there. */
sg_dlsym_fn *sg_dlsym_next(void);

/* A symbol of the libcuda.so.1 that this process has loaded; NULL if none is loaded or it lacks `name`. Takes the
   loader's lock until the library is found, and after that where it has its symbols from another one. */
void *sg_cuda_symbol(const char *name);

/* True if this process has loaded libcuda.so.1, as far as sg_cuda_symbol() needs. Takes the loader's lock until it has. */
bool sg_cuda_loaded(void);

/* A handle of the first loaded library whose file name begins with `prefix`, from dlopen: the caller gives it to
   sg_library_close(). A prefix may name the folder too, "mooncake/engine.so". NULL where there is none. Takes the
   loader's lock. */
void *sg_library_find(const char *prefix);

/* True if there is such a library. Takes no lock of the loader's that is held while what it loads is made ready. */
bool sg_library_loaded(const char *prefix);

/* glibc's own dlclose, which ours goes on to. */
int sg_library_close(void *handle);

#endif
