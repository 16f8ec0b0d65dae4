/* User objects: their destructor is called, on a thread of the simulator, once nobody holds them any more. */
#ifndef SIM_USER_OBJECT_H
#define SIM_USER_OBJECT_H

#include "hazard/order.h"
#include "sim.h"

struct CUuserObject_st {
    struct sim_handle handle;
    unsigned count;
    CUhostFn destroy;
    void *pointer;
    struct sim_clock clock; /* of the launches that held it */
    CUuserObject next;      /* among those whose destructor is to be called */
};

/* References to user objects, with counts. */
struct sim_object_ref {
    CUuserObject object;
    unsigned count;
    struct sim_object_ref *next;
};

/* Locked, here and below. */

/* The user objects that a graph holds: each copy holds them once more. */
CUresult sim_object_refs_copy(const struct sim_object_ref *from, struct sim_object_ref **ret);
void sim_object_refs_drop(struct sim_object_ref **ref);
/* A launch is over that held them: who sees their destructors called knows. */
void sim_object_refs_launched(const struct sim_object_ref *ref, const struct sim_clock *clock);

/* The thread that calls destructors is there from now on. */
CUresult sim_user_objects_start(void);
/* So many references less. */
void sim_user_object_release(CUuserObject object, unsigned count);

#endif
