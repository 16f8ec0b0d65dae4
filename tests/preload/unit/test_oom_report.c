/* The surroundings of an out-of-memory: other processes by a fake NVML, and the command of this one by fake files. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "track/captures.h"
#include "report/oom_report.h"
#include "process/process.h"
#include "track/held_outside.h"
#include "process/symbols.h"
#include "services/trim.h"
#include "sites/sites.h"

enum { DEVICE = 3, PROCESSES = 64 };

struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static struct {
    const char *lacks;
    bool absent, no_uuid_call;
    CUresult uuid_status;
    int init, device, processes; /* what these answer */
    int opened, closed, inits, shutdowns;
    struct nvml_process list[PROCESSES];
    unsigned count, said_count; /* of the list, and what is said to be its length */
    const char *comm;           /* of process 100 */
    const char *command;        /* of this process, with a NUL after each argument */
    size_t command_bytes;
    /* Arguments of the core's report. */
    struct sg_oom_process told[PROCESSES];
    size_t told_count;
    char told_command[256];
    uint64_t parked;
    bool some_only, complete;
    bool elsewhere;       /* another device is current */
    CUresult info, total; /* results of the calls for free memory and for the total */
    size_t whole;         /* of the device; 0: as cuMemGetInfo says */
    struct sg_outside outside;
    size_t owns;
    uint64_t own[2], idle, used, quota;  /* the core's arguments */
    struct sg_neighbour_holds served[2]; /* processes that hold memory by segalloc's own table */
    size_t served_count;
} fake;

static int init(void)
{
    fake.inits++;
    return fake.init;
}

static int shutdown(void)
{
    fake.shutdowns++;
    return 0;
}

static int device_of(const char *uuid, void **ret)
{
    assert_string_equal(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    *ret = &fake.list;
    return fake.device;
}

static int processes_of(void *device, unsigned *count, struct nvml_process *list)
{
    assert_ptr_equal(device, &fake.list);
    assert_int_equal(*count, PROCESSES);
    memcpy(list, fake.list, fake.count * sizeof *list);
    *count = fake.said_count ? fake.said_count : fake.count;
    return fake.processes;
}

void *open_library(const char *name, int flags);
void *open_library(const char *name, int flags)
{
    (void)flags;
    assert_string_equal(name, "libnvidia-ml.so.1");
    if (fake.absent)
        return NULL;
    fake.opened++;
    return &fake;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &fake);
    fake.closed++;
    return 0;
}

static void *look_up(void *handle, const char *name)
{
    int (*none[2])(void) = {init, shutdown};
    int (*device)(const char *, void **) = device_of;
    int (*processes)(void *, unsigned *, struct nvml_process *) = processes_of;
    static const char *const names[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetComputeRunningProcesses_v3"};
    void *found[4];
    assert_ptr_equal(handle, &fake);
    memcpy(found, none, sizeof none);
    memcpy(&found[2], &device, sizeof found[2]);
    memcpy(&found[3], &processes, sizeof found[3]);
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0 && (!fake.lacks || strcmp(name, fake.lacks) != 0))
            return found[i];
    return NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    assert_int_equal(device, DEVICE);
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(i * 0x11);
    return fake.uuid_status;
}

void sg_held_outside(int device, struct sg_outside *ret, struct sg_outside *ret_most)
{
    assert_int_equal(device, DEVICE);
    *ret = fake.outside;
    assert_null(ret_most); /* that is for the trace */
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = 300;
    *ret_total = 1000;
    return fake.info;
}

static CUresult ctx_get_device(CUdevice *ret)
{
    *ret = fake.elsewhere ? DEVICE + 1 : DEVICE;
    return CUDA_SUCCESS;
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    assert_int_equal(device, DEVICE);
    *ret = fake.whole ? fake.whole : 1000;
    return fake.total;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.mem_info = mem_info,
        .device_total = device_total,
        .ctx_get_device = ctx_get_device};
    return &driver;
}

void *sg_cuda_symbol(const char *name)
{
    CUresult (*get)(CUuuid *, CUdevice) = get_uuid;
    void *symbol;
    assert_string_equal(name, "cuDeviceGetUuid");
    memcpy(&symbol, &get, sizeof symbol);
    return fake.no_uuid_call ? NULL : symbol;
}

/* A descriptor of a file with these bytes. */
static int file_of(const char *bytes, size_t size)
{
    int file = memfd_create("file", MFD_CLOEXEC);
    assert_true(file >= 0 && write(file, bytes, size) == (ssize_t)size && lseek(file, 0, SEEK_SET) == 0);
    return file;
}

int open_file(const char *path, int flags, ...);
int open_file(const char *path, int flags, ...)
{
    assert_int_equal(flags, O_RDONLY | O_CLOEXEC);
    if (strcmp(path, "/proc/self/cmdline") == 0)
        return fake.command ? file_of(fake.command, fake.command_bytes) : -1;
    return strcmp(path, "/proc/100/comm") == 0 ? file_of(fake.comm, strlen(fake.comm)) : -1;
}

