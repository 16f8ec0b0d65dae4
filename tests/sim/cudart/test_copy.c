#include "cudart_test.h"

enum { BYTES = 100000 };

static unsigned char pattern(size_t i)
{
    return (unsigned char)(i * 37 + (i >> 8));
}

static void there_and_back(void **state)
{
    (void)state;
    unsigned char *a = malloc(BYTES), *b = calloc(1, BYTES), *p = NULL, *q = NULL;
    for (size_t i = 0; i < BYTES; i++)
        a[i] = pattern(i);
    ok(cudaMalloc((void **)&p, BYTES));
    ok(cudaMalloc((void **)&q, BYTES));
    ok(cudaMemcpy(p, a, BYTES, COPY_HOST_TO_DEVICE));
    ok(cudaMemcpy(q, p, BYTES, COPY_DEVICE_TO_DEVICE));
    ok(cudaMemcpy(b, q, BYTES, COPY_DEVICE_TO_HOST));
    assert_memory_equal(a, b, BYTES);
    ok(cudaMemset(q, 0xee, BYTES));
    ok(cudaMemcpy(q, a, 10, COPY_DEFAULT));
    ok(cudaMemcpy(b, q, BYTES, COPY_DEFAULT));
    assert_memory_equal(a, b, 10);
    assert_int_equal(b[10], 0xee);
    ok(cudaMemcpy(b, a, BYTES, COPY_HOST_TO_HOST));
    assert_memory_equal(a, b, BYTES);
    expect_error(cudaErrorInvalidMemcpyDirection, cudaMemcpy(b, a, 1, 77));
    ok(cudaMemcpy(NULL, NULL, 0, COPY_DEVICE_TO_DEVICE));
    expect_error(cudaErrorInvalidValue, cudaMemcpy(p, a, BYTES * 100, COPY_HOST_TO_DEVICE));
    ok(cudaFree(p));
    ok(cudaFree(q));
    free(a);
    free(b);
}

static void rectangles_are_copied_row_by_row(void **state)
{
    (void)state;
    enum { WIDTH = 100, HEIGHT = 30 };
    unsigned char a[HEIGHT][WIDTH], b[HEIGHT][WIDTH + 5];
    for (size_t i = 0; i < sizeof a; i++)
        ((unsigned char *)a)[i] = pattern(i);
    memset(b, 0, sizeof b);
    unsigned char *p = NULL;
    size_t pitch = 0;
    ok(cudaMallocPitch((void **)&p, &pitch, WIDTH, HEIGHT));
    ok(cudaMemcpy2D(p, pitch, a, WIDTH, WIDTH, HEIGHT, COPY_HOST_TO_DEVICE));
    ok(cudaMemcpy2D(b, WIDTH + 5, p, pitch, WIDTH, HEIGHT, COPY_DEVICE_TO_HOST));
    for (int y = 0; y < HEIGHT; y++) {
        assert_memory_equal(a[y], b[y], WIDTH);
        assert_int_equal(b[y][WIDTH], 0);
    }
    ok(cudaMemset2D(p, pitch, 9, 10, 2));
    ok(cudaMemcpy2D(b, WIDTH + 5, p, pitch, WIDTH, HEIGHT, COPY_DEFAULT));
    assert_true(b[1][9] == 9 && b[1][10] == a[1][10] && b[2][0] == a[2][0]);
    expect_error(cudaErrorInvalidPitchValue, cudaMemcpy2D(p, WIDTH - 1, a, WIDTH, WIDTH, HEIGHT, COPY_HOST_TO_DEVICE));
    ok(cudaFree(p));
}

