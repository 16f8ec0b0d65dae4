/* Arguments of core_calls_fakes.h: what a parameter is, by its type and name, and a value of it by chance. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "process/hooks.h"
#include "core_calls_fakes.h"

bool chance(uint64_t one_in)
{
    return random_below(&world.random, one_in) == 0;
}

void begin_step(int program, int step)
{
    world.step = step;
    world.made = 0;
    world.random.state = (uint64_t)program * 1000003 + (uint64_t)step * 7577;
    world.answers.state = (uint64_t)program * 7919 + (uint64_t)step * 104729 + 1;
}

int new_id(void)
{
    assert(world.made < IDS_A_STEP);
    return world.step * IDS_A_STEP + world.made++;
}

int any_block(bool live)
{
    enum { STEPS_BACK = 40 };
    struct random draw = {.state = random_next(&world.random)};
    int first = (world.step < STEPS_BACK ? 0 : world.step - STEPS_BACK) * IDS_A_STEP, found = -1;
    uint64_t most = 0;
    for (int i = first; i < (world.step + 1) * IDS_A_STEP; i++) {
        uint64_t number = random_next(&draw);
        if (world.block[i].bytes && (world.block[i].live || !live) && number >= most) {
            most = number;
            found = i;
        }
    }
    return found;
}

/* Parameters, as hooks.def has them. */
struct signature signature_of(const char *parameters)
{
    static const struct {
        const char *type;
        unsigned bits;
    } narrow[] = {{"unsigned char", 8}, {"unsigned short", 16}, {"unsigned", 32}, {"int", 32}, {"cuuint32_t", 32},
        {"CUdevice", 32}, {"CUstreamCaptureMode", 32}, {"CUpointer_attribute", 32}, {"CUmemRangeHandleType", 32}};
    struct signature ret = {.count = 0};
    const char *at = parameters + 1;
    while (strcmp(parameters, "(void)") != 0 && *at != '\0' && *at != ')') {
        while (*at == ' ')
            at++;
        size_t length = strcspn(at, ",)"), name = length;
        struct parameter *parameter = &ret.list[ret.count++];
        while (name && at[name - 1] != ' ' && at[name - 1] != '*')
            name--;
        size_t type = name;
        while (type && at[type - 1] == ' ')
            type--;
        snprintf(parameter->type, sizeof parameter->type, "%.*s", (int)type, at);
        snprintf(parameter->name, sizeof parameter->name, "%.*s", (int)(length - name), at + name);
        /* A file's number travels as a pointer. */
        parameter->pointer = memchr(at, '*', length) != NULL && strcmp(parameter->name, "file") != 0;
        parameter->bits = 64;
        for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
            if (strcmp(parameter->type, narrow[i].type) == 0)
                parameter->bits = narrow[i].bits;
        }
        at += length + (at[length] == ',');
    }
    return ret;
}

/* Streams, events and contexts by their handles. */
CUstream any_stream(void)
{
    uintptr_t number = random_below(&world.random, STREAM_COUNT + 3);
    return (CUstream)(number < 3 ? number : STREAMS_AT + 16 * (number - 3));
}

CUevent any_event(void)
{
    return (CUevent)(uintptr_t)(EVENTS_AT + 64 * random_below(&world.random, EVENT_COUNT));
}

CUcontext any_context(void)
{
    return (CUcontext)(uintptr_t)(PRIMARIES_AT + 0x100 * random_below(&world.random, MADE_COUNT + 2));
}

CUdeviceptr any_address(void)
{
    if (chance(8))
        return chance(2) ? 0 : DRIVERS_AT + 256 * random_below(&world.random, 64);
    int block = any_block(/* live */ false);
    if (chance(16) || block < 0)
        return BLOCKS_AT + random_below(&world.random, BLOCK_STEP * 16);
    return world.block[block].address + (chance(8) ? 512 : 0);
}

