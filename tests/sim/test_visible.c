/* CUDA_VISIBLE_DEVICES: which devices of the machine a process has, by which numbers, and what processes that see
   different ones have of them. Each look is a process of its own, since the driver reads the environment once. */
#include "sim_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "visible.h"

enum { DEVICES = 4, NVML_NOT_FOUND = 6 };

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret);
int nvmlDeviceGetIndex(void *device, unsigned *ret);
int nvmlDeviceGetUUID(void *device, char *ret, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long ret[3]);

static char uuid_of[DEVICES][SIM_UUID_TEXT]; /* of the machine's devices */

/* Runs in a process that has not called cuInit. */
static void in_child(void (*look)(const void *), const void *argument)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        look(argument);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* In a child, where cmocka's assertions would go on in the parent's list of tests. */
#define must(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

struct want {
    const char *list;    /* NULL: not set */
    const char *devices; /* a digit for each, by the machine's index; "": cuInit answers that there is none */
};

static void text_of(const CUuuid *id, char ret[SIM_UUID_TEXT])
{
    int length = snprintf(ret, SIM_UUID_TEXT, "GPU-");
    for (int i = 0; i < 16; i++)
        length += snprintf(ret + length, SIM_UUID_TEXT - (size_t)length, "%s%02x",
            i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned)(unsigned char)id->bytes[i]);
}

/* Everything that names the program's device `ordinal` names the machine's device `index`. */
static void look_at_device(int ordinal, int index)
{
    char bus[32], text[SIM_UUID_TEXT];
    CUuuid first, second;
    CUdevice device;
    int number;
    snprintf(bus, sizeof bus, "0000:%02x:00.0", (unsigned)index + 1);
    must(cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && device == ordinal);
    must(cuDeviceGetPCIBusId(text, sizeof text, device) == CUDA_SUCCESS && strcmp(text, bus) == 0);
    must(cuDeviceGetByPCIBusId(&device, bus) == CUDA_SUCCESS && device == ordinal);
    must(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device) == CUDA_SUCCESS && number == index + 1);
    must(cuDeviceGetUuid(&first, device) == CUDA_SUCCESS && cuDeviceGetUuid_v2(&second, device) == CUDA_SUCCESS);
    text_of(&first, text);
    must(memcmp(&first, &second, sizeof first) == 0 && strncmp(text, uuid_of[index], SIM_UUID_HALF) == 0);
    /* NVML finds it by its UUID, at the machine's index. */
    void *handle;
    unsigned place;
    must(nvmlDeviceGetHandleByUUID(text, &handle) == 0 && nvmlDeviceGetIndex(handle, &place) == 0 &&
         (int)place == index);
}

static void look(const void *argument)
{
    const struct want *want = argument;
    int count = (int)strlen(want->devices), told = -1;
    unsigned all;
    if (want->list)
        setenv("CUDA_VISIBLE_DEVICES", want->list, 1);
    must(nvmlInit_v2() == 0 && nvmlDeviceGetCount_v2(&all) == 0 && all == DEVICES); /* which sees them all */
    CUresult result = cuInit(0);
    if (result != (count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE)) {
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=\"%s\": cuInit is %s\n", want->list, error_name(result));
        _exit(1);
    }
    setenv("CUDA_VISIBLE_DEVICES", "3", 1); /* it is too late for that */
    must(cuInit(0) == result);
    if (!count)
        must(cuDeviceGetCount(&told) == CUDA_ERROR_NOT_INITIALIZED || told <= 0);
    if (!count)
        return;
    must(cuDeviceGetCount(&told) == CUDA_SUCCESS);
    if (told != count) {
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=\"%s\": %d devices\n", want->list, told);
        _exit(1);
    }
    for (int i = 0; i < count; i++)
        look_at_device(i, want->devices[i] - '0');
    CUdevice device;
    must(cuDeviceGet(&device, count) == CUDA_ERROR_INVALID_DEVICE);
    for (int hidden = 0; hidden < DEVICES; hidden++) {
        char bus[32];
        snprintf(bus, sizeof bus, "0000:%02x:00.0", (unsigned)hidden + 1);
        if (!strchr(want->devices, '0' + hidden))
            must(cuDeviceGetByPCIBusId(&device, bus) == CUDA_ERROR_INVALID_DEVICE);
    }
}

