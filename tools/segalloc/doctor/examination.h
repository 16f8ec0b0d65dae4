/* An examination of a machine, a command or a process, and its answer. */
#ifndef SG_EXAMINATION_H
#define SG_EXAMINATION_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "install_paths.h"
#include "launch/launch.h"
#include "launch/loaded_libraries.h"
#include "launch/machine.h"

/* The answers, with the words that --json has for them. */
#define SG_DOCTOR_ANSWERS(X)            \
    X(READY, "ready")                   \
    X(SERVED, "served")                 \
    X(PARTLY, "partly_served")          \
    X(PASSED_ON, "passed_on")           \
    X(STATIC, "statically_linked")      \
    X(OWN_RUNTIME, "runtime_within")    \
    X(NOT_LOADED, "not_loaded")         \
    X(SWITCHED_OFF, "switched_off")     \
    X(NO_DEVICE, "no_device")           \
    X(NO_DRIVER, "no_driver")           \
    X(OLD_DRIVER, "driver_too_old")     \
    X(NO_LIBRARY, "no_library")         \
    X(GLIBC, "glibc_too_old")           \
    X(ELSEWHERE, "allocated_elsewhere") \
    X(NO_CUDA, "no_cuda_call")          \
    X(UNKNOWN, "unknown")

enum sg_doctor_answer {
#define ANSWER(name, word) SG_DOCTOR_##name,
    SG_DOCTOR_ANSWERS(ANSWER)
#undef ANSWER
};

struct sg_doctor_served {
    uint64_t served, passed_on; /* allocations, on all devices */
    uint64_t outside;           /* those by calls that segalloc does not serve */
    uint64_t failed;            /* by any call, for want of memory */
    uint64_t vmm_errors;        /* of the driver's memory management */
    char untracked_by[64];      /* the call by which the order of streams was lost; "": it was not */
    char aliases[96];           /* whether pages may have two addresses, as the library says it; "": there are none */
    char pytorch[32];           /* who keeps a cache of PyTorch's tensors, as the library says it; "": no PyTorch */
};

struct sg_examination {
    struct sg_launch launch;
    char **command; /* NULL: look at the machine only */
    bool running;   /* … or at a process that runs */
    struct sg_conf conf;
    char library[SG_PLACE_BYTES], glibc[32], folders[SG_PLACE_BYTES];
    bool library_found;
    struct sg_probe probe;
    struct sg_watch watch;
    struct sg_doctor_served *served; /* of each watched process */
    struct sg_doctor_served total;
    enum sg_doctor_answer answer;
    char because[600];
};

/* Notes an answer and its reason. */
__attribute__((format(printf, 3, 4))) void sg_doctor_conclude(struct sg_examination *examination,
    enum sg_doctor_answer answer, const char *format, ...);

/* Draw the answer from what was found of the machine, and of the command's processes. */
void sg_doctor_judge_machine(struct sg_examination *examination);
void sg_doctor_judge_command(struct sg_examination *examination);

/* The program of a process, or "the command". */
const char *sg_doctor_name(const struct sg_watched *process);

/* The answer with what it rests on, to stdout. */
void sg_doctor_print_text(const struct sg_examination *examination);
void sg_doctor_print_json(const struct sg_examination *examination);

#endif
