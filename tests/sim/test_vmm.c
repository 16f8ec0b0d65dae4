#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

static CUmemGenericAllocationHandle create(size_t size)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    ok(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t size)
{
    CUdeviceptr address;
    ok(cuMemAddressReserve(&address, size, 0, 0, 0));
    return address;
}

static void map(CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle)
{
    ok(cuMemMap(address, size, 0, handle, 0));
}

static void open_up(CUdeviceptr address, size_t size)
{
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuMemSetAccess(address, size, &access, 1));
}

static void granularity_is_a_page_and_wrong_questions_are_refused(void **state)
{
    (void)state;
    size_t granule = 0;
    CUmemAllocationProp prop = on_device(0), none = on_device(9), host_prop = on_device(0);
    ok(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granule, PAGE);
    ok(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    assert_int_equal(granule, PAGE);
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuMemGetAllocationGranularity(&granule, &none, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(NULL, &prop, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&granule, NULL, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&granule, &prop, 2));
    host_prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&granule, &host_prop, 0));
}

static void wrong_reservations_are_refused(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, 0, 0, 0, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, PAGE + 1, 0, 0, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, PAGE, 3, 0, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(NULL, PAGE, 0, 0, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, PAGE, 0, 0, 1));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&a, (size_t)1 << 50, 0, 0, 0));
    ok(cuMemAddressReserve(&a, 4 * PAGE, 0, 0, 0));
    assert_int_equal(a % PAGE, 0);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 2 * PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a + PAGE, 3 * PAGE));
    ok(cuMemAddressFree(a, 4 * PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 4 * PAGE));
    ok(cuMemAddressReserve(&b, PAGE, 0, a, 0)); /* the hint is free again, and taken */
    assert_int_equal(a, b);
    ok(cuMemAddressReserve(&a, PAGE, 1 << 30, 0, 0));
    assert_int_equal(a % (1 << 30), 0);
    ok(cuMemAddressFree(a, PAGE));
    ok(cuMemAddressFree(b, PAGE));
}

static void handles_take_and_give_back_memory(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0), wrong = on_device(0);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &prop, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE + 4096, &prop, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &prop, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, NULL, 0));
    wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &wrong, 0));
    wrong = on_device(7);
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, PAGE, &wrong, 0));
    wrong = on_device(0);
    wrong.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, PAGE, &wrong, 0));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, before + PAGE, &prop, 0));
    assert_int_equal(free_bytes(), before);
    ok(cuMemCreate(&handle, before, &prop, 0)); /* all of it */
    assert_int_equal(free_bytes(), 0);
    CUmemAllocationProp seen;
    ok(cuMemGetAllocationPropertiesFromHandle(&seen, handle));
    assert_int_equal(seen.location.id, 0);
    ok(cuMemRelease(handle));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemRelease(12345));
    assert_int_equal(free_bytes(), before);
}

static void mappings_overlap_nothing_and_end_whole(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle one = create(PAGE), four = create(4 * PAGE);
    CUdeviceptr base = reserve(8 * PAGE);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, PAGE, PAGE, four, 0)); /* the offset must be 0 */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * PAGE, 0, one, 0)); /* larger than it is */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 4096, PAGE, 0, one, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 4096, 0, one, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, PAGE, 0, 0, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 7 * PAGE, 4 * PAGE, 0, four, 0)); /* beyond the end */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(PAGE, PAGE, 0, one, 0));                 /* nobody's address */
    map(base, 4 * PAGE, four);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 3 * PAGE, PAGE, 0, one, 0)); /* taken */
    map(base + 4 * PAGE, PAGE, one);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 8 * PAGE)); /* something is mapped */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, PAGE));           /* part of a mapping */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + PAGE, 3 * PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 6 * PAGE)); /* a gap at the end */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + 5 * PAGE, PAGE));
    ok(cuMemUnmap(base, 5 * PAGE)); /* two entire mappings */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 4 * PAGE));
    ok(cuMemRelease(one));
    ok(cuMemRelease(four));
    ok(cuMemAddressFree(base, 8 * PAGE));
}

