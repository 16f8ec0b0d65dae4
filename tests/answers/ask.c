/* What libcuda.so.1 answers, for comparisons of NVIDIA's drivers, the simulated one and the library over each.
   usage: ask names  < NAMES     cuGetProcAddress in both forms and dlsym, for each name
          ask codes  < SYMBOLS   results of each exported function while there is no device
          ask errors             names and texts of errors
   Lines of `names`, with runs of versions that are answered alike ("2000-3010"):
     D NAME SYMBOL|-                      what dlsym finds
     1 NAME FLAGS VERSIONS:RESULT,SYMBOL …          the form of CUDA 11.3
     2 NAME FLAGS VERSIONS:RESULT,STATUS,SYMBOL …   the form of CUDA 12.0
   SYMBOL is the exported name of the function; "-" is NULL and "=" an output that was not written. A "*" behind it says that
   another library than libcuda has it.
   Lines of `codes`: SYMBOL STATE ANSWER…, one answer for each of the argument kinds below: the result, or S and the
   signal. "/" and a number follow where memory was written: a bit for each argument that pointed to it.
   Lines of `errors`: CODE RESULT NAME RESULT TEXT. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    UNTOUCHED = 1,
    STATUS_BEFORE = -77,
    NAME_MAX_LENGTH = 200,
    ARGUMENTS = 12,
    SINGLED_OUT = 9, /* arguments that differ from the rest in a kind of their own */
    KINDS = 2 + 2 * SINGLED_OUT,
    ROOM = 4096, /* for what a call writes through one argument */
    SECONDS_OF_A_FUNCTION = 30,
    FLAGS = 4,
};

/* Before cuInit; after it failed; after it failed in a thread that ended. */
enum state { FRESH, FAILED, FAILED_ELSEWHERE, STATES };

typedef int ask_2(const char *, void **, int, unsigned long long, int *);
typedef int ask_1(const char *, void **, int, unsigned long long);
typedef int init_fn(unsigned);
typedef int text_fn(int, const char **);
typedef int any_fn(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

static void *driver;

/* Every version at which a function of CUDA changed, some between, and some that are none. */
static const int versions[] = {-1, 0, 1, 1999, 2000, 2010, 2020, 2030, 3000, 3010, 3019, 3020, 4000, 4010, 4020, 5000,
    5050, 6000, 6050, 6999, 7000, 7050, 8000, 9000, 9010, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040,
    11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020,
    13040, 13050, 14000, 99999, 2147483647};
enum { VERSIONS = sizeof versions / sizeof *versions };

static const char *library_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void name_of(void *function, char ret[NAME_MAX_LENGTH])
{
    Dl_info info;
    if (!function || function == (void *)UNTOUCHED)
        strcpy(ret, function ? "=" : "-");
    else if (!dladdr(function, &info) || !info.dli_sname || info.dli_saddr != function)
        strcpy(ret, "?");
    else
        snprintf(ret, NAME_MAX_LENGTH, "%s%s", info.dli_sname,
            strncmp(library_of(info.dli_fname), "libcuda.so", 10) == 0 ? "" : "*");
}

/* One answer as text, "0,0,cuMemAlloc_v2". */
static void answer_2(ask_2 *ask, const char *name, int version, int flags, char *ret, size_t room)
{
    void *function = (void *)UNTOUCHED;
    char symbol[NAME_MAX_LENGTH];
    int status = STATUS_BEFORE, result = ask(name, &function, version, (unsigned long long)flags, &status);
    name_of(function, symbol);
    snprintf(ret, room, "%d,%d,%s", result, status, symbol);
}

static void answer_1(ask_1 *ask, const char *name, int version, int flags, char *ret, size_t room)
{
    void *function = (void *)UNTOUCHED;
    char symbol[NAME_MAX_LENGTH];
    int result = ask(name, &function, version, (unsigned long long)flags);
    name_of(function, symbol);
    snprintf(ret, room, "%d,%s", result, symbol);
}

static void print_runs(int form, const char *name, int flags, ask_1 *one, ask_2 *two)
{
    char before[2 * NAME_MAX_LENGTH] = "", now[2 * NAME_MAX_LENGTH];
    int first = 0;
    printf("%d %s %d", form, name, flags);
    for (int i = 0; i <= VERSIONS; i++) {
        if (i < VERSIONS && form == 1)
            answer_1(one, name, versions[i], flags, now, sizeof now);
        else if (i < VERSIONS)
            answer_2(two, name, versions[i], flags, now, sizeof now);
        if (i == VERSIONS || (i && strcmp(before, now) != 0)) {
            printf(" %d..%d:%s", versions[first], versions[i - 1], before);
            first = i;
        }
        strcpy(before, now);
    }
    putchar('\n');
}

static void *look_up(const char *name)
{
    return dlsym(driver, name);
}

static void names(void)
{
    char name[NAME_MAX_LENGTH], symbol[NAME_MAX_LENGTH];
    void *found = look_up("cuGetProcAddress");
    ask_1 *one;
    ask_2 *two;
    memcpy(&one, &found, sizeof one);
    found = look_up("cuGetProcAddress_v2");
    memcpy(&two, &found, sizeof two);
    while (scanf("%199s", name) == 1) {
        name_of(look_up(name), symbol);
        printf("D %s %s\n", name, symbol);
        for (int flags = 0; flags < FLAGS; flags++) {
            if (one)
                print_runs(1, name, flags, one, NULL);
            if (two)
                print_runs(2, name, flags, NULL, two);
        }
    }
}

static void initialize(void)
{
    init_fn *init;
    void *symbol = look_up("cuInit");
    memcpy(&init, &symbol, sizeof init);
    init(0);
}

static void *initialize_here(void *user)
{
    initialize();
    return user;
}

struct shared {
    char memory[ARGUMENTS][ROOM];
    int result[KINDS];
    unsigned written[KINDS];
    int asked; /* kinds of which the answer is there, and the one under way */
};

/* Kind 0: all arguments 0. 1: all point to zeroed bytes. The rest as 0 or 1 but for one argument. */
static void arguments(struct shared *shared, int kind, char *ret[ARGUMENTS])
{
    for (int i = 0; i < ARGUMENTS; i++)
        ret[i] = kind % 2 ? shared->memory[i] : NULL;
    if (kind >= 2) {
        int other = (kind - 2) / 2;
        ret[other] = kind % 2 ? NULL : shared->memory[other];
    }
}

static unsigned written(const struct shared *shared)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < ARGUMENTS; i++)
        for (size_t at = 0; at < ROOM; at++)
            bits |= shared->memory[i][at] ? 1u << i : 0;
    return bits;
}

