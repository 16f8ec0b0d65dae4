/* The object itself, and what start-up and process.c both do with it. */
#include "config/conf_read.h"
#include "process/process_state.h"

#include "process/environment.h"
#include "base/rest.h"

enum {
    START_STEP_NS = 50000,
    START_STEPS = 4000, /* how long another thread's start is waited for */
};

struct sg_process sg_process;

/* All sources in one place: the system's file, file and text of the environment, and PyTorch's own variable. Options of
   that one which mean something here are taken over. */
unsigned sg_process_read_conf(struct sg_conf *conf, sg_conf_warn_fn *warn)
{
    const struct sg_conf_inputs inputs = {
        .system_file = SG_CONF_SYSTEM_FILE,
        .conf_file = sg_environment("SEGALLOC_CONF_FILE"),
        .environment = sg_environment("SEGALLOC_CONF"),
        .trace = sg_environment("SEGALLOC_TRACE"),
        .stats = sg_environment("SEGALLOC_STATS"),
        .pytorch_cuda = sg_environment("PYTORCH_CUDA_ALLOC_CONF"),
        .pytorch = sg_environment("PYTORCH_ALLOC_CONF"),
    };
    return sg_conf_load(conf, &inputs, warn, NULL);
}

/* 4,000 rests of 50 us. The caller may hold the loader's lock, which the starting thread may need: so not for ever. */
enum sg_process_state sg_process_wait_for_start(void)
{
    enum sg_process_state state = SG_PROCESS_STARTING;
    for (int i = 0; i < START_STEPS && state == SG_PROCESS_STARTING; i++) {
        sg_rest(START_STEP_NS);
        state = atomic_load_explicit(&sg_process.state, memory_order_acquire);
    }
    return state;
}