/* What arguments of such a type point to. */
static void fill(const char *type, unsigned char *region)
{
    uint64_t numbers[8];
    CUstream streams[4];
    CUmemorytype types[2];
    CUdeviceptr addresses[2];
    CUcontext contexts[2];
    CUevent event = any_event();
    for (int i = 0; i < 8; i++)
        numbers[i] = random_below(&world.random, 4) * (chance(4) ? 1000 : 1);
    for (int i = 0; i < 4; i++)
        streams[i] = any_stream();
    for (int i = 0; i < 2; i++) {
        types[i] = (CUmemorytype)random_between(&world.random, 1, 4);
        addresses[i] = any_address();
        contexts[i] = any_context();
    }
    memset(region, 0, REGION_BYTES);
    void *at = region;
    if (strcmp(type, "size_t *") == 0) {
        memcpy(region, numbers, sizeof numbers);
    } else if (strcmp(type, "CUmemLocation *") == 0) {
        for (int i = 0; i < 8; i++)
            ((CUmemLocation *)at)[i] = (CUmemLocation){(CUmemLocationType)(numbers[i] % 3), (int)(numbers[i] % 5) - 1};
    } else if (strcmp(type, "CUpointer_attribute *") == 0) {
        for (int i = 0; i < 8; i++)
            ((int *)at)[i] = (int)random_between(&world.random, 1, 20);
    } else if (strcmp(type, "void **") == 0) {
        for (int i = 0; i < 8; i++)
            ((void **)at)[i] = region + 128 + 16 * i;
    } else if (strcmp(type, "CUgraphNodeParams *") == 0) {
        ((CUgraphNodeParams *)at)->type = (CUgraphNodeType)random_below(&world.random, 12);
        ((CUgraphNodeParams *)at)->eventRecord.event = event;
    } else if (strcmp(type, "CUstreamBatchMemOpParams *") == 0) {
        for (int i = 0; i < 4; i++)
            ((CUstreamBatchMemOpParams *)at)[i].operation = (CUstreamBatchMemOpType)random_between(&world.random, 1, 5);
    } else if (strcmp(type, "const CUDA_LAUNCH_PARAMS *") == 0) {
        for (int i = 0; i < 4; i++)
            ((CUDA_LAUNCH_PARAMS *)at)[i].hStream = streams[i];
    } else if (strcmp(type, "const CUlaunchConfig *") == 0) {
        CUlaunchAttribute *attribute = (CUlaunchAttribute *)(void *)(region + 128);
        attribute->id = (CUlaunchAttributeID)random_between(&world.random, 1, 14);
        memcpy(&attribute->value, &event, sizeof event);
        *(CUlaunchConfig *)at = (CUlaunchConfig){.hStream = streams[0], .attrs = numbers[0] ? attribute : NULL,
            .numAttrs = numbers[1] != 0};
    } else if (strcmp(type, "const CUDA_MEMCPY2D *") == 0) {
        *(CUDA_MEMCPY2D *)at = (CUDA_MEMCPY2D){.srcXInBytes = numbers[0], .srcY = numbers[1],
            .srcMemoryType = types[0], .srcDevice = addresses[0], .srcPitch = numbers[2], .dstXInBytes = numbers[3],
            .dstY = numbers[4], .dstMemoryType = types[1], .dstDevice = addresses[1], .dstPitch = numbers[5],
            .WidthInBytes = numbers[6], .Height = numbers[7]};
    } else if (strcmp(type, "const CUDA_MEMCPY3D *") == 0) {
        *(CUDA_MEMCPY3D *)at = (CUDA_MEMCPY3D){.srcXInBytes = numbers[0], .srcY = numbers[1], .srcZ = numbers[2],
            .srcMemoryType = types[0], .srcDevice = addresses[0], .srcPitch = 3, .srcHeight = 4,
            .dstXInBytes = numbers[3], .dstY = numbers[4], .dstZ = numbers[5], .dstMemoryType = types[1],
            .dstDevice = addresses[1], .dstPitch = 5, .dstHeight = 6, .WidthInBytes = numbers[6], .Height = numbers[7],
            .Depth = 7};
    } else if (strcmp(type, "const CUDA_MEMCPY3D_PEER *") == 0) {
        *(CUDA_MEMCPY3D_PEER *)at = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
            .srcDevice = addresses[0], .srcContext = contexts[0], .dstMemoryType = types[1],
            .dstDevice = addresses[1], .dstContext = contexts[1]};
    }
}

uintptr_t argument_for(const struct parameter *parameter, int at)
{
    static const size_t sizes[] = {0, 1, 512, 1000, 4096, 100000, (size_t)1 << 20, (size_t)3 << 30};
    if (parameter->pointer) {
        fill(parameter->type, world.region[at]);
        return chance(16) && strcmp(parameter->type, "void **") != 0 ? 0 : (uintptr_t)world.region[at];
    }
    if (strcmp(parameter->type, "CUstream") == 0)
        return (uintptr_t)any_stream();
    if (strcmp(parameter->type, "CUevent") == 0)
        return (uintptr_t)any_event();
    if (strcmp(parameter->type, "CUcontext") == 0)
        return (uintptr_t)any_context();
    if (strcmp(parameter->type, "CUgreenCtx") == 0)
        return GREENS_AT + 0x100 * random_below(&world.random, 3);
    if (strcmp(parameter->type, "CUdeviceptr") == 0)
        return (uintptr_t)any_address();
    if (strcmp(parameter->type, "CUdevice") == 0)
        return random_below(&world.random, 2);
    if (strcmp(parameter->type, "CUpointer_attribute") == 0)
        return random_between(&world.random, 1, 20);
    if (strcmp(parameter->type, "CUmemLocation") == 0)
        return random_below(&world.random, 9) % 3 == 0 ? 0 : (uintptr_t)random_below(&world.random, 3) << 32 | 1;
    if (strstr(parameter->name, "count"))
        return random_below(&world.random, 4);
    if (strcmp(parameter->type, "size_t") == 0)
        return sizes[random_below(&world.random, sizeof sizes / sizeof *sizes)];
    return (strcmp(parameter->name, "element") == 0 ? 4u : 1u) * random_below(&world.random, 5);
}
