/* User objects: their destructor is called, on a thread of the simulator, once nobody holds them any more. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "graphs/graph.h"

struct CUuserObject_st {
    struct sim_handle handle;
    unsigned count;
    CUhostFn destroy;
    void *pointer;
    struct sim_clock clock; /* of the launches that held it */
    CUuserObject next; /* among those whose destructor is to be called */
};

static CUuserObject ended_first, ended_last;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static bool started;

static void *call_destructors(void *unused)
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

static CUresult start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!started && pthread_create(&thread, NULL, call_destructors, NULL) == 0) {
        pthread_detach(thread);
        started = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void release(CUuserObject object, unsigned count)
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

CUresult sim_held_copy(const struct sim_held *from, struct sim_held **ret)
{
    for (; from; from = from->next) {
        struct sim_held *held = malloc(sizeof *held);
        if (!held)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *held = (struct sim_held){from->object, from->count, *ret};
        held->object->count += held->count;
        *ret = held;
    }
    return CUDA_SUCCESS;
}

void sim_held_drop(struct sim_held **list)
{
    for (struct sim_held *held = *list, *next; held; held = next) {
        next = held->next;
        release(held->object, held->count);
        free(held);
    }
    *list = NULL;
}

CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int count,
    unsigned int flags)
{
    SIM_ENTER(cuUserObjectCreate);
    if (!object || !destroy || !count || count > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->count = count;
    made->destroy = destroy;
    made->pointer = pointer;
    sim_lock();
    CUresult result = start();
    if (result == CUDA_SUCCESS) {
        sim_handle_add(&made->handle, SIM_KIND_USER_OBJECT);
        *object = made;
    } else {
        free(made);
    }
    sim_unlock();
    return result;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuUserObjectRetain);
    sim_lock();
    bool valid = count && count <= INT32_MAX && sim_handle_valid(object, SIM_KIND_USER_OBJECT);
    if (valid)
        object->count += count;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuUserObjectRelease);
    sim_lock();
    bool valid = count && sim_handle_valid(object, SIM_KIND_USER_OBJECT) && object->count >= count;
    if (valid)
        release(object, count);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_held_launched(const struct sim_held *held, const struct sim_clock *clock)
{
    for (; held; held = held->next)
        sim_clock_join(&held->object->clock, clock);
}

static struct sim_held **find(CUgraph graph, CUuserObject object)
{
    struct sim_held **link = &graph->held;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    SIM_ENTER(cuGraphRetainUserObject);
    if (!count || count > INT32_MAX || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    if (!sim_handle_valid(object, SIM_KIND_USER_OBJECT))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && flags & CU_GRAPH_USER_OBJECT_MOVE && object->count < count)
        result = CUDA_ERROR_INVALID_VALUE; /* more than the caller has to give away */
    if (result == CUDA_SUCCESS) {
        struct sim_held **link = find(graph, object);
        if (!*link && !(*link = calloc(1, sizeof **link)))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            (*link)->object = object;
            (*link)->count += count;
            object->count += flags & CU_GRAPH_USER_OBJECT_MOVE ? 0 : count;
        }
    }
    sim_unlock();
    return result;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_ENTER(cuGraphReleaseUserObject);
    sim_lock();
    CUresult result = sim_graph_get(graph);
    struct sim_held **link = result == CUDA_SUCCESS ? find(graph, object) : NULL;
    if (result == CUDA_SUCCESS && (!count || !*link || (*link)->count < count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_held *held = *link;
        held->count -= count;
        if (!held->count) {
            *link = held->next;
            free(held);
        }
        release(object, count);
    }
    sim_unlock();
    return result;
}
