#include "kernels/integers.h"

#include <string.h>

#include "base/wrap.h"
#include "kernels/integers_find.h"
#include "kernels/integers_parts.h"
#include "sim.h"

struct operand {
    uint64_t address;
    char type;
    const unsigned char *strides; /* uint32_t, `step` bytes from one dimension to the next; NULL: contiguous */
    unsigned step;
};

/* Elements: the first operand is written. */
struct job {
    enum sim_operation operation;
    enum sim_constant constant;
    char type; /* in which is counted */
    uint64_t count;
    unsigned operands, dims;
    const unsigned char *sizes; /* dividers: the divisor comes first */
    struct operand operand[OPERANDS_MAX];
    unsigned comparison;
    int64_t number, alpha;
};

size_t sim_integers_bytes(const struct sim_integers *what)
{
    size_t sum = 0;
    for (unsigned i = 0; i < ARGUMENTS_MOST; i++)
        sum += round_up_to(sim_integers_argument_bytes(what, i), 8);
    return sum ? sizeof(struct kept) + sum : 0;
}

void sim_integers_keep(const struct sim_integers *what, void **params, const unsigned *grid, void *to)
{
    struct kept *kept = to;
    *kept = (struct kept){*what, grid[what->form == SIM_FORM_JOIN]};
    for (unsigned i = 0; i < ARGUMENTS_MOST; i++) {
        size_t bytes = sim_integers_argument_bytes(what, i);
        if (bytes)
            memcpy((unsigned char *)(uintptr_t)sim_integers_argument(kept, i), params[i], bytes);
    }
}

/* The letter of c10::ScalarType's number; no letter for what is no integer. */
static char letter_of_scalar(unsigned char scalar_type)
{
    static const char letters[] = {'h', 'a', 's', 'i', 'l', 0, 0, 0, 0, 0, 0, 'b'};
    return scalar_type < sizeof letters ? letters[scalar_type] : '\0';
}

static void read_state(const struct sim_integers *what, const unsigned char *functor, struct job *job)
{
    struct sim_integers_functor s = sim_integers_functor(what);
    job->comparison = s.compares ? argument_word(functor) : 0;
    job->number = s.has_number ? integer_load(functor + s.number, what->type) : 0;
    job->alpha = s.has_alpha ? integer_load(functor + s.alpha, what->type) : 1;
}

static void use_calculator(struct job *job, const unsigned char *calculator, unsigned operands)
{
    job->dims = argument_word(calculator);
    job->sizes = calculator + 4;
    for (unsigned i = 0; i < operands; i++) {
        job->operand[i].strides = calculator + 4 + DIMS_MAX * DIVIDER_BYTES + 4 * (size_t)i;
        job->operand[i].step = 4 * operands;
    }
}

static struct job read_elements(const struct kept *kept)
{
    const struct sim_integers *what = &kept->what;
    struct job job = {.operation = what->operation,
        .constant = what->constant,
        .type = what->type,
        .operands = what->arity + 1,
        .count = argument_word(sim_integers_argument(kept, 0))};
    const unsigned char *functor = sim_integers_argument(kept, 1), *data = sim_integers_argument(kept, 2);
    if (what->form == SIM_FORM_STRIDED) {
        use_calculator(&job, functor, job.operands);
        data = functor + round_up_to(sim_integers_calculator_bytes(job.operands), 8);
        functor = data + 8 * (size_t)job.operands;
    }
    read_state(what, functor, &job);
    for (unsigned i = 0; i < job.operands; i++) {
        job.operand[i].address = argument_pointer(data + 8 * (size_t)i);
        job.operand[i].type = i == 0 ? what->result : what->type;
        if (what->form == SIM_FORM_CAST)
            job.operand[i].type = letter_of_scalar(
                i == 0 ? sim_integers_argument(kept, 6)[0] : sim_integers_argument(kept, 5)[i - 1]);
    }
    if (what->operation == SIM_WHERE && what->form != SIM_FORM_CAST)
        job.operand[1].type = 'b';
    return job;
}

static uint64_t offset_of(const struct job *job, unsigned operand, uint64_t index)
{
    const struct operand *o = &job->operand[operand];
    if (!o->strides)
        return index * integer_size(o->type);
    uint64_t offset = 0;
    for (unsigned d = 0; d < job->dims; d++) {
        uint32_t size = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d);
        offset += index % size * argument_word(o->strides + o->step * (size_t)d);
        index /= size;
    }
    return offset;
}

