/* PyTorch's kernels, by their names (C++ ABI). Templates: ATen/native/cuda/CUDALoops.cuh, Reduce.cuh,
   Shape.cu; functors: Loops.cuh, BinaryInternal.h, and the file of each operator. */
#include "kernels/integers_name.h"

#include <stdio.h>
#include <string.h>

#include "kernels/values.h"

/* A functor, by a piece of the name up to the letter of its type; or where its lambda's types stand. */
static const struct functor {
    const char *piece;
    enum sim_operation operation;
    unsigned arity;
    bool lambda; /* the type is the lambda's first argument's */
    char result; /* 0: the type of what is read */
    enum sim_constant constant;
} functors[] = {
    {"11FillFunctorI", SIM_FILL, 0, false, 0, SIM_CONSTANT_FIRST},
    {"10AbsFunctorI", SIM_ABSOLUTE, 1, false, 0, SIM_NO_CONSTANT},
    {"10DivFunctorI", SIM_DIVIDE, 2, false, 0, SIM_NO_CONSTANT},
    {"16CompareEqFunctorI", SIM_EQUAL, 2, false, 'b', SIM_NO_CONSTANT},
    {"14CompareFunctorI", SIM_COMPARE, 2, false, 'b', SIM_NO_CONSTANT},
    {"21compare_scalar_kernelI", SIM_COMPARE, 1, false, 'b', SIM_CONSTANT_SECOND},
    {"17BitwiseAndFunctorI", SIM_AND, 2, false, 0, SIM_NO_CONSTANT},
    {"16BitwiseOrFunctorI", SIM_OR, 2, false, 0, SIM_NO_CONSTANT},
    {"17BitwiseXorFunctorI", SIM_XOR, 2, false, 0, SIM_NO_CONSTANT},
    {"10MulFunctorI", SIM_MULTIPLY, 2, false, 0, SIM_NO_CONSTANT},
    {"15CUDAFunctor_addI", SIM_ADD, 2, false, 0, SIM_NO_CONSTANT},
    {"21CUDAFunctorOnSelf_addI", SIM_ADD, 1, false, 0, SIM_CONSTANT_SECOND},
    {"22CUDAFunctorOnOther_addI", SIM_ADD, 1, false, 0, SIM_CONSTANT_FIRST},
    {"23bitwise_not_kernel_cuda", SIM_NOT, 1, true, 0, SIM_NO_CONSTANT},
    {"23logical_not_kernel_cuda", SIM_LOGICAL_NOT, 1, true, 'b', SIM_NO_CONSTANT},
    {"22reciprocal_kernel_cuda", SIM_INVERT, 1, true, 0, SIM_NO_CONSTANT},
    {"15neg_kernel_cuda", SIM_NEGATE, 1, true, 0, SIM_NO_CONSTANT},
    {"24float16_copy_kernel_cuda", SIM_COPY, 1, true, 'H', SIM_NO_CONSTANT},
    {"25bfloat16_copy_kernel_cuda", SIM_COPY, 1, true, 'B', SIM_NO_CONSTANT},
    {"23direct_copy_kernel_cuda", SIM_COPY, 1, true, 0, SIM_NO_CONSTANT},
    {"23logical_and_kernel_cuda", SIM_LOGICAL_AND, 2, true, 'b', SIM_NO_CONSTANT},
    {"22logical_or_kernel_cuda", SIM_LOGICAL_OR, 2, true, 'b', SIM_NO_CONSTANT},
    {"19maximum_kernel_cuda", SIM_MAX, 2, true, 0, SIM_NO_CONSTANT},
    {"19minimum_kernel_cuda", SIM_MIN, 2, true, 0, SIM_NO_CONSTANT},
    {"17where_kernel_impl", SIM_WHERE, 3, true, 0, SIM_NO_CONSTANT},
};

static const struct {
    const char *piece;
    enum sim_operation operation;
} reductions[] = {
    {"13MaxNanFunctor", SIM_MAX},
    {"13MinNanFunctor", SIM_MIN},
    {"11sum_functorI", SIM_ADD},
    {"14or_kernel_cuda", SIM_LOGICAL_OR},
    {"15and_kernel_cuda", SIM_LOGICAL_AND},
};

static bool is_integer(char type)
{
    return type && strchr("bhasilmx", type) != NULL;
}

