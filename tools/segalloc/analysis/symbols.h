/* The lines of code behind return addresses, from the symbols and the debugging information of their files. */
#ifndef SG_NATIVE_SYMBOLS_H
#define SG_NATIVE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "site.h"

/* Writes "solver.c:12 in solve" for the call that returns to `offset` in the file `module`, or "solver in solve" where
   only its name is known. False: neither is, the file is not there, or this build has no elfutils. Files stay open. */
bool sg_symbols_line(const char *module, uint64_t offset, char text[SG_SITE_TEXT]);

/* True if that call is made in a header that wraps CUDA's calls, and so says nothing of the program: for
   sg_site_book_pass_over(). Where the header's function was inlined into the program, it is not. */
bool sg_symbols_is_wrapper(const char *module, uint64_t offset);

#endif