/* Not locked. */
static bool may_touch(const struct job *job)
{
    bool fine = job->count > 0 && job->count <= ELEMENTS_MOST && job->dims <= DIMS_MAX;
    for (unsigned d = 0; fine && d < job->dims; d++)
        fine = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d) != 0;
    sim_lock();
    for (unsigned i = 0; fine && i < job->operands; i++) {
        const struct operand *o = &job->operand[i];
        uint64_t bytes = job->count * integer_size(o->type);
        if (o->strides)
            bytes = integer_size(o->type);
        for (unsigned d = 0; o->strides && d < job->dims; d++) {
            uint64_t last = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d) - UINT64_C(1);
            fine = fine &&
                   !__builtin_add_overflow(bytes, last * argument_word(o->strides + o->step * (size_t)d), &bytes);
        }
        fine = fine && integer_size(o->type) && sim_integers_there(o->address, bytes, i == 0);
    }
    sim_unlock();
    return fine;
}

static int64_t compare_integers(unsigned comparison, int64_t a, int64_t b)
{
    enum { GE, GT, LE, LT };
    switch (comparison) {
    case GE:
        return a >= b;
    case GT:
        return a > b;
    case LE:
        return a <= b;
    case LT:
        return a < b;
    default:
        return 0;
    }
}

/* Integers of tensors wrap. */
SG_WRAPS static int64_t product_and_sum(int64_t a, int64_t b, int64_t c)
{
    return (int64_t)((uint64_t)a * (uint64_t)b + (uint64_t)c);
}

/* The result of one element. `v`: its inputs; those that the operation has not got are not looked at. */
static int64_t result_of(const struct job *job, const int64_t v[OPERANDS_MAX])
{
    enum { EQ };
    int64_t a = v[0], b = v[1];
    if (job->constant == SIM_CONSTANT_FIRST) {
        b = a;
        a = job->number;
    } else if (job->constant == SIM_CONSTANT_SECOND) {
        b = job->number;
    }
    switch (job->operation) {
    case SIM_FILL:
    case SIM_COPY:
        return a;
    case SIM_NOT:
        return job->type == 'b' ? !a : ~a;
    case SIM_AND:
        return a & b;
    case SIM_OR:
        return a | b;
    case SIM_XOR:
        return a ^ b;
    case SIM_LOGICAL_NOT:
        return !a;
    case SIM_LOGICAL_AND:
        return a && b;
    case SIM_LOGICAL_OR:
        return a || b;
    case SIM_EQUAL:
        return (a == b) == (job->comparison == EQ);
    case SIM_COMPARE:
        return compare_integers(job->comparison, a, b);
    case SIM_ADD:
        return product_and_sum(job->alpha, b, a);
    case SIM_MULTIPLY:
        return product_and_sum(a, b, 0);
    case SIM_MAX:
        return a > b ? a : b;
    case SIM_MIN:
        return a < b ? a : b;
    case SIM_WHERE:
        return v[0] ? v[1] : v[2];
    case SIM_COUNT: /* of CUB's sums alone */
    case SIM_LARGEST:
        break;
    }
    return 0;
}

static void *operand_at(const struct job *job, unsigned operand, uint64_t index)
{
    return (void *)(uintptr_t)(job->operand[operand].address + offset_of(job, operand, index));
}

static void run_elements(const struct kept *kept)
{
    const struct job job = read_elements(kept);
    if (!may_touch(&job))
        return;
    for (uint64_t n = 0; n < job.count; n++) {
        int64_t v[OPERANDS_MAX] = {0};
        for (unsigned i = 1; i < job.operands; i++)
            v[i - 1] = integer_load(operand_at(&job, i, n), job.operand[i].type);
        integer_store(operand_at(&job, 0, n), job.operand[0].type, result_of(&job, v));
    }
}

