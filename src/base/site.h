/* Sites: the places in a program where memory was asked for, and how a report writes them.

   A *frame* is one entry of a call stack: a file with a line and a function, or a module with an offset. A *site* is a
   whole stack. One frame of it names the site in a report. That is the innermost one of the lowest rank, because it says
   most to the author of the program.

   Example, a stack of PyTorch, the innermost frame first:
     .../dist-packages/torch/nn/modules/linear.py:125 in forward    rank FRAMEWORK
     .../dist-packages/peft/tuners/lora/layer.py:771 in forward     rank LIBRARY
     /home/me/model.py:40 in attention                              rank OWN
     /home/me/train.py:57 in <module>                               rank OWN
   "model.py:40 in attention" names the site. Where no frame is OWN, the LIBRARY frame does.

   Nothing here keeps state. Paths are compared as text; no file is looked at. */
#ifndef SG_SITE_H
#define SG_SITE_H

#include <stddef.h>
#include <stdint.h>

enum { SG_SITE_TEXT = 320 };

/* The distance between a file and the code that the user has written; the lowest is the nearest. */
enum sg_site_rank {
    SG_SITE_OWN,       /* the user's program */
    SG_SITE_LIBRARY,   /* what it has installed */
    SG_SITE_FRAMEWORK, /* PyTorch, and what stands between it and the user */
    SG_SITE_SYSTEM     /* the language's own library */
};

/* The rank of a file by its path, which a table of parts in site.c decides. "<stdin>" is the user's own; a path under
   dist-packages or site-packages is a library's, and one of torch or triton there is the framework's. */
enum sg_site_rank sg_site_rank(const char *file);

/* The file of a frame that stands for those between the innermost and the outermost frames of a deep stack. */
#define SG_SITE_GAP "(frames left out)"

/* Writes a frame as "train.py:57 in forward": the last part of the path, and the function. Frames of others keep three
   parts, "nn/modules/linear.py:125 in forward". A function "<module>", which is a whole file, is left out. The text is cut
   to `size` bytes with its NUL. Returns `text`. */
char *sg_site_format(const char *file, uint32_t line, const char *function, char *text, size_t size);

/* Writes a place in machine code: "libx.so in step (+0x1234)", or "libx.so+0x1234" where `function` is empty. `offset` is
   in bytes, in the module. Cut to `size` bytes; returns `text`. */
char *sg_site_format_native(const char *module, uint64_t offset, const char *function, char *text, size_t size);

/* __cxa_demangle() of the Itanium C++ ABI, which the runtime of C++ has. */
typedef char *sg_site_demangle_fn(const char *name, char *room, size_t *bytes, int *ret_status);

/* Writes a C++ name as its author does, without arguments and return type: "_ZN3net4stepEi" becomes "net::step". Other
   names stay as they are, and so does each one where `demangle` is NULL. Cut to `size` bytes. Uses malloc(). */
void sg_site_plain_name(sg_site_demangle_fn *demangle, const char *name, char *ret, size_t size);

#endif
