/* When memory has to be such as a legacy handle can give away: what is looked at, when, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "track/captures.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "process/rehearsal.h"
#include "process/symbols.h"

static struct {
    const char *loaded[4], *variable, *value, *mpi;
    enum sg_ipc ipc;
    bool made, with_cuda, live;
    CUresult alloc, handle; /* the driver's, of memory of its own */
    int looks, shared, said, probes, asked;
    char line[400];
} fake;

__thread struct sg_thread sg_self;
_Atomic unsigned sg_fast_path_epoch;

bool sg_library_loaded(const char *prefix)
{
    fake.looks++;
    for (int i = 0; i < 4 && fake.loaded[i]; i++)
        if (strncmp(fake.loaded[i], prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

void *sg_library_find(const char *prefix)
{
    return fake.mpi && strncmp(fake.mpi, prefix, strlen(prefix)) == 0 ? &fake : NULL;
}

int sg_library_close(void *handle)
{
    return handle == &fake ? 0 : -1;
}

static int with_cuda(void)
{
    return fake.with_cuda;
}

void sg_rehearsal_ask_for(const char *settings)
{
    fake.asked += strcmp(settings, "ipc:always") == 0;
}

static void *find_symbol(void *handle, const char *name)
{
    int (*function)(void) = with_cuda;
    void *symbol;
    memcpy(&symbol, &function, sizeof symbol);
    return handle == &fake && strcmp(name, "MPIX_Query_cuda_support") == 0 ? symbol : NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find_symbol;
}

char *sg_environment(const char *name)
{
    return fake.variable && strcmp(fake.variable, name) == 0 ? (char *)(uintptr_t)fake.value : NULL;
}

const struct sg_conf *sg_process_conf(void)
{
    static struct sg_conf conf;
    conf.ipc = fake.ipc;
    return &conf;
}

struct sg_core *sg_process_core_made(void)
{
    return fake.made ? (struct sg_core *)&fake : NULL;
}

enum sg_share sg_process_share(void)
{
    if (fake.ipc != SG_IPC_AUTO)
        return fake.ipc == SG_IPC_NEVER ? SG_SHARE_FORBIDDEN : SG_SHARE_GOES_ON;
    fake.shared++;
    fake.ipc = SG_IPC_ALWAYS;
    return SG_SHARE_BEGINS;
}

bool sg_captures_active(void)
{
    return fake.live;
}

static CUresult take_probe(CUdeviceptr *ret, size_t bytes)
{
    *ret = bytes;
    fake.probes += fake.alloc == CUDA_SUCCESS;
    return fake.alloc;
}

static CUresult free_probe(CUdeviceptr address)
{
    assert_int_equal(address, 1);
    fake.probes--;
    return CUDA_SUCCESS;
}

static CUresult take_handle(CUipcMemHandle *ret, CUdeviceptr address)
{
    (void)ret;
    assert_int_equal(address, 1);
    return fake.handle;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
        .cuMemAlloc_v2 = take_probe, .cuMemFree_v2 = free_probe, .cuIpcGetMemHandle = take_handle};
    return &real;
}

void sg_log_line(const char *line)
{
    fake.said++;
    snprintf(fake.line, sizeof fake.line, "%s", line);
}

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.made = true;
    (void)sg_ipc_decide();
    sg_self.loads = false;
    atomic_store(&sg_ipc_looked, atomic_load(&sg_ipc_loads));
    fake.looks = 0;
    return 0;
}

static void what_is_at_work_decides(void **state)
{
    static const struct {
        const char *loaded[3], *variable, *value;
        bool needed;
    } list[] = {
        {{"libcudart.so.12"}, NULL, NULL, false},
        {{"libuct_cuda.so.0"}, NULL, NULL, true},
        {{"libuct.so.0"}, NULL, NULL, false},
        {{"libnvshmem_host.so.3"}, NULL, NULL, true},
        {{"libtorch_cuda.so", "libnvshmem_host.so.3"}, NULL, NULL, false},
        {{"libtorch_cuda.so", "libuct_cuda.so"}, NULL, NULL, true},
        {{"mooncake/engine.so"}, NULL, NULL, true},
        {{"libtorch_cuda.so", "mooncake/store.so"}, NULL, NULL, true},
        {{"libmooncake_pg.so"}, NULL, NULL, true},
        {{"libnixl.so"}, NULL, NULL, true},
        {{"libnixl_common.so"}, NULL, NULL, false},
        {{"deep_ep_cpp.cpython-312-x86_64-linux-gnu.so"}, NULL, NULL, true},
        {{"monarch/_rust_bindings.cpython-311-x86_64-linux-gnu.so"}, NULL, NULL, true},
        {{"libnccl.so.2"}, NULL, NULL, false},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", "0", true},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", " 00", true},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", "1", false},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", "-2", false},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", "", false},
        {{"libnccl.so.2"}, "NCCL_CUMEM_ENABLE", "no", false},
        {{"libtorch_cuda.so"}, "NCCL_CUMEM_ENABLE", "0", true},
        {{"libcudart.so.12"}, "NCCL_CUMEM_ENABLE", "0", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        memcpy(fake.loaded, list[i].loaded, sizeof list[i].loaded);
        fake.variable = list[i].variable;
        fake.value = list[i].value;
        assert_int_equal(sg_ipc_needed(), list[i].needed);
        fake.ipc = SG_IPC_AUTO;
        assert_int_equal(sg_ipc_decide(), list[i].needed);
        fake.ipc = SG_IPC_NEVER;
        assert_false(sg_ipc_decide());
    }
}

