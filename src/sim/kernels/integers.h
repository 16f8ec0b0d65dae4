/* Kernels of PyTorch on tensors that are not large, and those that join tensors or find elements. They are done,
   because programs decide by what comes out (whether all sequences have ended, how long a message is, whether memory
   that was away has come back). A kernel's name says what it does, and has its types. Its arguments lie as PyTorch's
   headers have them (2.9 to 2.15), and every address is looked up before it is used. All other kernels do nothing.

   A tensor is large beyond `compute_mb` of the settings, where it is given. Otherwise fills, sums over whole tensors, and
   operations on integers and truth values go up to 64 MiB, and floating point element by element to 65,536 elements.
   Programs decide by the former, and a training does most of the latter, of which nobody looks at the result. */
#ifndef SIM_INTEGERS_H
#define SIM_INTEGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_form {
    SIM_FORM_NONE,    /* nothing is known of it */
    SIM_FORM_EACH,    /* element by element, contiguous */
    SIM_FORM_CAST,    /* the same, of types that the arguments name */
    SIM_FORM_STRIDED, /* the same, by strides */
    SIM_FORM_REDUCE,
    SIM_FORM_RANGE, /* torch.arange */
    SIM_FORM_SCAN,  /* torch.cumsum of one row */
    SIM_FORM_SCAN_ROWS,
    SIM_FORM_JOIN,         /* torch.cat and what uses it */
    SIM_FORM_COUNT,        /* the sum of all, or how many are not zero */
    SIM_FORM_COUNT_PARTS,  /* the same, a part for each block */
    SIM_FORM_SELECT,       /* which are not zero */
    SIM_FORM_SELECT_BEGIN, /* none are selected so far: before any selection, whether that is known or not */
    SIM_FORM_UNRAVEL,      /* indices in each dimension from those in the flat tensor */
};

enum sim_operation {
    SIM_FILL,
    SIM_COPY,
    SIM_NOT,
    SIM_AND,
    SIM_OR,
    SIM_XOR,
    SIM_LOGICAL_NOT,
    SIM_LOGICAL_AND,
    SIM_LOGICAL_OR,
    SIM_EQUAL,
    SIM_COMPARE,
    SIM_NEGATE,
    SIM_ABSOLUTE,
    SIM_INVERT, /* one by it */
    SIM_ADD,
    SIM_MULTIPLY,
    SIM_DIVIDE,
    SIM_MAX,
    SIM_MIN,
    SIM_WHERE,
    SIM_MEAN, /* a sum, times a factor */
    SIM_COUNT,
    SIM_LARGEST /* of floating point, which nothing computed: an index in the middle, no special token of a vocabulary */
};

/* Where the functor of an element has its constant, if any. */
enum sim_constant { SIM_NO_CONSTANT, SIM_CONSTANT_FIRST, SIM_CONSTANT_SECOND };

/* A kernel as its name says. Types are letters as values.h has them. */
struct sim_integers {
    enum sim_form form;
    enum sim_operation operation;
    enum sim_constant constant;
    char type, result; /* of what is read, and written */
    char number;       /* of the functor's constants */
    char start;        /* of a reduction: what it starts from, and is summed up in */
    unsigned arity;    /* tensors that are read; of a join: its dimensions */
    unsigned batch, strides, element; /* of a join: inputs and strides that its arguments have room for, bytes of an
                                         element; of indices: bytes of a size */
};

/* Bytes of its arguments when kept. */
size_t sim_integers_bytes(const struct sim_integers *what);
/* Keeps them, with `what`, at `kept`. `grid`: the launch's; in y those of a join's inputs. */
void sim_integers_keep(const struct sim_integers *what, void **params, const unsigned *grid, void *kept);

/* Not locked: does it, unless it is large, or not all that it would touch is memory of a device. The first address that it
   would touch in a reservation without memory there; 0: there is none. */
uint64_t sim_integers_run(const void *kept);

#endif
