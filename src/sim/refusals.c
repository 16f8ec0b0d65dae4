#include "refusals.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* No handle and no pointer is below it; the handles of the default streams are, and most flags. */
enum { FIRST_ADDRESS = 4096 };

static const struct refusal {
    const char *symbol;
    int since;
    const char *early, *late;
} refusals[] = {
#define REFUSAL(symbol, since, early, late) {#symbol, since, early, late},
#include "refusal.def"
};

static const struct refusal *refusal_row(const char *symbol, int driver)
{
    const struct refusal *best = NULL;
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *row = &refusals[i];
        if (row->since <= driver && strcmp(row->symbol, symbol) == 0 && (!best || row->since > best->since))
            best = row;
    }
    return best;
}

/* True where all of a check's conditions hold, "n1n2" or "*"; *at moves on to the result that follows. */
static bool refusal_holds(const char **at, const uintptr_t *words)
{
    bool all = true;
    for (; **at != ':'; (*at)++) {
        if (**at != 'n' && **at != 'p')
            continue; /* the number of an argument, or "*" */
        uintptr_t word = words ? words[(*at)[1] - '0'] : 0;
        all = all && (**at == 'n' ? word == 0 : word >= FIRST_ADDRESS);
    }
    (*at)++;
    return all;
}

/* The result of the first check that holds; CUDA_ERROR_NOT_INITIALIZED if none does. */
static int refusal_check(const char *checks, const uintptr_t *words)
{
    for (const char *at = checks; *at;) {
        bool found = refusal_holds(&at, words);
        if (found && *at == 'c')
            sim_null_read();
        if (found)
            return atoi(at) ? atoi(at) : SIM_ANSWERED;
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return CUDA_ERROR_NOT_INITIALIZED;
}

int sim_refusal(const char *symbol, const uintptr_t *words, int driver, bool failed)
{
    const struct refusal *row = refusal_row(symbol, driver);
    int result = row ? refusal_check(row->early, words) : CUDA_ERROR_NOT_INITIALIZED;
    return row && failed && result == CUDA_ERROR_NOT_INITIALIZED ? refusal_check(row->late, words) : result;
}

_Noreturn void sim_null_read(void)
{
    raise(SIGSEGV);
    abort(); /* the signal is handled or ignored; a read again would end the process too */
}
