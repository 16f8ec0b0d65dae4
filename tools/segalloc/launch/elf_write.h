/* Writes a shared object whose functions return 0, or jump to functions of another library. Needs no compiler. */
#ifndef SG_ELF_WRITE_H
#define SG_ELF_WRITE_H

#include <stddef.h>

struct sg_elf_function {
    const char *name;
    const char *version; /* NULL: in no version node */
    const char *target;  /* the symbol of `needed` that answers, NULL: 0 is returned */
};

struct sg_elf_library {
    const char *soname;
    const char *needed; /* path of the library with the targets */
    const struct sg_elf_function *functions;
    size_t function_count;
};

/* Writes the library to `path` for this machine (x86-64, arm64). Returns 0 or a negative errno. */
int sg_elf_write(const char *path, const struct sg_elf_library *library);

#endif
