/* Contents on their way to the host and back: which calls of the driver are made, in which order. The driver here writes a letter
   for each, and touches no memory:

     R registers a chunk   D copies to the host   H copies from there   W waits   C waits for all of the context   U ends a registration

   Chunks have 256 MiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "process/log.h"
#include "process/process.h"
#include "serve/contents.h"
#include "serve/contents_file.h"
#include "services/hazard_annotations.h"

#define MIB ((uint64_t)1 << 20)

_Atomic unsigned sg_fast_path_epoch;

void sg_log_line(const char *text)
{
    (void)text;
}

void sg_annotate_upkeep(bool on)
{
    (void)on;
}

/* Nothing goes to files. */
CUresult sg_contents_file_save(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    (void)contents, (void)pieces, (void)count;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sg_contents_file_restore(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    (void)contents, (void)pieces, (void)count;
    return CUDA_ERROR_NOT_SUPPORTED;
}

bool sg_contents_file_has(const struct sg_contents *contents)
{
    (void)contents;
    return false;
}

void sg_contents_file_end(const struct sg_contents *contents)
{
    (void)contents;
}

void sg_contents_file_freed(CUdeviceptr address)
{
    (void)address;
}

static char calls[64];
static unsigned registrations, refuses_from, waits, fails_at; /* from which one on they are refused, or fail; 0: none */
static uint64_t copied;

static void note(char call)
{
    size_t length = strlen(calls);
    assert_true(length + 1 < sizeof calls);
    calls[length] = call;
}

static CUresult stream_create(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)1;
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    note('W');
    return fails_at && ++waits >= fails_at ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult ctx_synchronize(void)
{
    note('C');
    return CUDA_SUCCESS;
}

static CUresult host_register(void *host, size_t bytes, unsigned flags)
{
    (void)host, (void)flags;
    note('R');
    assert_true(bytes > 0 && bytes <= 256 * MIB);
    return refuses_from && ++registrations >= refuses_from ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult host_unregister(void *host)
{
    (void)host;
    note('U');
    return CUDA_SUCCESS;
}

static CUresult copy_to_host(void *host, CUdeviceptr device, size_t bytes, CUstream stream)
{
    (void)host, (void)device, (void)stream;
    note('D');
    copied += bytes;
    return CUDA_SUCCESS;
}

static CUresult copy_from_host(CUdeviceptr device, const void *host, size_t bytes, CUstream stream)
{
    (void)host, (void)device, (void)stream;
    note('H');
    copied += bytes;
    return CUDA_SUCCESS;
}

static CUresult set_words(CUdeviceptr device, unsigned value, size_t words, CUstream stream)
{
    (void)device, (void)value, (void)words, (void)stream;
    return CUDA_SUCCESS;
}

static const struct sg_driver driver = {.stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .ctx_synchronize = ctx_synchronize,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .copy_to_host_async = copy_to_host,
    .copy_from_host_async = copy_from_host,
    .set_async = set_words};

static struct sg_contents contents = {.driver = &driver, .tag = 1, .name = "weights"};

static int begin(void **state)
{
    (void)state;
    memset(calls, 0, sizeof calls);
    registrations = refuses_from = waits = fails_at = 0;
    copied = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    sg_contents_end(&contents, false);
    return 0;
}

/* The host clears the pages of the next chunk while the device copies to this one. Only what is copied is waited for. */
static void next_chunk_is_registered_beside_copies(void **state)
{
    const struct sg_memory_piece pieces[] = {{0x7f0000000000, 300 * MIB}, {0x7f0020000000, 212 * MIB},
        {0x7f0040000000, 5}};
    (void)state;
    assert_int_equal(sg_contents_save(&contents, pieces, 3), CUDA_SUCCESS);
    assert_string_equal(calls, "RDRWDDRWDW");
    assert_int_equal(copied, 512 * MIB + 5);
}

/* The way home has all registered. It is waited for by the chunk, so that a line says how far it has come. */
static void copies_home_register_nothing(void **state)
{
    const struct sg_memory_piece pieces[] = {{0x7f0000000000, 300 * MIB}, {0x7f0020000000, 212 * MIB},
        {0x7f0040000000, 5}};
    (void)state;
    assert_int_equal(sg_contents_save(&contents, pieces, 3), CUDA_SUCCESS);
    memset(calls, 0, sizeof calls);
    assert_int_equal(sg_contents_restore(&contents, pieces, 3), CUDA_SUCCESS);
    assert_string_equal(calls, "HWHHWHW");
    assert_int_equal(copied, 2 * (512 * MIB + 5));
    memset(calls, 0, sizeof calls);
    sg_contents_end(&contents, false);
    assert_string_equal(calls, "UUU");
}

/* Copies do without. */
static void refused_chunk_is_copied_all_the_same(void **state)
{
    const struct sg_memory_piece piece = {0x7f0000000000, 600 * MIB};
    (void)state;
    refuses_from = 2;
    assert_int_equal(sg_contents_save(&contents, &piece, 1), CUDA_SUCCESS);
    assert_int_equal(copied, 600 * MIB);
    memset(calls, 0, sizeof calls);
    sg_contents_end(&contents, false);
    assert_string_equal(calls, "U");
}

/* Host memory and pages go back after an error, so all that is under way is waited for. */
static void failed_wait_is_made_again(void **state)
{
    const struct sg_memory_piece piece = {0x7f0000000000, 300 * MIB};
    (void)state;
    fails_at = 2;
    assert_int_equal(sg_contents_save(&contents, &piece, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(calls, "RDRWDWWC");
    assert_false(sg_contents_are_saved(&contents));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(next_chunk_is_registered_beside_copies, begin,
                                           end),
        cmocka_unit_test_setup_teardown(copies_home_register_nothing, begin, end),
        cmocka_unit_test_setup_teardown(refused_chunk_is_copied_all_the_same, begin, end),
        cmocka_unit_test_setup_teardown(failed_wait_is_made_again, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