/* A letter that has the same meaning in fewer letters: PyTorch selects by size alone in places. */
static char plain_type(char type)
{
    return type == 'm' || type == 'x' ? 'l' : type;
}

static bool name_starts(const char *at, const char *with)
{
    return strncmp(at, with, strlen(with)) == 0;
}

/* The type at *at, which moves on; no letter for another type. Types of 16 bits are written out once and then by a
   substitution, "S4_". A kernel that has both of them is none of ours. */
static char next_type(const char *name, const char **at)
{
    static const char half[] = "4HalfE", bfloat[] = "8BFloat16E";
    const char *rest = *at;
    if (is_integer(*rest) || *rest == 'f' || *rest == 'd') {
        ++*at;
        return plain_type(*rest);
    }
    if (name_starts(rest, "N3c10"))
        rest += strlen("N3c10");
    else if (name_starts(rest, "NS") && strchr(rest, '_'))
        rest = strchr(rest, '_') + 1; /* the namespace by a substitution */
    if (rest != *at && (name_starts(rest, half) || name_starts(rest, bfloat))) {
        *at = rest + (name_starts(rest, half) ? sizeof half : sizeof bfloat) - 1;
        return name_starts(rest, half) ? 'H' : 'B';
    }
    bool halves = strstr(name, half) != NULL, bfloats = strstr(name, bfloat) != NULL;
    const char *end = *rest == 'S' ? rest + 1 + strspn(rest + 1, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") : rest;
    if (rest != *at || end == rest || *end != '_' || halves == bfloats)
        return 0;
    *at = end + 1;
    return halves ? 'H' : 'B';
}

/* at::opmath_type: what is counted in. */
static char counted_in(char type)
{
    return type == 'H' || type == 'B' ? 'f' : type;
}

/* BinaryFunctor<a, b, result, functor>, and the two that hold one of the operands: all operands must be of one type. */
static bool name_wraps(const char *name, struct sim_integers *what)
{
    static const struct {
        const char *piece;
        enum sim_constant constant;
    } wrappers[] = {
        {"13BinaryFunctorI", SIM_NO_CONSTANT},
        {"13AUnaryFunctorI", SIM_CONSTANT_FIRST},
        {"13BUnaryFunctorI", SIM_CONSTANT_SECOND},
    };
    for (unsigned i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        const char *at = strstr(name, wrappers[i].piece);
        if (!at)
            continue;
        const char *types = at + strlen(wrappers[i].piece);
        what->constant = wrappers[i].constant;
        what->arity = what->constant == SIM_NO_CONSTANT ? 2 : 1;
        char type = next_type(name, &types), other = next_type(name, &types), result = next_type(name, &types);
        if (!type || other != type || (what->number != type && what->number != counted_in(type)))
            return false;
        what->type = type;
        what->result = result;
        return result == (sim_values_are_truths(what->operation) ? 'b' : type);
    }
    return true;
}

/* The first argument of the lambda that is the functor: "…UllE_", of where's "…UlbllE_" the second. */
static char lambda_type(const char *name, const char *piece, enum sim_operation operation)
{
    const char *at = strstr(piece, "EUl");
    if (!at)
        return 0;
    at += at[3] == 'b' && operation == SIM_WHERE ? 4 : 3;
    if (operation == SIM_WHERE && (*at == 't' || *at == 'j')) /* any type of 16 or 32 bits, by its size */
        return *at == 't' ? 's' : 'i';
    return next_type(name, &at);
}

static bool is_done(enum sim_operation operation, char type)
{
    switch (operation) {
    case SIM_NOT:
    case SIM_AND:
    case SIM_OR:
    case SIM_XOR:
        return !sim_values_are_real(type);
    case SIM_ABSOLUTE:
    case SIM_INVERT:
    case SIM_DIVIDE:
    case SIM_MEAN:
        return sim_values_are_real(type);
    default:
        return type != 0;
    }
}

static bool element_wise(const char *name, struct sim_integers *what)
{
    const char *converting = strstr(name, "27converting_copy_kernel_cudaI");
    if (converting) {
        const char *types = converting + 30;
        what->operation = SIM_COPY;
        what->arity = 1;
        what->type = what->number = next_type(name, &types);
        what->result = what->type ? next_type(name, &types) : 0;
        return what->type && what->result;
    }
    for (unsigned i = 0; i < sizeof functors / sizeof *functors; i++) {
        const struct functor *known = &functors[i];
        const char *at = strstr(name, known->piece);
        if (!at)
            continue;
        at += strlen(known->piece);
        what->operation = known->operation;
        what->arity = known->arity;
        what->constant = known->constant;
        what->type = known->lambda ? lambda_type(name, at, known->operation) : next_type(name, &at);
        what->number = known->operation == SIM_ADD ? counted_in(what->type) : what->type;
        what->result = known->result ? known->result : what->type;
        return is_done(what->operation, what->type) && name_wraps(name, what);
    }
    return false;
}

/* ReduceOp<type, func_wrapper_t<result, functor>, unsigned, result, 4, 4>, or MeanOps<type, sum's, factor's, result> in
   the second's place. A reduction by "any" or "all" gives true or false whatever its type. It starts from a value of the
   type of the lambda's first argument, which is what sums are counted in. */
static bool name_reduces(const char *name, struct sim_integers *what)
{
    const char *at = strstr(name, "8ReduceOpI");
    if (!at)
        return false;
    if (strstr(at, "9ArgMaxOpsIfEEjl") || strstr(at, "9ArgMaxOpsIdEEjl")) {
        what->operation = SIM_LARGEST;
        what->arity = 1;
        what->type = what->start = what->result = 'l';
        return true;
    }
    what->arity = 1;
    at += strlen("8ReduceOpI");
    what->type = next_type(name, &at);
    if (what->type && name_starts(at, "NS0_7MeanOpsI")) {
        at += strlen("NS0_7MeanOpsI");
        char type = next_type(name, &at), factor;
        what->operation = SIM_MEAN;
        what->start = next_type(name, &at);
        factor = next_type(name, &at);
        what->result = next_type(name, &at);
        return type == what->type && what->start == counted_in(type) && factor == what->start && what->result == type &&
               is_done(SIM_MEAN, type);
    }
    if (!what->type || !name_starts(at, "NS0_14func_wrapper_tI"))
        return false;
    at += strlen("NS0_14func_wrapper_tI");
    what->result = next_type(name, &at);
    for (unsigned i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        if (!strstr(at, reductions[i].piece))
            continue;
        what->operation = reductions[i].operation;
        bool truth = what->operation == SIM_LOGICAL_OR || what->operation == SIM_LOGICAL_AND;
        const char *lambda = truth || what->operation == SIM_ADD ? strstr(at, "EUl") : NULL;
        if (lambda)
            lambda += 3;
        what->start = lambda ? next_type(name, &lambda) : what->type;
        return what->start &&
               (what->type == what->result || what->start == what->result || (truth && what->result == 'b')) &&
               (truth || what->start == what->type || what->start == counted_in(what->type));
    }
    return false;
}

/* CatArrayBatchedCopy<OpaqueType<element>, unsigned, dimensions, batch, strides, …>. Elements of 2 and 4 bytes are
   floating point nearly always, and many. */
static bool name_joins(const char *name, struct sim_integers *what)
{
    static const char *const kinds[] = {"19CatArrayBatchedCopyI", "26CatArrayBatchedCopy_contigI",
        "35CatArrayBatchedCopy_alignedK_contigI"};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *at = strstr(name, kinds[i]);
        const char *types = at ? strstr(at, "10OpaqueTypeILj") : NULL;
        if (types)
            return sscanf(types, "10OpaqueTypeILj%uEEEjLi%uELi%uELi%uE", &what->element, &what->arity, &what->batch,
                          &what->strides) == 4;
    }
    return false;
}

