/* PyTorch's kernels on a few integers, by the names and arguments that they have in its wheels. */
#include "sim_test.h"

static CUfunction kernel(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch(const char *name, unsigned y, void **params)
{
    ok(cuLaunchKernel(kernel(name), 1, y, 1, 128, 1, 1, 0, NULL, params, NULL));
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

#define FILL_LONG "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_"
#define EQUAL_LONG                                                                                           \
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13AUnaryFunctorIllbNS0_51_GLOBAL__N__28ce311f_18_" \
    "CompareEQKernel_cu_d8008c9616CompareEqFunctorIlEEEESt5arrayIPcLm2EELb0EEEviT0_T1_"
#define AND_CAST                                                                                  \
    "_ZN2at6native27unrolled_elementwise_kernelINS0_13BinaryFunctorIlllNS0_"                      \
    "17BitwiseAndFunctorIlEEEESt5arrayIPcLm3EELi4E23TrivialOffsetCalculatorILi2EjES9_ILi1EjENS0_" \
    "6memory12LoadWithCastILi2EEENSC_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_"
#define JOIN                                                                                         \
    "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c26CatArrayBatchedCopy_contigINS1_"       \
    "10OpaqueTypeILj1EEEjLi1ELi128ELi1EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_" \
    "16TensorSizeStrideIS8_Lj4EEEiS8_"

static void fills(CUdeviceptr to, int count, int64_t value)
{
    launch(FILL_LONG, 1, (void *[]){&count, &value, &to});
}

static void integers_are_filled_and_compared(void **state)
{
    (void)state;
    CUdeviceptr numbers = memory(64), truths = memory(8), results = memory(64);
    int count = 4;
    fills(numbers, count, 7);
    int64_t *at = host(numbers);
    assert_int_equal(at[3], 7);
    assert_int_equal(at[4], 0x5555555555555555);
    at[1] = 3;
    struct {
        int comparison;
        int64_t number;
    } equal = {0, 7};
    CUdeviceptr data[3] = {truths, numbers};
    launch(EQUAL_LONG, 1, (void *[]){&count, &equal, data});
    assert_memory_equal(host(truths), ((const unsigned char[]){1, 0, 1, 1, 0x55}), 5);
    equal.comparison = 1;
    launch(EQUAL_LONG, 1, (void *[]){&count, &equal, data});
    assert_memory_equal(host(truths), ((const unsigned char[]){0, 1, 0, 0, 0x55}), 5);
    char functor = 0, trivial = 0;
    struct {
        signed char types[2];
        uint32_t sizes[2];
    } from = {{4, 11}, {8, 1}};
    struct {
        signed char types[1];
        uint32_t sizes[1];
    } to = {{4}, {8}};
    CUdeviceptr both[3] = {results, numbers, truths};
    launch(AND_CAST, 1, (void *[]){&count, &functor, both, &trivial, &trivial, &from, &to});
    assert_memory_equal(host(results), ((const int64_t[]){0, 1, 0, 0}), 4 * sizeof(int64_t));
    ok(cuMemFree_v2(numbers));
    ok(cuMemFree_v2(truths));
    ok(cuMemFree_v2(results));
}

static void parts_are_joined(void **state)
{
    (void)state;
    CUdeviceptr a = memory(16), b = memory(16), to = memory(32);
    memcpy(host(a), "abcde", 5);
    memcpy(host(b), "fgh", 3);
    struct {
        CUdeviceptr input[128];
        uint32_t offset[128], size[128], elements[128];
        bool contiguous[128];
        uint32_t strides[8];
    } inputs = {{a, b}, {0, 5}, {5, 3}, {5, 3}, {false}, {0}};
    uint32_t sizes[8] = {8, 0, 0, 0, 1};
    int dimension = 0;
    uint32_t stride = 1;
    launch(JOIN, 2, (void *[]){&to, &inputs, sizes, &dimension, &stride});
    assert_memory_equal(host(to), "abcdefgh\x55", 9);
    ok(cuMemFree_v2(a));
    ok(cuMemFree_v2(b));
    ok(cuMemFree_v2(to));
}

/* The four kernels behind torch.nonzero, the first of them both as one launch and as two. */
#define NONZERO(type)                                                                                                \
    "N6thrust45THRUST_300001_SM_750_800_860_900_1000_1200_NS18transform_iteratorIN2at6native43_GLOBAL__N__e625f313_" \
    "10_Nonzero_cu_cba1aaa09NonZeroOpI" type "EEPK" type
#define TRUTHS_IN_ONE                                                                                      \
    "_ZN14at_cuda_detail3cub6detail6reduce28DeviceReduceSingleTileKernelINS2_10policy_hubIiyN4cuda3std3__" \
    "44plusIvEEE10Policy1000E" NONZERO("b") "NSD_11use_defaultESM_EEPiyS9_iiNS7_10__identityEEEvT0_T1_T2_T3_T4_T6_"
#define TRUTHS_IN_PARTS                                                                          \
    "_ZN14at_cuda_detail3cub6detail6reduce18DeviceReduceKernelINS2_10policy_hubIiyN4cuda3std3__" \
    "44plusIvEEE10Policy1000E" NONZERO(                                                          \
        "b") "NSD_11use_defaultESM_EEyS9_iNS7_10__identityEEEvT0_PT3_T1_NS0_13GridEvenShareISS_EET2_T4_"
#define SUM_OF_PARTS                                                                                       \
    "_ZN14at_cuda_detail3cub6detail6reduce28DeviceReduceSingleTileKernelINS2_10policy_hubIiyN4cuda3std3__" \
    "44plusIvEEE10Policy1000EPiSC_iS9_iiNS7_10__identityEEEvT0_T1_T2_T3_T4_T6_"
#define SELECT                                                                                                        \
    "_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIlbiLb0ELNS0_"                    \
    "10SelectImplE0EE10Policy1000EN6thrust45THRUST_300001_SM_750_800_860_900_1000_1200_NS17counting_iteratorIlNS9_"   \
    "11use_defaultESB_SB_EE" NONZERO("b") "SB_SB_EEPlPiNS0_13ScanTileStateIiLb1EEENS0_8NullTypeESQ_iNS2_19streaming_" \
                                          "context_tIlLb1EEELS5_0EEEvT0_T1_T2_T3_T4_T5_T6_T7_iT8_NS1_7vsmem_tE"
#define SELECT_BEGIN \
    "_ZN14at_cuda_detail3cub6detail4scan23DeviceCompactInitKernelINS0_13ScanTileStateIjLb1EEEPjEEvT_iT0_"
#define UNRAVEL \
    "_ZN2at6native43_GLOBAL__N__e625f313_10_Nonzero_cu_cba1aaa013write_indicesIlEEvPlNS1_10TensorDimsIT_EEiS5_S3_l"

static void nonzero_elements_are_counted_and_placed(void **state)
{
    (void)state;
    CUdeviceptr truths = memory(16), number = memory(16), parts = memory(16), places = memory(128);
    memcpy(host(truths), "\1\0\0\1\1\0\0\0\0\0\1\1", 12);
    uint64_t count = 12, first = 0;
    struct {
        CUdeviceptr from;
        char functor;
    } input = {truths, 0};
    char none = 0, state_of_tiles[16] = {0};
    launch(TRUTHS_IN_ONE, 1, (void *[]){&input, &number, &count, &none, &none, &none});
    assert_int_equal(*(int32_t *)host(number), 5);

    ok(cuLaunchKernel(kernel(TRUTHS_IN_PARTS), 3, 1, 1, 128, 1, 1, 0, NULL,
        (void *[]){&input, &parts, &count, state_of_tiles, &none, &none}, NULL));
    ok(cuMemsetD8_v2(number, 0, 4));
    int32_t three = 3;
    launch(SUM_OF_PARTS, 1, (void *[]){&parts, &number, &three, &none, &none, &none});
    assert_int_equal(*(int32_t *)host(number), 5);

    launch(SELECT_BEGIN, 1, (void *[]){state_of_tiles, &three, &number});
    assert_int_equal(*(int32_t *)host(number), 0);
    assert_int_equal(((int32_t *)host(number))[1], 0x55555555);
    int32_t twelve = 12;
    launch(SELECT, 1,
        (void *[]){&first, &input, &places, &number, state_of_tiles, &none, &none, &twelve, &twelve, &none, &none});
    assert_int_equal(*(int32_t *)host(number), 5);
    const int64_t *at = host(places);
    assert_memory_equal(at, ((const int64_t[]){0, 3, 4, 10, 11}), 5 * sizeof(int64_t));
    assert_int_equal(at[5], 0x5555555555555555);

    int64_t sizes[16] = {3, 4}, found = 5;
    int32_t dims = 2;
    CUdeviceptr total = 0;
    int64_t fill = -1;
    launch(UNRAVEL, 1, (void *[]){&places, sizes, &dims, &found, &total, &fill});
    assert_memory_equal(at, ((const int64_t[]){0, 0, 1, 2, 2, 0, 3, 0, 2, 3}), 10 * sizeof(int64_t));
    assert_int_equal(at[10], 0x5555555555555555);

    found = 1 << 30; /* more than there is */
    launch(UNRAVEL, 1, (void *[]){&places, sizes, &dims, &found, &total, &fill});
    input.from = 16;
    *(int32_t *)host(number) = 77;
    launch(TRUTHS_IN_ONE, 1, (void *[]){&input, &number, &count, &none, &none, &none});
    launch(SELECT, 1,
        (void *[]){&first, &input, &places, &number, state_of_tiles, &none, &none, &twelve, &twelve, &none, &none});
    assert_int_equal(*(int32_t *)host(number), 77);
    ok(cuMemFree_v2(truths));
    ok(cuMemFree_v2(number));
    ok(cuMemFree_v2(parts));
    ok(cuMemFree_v2(places));
}

/* What would touch anything but a device's memory, or much of it, does nothing. */
static void only_what_is_there(void **state)
{
    (void)state;
    int64_t own = 5;
    fills((CUdeviceptr)(uintptr_t)&own, 1, 9);
    assert_int_equal(own, 5);
    fills(0, 1, 9);
    fills(16, 1, 9);
    CUdeviceptr gone = memory(4096);
    ok(cuMemFree_v2(gone));
    fills(gone, 1, 9);
    CUdeviceptr little = memory(4096), much = memory(68 * MIB);
    fills(little, 4096, 9);
    assert_int_equal(*(int64_t *)host(little), 0x5555555555555555);
    fills(much, 68 * MIB / 8, 9);
    assert_int_equal(*(int64_t *)host(much), 0x5555555555555555);
    fills(much, -1, 9);
    fills(much, 0, 9);
    fills(much, 1, 9);
    assert_int_equal(*(int64_t *)host(much), 9);
    ok(cuMemFree_v2(little));
    ok(cuMemFree_v2(much));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_filled_and_compared),
        cmocka_unit_test(parts_are_joined),
        cmocka_unit_test(nonzero_elements_are_counted_and_placed),
        cmocka_unit_test(only_what_is_there),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
