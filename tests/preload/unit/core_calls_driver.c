/* The driver of core_calls_fakes.h: what programs call, by hooks.def, and what the core calls, by calls.def. */
#include "core_calls_fakes.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "process/hooks.h"
#include "process/process.h"

/* Contexts by their handles. */
static CUcontext context_of(int number)
{
    return (CUcontext)(uintptr_t)(PRIMARIES_AT + 0x100 * number);
}

static int number_of(CUcontext context)
{
    uintptr_t at = (uintptr_t)context;
    return at < PRIMARIES_AT || at >= PRIMARIES_AT + 0x100 * (MADE_COUNT + 2) ? -1 : (int)(at - PRIMARIES_AT) / 0x100;
}

static int device_of(CUcontext context)
{
    return number_of(context) & 1;
}

static int stream_number(CUstream stream)
{
    uintptr_t at = (uintptr_t)stream;
    return at < 3 ? (int)at : (int)(at - STREAMS_AT) / 16 % STREAM_COUNT + 3;
}

static CUcontext context_of_stream(CUstream stream)
{
    int number = stream_number(stream) % (MADE_COUNT + 2);
    return (uintptr_t)stream < 3 ? world.current : context_of(world.alive[number] ? number : number & 1);
}

/* The driver: what it may answer to any call. */
static CUresult may_refuse(void)
{
    static const CUresult answers[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_NOT_READY, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD};
    return happens(8) ? answers[random_below(&world.answers, sizeof answers / sizeof *answers)] : CUDA_SUCCESS;
}

static void begin_capture(CUresult *result, CUstream stream, bool per_thread)
{
    CUstream named = stream ? stream : per_thread ? CU_STREAM_PER_THREAD : NULL;
    unsigned long long *capture = &world.capture[stream_number(named)];
    if (*result == CUDA_SUCCESS && (*capture || (!stream && !per_thread)))
        *result = CUDA_ERROR_ILLEGAL_STATE;
    if (*result == CUDA_SUCCESS)
        *capture = (unsigned)new_id();
}

static void end_capture(CUresult *result, CUstream stream, bool per_thread)
{
    CUstream named = stream ? stream : per_thread ? CU_STREAM_PER_THREAD : NULL;
    unsigned long long *capture = &world.capture[stream_number(named)];
    if (!*capture)
        *result = CUDA_ERROR_ILLEGAL_STATE;
    if (*result != CUDA_ERROR_ILLEGAL_STATE && *result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
        *result != CUDA_ERROR_INVALID_HANDLE)
        *capture = 0;
}