static void ask_from(struct shared *shared, const char *symbol, enum state state)
{
    pthread_t thread;
    any_fn *call;
    void *function = look_up(symbol);
    memcpy(&call, &function, sizeof call);
    alarm(SECONDS_OF_A_FUNCTION);
    if (state == FAILED)
        initialize();
    if (state == FAILED_ELSEWHERE && pthread_create(&thread, NULL, initialize_here, NULL) == 0)
        pthread_join(thread, NULL);
    for (int kind = shared->asked; kind < KINDS; kind++) {
        char *a[ARGUMENTS];
        memset(shared->memory, 0, sizeof shared->memory);
        arguments(shared, kind, a);
        if (strcmp(symbol, "cuInit") == 0)
            a[0] = NULL;
        shared->asked = kind + 1;
        shared->result[kind] = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
        shared->written[kind] = written(shared);
    }
}

/* A child that ends by a signal has asked what it asked last; another goes on after that. */
static void ask_code(struct shared *shared, const char *symbol, enum state state)
{
    shared->asked = 0;
    printf("%s %d", symbol, state);
    for (int done = 0; done < KINDS; done = shared->asked) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            ask_from(shared, symbol, state);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            exit(1);
        int answered = WIFSIGNALED(status) ? shared->asked - 1 : shared->asked;
        for (int kind = done; kind < answered; kind++) {
            printf(shared->written[kind] ? " %d/%u" : " %d", shared->result[kind], shared->written[kind]);
        }
        if (WIFSIGNALED(status))
            printf(" S%d", WTERMSIG(status));
        if (shared->asked == done) /* it ended before its first question */
            break;
    }
    putchar('\n');
}

static void codes(void)
{
    char symbol[NAME_MAX_LENGTH];
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit(1);
    prctl(PR_SET_DUMPABLE, 0);
    while (scanf("%199s", symbol) == 1)
        for (int state = FRESH; look_up(symbol) && state < STATES; state++)
            ask_code(shared, symbol, (enum state)state);
}

static void errors(void)
{
    text_fn *name, *text;
    void *found = look_up("cuGetErrorName");
    memcpy(&name, &found, sizeof name);
    found = look_up("cuGetErrorString");
    memcpy(&text, &found, sizeof text);
    for (int code = -1; code < 1002; code++) {
        const char *named = "=", *said = "=";
        int first = name(code, &named), second = text(code, &said);
        printf("%d %d %s %d %s\n", code, first, named ? named : "-", second, said ? said : "-");
    }
}

int main(int argc, char **argv)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (argc == 2 && strcmp(argv[1], "names") == 0)
        names();
    else if (argc == 2 && strcmp(argv[1], "codes") == 0)
        codes();
    else if (argc == 2 && strcmp(argv[1], "errors") == 0)
        errors();
    else
        return 2;
    return fflush(stdout) != 0;
}
