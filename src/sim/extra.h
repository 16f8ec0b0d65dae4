/* Functions of the simulator besides CUDA, for tests and tools. libcuda.so.1 exports them. Callers find them with dlsym,
   so that they run on a real driver too. */
#ifndef SIM_EXTRA_H
#define SIM_EXTRA_H

#include <stddef.h>
#include <stdint.h>

struct segalloc_sim_call {
    const char *symbol; /* as exported, "cuMemAlloc_v2"; calls of a …_ptsz form count here too */
    uint64_t calls;
    uint64_t ns; /* what these calls would have cost on a GPU, by cost.def: each by itself, and each handle of it */
};

/* Fills up to `max` rows and returns how many entry points there are. */
typedef size_t (*segalloc_sim_calls_fn)(struct segalloc_sim_call *ret_rows, size_t max);
/* Virtual time of all calls so far, in ns. */
typedef uint64_t (*segalloc_sim_ns_fn)(void);

/* Declares the owner of these bytes to the hazard checker. By default each allocation is its own owner. */
typedef void (*segalloc_sim_owner_fn)(uint64_t address, uint64_t bytes, uint64_t owner);
/* Declares a block of an allocator, which does not know owners: it was handed out, or freed. Ignored once the program
   has named an owner itself. Returns whether the checker is on; with 0 bytes that is all it does. */
typedef int (*segalloc_sim_block_fn)(uint64_t address, uint64_t bytes, int handed_out);
/* From here on, and with 0 no more, the calling thread's work on bytes that were given back is an allocator's own: it counts
   as the former owner's. So it has to be ordered with the next owner's work, and is no hazard by itself. */
typedef void (*segalloc_sim_upkeep_fn)(int on);
/* The calling thread's next kernel or host function touches these bytes, so far as it does not say so otherwise. More
   calls add to it. */
typedef void (*segalloc_sim_touches_fn)(uint64_t address, uint64_t bytes, int write);
/* Declares what kernels of that name (as the module has it) do. `arguments` are separated by commas. i32, u32, i64,
   u64, f32 and f64 take a name. r, w and rw (pointers to memory that is read, written, both) take a name and a length
   in brackets: a sum of products of numbers and integer arguments. p (a pointer that is not followed) takes a name.
   An example is "r x[4*n], w y[4*n], u64 n". `run`, which may be NULL, is called with pointers to the arguments'
   values, in stream order, and may call nothing of CUDA. Returns 0, or -1 where it does not understand. */
typedef int (*segalloc_sim_kernel_fn)(const char *name, const char *arguments, void (*run)(void **arguments));
/* Does what cudaGraphSetConditional() does in a kernel: for `run`. */
typedef void (*segalloc_sim_condition_fn)(uint64_t handle, unsigned value);
/* With the setting `schedule`: begins the schedule of another seed; `run_ahead` as the setting, or negative. */
typedef void (*segalloc_sim_schedule_fn)(uint64_t seed, int64_t run_ahead);
/* The address at which a context was lost (CUDA_ERROR_ILLEGAL_ADDRESS); 0: none was. The first of the process's devices
   that has one. */
typedef uint64_t (*segalloc_sim_fault_fn)(void);
/* How many hazards were reported so far; each on stderr too. */
typedef uint64_t (*segalloc_sim_hazards_fn)(void);

/* Managed memory on a device, in bytes, and pages of at most 2 MiB of it. Evicted ones had to go to the host's memory. Those
   kept out found no room when the device came to use them, and are reached over the bus. Returns 0, or -1 where there is no
   such device. */
struct segalloc_sim_managed {
    uint64_t resident_bytes, evicted_pages, kept_out_pages;
};
typedef int (*segalloc_sim_managed_fn)(int device, struct segalloc_sim_managed *ret);

/* Bytes that a device's work has touched over a link so far: of pages in the host's memory, and of other devices' pages. Copies
   and sets count, and kernels of which it was said what they touch. `peer_bytes` are those of other devices' pages. `untold` counts kernels that ran
   while there were such pages, and of which nothing was said. `host_bytes` are those of the host's memory that pages take
   now, of all devices. Returns 0, or -1 where there is no such device. */
struct segalloc_sim_link {
    uint64_t touched_bytes, host_bytes, peer_bytes, untold;
};
typedef int (*segalloc_sim_link_fn)(int device, struct segalloc_sim_link *ret);

/* Bytes of a device's memory in use, by whatever. */
typedef uint64_t (*segalloc_sim_used_fn)(int device);

/* Brings the files of the machine up to date (the setting `host`), and writes the name of the folder that has them into `ret`.
   Returns the length of the name. 0: the devices have no host that could be asked. */
typedef int (*segalloc_sim_host_fn)(char *ret, size_t size);

/* Has the driver notify all who registered with a device that the process is over its budget by so many bytes. Waits until they
   were called. Returns 0, or -1 where there can be no thread. */
typedef int (*segalloc_sim_over_budget_fn)(int device, uint64_t bytes);

/* The number of physical allocations that a range of device memory lies in; 0: not all of it is device memory. A registration
   with a network card by nvidia_peermem refuses more than one. */
typedef int (*segalloc_sim_handles_fn)(uint64_t address, uint64_t bytes);

/* The processes that have a context or memory of the machine's device of this index, which is NVML's, as on a real driver. The program need not see it.
   Where several processes share the card each is listed, else this one alone. Fills up to `room` rows and returns how
   many there are. */
struct segalloc_sim_process {
    int64_t pid;
    uint64_t bytes;
};
typedef size_t (*segalloc_sim_processes_fn)(int index, struct segalloc_sim_process *ret, size_t room);

#endif
