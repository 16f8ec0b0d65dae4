/* Symbols of PyTorch's libraries.

   For example, sg_torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc") is PyTorch 2.11's own check_env(), where this
   library exports one of that name before it. */
#ifndef SG_TORCH_SYMBOLS_H
#define SG_TORCH_SYMBOLS_H

/* A symbol of a loaded library of PyTorch's, whose file name begins so; NULL: not to be had. Takes the loader's lock. */
void *sg_torch_symbol(const char *library, const char *name);

#endif
