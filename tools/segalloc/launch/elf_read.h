/* The needs of a shared object: names, versions and files of the libraries that it is linked to. */
#ifndef SG_LAUNCH_ELF_READ_H
#define SG_LAUNCH_ELF_READ_H

#include <stdbool.h>

struct sg_elf_need {
    const char *symbol;
    const char *version; /* NULL: none */
    const char *file;    /* the library that the version belongs to, NULL where there is no version */
};

struct sg_elf_visitor {
    /* A library named by DT_NEEDED; all of them come before the first symbol. */
    void (*library)(void *data, const char *name);
    /* A symbol that it does not define itself. Optional. */
    void (*symbol)(void *data, const struct sg_elf_need *need);
    void *data;
};

/* Reads the dynamic part of a 64-bit shared object of this machine. Strings live until it returns. False when the file
   can't be read or is no such object; every offset in it is checked, so that any file may be given. */
bool sg_elf_needs(const char *path, const struct sg_elf_visitor *visitor);

#endif
