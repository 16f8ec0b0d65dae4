/* The simulated machine as its user wants it, read once from the environment variable SEGALLOC_SIM. */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "model.h"

enum { SIM_DEVICES_MAX = 16, SIM_FAULTS_MAX = 16, SIM_COSTS_MAX = 16, SIM_NAME_MAX = 64 };

enum sim_vmm_sync {
    SIM_VMM_SYNC_NEVER,
    SIM_VMM_SYNC_ALWAYS, /* cuMemUnmap and cuMemSetAccess wait for all work of the device */
};

/* The `at`-th call (from 1) of the driver function `name` fails with `code`; with `onward` every later one too. */
struct sim_fault {
    char name[SIM_NAME_MAX];
    uint64_t at;
    bool onward;
    CUresult code;
};

/* The cost of a call of the exported function, and of each handle that it maps, unmaps or gives access to. */
struct sim_cost {
    char symbol[SIM_NAME_MAX];
    uint64_t call_ns, handle_ns;
};

/* Handles for other machines' processes: devices have none, or their attribute says that they have. The attribute says
   nothing about the service (IMEX) that grants them. Without that service cuMemCreate answers 800. Source: CUDA Driver
   API, cuMemCreate() and CU_MEM_HANDLE_TYPE_FABRIC. */
enum sim_fabric { SIM_FABRIC_NONE, SIM_FABRIC_REFUSED, SIM_FABRIC_GRANTED };

struct sim_config {
    uint64_t bytes; /* of memory a device */
    const struct sim_model *model; /* the card that each device is; NULL: none in particular */
    bool keeps; /* its driver keeps what it keeps of that card */
    uint64_t quota_bytes; /* of it that there are for cuMemGetInfo and to be had, where that is less; 0: all */
    int devices;          /* in the machine, whichever of them a program sees */
    int driver; /* as cuDriverGetVersion says it: 13000 is 13.0 */
    bool vmm, posix_handles, rdma, ipc, peers;
    bool host_pages;       /* pages of virtual memory management may lie in the host's memory */
    uint64_t host_bytes;   /* of that memory that there are for them; UINT64_MAX: as many as anybody asks for */
    uint64_t host_granule; /* bytes: the size of such a page is a multiple of it */
    enum sim_fabric fabric;
    enum sim_vmm_sync vmm_sync;
    uint64_t mappings;       /* that the machine has, of all devices and processes together */
    CUresult mappings_code;  /* what a call answers for which there are too few */
    unsigned depth;     /* pieces of work a stream takes before a submission waits */
    bool at_once;       /* what need not wait is done where it is submitted */
    uint64_t drop_bytes; /* copies and sets of more than this move nothing */
    uint64_t compute_bytes; /* kernels that are known by name do no tensor of more than this; UINT64_MAX: as kernels/integers.h has it */
    bool hazard;        /* work on shared bytes is checked */
    bool hazard_all;    /* what does not say what it touches may touch everything */
    int hazard_exit;    /* the status with which a process ends that had a hazard; 0: its own */
    bool scheduled;     /* work runs on the program's threads, as `seed` and `run_ahead` have it */
    uint64_t seed;
    int64_t run_ahead;  /* allocations after which work runs if nobody waits for it before; negative: by the seed */
    uint64_t kernel_ns; /* how long each kernel keeps its stream busy */
    uint32_t aliases_apart; /* bit per device of the machine: what is written at one address of a page is not read at another */
    bool notifies;          /* devices say when a process is over its budget */
    bool integrated;        /* devices take their memory from the host */
    char host[SIM_NAME_MAX]; /* the folder below which the kernel's files of the host are; "": there are none */
    bool managed_apart; /* managed memory takes nothing of a device */
    char card[SIM_NAME_MAX]; /* processes with the same name share their devices' memory; "": a card of its own */
    char peaks[SIM_NAME_MAX]; /* the folder for what each process has held at most; "": none */
    struct sim_fault faults[SIM_FAULTS_MAX];
    unsigned fault_count;
    struct sim_cost costs[SIM_COSTS_MAX]; /* in place of cost.def's */
    unsigned cost_count;
};

/* The syntax, which `segalloc run --sim` passes on as it is: SIZE[,KEY[=VALUE]]…, or device=CARD[,KEY[=VALUE]]…, by
   setting.def.
   NULL means a single 24 GiB device. Returns NULL and fills *ret, or a message (the thread's own, one line) and leaves
   it. */
const char *sim_config_parse(const char *spec, struct sim_config *ret);

/* How the driver and NVML name a device. Static storage. */
const char *sim_config_device_name(const struct sim_config *config);

/* The file of the machine's shared memory in which processes on the card of that name (and the same user) meet. */
enum { SIM_CARD_PATH = SIM_NAME_MAX + 64 };
void sim_config_card_path(const char *card, char ret[SIM_CARD_PATH]);

/* The UUID of the machine's device of this index. Its first half says which device it is, and the first digits of two are
   never alike. The second half is the same in two processes only where they share the card. */
void sim_config_uuid(const struct sim_config *config, int index, unsigned char ret[16]);

/* The index of the machine's device that has this UUID, whatever the second half is; negative: no simulated one has. */
int sim_config_index(const unsigned char uuid[16]);

/* It as nvidia-smi writes it: "GPU-", and what of it says which device it is ends after SIM_UUID_HALF characters. */
enum { SIM_UUID_TEXT = 41, SIM_UUID_HALF = 22 };
void sim_config_uuid_text(const struct sim_config *config, int index, char ret[SIM_UUID_TEXT]);

#endif
