/* Whose bytes lie at an address, for the hazard checker: what segalloc_sim_owner() said, with its history. */
#ifndef SIM_OWNER_H
#define SIM_OWNER_H

#include <stdbool.h>
#include <stdint.h>

/* One owner's time with a range of addresses. Counted, since work that touched it outlives it. */
struct sim_owner {
    unsigned refs;
    uint64_t id, address, bytes;
    uint64_t born, ended; /* numbers of declarations, counted with the pieces of work; ended 0: still the owner */
    int born_thread, ended_thread;
    struct sim_owner *before; /* who had the first byte before, without further history */
};

/* Counts declarations and pieces of work, so that both stand in one history. Locked, here and below. */
uint64_t sim_owner_tick(void);
uint64_t sim_owner_now(void);

/* `id` 0: nobody's from now on. */
void sim_owner_declare(uint64_t address, uint64_t bytes, uint64_t id);
/* Nothing is known any more of who had these bytes. */
void sim_owner_forget(uint64_t address, uint64_t bytes);
/* The owner of the byte at `address`, and in *ret_bytes how far it is the same, at most `bytes`; NULL where nobody was
   declared. No reference is taken. */
struct sim_owner *sim_owner_at(uint64_t address, uint64_t bytes, uint64_t *ret_bytes);
struct sim_owner *sim_owner_ref(struct sim_owner *owner);
void sim_owner_unref(struct sim_owner *owner);

#endif
