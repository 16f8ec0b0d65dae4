#include "graphs/user_object.h"

#include <signal.h>
#include <stdlib.h>

#include "calls.h"

static CUuserObject ended_first, ended_last;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static bool started;

static void *user_objects_call_destructors(void *unused)
{
    (void)unused;
    sim_lock();
    for (;;) {
        while (!ended_first)
            pthread_cond_wait(&ended, sim_mutex());
        CUuserObject object = ended_first;
        ended_first = object->next;
        if (!ended_first)
            ended_last = NULL;
        sim_order_host_after(&object->clock);
        sim_clock_clear(&object->clock);
        sim_unlock();
        sim_in_host_function = true; /* it may not call CUDA either */
        object->destroy(object->pointer);
        sim_in_host_function = false;
        free(object);
        sim_lock();
    }
    return NULL;
}

CUresult sim_user_objects_start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!started && pthread_create(&thread, NULL, user_objects_call_destructors, NULL) == 0) {
        pthread_detach(thread);
        started = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_user_object_release(CUuserObject object, unsigned count)
{
    object->count -= count;
    if (object->count)
        return;
    sim_handle_drop(&object->handle);
    object->next = NULL;
    if (ended_last)
        ended_last->next = object;
    else
        ended_first = object;
    ended_last = object;
    pthread_cond_signal(&ended);
}

CUresult sim_object_refs_copy(const struct sim_object_ref *from, struct sim_object_ref **ret)
{
    for (; from; from = from->next) {
        struct sim_object_ref *ref = malloc(sizeof *ref);
        if (!ref)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *ref = (struct sim_object_ref){from->object, from->count, *ret};
        ref->object->count += ref->count;
        *ret = ref;
    }
    return CUDA_SUCCESS;
}

void sim_object_refs_drop(struct sim_object_ref **list)
{
    for (struct sim_object_ref *ref = *list, *next; ref; ref = next) {
        next = ref->next;
        sim_user_object_release(ref->object, ref->count);
        free(ref);
    }
    *list = NULL;
}

void sim_object_refs_launched(const struct sim_object_ref *ref, const struct sim_clock *clock)
{
    for (; ref; ref = ref->next)
        sim_clock_join(&ref->object->clock, clock);
}
