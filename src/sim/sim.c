#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "inherited.h"

struct sim sim = {.config = {.driver = 13000}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(enum sim_state) state;

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

pthread_mutex_t *sim_mutex(void)
{
    return &lock;
}

enum sim_state sim_state_now(void)
{
    return atomic_load_explicit(&state, memory_order_acquire);
}

void sim_state_set(enum sim_state now)
{
    atomic_store_explicit(&state, now, memory_order_release);
}

int sim_driver_version(void)
{
    enum sim_state now = sim_state_now();
    if (now != SIM_FRESH && now != SIM_FAILED)
        return sim.config.driver;
    struct sim_config config = {.driver = 13000};
    sim_config_parse(sim_inherited_setting(), &config);
    return config.driver;
}

void sim_handle_add(struct sim_handle *handle, enum sim_kind kind)
{
    handle->key = handle;
    handle->kind = kind;
    HASH_ADD_PTR(sim.handles, key, handle);
}

void sim_handle_drop(struct sim_handle *handle)
{
    HASH_DEL(sim.handles, handle);
}

bool sim_handle_valid(const void *key, enum sim_kind kind)
{
    struct sim_handle *handle;
    HASH_FIND_PTR(sim.handles, &key, handle);
    return handle && handle->kind == kind;
}
