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
        release(ref->object, ref->count);
        free(ref);
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
    SIM_ENTER_WITH(cuUserObjectRetain, object, count);
    sim_lock();
    bool valid = count && count <= INT32_MAX && sim_handle_valid(object, SIM_KIND_USER_OBJECT);
    if (valid)
        object->count += count;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTER_WITH(cuUserObjectRelease, object, count);
    sim_lock();
    bool valid = count && sim_handle_valid(object, SIM_KIND_USER_OBJECT) && object->count >= count;
    if (valid)
        release(object, count);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_object_refs_launched(const struct sim_object_ref *ref, const struct sim_clock *clock)
{
    for (; ref; ref = ref->next)
        sim_clock_join(&ref->object->clock, clock);
}

static struct sim_object_ref **find(CUgraph graph, CUuserObject object)
{
    struct sim_object_ref **link = &graph->object_refs;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    SIM_ENTER_WITH(cuGraphRetainUserObject, graph, object, count, flags);
    if (!count || count > INT32_MAX || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    if (!sim_handle_valid(object, SIM_KIND_USER_OBJECT))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && flags & CU_GRAPH_USER_OBJECT_MOVE && object->count < count)
        result = CUDA_ERROR_INVALID_VALUE; /* more than the caller has to give away */
    if (result == CUDA_SUCCESS) {
        struct sim_object_ref **link = find(graph, object);
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
    SIM_ENTER_WITH(cuGraphReleaseUserObject, graph, object, count);
    sim_lock();
    CUresult result = sim_graph_get(graph);
    struct sim_object_ref **link = result == CUDA_SUCCESS ? find(graph, object) : NULL;
    if (result == CUDA_SUCCESS && (!count || !*link || (*link)->count < count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_object_ref *ref = *link;
        ref->count -= count;
        if (!ref->count) {
            *link = ref->next;
            free(ref);
        }
        release(object, count);
    }
    sim_unlock();
    return result;
}