static void boxes_are_copied_plane_by_plane(void **state)
{
    (void)state;
    enum { X = 20, Y = 6, Z = 4 };
    unsigned char a[Z][Y][X], b[Z][Y][X];
    for (size_t i = 0; i < sizeof a; i++)
        ((unsigned char *)a)[i] = pattern(i);
    memset(b, 0, sizeof b);
    struct cudaExtent extent = {X, Y, Z};
    struct cudaPitchedPtr p;
    ok(cudaMalloc3D(&p, extent));
    struct cudaMemcpy3DParms in = {.srcPtr = {a, X, X, Y}, .dstPtr = p, .extent = extent, .kind = COPY_HOST_TO_DEVICE};
    ok(cudaMemcpy3D(&in));
    struct cudaMemcpy3DParms out = {.srcPtr = p, .srcPos = {1, 2, 1}, .dstPtr = {b, X, X, Y}, .dstPos = {1, 2, 1},
                                    .extent = {5, 2, 3}, .kind = COPY_DEVICE_TO_HOST};
    ok(cudaMemcpy3DAsync(&out, NULL));
    ok(cudaDeviceSynchronize());
    for (int z = 0; z < Z; z++)
        for (int y = 0; y < Y; y++)
            for (int x = 0; x < X; x++) {
                bool inside = x >= 1 && x < 6 && y >= 2 && y < 4 && z >= 1;
                assert_int_equal(b[z][y][x], inside ? a[z][y][x] : 0);
            }
    in.kind = 9;
    expect_error(cudaErrorInvalidMemcpyDirection, cudaMemcpy3D(&in));
    ok(cudaFree(p.ptr));
}

static void between_devices(void **state)
{
    (void)state;
    unsigned char *p = NULL, *q = NULL, byte = 0;
    int count = 0;
    ok(cudaGetDeviceCount(&count));
    assert_int_equal(count, 2);
    ok(cudaMalloc((void **)&p, 5000));
    ok(cudaSetDevice(1));
    ok(cudaMalloc((void **)&q, 5000));
    ok(cudaSetDevice(0));
    ok(cudaMemset(p, 77, 5000));
    ok(cudaMemcpyPeer(q, 1, p, 0, 5000));
    ok(cudaMemcpy(&byte, q + 4999, 1, COPY_DEVICE_TO_HOST));
    assert_int_equal(byte, 77);
    struct cudaPointerAttributes attributes;
    ok(cudaPointerGetAttributes(&attributes, q));
    assert_int_equal(attributes.device, 1);
    expect_error(cudaErrorInvalidDevice, cudaMemcpyPeer(q, 5, p, 0, 5000));
    ok(cudaFree(p));
    ok(cudaFree(q));
    cudaGetLastError();
}

/* What nvcc makes of `__device__ int numbers[4];` */
static int numbers[4];

static void variables_are_copied_by_symbol(void **state)
{
    (void)state;
    void **image = __cudaRegisterFatBinary(NULL);
    __cudaRegisterVar(image, (char *)numbers, (char *)"numbers", "numbers", 0, sizeof numbers, 0, 0);
    __cudaRegisterFatBinaryEnd(image);
    int in[2] = {5, 6}, out[4] = {1, 1, 1, 1};
    size_t size = 0;
    void *address = NULL;
    ok(cudaGetSymbolSize(&size, numbers));
    assert_int_equal(size, sizeof numbers);
    ok(cudaMemcpyToSymbol(numbers, in, sizeof in, sizeof(int), COPY_HOST_TO_DEVICE));
    ok(cudaMemcpyFromSymbol(out, numbers, sizeof out, 0, COPY_DEVICE_TO_HOST));
    assert_true(out[0] == 0 && out[1] == 5 && out[2] == 6 && out[3] == 0);
    ok(cudaGetSymbolAddress(&address, numbers));
    ok(cudaMemcpy(out, address, sizeof out, COPY_DEVICE_TO_HOST));
    assert_int_equal(out[2], 6);
    expect_error(cudaErrorInvalidValue, cudaMemcpyToSymbol(numbers, in, sizeof in, 12, COPY_HOST_TO_DEVICE));
    expect_error(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, in));
    __cudaUnregisterFatBinary(image);
    expect_error(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, numbers));
    cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(rectangles_are_copied_row_by_row),
        cmocka_unit_test(boxes_are_copied_plane_by_plane),
        cmocka_unit_test(between_devices),
        cmocka_unit_test(variables_are_copied_by_symbol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