static void listed_devices_are_visible_in_their_order(void **state)
{
    (void)state;
    static const struct want wants[] = {{NULL, "0123"}, {"0", "0"}, {"2", "2"}, {"2,1", "21"}, {"3,2,1,0", "3210"},
        {"0,1,2,3", "0123"},
        /* What names no device ends the list. */
        {"0,2,-1,1", "02"}, {"1,4,0", "1"}, {"4", ""}, {"4,0", ""}, {"-1", ""}, {"", ""}, {" ", ""}, {",", ""},
        {",1", ""}, {"1,", "1"}, {"1,,2", "1"}, {"all", ""}, {"none", ""}, {"NoDevFiles", ""}, {"void", ""},
        {"1,x,2", "1"}, {"99999999999999999999", ""}, {"4294967296", ""}, {"-4294967295", ""},
        {"0,18446744073709551617", "0"},
        /* Numbers are read as strtol() does. */
        {" 1, 2", "12"}, {"1 ,2", "12"}, {"+1,-0", "10"}, {"1gpu2,2ampere", "12"}, {"01", "1"}, {"0x1", "0"},
        {"1.5", "1"}, {"1;2", "1"}, {"1 2", "1"},
        /* A device that is named twice hides all; behind the end of the list it is not read. */
        {"0,0", ""}, {"1,2,1", ""}, {"2,+2", ""}, {"0,-1,0", "0"}, {"0,9,0", "0"},
        {"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/2", ""}, {"MIG-89c850dc", ""}, {"0,MIG-89c850dc", "0"},
        {"GPU-", ""}, {"GPU-zz", ""}, {"gpu-0", ""}, {"0,GPU-", "0"}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        in_child(look, &wants[i]);
}

static void devices_are_listed_by_uuid(void **state)
{
    (void)state;
    char list[4 * SIM_UUID_TEXT + 8], first[8], second[8];
    snprintf(first, sizeof first, "%.6s", uuid_of[1]); /* two digits are enough */
    snprintf(second, sizeof second, "%.6s", uuid_of[3]);
    const struct {
        const char *form;
        const char *devices;
    } wants[] = {{"%s", "1"}, {"%s,%s", "13"}, {"%s,2", "1"}, {"%s,%s,%s", ""}, {"%s,GPU-0000,%s", "1"}, {"%s ,%s", ""},
        {" %s", ""}, {"%sx,%s", ""}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        const char *names[][3] = {{first, second, first}, {uuid_of[1], uuid_of[3], first}};
        for (size_t k = 0; k < 2; k++) {
            /* The forms are those above. */
            char *at = list;
            size_t next = 0;
            for (const char *form = wants[i].form; *form; form++) {
                if (form[0] == '%' && form[1] == 's') {
                    at += sprintf(at, "%s", names[k][next++]);
                    form++;
                } else {
                    *at++ = *form;
                }
            }
            *at = '\0';
            in_child(look, &(struct want){list, wants[i].devices});
        }
    }
}

/* All devices of a machine are alike: no order of them by what they can do differs from their order on the bus. */
static void both_orders_of_devices_are_the_bus_order(void **state)
{
    (void)state;
    static const char *const order[] = {"PCI_BUS_ID", "FASTEST_FIRST", "", "SLOWEST_FIRST"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        setenv("CUDA_DEVICE_ORDER", order[i], 1);
        in_child(look, &(struct want){NULL, "0123"});
        in_child(look, &(struct want){"2,0", "20"});
    }
    unsetenv("CUDA_DEVICE_ORDER");
}

struct rank {
    const char *list;
    size_t takes, finds; /* MiB of its device 0: takes them, where so many are free */
    int in, out;         /* says through `out` that it has them, and holds them until `in` ends */
};

static void hold(const struct rank *rank)
{
    CUcontext context;
    CUdeviceptr address;
    size_t bytes, total;
    char byte = 0;
    setenv("CUDA_VISIBLE_DEVICES", rank->list, 1);
    must(cuInit(0) == CUDA_SUCCESS);
    must(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
    must(cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == 512 * MIB);
    if (bytes != rank->finds * MIB) {
        fprintf(stderr, "%s: %zu MiB are free\n", rank->list, bytes / MIB);
        _exit(1);
    }
    must(cuMemAlloc_v2(&address, bytes + PAGE) == CUDA_ERROR_OUT_OF_MEMORY);
    must(cuMemAlloc_v2(&address, rank->takes * MIB) == CUDA_SUCCESS);
    must(write(rank->out, &byte, 1) == 1);
    while (read(rank->in, &byte, 1) > 0)
        ;
    /* Whoever else holds memory of the devices, seen here or not, is known by the machine's index. */
    must(nvmlInit_v2() == 0);
    static const unsigned long long used[DEVICES] = {300, 300, 512, 0};
    for (unsigned i = 0; i < DEVICES; i++) {
        unsigned long long memory[3];
        void *device;
        must(nvmlDeviceGetHandleByIndex_v2(i, &device) == 0 && nvmlDeviceGetMemoryInfo(device, memory) == 0);
        must(memory[2] == used[i] * MIB);
    }
    must(write(rank->out, &byte, 1) == 1);
    pause(); /* until it is ended: the others look too */
}

/* Ranks with one visible device each are on as many cards; those with the same one share its memory. */
static void ranks_with_one_device_share_its_memory(void **state)
{
    (void)state;
    int in[2], out[2];
    char byte, third[8];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    snprintf(third, sizeof third, "%.6s", uuid_of[2]);
    struct rank rank[] = {{"0", 300, 512, in[0], out[1]}, {"1", 300, 512, in[0], out[1]},
        {"2,1", 212, 512, in[0], out[1]}, {third, 300, 300, in[0], out[1]}};
    enum { RANKS = sizeof rank / sizeof *rank };
    pid_t child[RANKS];
    for (int i = 0; i < RANKS; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            close(in[1]);
            hold(&rank[i]);
        }
        assert_int_equal(read(out[0], &byte, 1), 1);
    }
    close(in[1]);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(read(out[0], &byte, 1), 1);
    for (int i = 0; i < RANKS; i++) {
        int status;
        kill(child[i], SIGTERM);
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
}

/* A process that sees device 2 exports memory of it. One that sees it as its device 1, and one that does not see it, use
   that. */
static void export_from(const int channel[2])
{
    CUcontext context;
    CUdeviceptr address;
    CUipcMemHandle handle;
    char byte;
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    must(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS);
    must(cuMemAlloc_v2(&address, MIB) == CUDA_SUCCESS && cuMemsetD8_v2(address, 7, MIB) == CUDA_SUCCESS &&
         cuCtxSynchronize() == CUDA_SUCCESS);
    must(cuIpcGetMemHandle(&handle, address) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        must(write(channel[1], &handle, sizeof handle) == sizeof handle);
    must(read(channel[0], &byte, 1) == 0);
    _exit(0);
}

struct importer {
    const char *list;
    int ordinal; /* that the memory is of there */
    const CUipcMemHandle *handle;
};

static void import(const void *argument)
{
    const struct importer *importer = argument;
    CUcontext context;
    CUdeviceptr address;
    int ordinal;
    setenv("CUDA_VISIBLE_DEVICES", importer->list, 1);
    must(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS);
    must(cuIpcOpenMemHandle_v2(&address, *importer->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
    must(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS);
    must(ordinal == importer->ordinal && *(const char *)host(address) == 7);
    must(cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
}

static void shared_handles_name_the_same_device(void **state)
{
    (void)state;
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t child = fork();
    if (child == 0) {
        close(down[1]);
        export_from((int[2]){down[0], up[1]});
    }
    static const struct importer importers[] = {{"0,2", 1, NULL}, {"0,1", 0, NULL}};
    close(down[0]);
    for (int i = 0; i < 2; i++) {
        CUipcMemHandle handle;
        struct importer importer = importers[i];
        assert_int_equal(read(up[0], &handle, sizeof handle), sizeof handle);
        importer.handle = &handle;
        in_child(import, &importer);
    }
    int status = -1;
    close(down[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    char setting[80], path[96];
    struct sim_config config;
    unsetenv("CUDA_VISIBLE_DEVICES");
    snprintf(setting, sizeof setting, "512MiB,count=%d,card=visible-%ld", DEVICES, (long)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(listed_devices_are_visible_in_their_order),
        cmocka_unit_test(devices_are_listed_by_uuid), cmocka_unit_test(both_orders_of_devices_are_the_bus_order),
        cmocka_unit_test(shared_handles_name_the_same_device), cmocka_unit_test(ranks_with_one_device_share_its_memory)};
    int failed = 0;
    for (int shared = 0; shared < 2; shared++) {
        setenv("SEGALLOC_SIM", shared ? setting : "512MiB,count=4", 1);
        if (sim_config_parse(getenv("SEGALLOC_SIM"), &config))
            return 1;
        for (int i = 0; i < DEVICES; i++)
            sim_config_uuid_text(&config, i, uuid_of[i]);
        /* Without a name for the card each process has one of its own, and no rank would find what another holds. */
        if (shared)
            failed += cmocka_run_group_tests_name("one card", tests, NULL, NULL);
        else
            failed += _cmocka_run_group_tests("a card each", tests, sizeof tests / sizeof *tests - 1, NULL, NULL);
    }
    snprintf(path, sizeof path, "/dev/shm/segalloc-sim-%u-visible-%ld", (unsigned)geteuid(), (long)getpid());
    unlink(path);
    return failed;
}
