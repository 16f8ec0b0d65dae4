/* A thread inside dlopen(), whose library's constructor allocates, beside other threads' first call of the runtime. The
   runtime looks up the driver's names under a lock of its own, and the constructor waits for that lock with the
   loader's held. None of those look-ups may wait for the loader. Built twice: WITH_CONSTRUCTOR is that library. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);

#ifdef WITH_CONSTRUCTOR
static void *block;

__attribute__((constructor)) static void load(void)
{
    (void)cudaMalloc(&block, 1 << 20);
}

__attribute__((destructor)) static void unload(void)
{
    (void)cudaFree(block);
}
#else
#include <dlfcn.h>

static atomic_bool over;

static void *work(void *user)
{
    void *address;
    while (!atomic_load(&over)) {
        if (cudaMalloc(&address, 100000) == 0)
            (void)cudaFree(address);
    }
    return user;
}

int main(int argc, char **argv)
{
    enum { THREADS = 4, LOADS = 100 };
    pthread_t threads[THREADS];
    int loaded = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < LOADS; i++) {
        void *handle = dlopen(argv[argc - 1], RTLD_NOW);
        loaded += handle && dlclose(handle) == 0;
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return loaded != LOADS;
}
#endif