/* ReduceOp: an outer calculator gives where each result and its row begin, an inner one the elements of a row. */
static void run_reduction(const struct kept *kept)
{
    const struct sim_integers *what = &kept->what;
    const unsigned char *given = sim_integers_argument(kept, 0), *config = given + sim_integers_config_at(what);
    const unsigned char *inner = config + CONFIG_BYTES, *outer = inner + sim_integers_calculator_bytes(1);
    const unsigned char *pointers = given + sim_integers_pointers_at(what);
    uint64_t inputs = argument_word(config + 4), outputs = argument_word(config + 8);
    struct job rows = {.count = outputs,
        .operands = 2,
        .operand = {{argument_pointer(pointers + 8), what->result, NULL, 0},
            {argument_pointer(pointers), what->type, NULL, 0}}};
    use_calculator(&rows, outer, 2);
    if (what->operation == SIM_LARGEST) {
        rows.operands = 1;
        for (uint64_t n = 0; inputs && may_touch(&rows) && n < outputs; n++)
            integer_store(operand_at(&rows, 0, n), 'l', (int64_t)(inputs / 2));
        return;
    }
    if (inputs == 0 || inputs > ELEMENTS_MOST || outputs * inputs > ELEMENTS_MOST || !may_touch(&rows))
        return;
    for (uint64_t n = 0; n < outputs; n++) {
        struct job row = {.operation = what->operation, .type = what->type, .count = inputs, .operands = 1, .alpha = 1,
            .operand = {{rows.operand[1].address + offset_of(&rows, 1, n), what->type, NULL, 0}}};
        use_calculator(&row, inner, 1);
        if (!may_touch(&row))
            return;
        int64_t v[OPERANDS_MAX] = {integer_load(operand_at(&row, 0, 0), what->type)};
        if (what->operation == SIM_LOGICAL_OR || what->operation == SIM_LOGICAL_AND)
            v[0] = v[0] != 0;
        for (uint64_t i = 1; i < inputs; i++) {
            v[1] = integer_load(operand_at(&row, 0, i), what->type);
            v[0] = result_of(&row, v);
        }
        integer_store(operand_at(&rows, 0, n), what->result, v[0]);
    }
}

/* From a start by steps. */
SG_WRAPS static void run_range(const struct kept *kept)
{
    const unsigned char *lambda = sim_integers_argument(kept, 1);
    const struct job job = {.count = argument_word(sim_integers_argument(kept, 0)),
        .operands = 1,
        .operand = {{argument_pointer(sim_integers_argument(kept, 2)), 'l', NULL, 0}}};
    uint64_t start = argument_pointer(lambda), step = argument_pointer(lambda + 8);
    if (!may_touch(&job))
        return;
    for (uint64_t n = 0; n < job.count; n++)
        integer_store(operand_at(&job, 0, n), 'l', (int64_t)(start + n * step));
}

/* CUB names what is read first, PyTorch what is written. */
SG_WRAPS static void run_scan(const struct kept *kept)
{
    bool rows = kept->what.form == SIM_FORM_SCAN_ROWS;
    uint64_t from = argument_pointer(sim_integers_argument(kept, rows ? 1 : 0)),
             to = argument_pointer(sim_integers_argument(kept, rows ? 0 : 1));
    uint64_t height = rows ? argument_word(sim_integers_argument(kept, 2)) : 1,
             width = argument_word(sim_integers_argument(kept, rows ? 3 : 6));
    const struct job job = {.count = height * width, .operands = 2,
        .operand = {{to, 'l', NULL, 0}, {from, 'l', NULL, 0}}};
    if (!may_touch(&job))
        return;
    uint64_t sum = 0;
    for (uint64_t n = 0; n < job.count; n++) {
        sum = (n % width ? sum : 0) + (uint64_t)integer_load(operand_at(&job, 1, n), 'l');
        integer_store(operand_at(&job, 0, n), 'l', (int64_t)sum);
    }
}

/* CatArrayIndexToOffset: where an element of an input of that size lies in what is joined, in elements. */
static uint64_t joined_offset(const struct kept *kept, const unsigned char *sizes, uint64_t own, unsigned dim,
    uint64_t index)
{
    uint64_t offset = 0;
    for (unsigned d = kept->what.arity - 1; d >= 1; d--) {
        uint64_t size = d == dim ? own : argument_word(sizes + 4 * (size_t)d);
        offset += index % size * argument_word(sizes + 4 * (JOINED_DIMS + (size_t)d));
        index /= size;
    }
    return offset + index * argument_word(sizes + 4 * JOINED_DIMS);
}

/* True if nothing would be divided by zero. */
static bool has_sizes(const struct kept *kept, const unsigned char *sizes, uint64_t own, unsigned dim)
{
    for (unsigned d = 1; d < kept->what.arity; d++) {
        if ((d == dim ? own : argument_word(sizes + 4 * (size_t)d)) == 0)
            return false;
    }
    return true;
}

