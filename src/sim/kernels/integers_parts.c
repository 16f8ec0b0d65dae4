#include "kernels/integers_parts.h"

#include "space/span.h"

struct sim_integers_functor sim_integers_functor(const struct sim_integers *what)
{
    size_t size = sim_values_size(what->number);
    struct sim_integers_functor s = {.bytes = 1,
        .compares = what->operation == SIM_EQUAL || what->operation == SIM_COMPARE,
        .has_number = what->constant != SIM_NO_CONSTANT,
        .has_alpha = what->operation == SIM_ADD};
    bool bare = what->operation == SIM_FILL || what->operation == SIM_ADD; /* no functor within a functor */
    size_t end = s.compares ? sizeof(uint32_t) : bare ? 0 : 1;
    if (s.has_number) {
        s.number = round_up_to(end, size);
        end = s.number + size;
    }
    if (s.has_alpha) {
        s.alpha = round_up_to(end, size);
        end = s.alpha + size;
    }
    s.bytes = end ? end : 1;
    return s;
}

/* OffsetCalculator<operands>: dimensions, divisors, strides. */
size_t sim_integers_calculator_bytes(unsigned operands)
{
    return 4 + DIMS_MAX * (DIVIDER_BYTES + 4 * (size_t)operands);
}

static size_t joined_bytes(const struct sim_integers *what)
{
    size_t strides = 2 * JOINED_DIMS * sizeof(uint32_t) * what->strides;
    return round_up_to(round_up_to(what->batch * (8 + 3 * sizeof(uint32_t) + 1), 4) + strides, 8);
}

/* Where ReduceOp has its config, and, behind config and calculators, its pointers. */
size_t sim_integers_config_at(const struct sim_integers *what)
{
    if (what->operation == SIM_LARGEST)
        return 3 * sizeof(int64_t); /* what it starts from is a pair of a value and an index, aligned to 8 */
    size_t size = sim_values_size(what->start);
    return round_up_to(round_up_to(1, size) + size, 4);
}

size_t sim_integers_pointers_at(const struct sim_integers *what)
{
    return round_up_to(sim_integers_config_at(what) + CONFIG_BYTES + sim_integers_calculator_bytes(1) +
                           sim_integers_calculator_bytes(2),
        8);
}

/* How many bytes an argument has; 0 for those that are not looked at, and behind the last. */
size_t sim_integers_argument_bytes(const struct sim_integers *what, unsigned i)
{
    size_t operands = what->arity + 1;
    switch (what->form) {
    case SIM_FORM_NONE:
        return 0;
    case SIM_FORM_EACH:
    case SIM_FORM_CAST: {
        const size_t each[] = {4, sim_integers_functor(what).bytes, 8 * operands, 0, 0,
            round_up_to(what->arity, 4) + 4 * (size_t)what->arity, 8};
        return i < (what->form == SIM_FORM_CAST ? 7 : 3) ? each[i] : 0;
    }
    case SIM_FORM_STRIDED: {
        const size_t strided[] = {4,
            round_up_to(sim_integers_calculator_bytes(operands), 8) + 8 * operands + sim_integers_functor(what).bytes};
        return i < 2 ? strided[i] : 0;
    }
    case SIM_FORM_REDUCE:
        return i == 0 ? sim_integers_pointers_at(what) + ACCUMULATES_AT + 2 : 0;
    case SIM_FORM_RANGE: {
        const size_t range[] = {4, 2 * sim_values_size(what->type), 8};
        return i < 3 ? range[i] : 0;
    }
    case SIM_FORM_SCAN: {
        const size_t scan[] = {8, 8, 0, 0, 0, 0, 4};
        return i < 7 ? scan[i] : 0;
    }
    case SIM_FORM_SCAN_ROWS: {
        const size_t rows[] = {8, 8, 4, 4};
        return i < 4 ? rows[i] : 0;
    }
    case SIM_FORM_COUNT:
    case SIM_FORM_COUNT_PARTS: {
        const size_t sum[] = {8, 8, 4};
        return i < 3 ? sum[i] : 0;
    }
    case SIM_FORM_SELECT: {
        const size_t select[] = {8, 8, 8, 8, 0, 0, 0, 4};
        return i < 8 ? select[i] : 0;
    }
    case SIM_FORM_SELECT_BEGIN:
        return i == 2 ? 8 : 0;
    case SIM_FORM_UNRAVEL: {
        const size_t unravel[] = {8, UNRAVELLED_DIMS * (size_t)what->element, 4, what->element};
        return i < 4 ? unravel[i] : 0;
    }
    case SIM_FORM_JOIN: {
        const size_t join[] = {8, joined_bytes(what), 2 * JOINED_DIMS * sizeof(uint32_t), 4, 4};
        return i < 5 ? join[i] : 0;
    }
    }
    return 0;
}

const unsigned char *sim_integers_argument(const struct kept *kept, unsigned wanted)
{
    const unsigned char *at = (const unsigned char *)(kept + 1);
    for (unsigned i = 0; i < wanted; i++)
        at += round_up_to(sim_integers_argument_bytes(&kept->what, i), 8);
    return at;
}

bool sim_integers_there(uint64_t address, uint64_t bytes, bool write)
{
    enum sim_span span = address ? sim_span(address, bytes, write, NULL) : SIM_SPAN_BAD;
    return span == SIM_SPAN_DEVICE || span == SIM_SPAN_PINNED;
}
