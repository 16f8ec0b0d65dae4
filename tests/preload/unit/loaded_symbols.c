/* A library of many symbols, so that chains of its tables have several. Built three times: test_loaded_code.c. */
#define EXPORTED __attribute__((visibility("default")))
#define ONE(name)            \
    EXPORTED int name(void); \
    EXPORTED int name(void)  \
    {                        \
        return __COUNTER__;  \
    }
#define TEN(name)                                                                                           \
    ONE(name##0)                                                                                            \
    ONE(name##1) ONE(name##2) ONE(name##3) ONE(name##4) ONE(name##5) ONE(name##6) ONE(name##7) ONE(name##8) \
        ONE(name##9)

TEN(cuInit)
TEN(cuMemAlloc)
TEN(cuMemAlloc_v)
TEN(cuStream)
TEN(cuEvent)
ONE(cuInit)
EXPORTED int cuAlias(void) __attribute__((alias("cuInit")));

static int one(void)
{
    return 1;
}
EXPORTED int cuChosen(void) __attribute__((ifunc("choose")));
/* clang counts no use by the loader. */
__attribute__((used)) static __typeof__(one) *choose(void)
{
    return one;
}

extern int getpid(void);
EXPORTED int cuCalls(void);
EXPORTED int cuCalls(void)
{
    return getpid(); /* a name in the table that is not defined here */
}
