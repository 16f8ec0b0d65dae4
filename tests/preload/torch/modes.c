/* Preloaded, with stand-ins for PyTorch's libraries: which mode it comes to, by configuration and environment. The
   argument is what is expected: direct or beneath. */
#include <stdlib.h>
#include <unistd.h>

#include "../programs/runtime.h"
#include "../programs/served.h"

void set_current_stream(void *stream);
void *tensor(size_t bytes);
int release(void *address);
int is_caching(void);
uint16_t _ZN3c105utils9check_envEPKc(const char *name);

enum { TENSORS = 100 };

static void *kept, *kept_longer;

/* As a static tensor's destructor does. */
static void release_kept(void)
{
    (void)release(kept);
}

/* As those destructors that were registered before the driver's own: it has ended. */
static void release_kept_longer(void)
{
    if (release(kept_longer) != 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    (void)argc;
    int direct = strcmp(argv[1], "direct") == 0;
    const char *set = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    cudaStream_t stream;
    void *other, *tensors[TENSORS];
    EXPECT(atexit(release_kept_longer) == 0);
    EXPECT(is_caching() == !direct);
    EXPECT(getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == set);
    EXPECT(_ZN3c105utils9check_envEPKc("NO_SUCH_VARIABLE") == 0);
    setenv("SOME_VARIABLE", "1", 1);
    EXPECT(_ZN3c105utils9check_envEPKc("SOME_VARIABLE") == 0x101);

    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    set_current_stream(stream);
    for (int i = 0; i < TENSORS; i++)
        EXPECT((tensors[i] = tensor(1000 + 512 * (size_t)i)) != NULL);
    EXPECT(statistic(0, "allocs") == (direct ? TENSORS : 1));
    for (int i = 0; i < TENSORS; i++)
        release(tensors[i]);
    EXPECT(statistic(0, "frees") == (direct ? TENSORS : 0));
    EXPECT(statistic(0, "strict_frees") == 0);

    kept = tensor(5000);
    EXPECT(kept != NULL && atexit(release_kept) == 0);
    EXPECT((kept_longer = tensor(5000)) != NULL);

    /* These stand-ins lack PyTorch's error: there is the code. */
    EXPECT(tensor((size_t)8 << 30) == NULL);

    /* Who isn't PyTorch is waited for all the same. */
    EXPECT(cudaMalloc(&other, 100) == cudaSuccess && cudaFree(other) == cudaSuccess);
    EXPECT(statistic(0, "strict_frees") == 1);
    return failures != 0;
}
