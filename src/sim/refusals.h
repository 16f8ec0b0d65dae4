/* Refusals: the answers of calls while there is no driver to do them, by refusal.def. A row says for a symbol what is
   looked at and what is answered then; without a row the answer is CUDA_ERROR_NOT_INITIALIZED. */
#ifndef SIM_REFUSALS_H
#define SIM_REFUSALS_H

#include <stdbool.h>
#include <stdint.h>

/* In place of CUDA_SUCCESS where that is what the call answers without doing anything. */
enum { SIM_ANSWERED = -1 };

/* The answer of refusal.def before cuInit, or after it has failed: an error, or SIM_ANSWERED. `words` are the arguments that
   the table looks at; `driver` is the version, as 12040 for 12.4. */
int sim_refusal(const char *symbol, const uintptr_t *words, int driver, bool failed);

/* Ends as the driver does where it reads what NULL points to: by SIGSEGV. */
_Noreturn void sim_null_read(void);

#endif
