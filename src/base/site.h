/* The place in a program where memory was asked for: which frame of a stack says most to its author, and how it is
   written. */
#ifndef SG_SITE_H
#define SG_SITE_H

#include <stddef.h>
#include <stdint.h>

enum { SG_SITE_TEXT = 320 };

/* How far a file is from what the user has written. */
enum sg_site_rank {
    SG_SITE_OWN,       /* the user's program */
    SG_SITE_LIBRARY,   /* what it has installed */
    SG_SITE_FRAMEWORK, /* PyTorch, and what stands between it and the user */
    SG_SITE_SYSTEM     /* the language's own library */
};

enum sg_site_rank sg_site_rank(const char *file);

/* The file of a frame that stands for those between the innermost and the outermost frames of a deep stack. */
#define SG_SITE_GAP "(frames left out)"

/* "train.py:57 in forward": the last part of the path, three of a library's, and the function unless it is a whole
   file. Cut to `size` bytes. Returns `text`. */
char *sg_site_format(const char *file, uint32_t line, const char *function, char *text, size_t size);

/* Text of a place in machine code: "libx.so in function (+0x1234)", or "libx.so+0x1234". */
char *sg_site_format_native(const char *module, uint64_t offset, const char *function, char *text, size_t size);

/* __cxa_demangle() of the Itanium C++ ABI, which the runtime of C++ has. */
typedef char *sg_site_demangle_fn(const char *name, char *room, size_t *bytes, int *ret_status);

/* A name of C++ as its author writes it, without its arguments and what it returns; any other as it is. "_ZN3net4stepEi" is
   "net::step". `demangle`: NULL leaves names as they are. Takes memory of malloc's. */
void sg_site_plain_name(sg_site_demangle_fn *demangle, const char *name, char *ret, size_t size);

#endif