static CUcontext make_context(CUdevice device)
{
    int number = 2 + 2 * (new_id() % (MADE_COUNT / 2)) + (device & 1);
    world.alive[number] = true;
    world.context_id[number] = (unsigned)new_id();
    return context_of(number);
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Does what the call of this name does. Its arguments are `a`. */
static void take_effect(const char *name, const uintptr_t *a, CUresult *result)
{
    bool per_thread = strstr(name, "_ptsz") != NULL;
    if (begins(name, "cuStreamBegin") && !strstr(name, "ToCig"))
        begin_capture(result, (CUstream)a[0], per_thread);
    else if (begins(name, "cuStreamEndCapture"))
        end_capture(result, (CUstream)a[0], per_thread);
    if (*result != CUDA_SUCCESS)
        return;
    if (begins(name, "cuStreamDestroy")) {
        world.capture[stream_number((CUstream)a[0])] = 0;
        world.stream_id[stream_number((CUstream)a[0])] = (unsigned)new_id();
    } else if (begins(name, "cuCtxDestroy") && number_of((CUcontext)a[0]) >= 0) {
        world.alive[number_of((CUcontext)a[0])] = false;
    } else if (begins(name, "cuDevicePrimaryCtxReset") || begins(name, "cuDevicePrimaryCtxRelease")) {
        world.alive[a[0] & 1] = happens(2);
    }
    if (!a[0] || strstr(name, "ForAddressRange"))
        return;
    void *ret = (void *)a[0];
    if (begins(name, "cuMemAllocPitch")) {
        *(CUdeviceptr *)ret = DRIVERS_AT + 4096 * (CUdeviceptr)new_id();
        *(size_t *)a[1] = 512;
    } else if (begins(name, "cuMemAlloc")) {
        *(CUdeviceptr *)ret = DRIVERS_AT + 4096 * (CUdeviceptr)new_id();
    } else if (begins(name, "cuStreamCreate") || begins(name, "cuGreenCtxStreamCreate")) {
        int number = new_id() % STREAM_COUNT;
        *(CUstream *)ret = (CUstream)(uintptr_t)(STREAMS_AT + 16 * number);
        world.stream_id[number + 3] = (unsigned)new_id();
    } else if (begins(name, "cuEventCreate") || begins(name, "cuIpcOpenEvent")) {
        *(CUevent *)ret = (CUevent)(uintptr_t)(EVENTS_AT + 64 * (new_id() % EVENT_COUNT));
    } else if (begins(name, "cuCtxCreate_v2")) {
        *(CUcontext *)ret = make_context((CUdevice)a[2]);
    } else if (begins(name, "cuCtxCreate")) {
        *(CUcontext *)ret = make_context((CUdevice)a[begins(name, "cuCtxCreate_v3") ? 4 : 3]);
    } else if (begins(name, "cuDevicePrimaryCtxRetain")) {
        if (!world.alive[a[1] & 1])
            world.context_id[a[1] & 1] = (unsigned)new_id();
        world.alive[a[1] & 1] = true;
        *(CUcontext *)ret = context_of((int)a[1] & 1);
    } else if (begins(name, "cuCtxFromGreenCtx")) {
        *(CUcontext *)ret = context_of(2 + (int)((a[1] - GREENS_AT) / 0x100));
    } else if (begins(name, "cuMemGetInfo")) {
        *(size_t *)ret = 1000 * random_below(&world.answers, 1 << 20);
        *(size_t *)a[1] = (size_t)1 << 31;
    } else if (begins(name, "cuDeviceTotalMem")) {
        *(size_t *)ret = (size_t)1 << 31;
    } else if (strcmp(name, "cuPointerGetAttribute") == 0) {
        if ((int)a[1] == CU_POINTER_ATTRIBUTE_CONTEXT)
            *(CUcontext *)ret = context_of((int)random_below(&world.answers, MADE_COUNT + 2));
        else
            *(int *)ret = (int)random_below(&world.answers, 3);
    } else if (begins(name, "cuMemGetAddressRange")) {
        *(CUdeviceptr *)ret = (CUdeviceptr)a[2] & ~UINT64_C(4095);
    }
}

static void say_pointer(uintptr_t value, const char *type)
{
    uintptr_t from = (uintptr_t)world.region;
    if (!value)
        say("0");
    else if (value >= from && value < from + sizeof world.region)
        say("@%x", (unsigned)(value - from));
    else if (strcmp(type, "const CUDA_MEMCPY3D_PEER *") == 0) {
        const uint64_t *words = (const uint64_t *)value;
        for (size_t i = 0; i < sizeof(CUDA_MEMCPY3D_PEER) / sizeof *words; i++) {
            bool half = i == offsetof(CUDA_MEMCPY3D_PEER, srcMemoryType) / sizeof *words ||
                i == offsetof(CUDA_MEMCPY3D_PEER, dstMemoryType) / sizeof *words; /* the rest is nothing */
            say(i ? "/%llx" : "%llx", (unsigned long long)(half ? words[i] & UINT32_MAX : words[i]));
        }
    } else {
        say("local");
    }
}

static bool needs(const char *name)
{
    static const char *const names[] = {"ret", "pitch", "launches", "attributes", "total_bytes"};
    bool needed = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        needed |= strcmp(names[i], name) == 0;
    return needed;
}

void say_driver_call(const char *name, const struct signature *signature, const uintptr_t *a)
{
    say(" %s(", name);
    for (int i = 0; i < signature->count; i++) {
        const struct parameter *parameter = &signature->list[i];
        uint64_t value = a[i];
        if (i)
            say(" ");
        if (strcmp(parameter->type, "CUipcEventHandle") == 0)
            say("handle"); /* by value, where the others are not */
        else if (strcmp(parameter->type, "CUhostFn") == 0)
            say("function"); /* ours, wherever it is loaded */
        else if (parameter->pointer)
            say_pointer(a[i], parameter->type);
        else
            say("%llx", (unsigned long long)(parameter->bits == 64 ? value : value & ((1ull << parameter->bits) - 1)));
    }
    say(")");
}

static const struct row {
    const char *name, *parameters;
} rows[] = {
#define HOOK(symbol, base, version, threads, parameters) {"fake_real." #symbol, #parameters},
#include "process/hooks.def"
#define CALL(name, symbol, need, parameters) {"fake_driver." #name, #parameters},
#include "driver/calls.def"
};

CUresult driver_call(const struct fakes_function *function)
{
    const struct row *row = rows;
    while (strcmp(row->name, function->name) != 0)
        row++;
    struct signature signature = signature_of(row->parameters);
    const uintptr_t *a = function->argument;
    CUresult result = may_refuse();
    say_driver_call(fakes_symbol(function), &signature, a);
    for (int i = 0; i < signature.count && function->kind == FAKES_REAL; i++) {
        if (signature.list[i].pointer && !a[i] && needs(signature.list[i].name))
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (function->kind == FAKES_REAL)
        take_effect(fakes_symbol(function), a, &result);
    return answered(result);
}

/* The driver as the core has it. */
static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = world.current;
    return CUDA_SUCCESS;
}

static CUcontext pushed[16];
static int pushes;

static CUresult ctx_push(CUcontext context)
{
    say(" ctx_push(%lx)", (unsigned long)(uintptr_t)context);
    if (number_of(context) < 0 || !world.alive[number_of(context)] || pushes == 16)
        return answered(CUDA_ERROR_INVALID_CONTEXT);
    pushed[pushes++] = world.current;
    world.current = context;
    return answered(CUDA_SUCCESS);
}

static CUresult ctx_pop(CUcontext *ret)
{
    say(" ctx_pop");
    assert(pushes > 0);
    *ret = world.current;
    world.current = pushed[--pushes];
    return CUDA_SUCCESS;
}

static CUresult ctx_get_device(CUdevice *ret)
{
    *ret = device_of(world.current);
    return CUDA_SUCCESS;
}

static CUresult ctx_get_id(CUcontext context, unsigned long long *ret)
{
    int number = number_of(context);
    if (number < 0 || !world.alive[number])
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = world.context_id[number];
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = world.alive[device & 1];
    return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *ret, CUdevice device)
{
    say(" primary_retain(%d)", device);
    *ret = context_of(device & 1);
    return answered(may_refuse());
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = 1000 * random_below(&world.answers, 1 << 20);
    *ret_total = (size_t)1 << 31;
    say(" mem_info:%zx", *ret_free);
    return answered(may_refuse());
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    say(" event_create(%x)", flags);
    *ret = (CUevent)(uintptr_t)0x9000;
    return answered(may_refuse());
}

static CUresult event_query(CUevent event)
{
    CUresult result = happens(2) ? CUDA_ERROR_NOT_READY : may_refuse();
    say(" event_query(%lx)", (unsigned long)(uintptr_t)event);
    return answered(result);
}

static CUresult ctx_record_event(CUcontext context, CUevent event)
{
    world.time_ns += random_below(&world.answers, 1000000);
    say(" ctx_record_event(%lx %lx)", (unsigned long)(uintptr_t)context, (unsigned long)(uintptr_t)event);
    return answered(may_refuse());
}

static CUresult stream_get_ctx(CUstream stream, CUcontext *ret)
{
    say(" stream_get_ctx(%lx)", (unsigned long)(uintptr_t)stream);
    *ret = context_of_stream(stream);
    return answered(happens(20) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
}

static CUresult stream_get_flags(CUstream stream, unsigned *ret)
{
    say(" stream_get_flags(%lx)", (unsigned long)(uintptr_t)stream);
    *ret = stream_number(stream) & 1;
    return answered(happens(20) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
}

static CUresult stream_get_id(CUstream stream, unsigned long long *ret)
{
    say(" stream_get_id(%lx)", (unsigned long)(uintptr_t)stream);
    *ret = (uintptr_t)stream < 3 ? 100 * (uintptr_t)stream + (unsigned)number_of(world.current)
                                 : 1000 + world.stream_id[stream_number(stream)];
    return answered(happens(20) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    say(" stream_is_capturing(%lx)", (unsigned long)(uintptr_t)stream);
    *ret = world.capture[stream_number(stream)] ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return answered(happens(20) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS);
}

static CUresult stream_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **nodes, size_t *count)
{
    (void)nodes, (void)count;
    *id = world.capture[stream_number(stream)];
    *status = *id ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = (CUgraph)(uintptr_t)(0x7000 + 16 * *id);
    say(" stream_capture_info(%lx):%llx", (unsigned long)(uintptr_t)stream, (unsigned long long)*id);
    return answered(happens(20) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
}

static CUresult user_object_create(CUuserObject *ret, void *user, CUhostFn destroy, unsigned references, unsigned flags)
{
    int number = 0;
    while (number < world.objects && world.object[number].held)
        number++;
    assert(number < 512);
    world.objects += number == world.objects;
    world.object[number].user = user;
    world.object[number].destroy = destroy;
    world.object[number].held = false;
    *ret = (CUuserObject)(uintptr_t)(0x8000 + number);
    say(" user_object_create(%u %u):%d", references, flags, number);
    return answered(happens(20) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

static CUresult user_object_release(CUuserObject object, unsigned references)
{
    int number = (int)(((uintptr_t)object - 0x8000) % 512);
    say(" user_object_release(%lx %u)", (unsigned long)(uintptr_t)object, references);
    if (!world.object[number].held) /* nobody else has it */
        world.object[number].destroy(world.object[number].user);
    return CUDA_SUCCESS;
}

static CUresult graph_retain_user_object(CUgraph graph, CUuserObject object, unsigned references, unsigned flags)
{
    say(" graph_retain_user_object(%lx %lx %u %u)", (unsigned long)(uintptr_t)graph, (unsigned long)(uintptr_t)object, references, flags);
    bool refused = happens(20);
    world.object[((uintptr_t)object - 0x8000) % 512].held = !refused;
    return answered(refused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

void drop_a_graph(void)
{
    for (int i = 0; i < world.objects; i++) {
        if (!world.object[i].held)
            continue;
        world.object[i].held = false;
        world.object[i].destroy(world.object[i].user);
        return;
    }
}

static CUresult exchange_capture_mode(CUstreamCaptureMode *mode)
{
    static CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode before = now;
    say(" exchange_capture_mode(%d)", (int)*mode);
    if (happens(20))
        return answered(CUDA_ERROR_INVALID_VALUE);
    now = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

void fill_driver(void)
{
#define FILL(name) fake_driver.name = name;
    FILL(ctx_get_current)
    FILL(ctx_push)
    FILL(ctx_pop)
    FILL(ctx_get_device)
    FILL(primary_state)
    FILL(primary_retain)
    FILL(mem_info)
    FILL(event_create)
    FILL(event_query)
    FILL(stream_get_flags)
    FILL(stream_is_capturing)
    FILL(stream_capture_info)
    FILL(user_object_release)
    FILL(graph_retain_user_object)
    FILL(exchange_capture_mode)
    FILL(ctx_get_id)
    FILL(ctx_record_event)
    FILL(stream_get_id)
    FILL(stream_get_ctx)
    FILL(user_object_create)
    if (!world.old)
        return;
    fake_driver.ctx_get_id = NULL;
    fake_driver.ctx_record_event = NULL;
    fake_driver.ctx_synchronize_of = NULL;
    fake_driver.stream_get_id = NULL;
    fake_driver.stream_get_ctx = NULL;
    fake_driver.user_object_create = NULL;
}