/* torch.nonzero's four: CUB's sum of truths, in one launch or in two, its selection, and PyTorch's own of more dimensions.
   The second launch of a sum adds plain integers. The beginning of a selection is known for all of CUB's: a
   host that reads how many there are, and asks for so much memory, finds none where the selection itself is unknown. */
static bool name_finds(const char *name, struct sim_integers *what)
{
    const char *type = strstr(name, "9NonZeroOpI"), *index = strstr(name, "13write_indicesI");
    if (index) {
        what->form = SIM_FORM_UNRAVEL;
        what->element = (unsigned)(index[16] == 'l' ? sizeof(int64_t) : sizeof(int32_t));
        what->type = what->result = 'l';
        return index[16] == 'l' || index[16] == 'i';
    }
    const char *begin = strstr(name, "23DeviceCompactInitKernelI"), *number = begin ? strstr(begin, "EEvT_iT0_") : NULL;
    if (begin) {
        char letter = number ? number[-1] : 0;
        what->form = SIM_FORM_SELECT_BEGIN;
        what->type = letter == 'j' ? 'i' : letter == 'y' ? 'l' : letter;
        return number && number[-2] == 'P' && is_integer(what->type);
    }
    bool part = strstr(name, "18DeviceReduceKernelI") != NULL,
         whole = strstr(name, "28DeviceReduceSingleTileKernelI") != NULL;
    what->form = strstr(name, "23DeviceSelectSweepKernelI") ? SIM_FORM_SELECT
                 : part                                     ? SIM_FORM_COUNT_PARTS
                                                            : SIM_FORM_COUNT;
    what->type = type ? type[11] : 'i';
    what->operation = type ? SIM_COUNT : SIM_ADD;
    if (type)
        return (what->form == SIM_FORM_SELECT || part || whole) && is_integer(what->type);
    return whole && (strstr(name, "4plusI") || strstr(name, "3SumE")) && strstr(name, "EPiS");
}

