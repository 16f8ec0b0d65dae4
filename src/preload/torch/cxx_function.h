/* std::function of libstdc++, which PyTorch's parameters are. Source: bits/std_function.h of GCC 5 to 15, where it has
   stayed the same: storage, a manager, and what calls it.

   For example, a filter is a lambda with one captured pointer. The pointer lies in storage[0], and the manager clones
   by copying it. `call` is given the storage's address and those of its arguments. */
#ifndef SG_CXX_FUNCTION_H
#define SG_CXX_FUNCTION_H

#include <stdbool.h>

/* A call's arguments are passed by address, whatever their types. */
struct sg_cxx_function {
    void *storage[2];
    bool (*manager)(void *to, const void *from, int what); /* NULL: the function is empty */
    void (*call)(void);
};

enum { SG_CXX_CLONE = 2, SG_CXX_DESTROY = 3 };

static inline struct sg_cxx_function sg_cxx_function_copy(const struct sg_cxx_function *from)
{
    struct sg_cxx_function copy = {.manager = from->manager, .call = from->call};
    if (from->manager)
        (void)from->manager(&copy, from, SG_CXX_CLONE);
    return copy;
}

static inline void sg_cxx_function_destroy(struct sg_cxx_function *function)
{
    if (function->manager)
        (void)function->manager(function, function, SG_CXX_DESTROY);
}

#endif
