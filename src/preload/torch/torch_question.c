/* The exported check_env(), and the choice behind it. PyTorch's own function is asked too: it is the next of that name.
   */
#include "process/glibc_symver.h"

#include "torch/torch_question.h"

#include <link.h>
#include <stdint.h>
#include <string.h>

#include "config/conf.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "process/interposers.h"
#include "process/process.h"
#include "process/symbols.h"
#include "torch/torch_allocator.h"
#include "torch/torch_overrides.h"
#include "torch/torch_pools.h"
#include "torch/torch_switch.h"
#include "torch/torch_symbols.h"
#include "track/streams.h"
#include "track/torch_mode.h"

/* std::optional<bool>: two bytes, in a register. */
typedef uint16_t check_env_fn(const char *name);
enum { NO_VALUE = 0, HAS_VALUE = 0x100, IS_TRUE = 1 };

SG_EXPORT uint16_t _ZN3c105utils9check_envEPKc(const char *name);

static uint16_t question_ask_torch(const char *name)
{
    void *symbol = sg_torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc");
    check_env_fn *theirs, *ours = _ZN3c105utils9check_envEPKc;
    memcpy(&theirs, &symbol, sizeof theirs);
    return symbol && theirs != ours ? theirs(name) : NO_VALUE;
}

static int question_is_server(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    return info->dlpi_name && (strstr(info->dlpi_name, "/vllm/") || strstr(info->dlpi_name, "/sgl_kernel/"));
}

/* Servers that reckon with what PyTorch's cache says of itself, capture dozens of graphs, and send memory to each other
   by legacy handles. They have extensions of their own, which are loaded before the first tensor. */
static bool question_serves(void)
{
    return dl_iterate_phdr(question_is_server, NULL) != 0;
}

static enum sg_pytorch question_wanted_mode(void)
{
    return sg_process_is_passthrough() ? SG_PYTORCH_BENEATH : sg_process_conf()->pytorch;
}

/* Decides whether PyTorch, which has asked whether to keep its cache, gets no for an answer. A library that interposes
   cudaMalloc expects PyTorch's cache: it gets segments then, not tensors, and running out is PyTorch's own error. So
   `auto` leaves the cache on beside one (interposers.h). */
static bool question_choose(void)
{
    enum sg_pytorch wanted = question_wanted_mode();
    bool history = wanted == SG_PYTORCH_AUTO && sg_torch_wants_history();
    bool spare = sg_torch_wants_spare_pool();
    bool off = wanted == SG_PYTORCH_DIRECT ||
               (wanted == SG_PYTORCH_AUTO && !history && !spare && !question_serves() && !sg_interposer_of_runtime());
    if (off && sg_torch_overrides_take() && sg_torch_allocator_cache(false))
        sg_torch_mode_set(SG_TORCH_SWITCHABLE);
    else
        sg_torch_mode_set(wanted == SG_PYTORCH_DIRECT ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    if (history || sg_torch_direct())
        sg_torch_explain_history();
    if (sg_torch_pools_seen())
        sg_torch_explain_pool();
    return wanted == SG_PYTORCH_DIRECT && sg_torch_mode() == SG_TORCH_DIRECT;
}

/* c10::utils::check_env(const char *). PyTorch asks it, once, whether to keep its own cache; the answer reaches this
   process alone, where a variable of the environment would be inherited. The user's own answer stands. */
uint16_t _ZN3c105utils9check_envEPKc(const char *name)
{
    uint16_t answer = question_ask_torch(name);
    if (!name || strcmp(name, "PYTORCH_NO_CUDA_MEMORY_CACHING") != 0) {
        if (!sg_torch_mode_known() && question_wanted_mode() != SG_PYTORCH_BENEATH)
            sg_torch_overrides_watch();
        return answer;
    }
    if (answer & HAS_VALUE) {
        bool off = answer & IS_TRUE;
        (void)(off && sg_torch_overrides_take());
        sg_torch_mode_set(off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    } else if (question_choose()) {
        answer = HAS_VALUE | IS_TRUE;
    }
    if (sg_torch_direct()) {
        sg_follow_as_configured();
        sg_torch_allocator_limit();
    }
    return answer;
}

/* True if this PyTorch asks by `check_env`. 2.6 has that too, but asks the environment; until then its allocator's
   settings are parsed from what getenv() gives (c10/cuda/CUDAAllocatorConfig.h). */
static bool torch_asks(void)
{
    return sg_torch_symbol("libc10.so", "_ZN3c105utils9check_envEPKc") &&
           !sg_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig9parseArgsEPKc");
}

/* Before 2.7 the question is part of PyTorch's own code, and the environment alone has the answer. */
void sg_torch_begins(void)
{
    void *handle = sg_torch_mode() == SG_TORCH_UNKNOWN ? sg_library_find("libc10_cuda.so") : NULL;
    if (!handle)
        return;
    (void)sg_library_close(handle);
    if (torch_asks())
        return; /* and hasn't yet */
    const char *variable = sg_environment("PYTORCH_NO_CUDA_MEMORY_CACHING");
    bool off = variable && strcmp(variable, "1") == 0;
    (void)(off && sg_torch_overrides_take());
    sg_torch_mode_set(off ? SG_TORCH_DIRECT : SG_TORCH_BENEATH);
    if (off)
        sg_follow_as_configured();
    else if (sg_process_conf()->pytorch == SG_PYTORCH_DIRECT)
        sg_log_line(
            "pytorch:direct: this PyTorch, older than 2.7, keeps its cache unless PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                    "is in the environment, where `segalloc run` puts it");
}