static void access_rights(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(4 * PAGE);
    CUdeviceptr base = reserve(8 * PAGE);
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ), bad = access_of(0, 2);
    unsigned long long flags = 9;
    map(base, 4 * PAGE, handle);
    ok(cuMemGetAccess(&flags, &here, base));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE); /* nobody, at first */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(base, 1, PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 5 * PAGE, &access, 1)); /* not all of it mapped */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, PAGE, &bad, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, PAGE, NULL, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, PAGE, &access, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base + 4096, PAGE, &access, 1));
    open_up(base, 4 * PAGE);
    ok(cuMemSetAccess(base + PAGE, PAGE, &access, 1)); /* a part */
    ok(cuMemGetAccess(&flags, &here, base + PAGE));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    ok(cuMemGetAccess(&flags, &here, base + 2 * PAGE));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(base, 1, 2 * PAGE));
    ok(cuMemsetD8_v2(base, 1, PAGE));
    ok(cuMemsetD8_v2(base + 2 * PAGE, 2, 2 * PAGE));
    ok(cuCtxSynchronize());
    assert_int_equal(((unsigned char *)host(base))[PAGE - 1], 1);
    assert_int_equal(((unsigned char *)host(base))[PAGE], 0);
    assert_int_equal(((unsigned char *)host(base))[4 * PAGE - 1], 2);
    open_up(base, 4 * PAGE);
    ok(cuMemsetD8_v2(base, 3, 4 * PAGE));
    ok(cuCtxSynchronize());
    ok(cuMemUnmap(base, 4 * PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, base));
    ok(cuMemRelease(handle));
    ok(cuMemAddressFree(base, 8 * PAGE));
}

static void memory_goes_with_the_last_reference(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create(PAGE), again, other;
    CUdeviceptr base = reserve(2 * PAGE);
    map(base, PAGE, handle);
    ok(cuMemRelease(handle)); /* at once after the mapping, as most programs do */
    assert_int_equal(free_bytes(), before - PAGE);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + PAGE, PAGE, 0, handle, 0));
    open_up(base, PAGE);
    memset(host(base), 5, PAGE);
    ok(cuMemRetainAllocationHandle(&again, (char *)host(base) + 100));
    assert_int_equal(again, handle);
    ok(cuMemRetainAllocationHandle(&other, host(base)));
    ok(cuMemUnmap(base, PAGE));
    ok(cuMemRelease(other));
    assert_int_equal(free_bytes(), before - PAGE);
    map(base + PAGE, PAGE, again);
    open_up(base + PAGE, PAGE);
    assert_int_equal(((unsigned char *)host(base + PAGE))[PAGE - 1], 5);
    ok(cuMemUnmap(base + PAGE, PAGE));
    ok(cuMemRelease(again));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, host(base)));
    assert_int_equal(free_bytes(), before);
    ok(cuMemAddressFree(base, 2 * PAGE));
}

static void one_page_at_two_addresses(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(PAGE);
    CUdeviceptr a = reserve(PAGE), b = reserve(PAGE);
    map(a, PAGE, handle);
    map(b, PAGE, handle);
    open_up(a, PAGE);
    open_up(b, PAGE);
    strcpy(host(a + 77), "the same bytes");
    assert_string_equal(host(b + 77), "the same bytes");
    ok(cuMemUnmap(a, PAGE));
    ok(cuMemRelease(handle));
    assert_string_equal(host(b + 77), "the same bytes");
    ok(cuMemUnmap(b, PAGE));
    ok(cuMemAddressFree(a, PAGE));
    ok(cuMemAddressFree(b, PAGE));
}

static void what_queries_say(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle = create(PAGE);
    CUdeviceptr base = reserve(4 * PAGE), start;
    size_t size;
    map(base + PAGE, PAGE, handle);
    open_up(base + PAGE, PAGE);
    ok(cuMemGetAddressRange_v2(&start, &size, base + PAGE + 5)); /* the mapping */
    assert_int_equal(start, base + PAGE);
    assert_int_equal(size, PAGE);
    expect_error(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&start, &size, base));
    ok(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + PAGE));
    ok(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + PAGE));
    assert_int_equal(start, base); /* the reservation */
    assert_int_equal(size, 4 * PAGE);
    unsigned char legacy = 1, mapped = 0;
    ok(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base + PAGE));
    assert_int_equal(legacy, 0);
    ok(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, base + PAGE));
    assert_int_equal(mapped, 1);
    ok(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, base));
    assert_int_equal(mapped, 0);
    unsigned one = 1;
    expect_error(CUDA_ERROR_NOT_SUPPORTED,
        cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base + PAGE));
    CUipcMemHandle ipc;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&ipc, base + PAGE));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(base + PAGE));
    ok(cuMemUnmap(base + PAGE, PAGE));
    ok(cuMemRelease(handle));
    ok(cuMemAddressFree(base, 4 * PAGE));
}

static CUmemGenericAllocationHandle create_shareable(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    return handle;
}

