/* PyTorch's kernels on floating-point numbers, by the names and arguments that they have in its wheels. The setting
   compute_mb=2 says how large a tensor may be. */
#include "sim_test.h"

#include <math.h>

static CUfunction kernel(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch(const char *name, void **params)
{
    ok(cuLaunchKernel(kernel(name), 1, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    ok(cuCtxSynchronize());
}

static CUdeviceptr memory(size_t bytes)
{
    CUdeviceptr address;
    ok(cuMemAlloc_v2(&address, bytes));
    ok(cuMemsetD8_v2(address, 0x55, bytes));
    ok(cuCtxSynchronize());
    return address;
}

#define EACH "_ZN2at6native29vectorized_elementwise_kernelILi4E"
#define FILL(type) EACH "NS0_11FillFunctorI" type "EESt5arrayIPcLm1EEEEviT0_T1_"
#define ADD(type) EACH "NS0_15CUDAFunctor_addI" type "EESt5arrayIPcLm3EEEEviT0_T1_"
#define EQUAL                                                                                 \
    EACH "NS0_13AUnaryFunctorIffbNS0_51_GLOBAL__N__28ce311f_18_CompareEQKernel_cu_d8008c9616" \
         "CompareEqFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_"
#define TIMES_HALF                                                                         \
    EACH "NS0_13BUnaryFunctorIN3c104HalfES4_S4_NS0_15binary_internal10MulFunctorIfEEEESt5" \
         "arrayIPcLm2EEEEviT0_T1_"
#define TO_HALF EACH "ZNS0_24float16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_"
#define SUM                                                                                           \
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorI" \
    "fffEclERNS_14TensorIteratorEEUlffE_EEjfLi4ELi4EEEEEvT1_"
#define MEAN "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_"

static void fills(CUdeviceptr to, int count, float value)
{
    launch(FILL("f"), (void *[]){&count, &value, &to});
}

static void elements_are_as_on_a_gpu(void **state)
{
    (void)state;
    CUdeviceptr a = memory(4096), b = memory(4096), truths = memory(1024), halves = memory(4096);
    int count = 700; /* more than a batch */
    fills(a, count, 0.1f);
    fills(b, count, 3);
    const float *at = host(a);
    assert_true(at[0] == 0.1f && at[699] == 0.1f && at[700] != 0.1f);
    float alpha = 2;
    launch(ADD("f"), (void *[]){&count, &alpha, (CUdeviceptr[]){a, a, b}});
    assert_true(at[0] == 0.1f + 2 * 3.0f && at[699] == at[0]);
    ((float *)host(a))[1] = NAN;
    struct {
        int comparison;
        float number;
    } equal = {0, 6.1f};
    launch(EQUAL, (void *[]){&count, &equal, (CUdeviceptr[]){truths, a}});
    assert_memory_equal(host(truths), ((const unsigned char[]){1, 0, 1, 1}), 4);
    launch(TO_HALF, (void *[]){&count, &(char){0}, (CUdeviceptr[]){halves, b}});
    const uint16_t *half = host(halves);
    assert_int_equal(half[0], 0x4200); /* 3 */
    struct {
        char functor;
        float number;
    } times = {0, 21845.5f};
    launch(TIMES_HALF, (void *[]){&count, &times, (CUdeviceptr[]){halves, halves}});
    assert_int_equal(half[0], 0x7c00); /* 65536.5, which is none */
    for (int i = 0; i < 4; i++)
        ok(cuMemFree_v2((CUdeviceptr[]){a, b, truths, halves}[i]));
}

/* ReduceOp<float, …>: its config, an input's and an output's calculator, then its pointers. */
struct reduce {
    float factor, start;
    struct {
        int element_size, inputs, outputs, rest[13];
    } config;
    struct {
        uint32_t dims, sizes[25][3], strides[25][1];
    } input;
    struct {
        uint32_t dims, sizes[25][3], strides[25][2];
    } output;
    CUdeviceptr from, to[2], buffer, parts, semaphores;
    int64_t base;
    bool accumulates, finishes;
};

static struct reduce of_rows(CUdeviceptr from, CUdeviceptr to, unsigned rows, unsigned length)
{
    struct reduce r = {.factor = 1.0f / (float)length, .from = from, .to = {to, 0}, .finishes = true};
    r.config.inputs = (int)length;
    r.config.outputs = (int)rows;
    r.input.dims = r.output.dims = 1;
    r.input.sizes[0][0] = length;
    r.input.strides[0][0] = sizeof(float);
    r.output.sizes[0][0] = rows;
    r.output.strides[0][0] = sizeof(float);
    r.output.strides[0][1] = (uint32_t)sizeof(float) * length;
    return r;
}

static void sums_and_means_of_rows(void **state)
{
    (void)state;
    CUdeviceptr from = memory(8192), to = memory(64);
    float *at = host(from), *found = host(to);
    for (int i = 0; i < 2000; i++)
        at[i] = (float)(i % 10);
    struct reduce r = of_rows(from, to, 2, 1000);
    launch(SUM, (void *[]){&r});
    assert_true(found[0] == 4500 && found[1] == 4500);
    r.accumulates = true;
    launch(SUM, (void *[]){&r});
    assert_true(found[0] == 9000 && found[1] == 9000);
    r.accumulates = false;
    launch(MEAN, (void *[]){&r});
    assert_true(found[0] == 4500 * (1.0f / 1000) && found[1] == found[0]);
    r.finishes = false; /* the factor comes at the end */
    launch(MEAN, (void *[]){&r});
    assert_true(found[0] == 4500);
    r.accumulates = r.finishes = true;
    launch(MEAN, (void *[]){&r});
    assert_true(found[0] == 9000 * (1.0f / 1000));
    r.buffer = from; /* sums kept elsewhere: none of ours */
    launch(MEAN, (void *[]){&r});
    assert_true(found[0] == 9000 * (1.0f / 1000));
    ok(cuMemFree_v2(from));
    ok(cuMemFree_v2(to));
}

/* What would touch anything but a device's memory, or much of it, does nothing. */
static void only_what_is_there(void **state)
{
    (void)state;
    float own = 5;
    fills((CUdeviceptr)(uintptr_t)&own, 1, 9);
    fills(0, 1, 9);
    fills(16, 1, 9);
    assert_true(own == 5);
    CUdeviceptr some = memory(3 * MIB);
    const float *at = host(some);
    float was = at[0];
    fills(some, 3 * MIB / 4, 9);
    fills(some, -1, 9);
    fills(some, 0, 9);
    assert_true(at[0] == was);
    fills(some, 2 * MIB / 4 + 1, 9);
    assert_true(at[0] == was);
    fills(some, 2 * MIB / 4, 9);
    assert_true(at[0] == 9 && at[2 * MIB / 4 - 1] == 9 && at[2 * MIB / 4] == was);
    struct reduce r = of_rows(some, 16, 1, 100);
    launch(SUM, (void *[]){&r});
    r = of_rows(some + 3 * MIB - 8, some, 1, 100);
    launch(SUM, (void *[]){&r});
    r = of_rows(some, some, 1 << 20, 1 << 20);
    launch(SUM, (void *[]){&r});
    r.input.dims = 26;
    launch(SUM, (void *[]){&r});
    assert_true(at[0] == 9);
    ok(cuMemFree_v2(some));
}

/* Names that say less than all types, or types that are not ours, are none of ours. */
static void other_types_are_left_alone(void **state)
{
    (void)state;
    CUdeviceptr some = memory(4096);
    int count = 4;
    double value[2] = {1, 1};
    launch(FILL("N3c107complexIfEE"), (void *[]){&count, value, &some});
    launch(FILL("N3c1013Float8_e4m3fnE"), (void *[]){&count, value, &some});
    launch(FILL("S4_"), (void *[]){&count, value, &some});
    launch(FILL("N"), (void *[]){&count, value, &some});
    launch(FILL("NS"), (void *[]){&count, value, &some});
    launch(ADD(""), (void *[]){&count, value, (CUdeviceptr[]){some, some, some}});
    assert_memory_equal(host(some), "\x55\x55\x55\x55\x55\x55\x55\x55", 8);
    ok(cuMemFree_v2(some));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_as_on_a_gpu),
        cmocka_unit_test(sums_and_means_of_rows),
        cmocka_unit_test(only_what_is_there),
        cmocka_unit_test(other_types_are_left_alone),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
