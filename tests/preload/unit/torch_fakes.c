/* See torch_fakes.h. */
#include "torch_fakes.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "balance.h"

struct fake fake;

static struct sg_core *const core = (struct sg_core *)&fake;

int library_of(const void *address, Dl_info *ret);

/* PyTorch's libraries. */
static uint16_t check_env(const char *name)
{
    EXPECT(!name || strcmp(name, CACHING) == 0 || strcmp(name, "OTHER") == 0);
    return fake.environment;
}

static void check_fail(const char *function, const char *file, uint32_t line, const struct text *message)
{
    EXPECT(strcmp(function, "f") == 0 && strcmp(file, "g") == 0 && line == 7);
    EXPECT(message->length < sizeof fake.thrown);
    memcpy(fake.thrown, message->text, message->length);
    longjmp(fake.caught, 1);
}

static bool has_failed(const void *registry)
{
    EXPECT(registry == &fake);
    return fake.failed;
}

struct torch_stream {
    uint64_t words[2];
};

static struct torch_stream current_stream(int8_t device)
{
    EXPECT(device == -1);
    return (struct torch_stream){{5, 192}};
}

static CUstream handle_of(const struct torch_stream *stream)
{
    EXPECT(stream->words[0] == 5);
    return (CUstream)(uintptr_t)stream->words[1];
}

static int at_thread_end(void (*destructor)(void *), void *object, void *module)
{
    EXPECT(!object && module && !fake.at_thread_end);
    fake.at_thread_end = destructor;
    return 0;
}

struct location { /* c10::SourceLocation */
    const char *function, *file;
    uint32_t line;
};

/* operator new: with a margin, which is nobody's. */
enum { MARGIN = 8, NOBODYS = 0x5a };

static void *allocate(size_t bytes)
{
    char *memory = malloc(bytes + MARGIN);
    EXPECT(memory);
    memset(memory, 0, bytes);
    memset(memory + bytes, NOBODYS, MARGIN);
    return memory;
}

static void construct(void *self, struct location where, struct text *message)
{
    EXPECT(self && strcmp(where.function, "cudaMalloc") == 0 && strlen(message->text) == message->length);
    EXPECT(message->length < sizeof fake.thrown);
    memcpy(fake.thrown, message->text, message->length + 1);
    for (int i = 1; i <= MARGIN; i++)
        EXPECT(message->text[message->length + (size_t)i] == NOBODYS);
    if (fake.takes_text) {
        free(message->text);
        message->text = message->room;
    }
}

static void delete(void *memory)
{
    free(memory);
    fake.deleted++;
}

static void destroy(void *object)
{
    (void)object;
}

static void *vtable[4], *type;

static void throw(void *object, void *of, void (*destructor)(void *))
{
    EXPECT(*(void **)object == vtable + 2 && of == &type && destructor == destroy);
    free(object);
    longjmp(fake.caught, 1);
}

static void *allocator_functions, **allocator = &allocator_functions;

#define FUNCTION(name, function) \
    if (strcmp(symbol, name) == 0) { \
        memcpy(&found, &(void (*)(void)){(void (*)(void))(function)}, sizeof found); \
        return found; \
    }
static void *find(void *handle, const char *symbol)
{
    void *found = NULL;
    void (*meanwhile)(void) = fake.meanwhile;
    fake.meanwhile = NULL;
    if (meanwhile)
        balance_elsewhere(meanwhile);
    if (fake.missing && strcmp(symbol, fake.missing) == 0)
        return NULL;
    if (fake.itself) {
        FUNCTION(CHECK_ENV, ours_of_check_env)
        FUNCTION(CHECK_FAIL, ours_of_check_fail)
        FUNCTION(HAS_FAILED, ours_of_has_failed)
    }
    FUNCTION("__cxa_thread_atexit_impl", at_thread_end)
    if (handle == RTLD_DEFAULT)
        return NULL;
    FUNCTION(CHECK_ENV, check_env)
    FUNCTION(CHECK_FAIL, check_fail)
    FUNCTION(HAS_FAILED, has_failed)
    FUNCTION("_ZN3c104cuda20getCurrentCUDAStreamEa", current_stream)
    FUNCTION("_ZNK3c104cuda10CUDAStream6streamEv", handle_of)
    FUNCTION("_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", construct)
    FUNCTION("__cxa_allocate_exception", malloc)
    FUNCTION("_Znwm", allocate)
    FUNCTION("_ZdlPv", delete)
    FUNCTION("__cxa_throw", throw)
    if (strcmp(symbol, "_ZTVN3c1016OutOfMemoryErrorE") == 0)
        return vtable;
    if (strcmp(symbol, "_ZTIN3c1016OutOfMemoryErrorE") == 0)
        return &type;
    if (strcmp(symbol, "_ZN3c104cuda20CUDACachingAllocator9allocatorE") == 0)
        return (void *)&allocator;
    return NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find;
}

void *sg_library_find(const char *prefix)
{
    EXPECT(strncmp(prefix, "libc10", 6) == 0);
    return fake.none ? NULL : &fake;
}

/* In place of dladdr(). */
int library_of(const void *address, Dl_info *ret)
{
    (void)address;
    ret->dli_fname = fake.allocator_in;
    return fake.allocator_in != NULL;
}