static void export_and_import(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle plain = create(PAGE), handle = create_shareable(), imported;
    int fd = -1;
    expect_error(CUDA_ERROR_INVALID_VALUE,
        cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_true(fd >= 0);
    ok(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    expect_error(CUDA_ERROR_INVALID_VALUE,
        cuMemImportFromShareableHandle(&plain, (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ok(cuMemRelease(handle));
    assert_int_equal(free_bytes(), before - 2 * PAGE); /* the import keeps it, and is not counted twice */
    CUdeviceptr base = reserve(PAGE);
    map(base, PAGE, imported);
    open_up(base, PAGE);
    memset(host(base), 1, PAGE);
    ok(cuMemUnmap(base, PAGE));
    ok(cuMemRelease(imported));
    ok(cuMemRelease(plain));
    ok(cuMemAddressFree(base, PAGE));
    close(fd);
    assert_int_equal(free_bytes(), before);
}

/* Each copy of a descriptor holds the memory after the last release of its handle, until it is closed. */
static void a_descriptor_keeps_the_memory(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create_shareable(), imported;
    CUmemAllocationProp prop = on_device(0);
    int fd = -1, other = -1;
    ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ok(cuMemExportToShareableHandle(&other, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    int copy = dup(fd);
    ok(cuMemRelease(handle));
    close(fd);
    close(other);
    assert_int_equal(free_bytes(), before - PAGE);
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, before, &prop, 0));
    ok(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)copy, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(copy);
    assert_int_equal(free_bytes(), before - PAGE); /* the import keeps it too */
    ok(cuMemRelease(imported));
    ok(cuMemCreate(&handle, before, &prop, 0)); /* all of it is free, and this call finds that by itself */
    ok(cuMemRelease(handle));
    handle = create_shareable();
    ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    ok(cuMemRelease(handle));
    assert_int_equal(free_bytes(), before);
}

/* Two fresh processes: this one has called CUDA, so its children cannot. */
static void another_process_imports(void **state)
{
    (void)state;
    int results;
    pid_t exporter = fork();
    if (exporter == 0)
        execl("/proc/self/exe", "test_vmm", "--import", NULL);
    assert_true(exporter > 0);
    assert_int_equal(waitpid(exporter, &results, 0), exporter);
    assert_int_equal(results, 0);
}

static CUdeviceptr map_shared(int fd)
{
    CUmemGenericAllocationHandle handle;
    ok(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr base = reserve(PAGE);
    map(base, PAGE, handle);
    open_up(base, PAGE);
    return base;
}

/* The exporter is the child of this process, and is gone by the time its memory is read here. */
static int import_from_child(void)
{
    int channel[2], results;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
        return 2;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    pid_t child = fork();
    use_device_0(NULL);
    if (child == 0) {
        int fd;
        ok(cuMemExportToShareableHandle(&fd, create_shareable(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        strcpy(host(map_shared(fd)), "from the other process");
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        _exit(sendmsg(channel[0], &message, 0) == 1 ? 0 : 3);
    }
    if (waitpid(child, &results, 0) != child || results != 0 || recvmsg(channel[1], &message, 0) != 1)
        return 4;
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return strcmp(host(map_shared(fd)), "from the other process") == 0 ? 0 : 5;
}

/* Handles in the order that keeps the kernel from merging anything, too: a process may have 65,530 mappings. */
static void eighty_gib_in_small_pages(void **state)
{
    (void)state;
    size_t total = free_bytes(), count = total / PAGE;
    assert_int_equal(total, 80 * GIB);
    for (int backwards = 0; backwards < 2; backwards++) {
        CUdeviceptr base = reserve(total);
        for (size_t i = 0; i < count; i++) {
            CUmemGenericAllocationHandle handle = create(PAGE);
            map(base + (backwards ? count - 1 - i : i) * PAGE, PAGE, handle);
            ok(cuMemRelease(handle));
        }
        assert_int_equal(free_bytes(), 0);
        open_up(base, total);
        ((char *)host(base))[0] = 1;
        ((char *)host(base))[total - 1] = 2;
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp prop = on_device(0);
        expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, PAGE, &prop, 0));
        ok(cuMemUnmap(base, total));
        ok(cuMemAddressFree(base, total));
        assert_int_equal(free_bytes(), total);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--import") == 0)
        return import_from_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(granularity_is_a_page_and_wrong_questions_are_refused),
        cmocka_unit_test(wrong_reservations_are_refused),
        cmocka_unit_test(handles_take_and_give_back_memory),
        cmocka_unit_test(mappings_overlap_nothing_and_end_whole),
        cmocka_unit_test(access_rights),
        cmocka_unit_test(memory_goes_with_the_last_reference),
        cmocka_unit_test(one_page_at_two_addresses),
        cmocka_unit_test(what_queries_say),
        cmocka_unit_test(export_and_import),
        cmocka_unit_test(a_descriptor_keeps_the_memory),
        cmocka_unit_test(another_process_imports),
        cmocka_unit_test(eighty_gib_in_small_pages),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
