/* Programs at once, a thread each: they share the device, its streams 0 and the library, and none of their own
   memory. */
#include <pthread.h>
#include <stdlib.h>

#include "program.h"

enum { AT_ONCE = 3 };

static void *run(void *data)
{
    program_run(data);
    return NULL;
}

void threads_run(struct program *p)
{
    struct program *part = calloc(AT_ONCE, sizeof *part);
    pthread_t thread[AT_ONCE];
    CUcontext context[2] = {NULL, NULL};
    int devices = 0;
    if (!part)
        abort();
    MUST(p, cuDeviceGetCount(&devices));
    devices = devices > 1 ? 2 : 1;
    for (int i = 0; i < devices; i++)
        MUST(p, cuDevicePrimaryCtxRetain(&context[i], i));
    (void)program_kernel(); /* is there before the threads are */
    for (int i = 0; i < AT_ONCE; i++) {
        part[i] = (struct program){.seed = p->seed, .random = p->random + (uint64_t)i,
            .kind = program_random(p, 2) ? KIND_CUDA : KIND_AWARE, .strict = p->strict, .alone = true};
        if (pthread_create(&thread[i], NULL, run, &part[i]) != 0)
            abort();
    }
    for (int i = 0; i < AT_ONCE; i++) {
        pthread_join(thread[i], NULL);
        p->errors += part[i].errors;
        p->operations += part[i].operations;
    }
    for (int i = devices - 1; i >= 0; i--) {
        MUST(p, cuCtxSetCurrent(context[i]));
        program_trim(p, i);
        MUST(p, cuDevicePrimaryCtxRelease_v2(i));
    }
    free(part);
}