uint64_t sg_captures_deferred_bytes(struct sg_core *core, int device)
{
    assert_ptr_equal(core, &fake);
    return device == DEVICE ? 4711 : 0;
}

size_t sg_trim_others(int device, struct sg_neighbour_holds *ret, size_t most)
{
    assert_int_equal(device, DEVICE);
    assert_int_equal(most, PROCESSES);
    memcpy(ret, fake.served, sizeof fake.served);
    return fake.served_count;
}

size_t sg_core_oom_text(struct sg_core *core, int device, const struct sg_oom_around *around, char *buffer, size_t size)
{
    assert_true(core == (struct sg_core *)&fake && device == DEVICE && around->site == sg_sites_describe);
    fake.told_count = around->processes;
    memcpy(fake.told, around->process, around->processes * sizeof *fake.told);
    snprintf(fake.told_command, sizeof fake.told_command, "%s", around->command);
    fake.parked = around->parked;
    fake.some_only = around->some_only;
    fake.complete = around->complete;
    fake.used = around->used;
    fake.quota = around->quota;
    fake.owns = around->owns;
    for (size_t i = 0; i < around->owns; i++) {
        fake.own[i] = around->own[i].bytes;
        fake.idle |= (uint64_t)around->own[i].idle << i;
    }
    return (size_t)snprintf(buffer, size, "text");
}

static int begin(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.comm = "python\n";
    fake.list[0] = (struct nvml_process){.pid = (unsigned)getpid(), .used = 1000};
    fake.list[1] = (struct nvml_process){.pid = 100, .used = 50};
    fake.list[2] = (struct nvml_process){.pid = 200, .used = 70};
    fake.count = 3;
    return 0;
}

static void report(size_t others)
{
    int descriptors = dup(0), after;
    char text[16];
    close(descriptors);
    assert_int_equal(sg_oom_report((struct sg_core *)&fake, DEVICE, text, sizeof text), 4);
    assert_string_equal(text, "text");
    assert_int_equal(fake.told_count, others);
    assert_int_equal(fake.opened, fake.closed);
    assert_int_equal(fake.inits - (fake.init != 0), fake.shutdowns);
    assert_int_equal(fake.parked, 4711);
    after = dup(0);
    assert_int_equal(after, descriptors); /* none is left open */
    close(after);
    fake.opened = fake.closed = fake.inits = fake.shutdowns = 0;
}

static void the_others_largest_first(void **state)
{
    (void)state;
    fake.list[3] = (struct nvml_process){.pid = 300, .used = UINT64_MAX}; /* not known */
    fake.list[4] = (struct nvml_process){.pid = 400, .used = 0};
    fake.list[5] = (struct nvml_process){.pid = 500, .used = 70};
    fake.list[6] = (struct nvml_process){.pid = 600, .used = 1ULL << 33};
    fake.count = 7;
    report(4);
    assert_int_equal(fake.told[0].pid, 600);
    assert_int_equal(fake.told[0].bytes, 1ULL << 33);
    assert_int_equal(fake.told[1].bytes + fake.told[2].bytes, 140);
    assert_true(fake.told[3].pid == 100 && fake.told[3].bytes == 50);
    assert_string_equal(fake.told[3].name, "python");
    assert_string_equal(fake.told[0].name, "");
}

/* The core's word on it: from 5 % less on. */
bool sg_core_is_quota(uint64_t total, uint64_t whole)
{
    return total == 1000 && whole == 1100;
}

