/* See fakes.h. */
#include "fakes.h"

#include "process/process.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { FUNCTIONS_MOST = 1024 };

static struct fakes_function functions[FUNCTIONS_MOST];
static int function_count;
static uint64_t now;
static fakes_answer_fn *answer;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct fakes_function *fakes_function(const char *name)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < function_count && strcmp(functions[i].name, name) != 0)
        i++;
    assert(i < FUNCTIONS_MOST);
    if (i == function_count) {
        functions[i].name = name;
        functions[i].kind = strncmp(name, "fake_driver.", 12) == 0 ? FAKES_DRIVER
                            : strncmp(name, "fake_real.", 10) == 0 ? FAKES_REAL : FAKES_LIBRARY;
        function_count++;
    }
    pthread_mutex_unlock(&lock);
    return &functions[i];
}

uint64_t fakes_call(struct fakes_function *function, int count, const uint64_t *arguments)
{
    pthread_mutex_lock(&lock);
    function->calls++;
    function->when = ++now;
    memcpy(function->argument, arguments, (size_t)count * sizeof *arguments);
    uint64_t result = function->first > 0 ? function->first_result : function->result;
    function->first -= function->first > 0;
    pthread_mutex_unlock(&lock);
    return answer ? answer(function, result) : result;
}

void fakes_keep(struct fakes_function *function, const void *from, size_t bytes)
{
    assert(bytes <= sizeof function->kept);
    if (from)
        memcpy(function->kept, from, bytes);
}

void fakes_answer(const char *name, uint64_t result)
{
    fakes_function(name)->result = result;
}

void fakes_answer_first(const char *name, int times, uint64_t result)
{
    struct fakes_function *function = fakes_function(name);
    function->first = times;
    function->first_result = result;
}

static void forget(struct fakes_function *function)
{
    function->calls = 0;
    function->when = 0;
    memset(function->argument, 0, sizeof function->argument);
    memset(function->kept, 0, sizeof function->kept);
}

void fakes_forget(const char *name)
{
    forget(fakes_function(name));
}

void fakes_forget_all(void)
{
    for (int i = 0; i < function_count; i++)
        forget(&functions[i]);
}

bool fakes_is_before(const char *name, const char *other)
{
    uint64_t when = fakes_function(name)->when;
    return when && when < fakes_function(other)->when;
}

/* The driver's functions take as many arguments as any has, so all can be made alike. */
typedef CUresult any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
    uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

#define FAKE(table, name)                                                                                             \
    static CUresult table##_##name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,      \
        uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l, uintptr_t m, uintptr_t n)       \
    {                                                                                                                 \
        static struct fakes_function *self;                                                                           \
        self = self ? self : fakes_function("fake_" #table "." #name);                                                \
        return (CUresult)fakes_call(self, FAKES_ARGUMENTS, (const uint64_t[]){a, b, c, d, e, f, g, h, i, j, k, l, m, n}); \
    }
#define CALL(name, symbol, need, parameters) FAKE(driver, name)
#include "driver/calls.def"
#define HOOK(symbol, base, version, threads, parameters) FAKE(real, symbol)
#include "process/hooks.def"

struct sg_driver fake_driver;
struct sg_real fake_real;

__attribute__((constructor)) static void fill_tables(void)
{
    any_call *call;
#define CALL(name, symbol, need, parameters) \
    call = driver_##name;                    \
    memcpy(&fake_driver.name, &call, sizeof call);
#include "driver/calls.def"
#define HOOK(symbol, base, version, threads, parameters) \
    call = real_##symbol;                                \
    memcpy(&fake_real.symbol, &call, sizeof call);
#include "process/hooks.def"
}

void fakes_reset(fakes_answer_fn *on_call)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < function_count; i++) {
        struct fakes_function *function = &functions[i];
        *function = (struct fakes_function){.name = function->name, .kind = function->kind};
    }
    now = 0;
    answer = on_call;
    pthread_mutex_unlock(&lock);
    fill_tables();
}

const struct sg_real *sg_real(void);
__attribute__((weak)) const struct sg_real *sg_real(void)
{
    return &fake_real;
}

const struct sg_driver *sg_process_driver(void);
__attribute__((weak)) const struct sg_driver *sg_process_driver(void)
{
    return &fake_driver;
}

/* The other ways into the library are the one that a test has of its own. */
__attribute__((weak)) struct sg_core *sg_enter_allocation(void)
{
    return sg_enter();
}

__attribute__((weak)) struct sg_core *sg_enter_traced(void)
{
    return sg_enter_allocation();
}