/* The driver. */
static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return fake.current_answer;
}

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.device;
    return fake.device_answer;
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
    void (*meanwhile)(void) = fake.meanwhile;
    EXPECT(device == DEVICE);
    fake.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    *ret = (CUcontext)128;
    fake.retained += fake.retain == CUDA_SUCCESS;
    return fake.retain;
}

static CUresult release(CUdevice device)
{
    EXPECT(device == DEVICE);
    fake.retained--;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    EXPECT(context == (CUcontext)128);
    fake.pushes += fake.push == CUDA_SUCCESS;
    return fake.push;
}

static CUresult pop(CUcontext *ret)
{
    *ret = (CUcontext)128;
    fake.pushes--;
    return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    (void)bytes;
    *ret = 2 * BLOCK;
    return fake.alloc;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    if (fake.info == CUDA_SUCCESS) {
        *ret_free = 1 << 20;
        *ret_total = fake.total;
    }
    return fake.info;
}

const struct sg_driver *sg_process_driver(void)
{
    return fake.no_driver ? NULL : &fake_driver;
}

/* The rest of the library. */
struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : core);
}

bool sg_process_owns(CUdeviceptr address)
{
    EXPECT(address == BLOCK);
    return fake.ours;
}

const struct sg_conf *sg_process_conf(void)
{
    return &fake.conf;
}

void sg_log_line(const char *line)
{
    (void)RECORD(sg_log_line, 0);
    fprintf(stderr, "%s\n", line);
}

CUresult sg_memory_alloc(struct sg_core *asked, size_t bytes, const struct sg_request *request, CUdeviceptr *ret)
{
    EXPECT(asked == core && bytes && request->torch && request->pluggable && request->stream == (CUstream)192);
    fake.allocs++;
    if (fake.alloc == CUDA_SUCCESS)
        *ret = BLOCK;
    return fake.alloc;
}

CUresult sg_contexts_current(struct sg_core *asked, CUcontext *ret, int *ret_device)
{
    EXPECT(asked == core);
    *ret = (CUcontext)128;
    if (fake.contexts == CUDA_SUCCESS)
        *ret_device = DEVICE;
    return fake.contexts;
}

bool sg_core_stats(struct sg_core *asked, int device, struct sg_stats *ret)
{
    (void)asked, (void)device;
    *ret = (struct sg_stats){0};
    ret->value[SG_STAT_allocated_bytes] = 3 << 20;
    ret->value[SG_STAT_reserved_bytes] = 8 << 20;
    return !fake.no_stats;
}

int get_last_error(void)
{
    fake.errors_forgotten++;
    return 0;
}

void expect_end(void (*test)(void), int status, const char *said)
{
    char text[512] = "";
    int ends[2], got;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        test();
        exit(0);
    }
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(waitpid(child, &got, 0), child);
    assert_string_equal(text, said);
    assert_int_equal(WIFEXITED(got) ? WEXITSTATUS(got) : -WTERMSIG(got), status);
}

bool sg_torch_overrides_take(void)
{
    return fake.has_switch;
}

struct sg_torch_allocator sg_torch_allocator;

bool sg_torch_allocator_cache(bool on)
{
    fake.cache_on = on;
    return fake.has_switch;
}

CUresult sg_core_block(struct sg_core *asked, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)asked, (void)address;
    *ret = (struct sg_block_info){.base = BLOCK, .device = DEVICE};
    return CUDA_SUCCESS;
}

/* Where calls are of the one block and the one device, that is so of each. */
static uint64_t answer(const struct fakes_function *function, uint64_t result)
{
    const char *name = function->name;
    const uint64_t *given = function->argument;
    if (strcmp(name, "sg_memory_free") == 0)
        EXPECT(POINTER(sg_memory_free, 0) == core && given[1] == BLOCK &&
               BEHIND(sg_memory_free, struct sg_request).pluggable);
    else if (strcmp(name, "sg_memory_free_passthrough") == 0)
        EXPECT(given[0] == BLOCK && BEHIND(sg_memory_free_passthrough, struct sg_request).pluggable);
    else if (strcmp(name, "sg_torch_counts_oom") == 0)
        EXPECT(given[0] == DEVICE);
    else if (strcmp(name, "sg_torch_observers_call") == 0)
        EXPECT(given[0] == DEVICE && given[3] == 1 << 20 && given[2] == fake.total);
    else if (strcmp(name, "sg_library_close") == 0)
        EXPECT(given[0] == (uintptr_t)&fake);
    return result;
}

void start_afresh(void)
{
    memset(&fake, 0, sizeof fake);
    fakes_reset(answer);
    fake_driver.ctx_get_current = get_current;
    fake_driver.ctx_get_device = get_device;
    fake_driver.primary_retain = retain;
    fake_driver.primary_release = release;
    fake_driver.ctx_push = push;
    fake_driver.ctx_pop = pop;
    fake_driver.mem_alloc = mem_alloc;
    fake_driver.mem_info = mem_info;
    ANSWER(sg_torch_allocator_empty, true);
}

void apart(void (*test)(void))
{
    start_afresh();
    fake.conf.pytorch = SG_PYTORCH_DIRECT;
    vtable[2] = NULL;
    memcpy(&vtable[2], &(void (*)(void *)){destroy}, sizeof vtable[2]);
    expect_end(test, 0, "");
}
