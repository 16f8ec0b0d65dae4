/* Functions of the C++ runtime that PyTorch uses, by which an exception is thrown from C.

   Why looked up. A process may have several C++ runtimes, and allocators put before them. It must be the one that
   PyTorch itself uses, whose `catch` compares types by address.

   For example, a std::string of 5 bytes is made for c10::Error's constructor. `new` gives 6 bytes for the text. The
   string's members are set as libstdc++ lays them out: length 5 and capacity 5. */
#ifndef SG_TORCH_CXX_H
#define SG_TORCH_CXX_H

#include <stddef.h>
#include <stdint.h>

/* std::string of libstdc++ since GCC 5. */
struct sg_cxx_string {
    char *text;
    size_t length;
    union {
        char local[16];
        size_t capacity;
    } room;
};

/* c10::SourceLocation. */
struct sg_cxx_location {
    const char *function, *file;
    uint32_t line;
};

/* A std::string is handed over by address; it is the caller's to destroy, whether its text was taken or not. */
typedef void sg_cxx_error_fn(void *self, struct sg_cxx_location where, void *message);
typedef void *sg_cxx_allocate_fn(size_t bytes);
typedef void sg_cxx_delete_fn(void *memory);
typedef void sg_cxx_throw_fn(void *object, void *type, void (*destroy)(void *));

struct sg_torch_cxx {
    sg_cxx_error_fn *construct;
    sg_cxx_allocate_fn *allocate, *new;
    sg_cxx_delete_fn *delete;
    sg_cxx_throw_fn *throw;
    void **vtable; /* of c10::OutOfMemoryError */
    void *type;    /* its std::type_info */
};

/* All of them; NULL: one is missing. Constant once found; takes the loader's lock until then, and SG_LOCK_REAL for a moment. */
const struct sg_torch_cxx *sg_torch_cxx(void);

/* Memory of PyTorch's C++ runtime, for structures of its own; NULL where that is not known. And its end. */
void *sg_torch_new(size_t bytes);
void sg_torch_delete(void *memory);

#endif