static void mpi_counts_where_several_run(void **state)
{
    (void)state;
    fake.mpi = "libmpi.so.40";
    assert_false(sg_ipc_needed());
    fake.variable = "PMI_SIZE";
    fake.value = "1";
    assert_false(sg_ipc_needed());
    fake.value = "8";
    assert_false(sg_ipc_needed()); /* it says that it is without CUDA */
    fake.with_cuda = true;
    assert_true(sg_ipc_needed());
}

/* The thread that has loaded looks at its next allocation, once; nobody looks where nothing was loaded. */
static void what_is_loaded_later_counts(void **state)
{
    (void)state;
    unsigned gate = atomic_load(&sg_fast_path_epoch);
    sg_ipc_look();
    assert_int_equal(fake.looks, 0);
    sg_ipc_loading();
    assert_true(sg_ipc_undecided() && atomic_load(&sg_fast_path_epoch) == gate + 1);
    sg_ipc_look(); /* of a library that says nothing */
    assert_true(fake.looks > 0 && !sg_ipc_undecided() && !fake.said);
    fake.looks = 0;
    sg_ipc_look();
    assert_int_equal(fake.looks, 0);
    sg_ipc_loading();
    fake.loaded[0] = "libuct_cuda.so.0";
    sg_ipc_look();
    assert_true(fake.shared == 1 && fake.said == 1 && strstr(fake.line, "libuct_cuda.so: "));
    sg_ipc_loading(); /* another one: so it is already */
    sg_ipc_look();
    assert_true(fake.shared == 1 && fake.said == 1 && !sg_ipc_undecided());
}

/* While another thread loads, what it loads may not be there yet. What never comes is not waited for. */
static void others_wait_for_who_loads(void **state)
{
    (void)state;
    sg_ipc_loading();
    sg_self.loads = false; /* as another thread sees it */
    int looks = 0;
    while (sg_ipc_undecided() && looks++ < 1000)
        sg_ipc_look();
    assert_int_equal(looks, 64);
    assert_int_equal(fake.looks, 0); /* at the loader's count alone */
    fake.loaded[0] = "libuct_cuda.so.0";
    sg_self.loads = true; /* who has loaded looks all the same */
    sg_ipc_look();
    assert_int_equal(fake.shared, 1);
}

static void nothing_is_noted_before_the_first_allocation(void **state)
{
    (void)state;
    unsigned loads = atomic_load(&sg_ipc_loads);
    fake.made = false;
    sg_ipc_loading();
    assert_true(atomic_load(&sg_ipc_loads) == loads && !sg_self.loads);
}

static void refusals_are_explained_once(void **state)
{
    (void)state;
    fake.ipc = SG_IPC_NEVER;
    (void)sg_ipc_refused(false);
    assert_true(fake.said == 1 && !fake.shared && strstr(fake.line, "with SEGALLOC_CONF=ipc:always"));
    (void)sg_ipc_refused(true);
    assert_int_equal(fake.said, 1);
    assert_int_equal(fake.asked, 0); /* the user has said never */
    fake.ipc = SG_IPC_AUTO;
    (void)sg_ipc_refused(true);
    assert_int_equal(fake.asked, 1);
    assert_true(fake.said == 2 && fake.shared == 1 && strstr(fake.line, "inside a larger allocation"));
    assert_non_null(strstr(fake.line, "from here on"));
    (void)sg_ipc_refused(false);
    assert_int_equal(fake.said, 2);
}

/* Where the driver gives no handles of its own memory either, the program is told so and nothing changes. */
static void drivers_without_handles_say_so(void **state)
{
    (void)state;
    fake.handle = CUDA_ERROR_NOT_SUPPORTED;
    assert_int_equal(sg_ipc_refused(false), CUDA_ERROR_NOT_SUPPORTED);
    assert_true(!fake.shared && !fake.said && fake.probes == 0);
    fake.live = true; /* where it can't be asked it is believed to have them */
    assert_int_equal(sg_ipc_refused(false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.shared, 1);
    fake.live = false;
    fake.ipc = SG_IPC_AUTO;
    fake.alloc = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(sg_ipc_refused(false), CUDA_ERROR_INVALID_VALUE);
    assert_true(fake.shared == 2 && fake.probes == 0);
}

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_at_work_decides),
        TEST(mpi_counts_where_several_run),
        TEST(what_is_loaded_later_counts),
        TEST(others_wait_for_who_loads),
        TEST(nothing_is_noted_before_the_first_allocation),
        TEST(refusals_are_explained_once),
        TEST(drivers_without_handles_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