/* Where the driver speaks of less than the device has, by more than drivers differ. */
static void a_quota_is_told(void **state)
{
    static const struct {
        size_t whole;
        CUresult result;
        uint64_t quota;
    } rows[] = {{1000, CUDA_SUCCESS, 0}, {900, CUDA_SUCCESS, 0}, {1040, CUDA_SUCCESS, 0}, {1100, CUDA_SUCCESS, 1000},
        {1100, CUDA_ERROR_INVALID_DEVICE, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake.whole = rows[i].whole;
        fake.total = rows[i].result;
        report(2);
        assert_true(fake.quota == rows[i].quota && fake.used == 700);
    }
    fake.total = CUDA_SUCCESS;
    report(2);
    assert_int_equal(fake.quota, 1000);
    fake.elsewhere = true;
    report(2);
    assert_int_equal(fake.quota, 0);
}

static void names_are_one_line_of_plain_text(void **state)
{
    (void)state;
    fake.list[2].used = 7;
    fake.comm = "a\tb\x7f\xc3 ~\nrest";
    report(2);
    assert_string_equal(fake.told[0].name, "a?b?? ~");
    fake.comm = "a name that is longer than any that Linux has";
    report(2);
    assert_int_equal(strlen(fake.told[0].name), sizeof fake.told[0].name - 1);
}

static void none_of_another_namespace(void **state)
{
    (void)state;
    fake.list[0].pid = 1;
    report(0);
}

static void more_than_can_be_listed(void **state)
{
    (void)state;
    for (unsigned i = 1; i < PROCESSES; i++)
        fake.list[i] = (struct nvml_process){.pid = 1000 + i, .used = i};
    fake.count = PROCESSES;
    fake.said_count = 1000;
    report(PROCESSES - 1);
    assert_int_equal(fake.told[0].bytes, PROCESSES - 1);
}

static void no_list(void **state)
{
    static const char *const names[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetComputeRunningProcesses_v3"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        fake.lacks = names[i];
        report(0);
    }
    fake.lacks = NULL;
    fake.absent = true;
    report(0);
    fake.absent = false;
    fake.no_uuid_call = true;
    report(0);
    fake.no_uuid_call = false;
    fake.uuid_status = CUDA_ERROR_UNKNOWN;
    report(0);
    fake.uuid_status = CUDA_SUCCESS;
    fake.init = 1;
    report(0);
    fake.init = 0;
    fake.device = 1;
    report(0);
    fake.device = 0;
    fake.processes = 1;
    report(0);
    fake.processes = 0;
    report(2);
}

/* Without NVML, or in a container whose processes NVML numbers otherwise. */
static void those_that_segalloc_serves(void **state)
{
    (void)state;
    fake.served[0] = (struct sg_neighbour_holds){100, 50};
    fake.served[1] = (struct sg_neighbour_holds){300, 90};
    fake.served_count = 2;
    report(2);
    assert_int_equal(fake.told[0].pid, 200); /* those that NVML has listed */
    assert_true(fake.complete);
    assert_false(fake.some_only);
    for (int i = 0; i < 2; i++) {
        fake.absent = i == 0;
        fake.list[0].pid = 1;
        report(2);
        assert_true(fake.some_only);
        assert_false(fake.complete);
        assert_true(fake.told[0].pid == 300 && fake.told[0].bytes == 90 && !*fake.told[0].name);
        assert_true(fake.told[1].pid == 100 && fake.told[1].bytes == 50);
        assert_string_equal(fake.told[1].name, "python");
    }
}

/* What this process holds itself, by kind; what is nobody's to say, or can leave, is no row. */
static void what_this_process_holds(void **state)
{
    (void)state;
    report(2);
    assert_true(fake.owns == 0 && fake.used == 700);
    fake.outside.bytes[SEGALLOC_OUTSIDE_POOLS] = 200;
    fake.outside.bytes[SEGALLOC_OUTSIDE_POOLS_IDLE] = 500;
    fake.outside.bytes[SEGALLOC_OUTSIDE_OTHER] = fake.outside.bytes[SEGALLOC_OUTSIDE_MANAGED] = 900;
    report(2);
    assert_true(fake.owns == 2 && fake.own[0] == 200 && fake.own[1] == 500 && fake.idle == 2);
    fake.info = CUDA_ERROR_INVALID_CONTEXT;
    report(2);
    assert_int_equal(fake.used, 0);
}

static const char *command(const char *arguments, size_t bytes)
{
    fake.command = arguments;
    fake.command_bytes = bytes;
    report(2);
    return fake.told_command;
}
#define COMMAND(arguments) command(arguments, sizeof arguments)

static void the_command_as_a_shell_takes_it(void **state)
{
    char many[400];
    (void)state;
    assert_string_equal(COMMAND("python\0train.py\0--rate=1e-3,@+%:/._-"), "python train.py --rate=1e-3,@+%:/._-");
    assert_string_equal(COMMAND("a b\0\0$x\0\"c\""), "'a b' '' '$x' '\"c\"'");
    assert_string_equal(COMMAND("echo\0it's"), "");
    assert_string_equal(COMMAND("echo\0a\nb"), "");
    assert_string_equal(command("", 0), "");
    assert_string_equal(command(NULL, 0), "");
    memset(many, 'x', sizeof many);
    for (size_t length = 230; length < 260; length++) {
        many[length - 1] = '\0';
        const char *said = command(many, length);
        assert_true(length < 239 ? strlen(said) == length - 1 : !*said);
        many[length - 1] = 'x';
    }
    for (size_t length = 220; length < 239; length++) { /* two in quotes */
        memset(many, ' ', sizeof many);
        many[100] = many[length - 1] = '\0';
        const char *said = command(many, length);
        assert_true(length + 3 < 240 ? strlen(said) == length + 3 : !*said);
    }
    for (size_t length = 200; length < 239; length++) { /* what is in quotes is longer */
        memset(many, ' ', sizeof many);
        many[length - 1] = '\0';
        const char *said = command(many, length);
        assert_true(length + 1 < 240 ? strlen(said) == length + 1 : !*said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_others_largest_first, begin),
        cmocka_unit_test_setup(a_quota_is_told, begin),
        cmocka_unit_test_setup(names_are_one_line_of_plain_text, begin),
        cmocka_unit_test_setup(none_of_another_namespace, begin),
        cmocka_unit_test_setup(more_than_can_be_listed, begin),
        cmocka_unit_test_setup(no_list, begin),
        cmocka_unit_test_setup(those_that_segalloc_serves, begin),
        cmocka_unit_test_setup(what_this_process_holds, begin),
        cmocka_unit_test_setup(the_command_as_a_shell_takes_it, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
