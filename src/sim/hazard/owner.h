/* Owners of bytes, for the hazard checker: as segalloc_sim_owner() said, with their history.

   For example, two blocks of an allocator that lie at one address, one after the other, are two owners. Work that was
   submitted for the first and not waited for, and work for the second, are a hazard though both only touch their own. */
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
/* The program names an owner itself; from then on blocks of an allocator declare nothing. */
void sim_owner_declare_by_program(uint64_t address, uint64_t bytes, uint64_t id);
/* An allocator's block was handed out, or freed: each block is an owner. False where that declares nothing. */
bool sim_owner_block(uint64_t address, uint64_t bytes, bool handed_out);
/* Nothing is known any more of who had these bytes. */
void sim_owner_forget(uint64_t address, uint64_t bytes);
/* The owner of the byte at `address`, and in *ret_bytes how far it is the same, at most `bytes`; NULL where nobody was
   declared. No reference is taken. */
struct sim_owner *sim_owner_at(uint64_t address, uint64_t bytes, uint64_t *ret_bytes);
struct sim_owner *sim_owner_ref(struct sim_owner *owner);
void sim_owner_unref(struct sim_owner *owner);

#endif