struct input {
    uint64_t from;
    uint64_t elements, size, offset; /* along the dimension */
    const unsigned char *sizes;      /* and strides; NULL: contiguous */
};

static struct input input_of(const struct kept *kept, unsigned i)
{
    const struct sim_integers *what = &kept->what;
    const unsigned char *given = sim_integers_argument(kept, 1), *numbers = given + 8 * (size_t)what->batch;
    const unsigned char *contiguous = numbers + 12 * (size_t)what->batch;
    const unsigned char *strides = given + round_up_to(what->batch * (size_t)21, 4);
    struct input input = {argument_pointer(given + 8 * (size_t)i),
        argument_word(numbers + 4 * (2 * (size_t)what->batch + i)),
        argument_word(numbers + 4 * ((size_t)what->batch + i)), argument_word(numbers + 4 * (size_t)i), NULL};
    if (what->strides > 1 && !contiguous[i])
        input.sizes = strides + 8 * JOINED_DIMS * (size_t)i;
    return input;
}

/* Not locked. */
static bool may_join(const struct kept *kept, const struct input *input, uint64_t to, unsigned dim, uint64_t begin)
{
    const unsigned char *sizes = sim_integers_argument(kept, 2);
    uint64_t last = input->elements - 1, element = kept->what.element;
    /* what is one copy may be longer */
    uint64_t most = kept->what.arity == 1 && !input->sizes ? BYTES_MOST : ELEMENTS_MOST;
    if (input->elements == 0 || input->elements > most || !has_sizes(kept, sizes, input->size, dim) ||
        (input->sizes && !has_sizes(kept, input->sizes, input->size, dim)))
        return false;
    uint64_t read = input->sizes ? joined_offset(kept, input->sizes, input->size, dim, last) : last;
    uint64_t written = begin + joined_offset(kept, sizes, input->size, dim, last);
    sim_lock();
    bool fine = sim_integers_there(input->from, (read + 1) * element, false) &&
                sim_integers_there(to, (written + 1) * element, true);
    sim_unlock();
    return fine;
}

static void run_join(const struct kept *kept)
{
    const unsigned char *sizes = sim_integers_argument(kept, 2);
    unsigned dim = argument_word(sim_integers_argument(kept, 3));
    uint64_t to = argument_pointer(sim_integers_argument(kept, 0)),
             stride = argument_word(sim_integers_argument(kept, 4)), element = kept->what.element;
    for (unsigned i = 0; i < kept->count && i < kept->what.batch; i++) {
        const struct input input = input_of(kept, i);
        uint64_t begin = input.offset * stride;
        if (!may_join(kept, &input, to, dim, begin))
            continue;
        bool whole = kept->what.arity == 1 && !input.sizes && argument_word(sizes + 4 * JOINED_DIMS) == 1;
        if (whole)
            memmove((void *)(uintptr_t)(to + begin * element), (const void *)(uintptr_t)input.from,
                input.elements * element);
        for (uint64_t n = 0; !whole && n < input.elements; n++) {
            uint64_t read = input.sizes ? joined_offset(kept, input.sizes, input.size, dim, n) : n;
            uint64_t written = begin + joined_offset(kept, sizes, input.size, dim, n);
            memcpy((void *)(uintptr_t)(to + written * element), (const void *)(uintptr_t)(input.from + read * element),
                element);
        }
    }
}

void sim_integers_run(const void *from)
{
    const struct kept *kept = from;
    switch (kept->what.form) {
    case SIM_FORM_NONE:
        return;
    case SIM_FORM_EACH:
    case SIM_FORM_CAST:
    case SIM_FORM_STRIDED:
        run_elements(kept);
        return;
    case SIM_FORM_REDUCE:
        run_reduction(kept);
        return;
    case SIM_FORM_RANGE:
        run_range(kept);
        return;
    case SIM_FORM_SCAN:
    case SIM_FORM_SCAN_ROWS:
        run_scan(kept);
        return;
    case SIM_FORM_JOIN:
        run_join(kept);
        return;
    case SIM_FORM_COUNT:
    case SIM_FORM_COUNT_PARTS:
        sim_integers_count(kept);
        return;
    case SIM_FORM_SELECT:
        sim_integers_select(kept);
        return;
    case SIM_FORM_UNRAVEL:
        sim_integers_unravel(kept);
        return;
    }
}
