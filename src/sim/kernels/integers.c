#include "kernels/integers.h"

#include <string.h>

#include "base/wrap.h"
#include "kernels/integers_find.h"
#include "kernels/integers_parts.h"
#include "kernels/values.h"
#include "sim.h"
#include "space/span.h"

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
    struct sim_constants constants;
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

/* The letter of c10::ScalarType's number; no letter for another type. */
static char letter_of_scalar(unsigned char scalar_type)
{
    static const char letters[] = {'h', 'a', 's', 'i', 'l', 'H', 'f', 'd', 0, 0, 0, 'b', 0, 0, 0, 'B'};
    return scalar_type < sizeof letters ? letters[scalar_type] : '\0';
}

static void read_number(const unsigned char *at, char type, int64_t *whole, double *real)
{
    union sim_values value;
    sim_values_load(&value, type, at, NULL, type, 1);
    if (sim_values_are_real(type))
        *real = value.real[0];
    else
        *whole = value.whole[0];
}

static void read_state(const struct sim_integers *what, const unsigned char *functor, struct job *job)
{
    struct sim_integers_functor s = sim_integers_functor(what);
    job->constants =
        (struct sim_constants){.comparison = s.compares ? argument_word(functor) : 0, .alpha = 1, .real_alpha = 1};
    if (s.has_number)
        read_number(functor + s.number, what->number, &job->constants.number, &job->constants.real);
    if (s.has_alpha)
        read_number(functor + s.alpha, what->number, &job->constants.alpha, &job->constants.real_alpha);
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
        return index * sim_values_size(o->type);
    uint64_t offset = 0;
    for (unsigned d = 0; d < job->dims; d++) {
        uint32_t size = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d);
        offset += index % size * argument_word(o->strides + o->step * (size_t)d);
        index /= size;
    }
    return offset;
}