/* torch.arange of a type, by its place in a dispatch that begins with those of 8 and 32 bits. */
static char name_counts_up(const char *name)
{
    if (!strstr(name, "29elementwise_kernel_with_indexIi") || !strstr(name, "15arange_cuda_out"))
        return 0;
    return strstr(name, "ENKUlvE2_clEvEUllE_")   ? 'l'
           : strstr(name, "ENKUlvE4_clEvEUllE_") ? 'd'
           : strstr(name, "ENKUlvE5_clEvEUllE_") ? 'f'
                                                 : 0;
}

/* Sums up to each element, of CUB and of PyTorch. */
static enum sim_form name_scans(const char *name)
{
    if (strstr(name, "16DeviceScanKernelI") && strstr(name, "EPKlPlNS0_13ScanTileStateIl") &&
        strstr(name, "St4plusIl") && strstr(name, "8NullTypeEj") && strstr(name, "EEvT0_T1_T2_iT3_T4_T5_"))
        return SIM_FORM_SCAN;
    return strstr(name, "32tensor_kernel_scan_innermost_dimIlSt4plusIlEEEvPT_PKS4_jjj") ? SIM_FORM_SCAN_ROWS
                                                                                        : SIM_FORM_NONE;
}

struct sim_integers sim_integers_named(const char *name)
{
    static const struct sim_integers none = {.form = SIM_FORM_NONE};
    struct sim_integers what = none;
    bool known = false;
    if (strstr(name, "at6native") == NULL && strstr(name, "at_cuda_detail") == NULL)
        return none;
    char counted = name_counts_up(name);
    if (counted || name_scans(name) != SIM_FORM_NONE) {
        what.form = counted ? SIM_FORM_RANGE : name_scans(name);
        what.type = what.result = counted ? counted : 'l';
        known = true;
    } else if (strstr(name, "DeviceReduce") || strstr(name, "DeviceSelectSweep") || strstr(name, "DeviceCompactInit") ||
               strstr(name, "13write_indicesI")) {
        known = name_finds(name, &what);
    } else if (strstr(name, "29vectorized_elementwise_kernelI")) {
        what.form = SIM_FORM_EACH;
        known = element_wise(name, &what);
    } else if (strstr(name, "27unrolled_elementwise_kernelI")) {
        what.form = strstr(name, "12LoadWithCastI") ? SIM_FORM_CAST : SIM_FORM_EACH;
        known = strstr(name, "23TrivialOffsetCalculator") && element_wise(name, &what);
    } else if (strstr(name, "18elementwise_kernelI") && strstr(name, "22gpu_kernel_impl_nocastI")) {
        what.form = SIM_FORM_STRIDED;
        known = element_wise(name, &what);
    } else if (strstr(name, "13reduce_kernelI")) {
        what.form = SIM_FORM_REDUCE;
        known = name_reduces(name, &what);
    } else if (strstr(name, "CatArrayBatchedCopy")) {
        what.form = SIM_FORM_JOIN;
        known = name_joins(name, &what) && what.arity >= 1 && what.arity <= 4 && what.batch >= 1 && what.batch <= 256 &&
                (what.strides == 1 || what.strides == what.batch) && (what.element == 1 || what.element == 8);
    }
    what.type = plain_type(what.type);
    what.start = plain_type(what.start);
    what.result = plain_type(what.result);
    return known ? what : none;
}