/* Bytes of it that a job may touch, from the first to the last; UINT64_MAX where that overflows. */
static uint64_t bytes_of(const struct job *job, unsigned operand)
{
    const struct operand *o = &job->operand[operand];
    uint64_t bytes = sim_values_size(o->type);
    if (!o->strides)
        return job->count * bytes;
    for (unsigned d = 0; d < job->dims; d++) {
        uint64_t last = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d) - UINT64_C(1);
        if (__builtin_add_overflow(bytes, last * argument_word(o->strides + o->step * (size_t)d), &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

static bool has_shape(const struct job *job)
{
    bool fine = job->count > 0 && job->dims <= DIMS_MAX;
    for (unsigned d = 0; fine && d < job->dims; d++)
        fine = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d) != 0;
    for (unsigned i = 0; i < job->operands; i++)
        fine = fine && sim_values_size(job->operand[i].type);
    return fine;
}

/* True if so many elements of so many bytes are not large. `wide`: of those kernels that programs decide by. */
static bool is_small(bool wide, uint64_t elements, uint64_t bytes)
{
    const struct sim_config *config = &sim.config;
    if (config->compute_bytes != UINT64_MAX)
        return bytes <= config->compute_bytes;
    return wide && config->drop_bytes >= WIDE_BYTES ? bytes <= WIDE_BYTES
                                                    : bytes <= BYTES_MOST && elements <= ELEMENTS_MOST;
}

static bool job_is_small(const struct job *job)
{
    bool wide = job->operation == SIM_FILL, real = false;
    uint64_t most = 0;
    for (unsigned i = 0; i < job->operands; i++) {
        uint64_t bytes = bytes_of(job, i);
        most = bytes > most ? bytes : most;
        real = real || sim_values_are_real(job->operand[i].type);
    }
    return is_small(wide || !real, job->count, most);
}

/* Not locked. The first address of a reservation that has no memory and that the job would touch; 0: there is none. */
static uint64_t address_lost(const struct job *job)
{
    uint64_t lost = 0;
    sim_lock();
    for (unsigned i = 0; i < job->operands && !lost; i++)
        lost = sim_span_lost(job->operand[i].address, bytes_of(job, i), i == 0);
    sim_unlock();
    return lost;
}

/* Not locked. */
static bool may_touch(const struct job *job)
{
    bool fine = true;
    sim_lock();
    for (unsigned i = 0; fine && i < job->operands; i++)
        fine = sim_integers_there(job->operand[i].address, bytes_of(job, i), i == 0);
    sim_unlock();
    return fine;
}

static void *operand_at(const struct job *job, unsigned operand, uint64_t index)
{
    return (void *)(uintptr_t)(job->operand[operand].address + offset_of(job, operand, index));
}

/* Where the elements of a batch are: those of contiguous operands from `base` on, others by offsets. */
struct place {
    unsigned char *base;
    const uint64_t *offsets;
    uint64_t offset[SIM_VALUES_BATCH];
};

/* The walk over a job's elements, in their order. */
struct walk {
    uint32_t at[DIMS_MAX]; /* the index in each dimension */
    uint64_t offset[OPERANDS_MAX];
    struct place place[OPERANDS_MAX];
};

static void walk_step(const struct job *job, struct walk *walk)
{
    for (unsigned d = 0; d < job->dims; d++) {
        uint32_t size = argument_word(job->sizes + DIVIDER_BYTES * (size_t)d);
        bool round = ++walk->at[d] == size;
        for (unsigned i = 0; i < job->operands; i++) {
            const struct operand *o = &job->operand[i];
            uint64_t stride = o->strides ? argument_word(o->strides + o->step * (size_t)d) : 0;
            walk->offset[i] = round ? walk->offset[i] - (size - 1) * stride : walk->offset[i] + stride;
        }
        if (!round)
            return;
        walk->at[d] = 0;
    }
}

/* The places of the `count` elements from the `first` on, which is where the walk has come to. */
static void walk_on(const struct job *job, struct walk *walk, uint64_t first, unsigned count)
{
    for (unsigned i = 0; i < job->operands; i++) {
        const struct operand *o = &job->operand[i];
        struct place *place = &walk->place[i];
        place->offsets = o->strides ? place->offset : NULL;
        place->base = (unsigned char *)(uintptr_t)(o->address + (o->strides ? 0 : first * sim_values_size(o->type)));
    }
    for (unsigned k = 0; job->dims && k < count; k++) {
        for (unsigned i = 0; i < job->operands; i++)
            walk->place[i].offset[k] = walk->offset[i];
        walk_step(job, walk);
    }
    for (unsigned k = 0; !job->dims && k < count; k++) /* a scalar by a calculator without dimensions */
        for (unsigned i = 0; i < job->operands; i++)
            walk->place[i].offset[k] = 0;
}

static unsigned batch_from(uint64_t first, uint64_t count)
{
    return (unsigned)(count - first < SIM_VALUES_BATCH ? count - first : SIM_VALUES_BATCH);
}

/* Which of its operands a functor has as a constant. */
static void use_constant(const struct job *job, union sim_values in[OPERANDS_MAX], unsigned count)
{
    if (job->constant == SIM_NO_CONSTANT)
        return;
    unsigned at = job->constant == SIM_CONSTANT_FIRST ? 0 : 1;
    if (at == 0)
        memcpy(&in[1], &in[0], sizeof in[1]);
    bool real = sim_values_are_real(job->type);
    for (unsigned k = 0; k < count; k++) {
        if (real)
            in[at].real[k] = job->constants.real;
        else
            in[at].whole[k] = job->constants.number;
    }
}

static uint64_t run_elements(const struct kept *kept)
{
    const struct job job = read_elements(kept);
    if (!has_shape(&job))
        return 0;
    uint64_t lost = address_lost(&job);
    if (lost || !job_is_small(&job) || !may_touch(&job))
        return lost;
    struct walk walk = {0};
    char result = sim_values_are_truths(job.operation) ? 'b' : job.type;
    for (uint64_t n = 0; n < job.count; n += SIM_VALUES_BATCH) {
        unsigned count = batch_from(n, job.count);
        union sim_values in[OPERANDS_MAX];
        walk_on(&job, &walk, n, count);
        for (unsigned i = 1; i < job.operands; i++)
            sim_values_load(&in[i - 1], job.operation == SIM_WHERE && i == 1 ? 'b' : job.type, walk.place[i].base,
                walk.place[i].offsets, job.operand[i].type, count);
        use_constant(&job, in, count);
        sim_values_combine(job.operation, job.type, &job.constants, in, count);
        sim_values_store(walk.place[0].base, walk.place[0].offsets, job.operand[0].type, &in[0], result, count);
    }
    return 0;
}

/* A reduction as ReduceOp has it. PyTorch makes several launches of one of more bytes than 32 bits can count: all but the first
   take on what the one before has left in the output, and the last one finishes it. */
struct reduction {
    const struct sim_integers *what;
    uint64_t inputs, outputs;
    struct job rows;            /* where each result and its row begin */
    const unsigned char *inner; /* the calculator of a row's elements */
    double factor;
    bool accumulates, finishes;
};

static struct reduction read_reduction(const struct kept *kept)
{
    const struct sim_integers *what = &kept->what;
    const unsigned char *given = sim_integers_argument(kept, 0), *config = given + sim_integers_config_at(what);
    const unsigned char *inner = config + CONFIG_BYTES, *outer = inner + sim_integers_calculator_bytes(1);
    const unsigned char *pointers = given + sim_integers_pointers_at(what);
    struct reduction r = {.what = what,
        .inputs = argument_word(config + 4),
        .outputs = argument_word(config + 8),
        .inner = inner,
        .accumulates = pointers[ACCUMULATES_AT],
        .finishes = pointers[ACCUMULATES_AT + 1]};
    r.rows = (struct job){.count = r.outputs,
        .operands = 2,
        .operand = {{argument_pointer(pointers + 8), what->result, NULL, 0},
            {argument_pointer(pointers), what->type, NULL, 0}}};
    use_calculator(&r.rows, outer, 2);
    int64_t none = 0;
    if (what->operation == SIM_MEAN)
        read_number(given, what->start, &none, &r.factor);
    /* A buffer of its own for what is not finished: of sums in another type than the result. */
    if (argument_pointer(pointers + BUFFER_AT) && !(r.finishes && !r.accumulates))
        r.outputs = 0;
    return r;
}

static struct job row_of(const struct reduction *r, uint64_t output)
{
    struct job row = {.operation = r->what->operation,
        .type = r->what->type,
        .count = r->inputs,
        .operands = 1,
        .operand = {{r->rows.operand[1].address + offset_of(&r->rows, 1, output), r->what->type, NULL, 0}}};
    use_calculator(&row, r->inner, 1);
    return row;
}

static void reduce_row(const struct reduction *r, const struct job *row, uint64_t output)
{
    char type = r->what->start;
    struct sim_fold fold = {.operation = r->what->operation, .type = type};
    struct walk walk = {0};
    union sim_values values;
    uint32_t stride = row->dims == 1 ? argument_word(row->operand[0].strides) : 0;
    bool dense = stride == sim_values_size(row->type); /* one element behind the other */
    for (uint64_t n = 0; n < row->count; n += SIM_VALUES_BATCH) {
        unsigned count = batch_from(n, row->count);
        if (!dense)
            walk_on(row, &walk, n, count);
        sim_values_load(&values, type, dense ? operand_at(row, 0, n) : walk.place[0].base,
            dense ? NULL : walk.place[0].offsets, row->type, count);
        sim_values_fold(&fold, &values, count);
    }
    unsigned char *to = operand_at(&r->rows, 0, output);
    if (r->accumulates) {
        sim_values_load(&values, type, to, NULL, r->what->result, 1);
        sim_values_fold(&fold, &values, 1);
    }
    values.whole[0] = fold.whole;
    if (sim_values_are_real(type))
        values.real[0] = fold.real;
    if (r->what->operation == SIM_MEAN && r->finishes)
        sim_values_scale(&values, type, r->factor);
    sim_values_store(to, NULL, r->what->result, &values, type, 1);
}

/* All that a reduction reads is looked at as one range: from the first row's first element to the last one's last. */
static uint64_t run_reduction(const struct kept *kept)
{
    const struct reduction r = read_reduction(kept);
    struct job rows = r.rows;
    rows.operands = 1;
    if (r.inputs == 0 || r.outputs == 0 || !has_shape(&r.rows))
        return 0;
    if (r.what->operation == SIM_LARGEST) {
        bool fine = is_small(false, r.outputs, bytes_of(&rows, 0)) && may_touch(&rows);
        for (uint64_t n = 0; fine && n < r.outputs; n++)
            integer_store(operand_at(&rows, 0, n), 'l', (int64_t)(r.inputs / 2));
        return 0;
    }
    const struct job first = row_of(&r, 0);
    if (!has_shape(&first))
        return 0;
    uint64_t bytes = bytes_of(&r.rows, 1), elements = r.inputs * r.outputs, from = r.rows.operand[1].address;
    if (__builtin_add_overflow(bytes, bytes_of(&first, 0), &bytes))
        return 0;
    bytes -= sim_values_size(r.what->type);
    bool wide = r.outputs == 1 || (!sim_values_are_real(r.what->type) && r.outputs <= ELEMENTS_MOST);
    sim_lock();
    uint64_t lost = sim_span_lost(from, bytes, false);
    bool fine = sim_integers_there(from, bytes, false);
    sim_unlock();
    if (!lost)
        lost = address_lost(&rows);
    if (lost || !fine || !is_small(wide, elements, bytes) || !may_touch(&rows))
        return lost;
    for (uint64_t n = 0; n < r.outputs; n++) {
        const struct job row = row_of(&r, n);
        reduce_row(&r, &row, n);
    }
    return 0;
}

/* From a start by steps. */
SG_WRAPS static uint64_t run_range(const struct kept *kept)
{
    char type = kept->what.type;
    const unsigned char *lambda = sim_integers_argument(kept, 1);
    const struct job job = {.count = argument_word(sim_integers_argument(kept, 0)),
        .operands = 1,
        .operand = {{argument_pointer(sim_integers_argument(kept, 2)), type, NULL, 0}}};
    uint64_t lost = has_shape(&job) ? address_lost(&job) : 0;
    if (lost || !has_shape(&job) || !job_is_small(&job) || !may_touch(&job))
        return lost;
    int64_t start = 0, step = 0;
    double real_start = 0, real_step = 0;
    read_number(lambda, type, &start, &real_start);
    read_number(lambda + sim_values_size(type), type, &step, &real_step);
    for (uint64_t n = 0; n < job.count; n += SIM_VALUES_BATCH) {
        unsigned count = batch_from(n, job.count);
        union sim_values values;
        for (unsigned k = 0; k < count; k++) {
            if (sim_values_are_real(type))
                values.real[k] = real_start + real_step * (double)(n + k);
            else
                values.whole[k] = (int64_t)((uint64_t)start + (n + k) * (uint64_t)step);
        }
        sim_values_store(operand_at(&job, 0, n), NULL, type, &values, type, count);
    }
    return 0;
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
    if (!has_shape(&job) || !job_is_small(&job) || !may_touch(&job))
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

uint64_t sim_integers_run(const void *from)
{
    const struct kept *kept = from;
    switch (kept->what.form) {
    case SIM_FORM_NONE:
        return 0;
    case SIM_FORM_EACH:
    case SIM_FORM_CAST:
    case SIM_FORM_STRIDED:
        return run_elements(kept);
    case SIM_FORM_REDUCE:
        return run_reduction(kept);
    case SIM_FORM_RANGE:
        return run_range(kept);
    case SIM_FORM_SCAN:
    case SIM_FORM_SCAN_ROWS:
        run_scan(kept);
        return 0;
    case SIM_FORM_JOIN:
        run_join(kept);
        return 0;
    case SIM_FORM_COUNT:
    case SIM_FORM_COUNT_PARTS:
        sim_integers_count(kept);
        return 0;
    case SIM_FORM_SELECT_BEGIN:
        sim_integers_select_begin(kept);
        return 0;
    case SIM_FORM_SELECT:
        sim_integers_select(kept);
        return 0;
    case SIM_FORM_UNRAVEL:
        sim_integers_unravel(kept);
        return 0;
    }
    return 0;
}
