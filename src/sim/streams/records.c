#include "streams/records.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "space/ipc_map.h"

/* Each place holds one record of an event that is under way, so that records may be reached in any order. With more
   records than places, one that is reached late counts as reached with the one that has its place. */
enum { PAGE = 4096, PLACES = 15 };

static const uint64_t magic = UINT64_C(0x7365676970653031);

struct cell {
    _Atomic uint64_t last;
    uint64_t before; /* where the numbers of an event that had the cell earlier end */
    struct {
        _Atomic uint64_t reached; /* the highest number */
        _Atomic int64_t process;  /* that made the last record of this place */
    } place[PLACES];
};

/* Cells lie in the first device's memory file, behind all memory and before the records of share.c, so that an event
   takes no descriptor. */
static const uint64_t cells = UINT64_C(1) << 60;

static uint64_t pages;
static struct sim_records *spare;

struct sim_records {
    struct cell *cell;
    uint64_t offset; /* of the cell, in the file of the process that made it */
    void *page;      /* of an imported one, its own mapping; else NULL */
    struct sim_records *next;
};

struct ticket {
    uint64_t magic;
    int64_t process;
    uint64_t offset;
    int32_t fd;
};

_Static_assert(sizeof(struct ticket) <= sizeof(CUipcEventHandle), "fits");

_Static_assert(PAGE % sizeof(struct cell) == 0, "no cell on two pages");

/* A page of spare cells. Cells are used again, pages never given back. */
static bool records_grow(void)
{
    enum { COUNT = PAGE / sizeof(struct cell) };
    uint64_t offset = cells + pages * PAGE;
    struct cell *cell = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, sim.devices[0].fd, (off_t)offset);
    if (cell == MAP_FAILED)
        return false;
    pages++;
    for (int i = 0; i < COUNT; i++) {
        struct sim_records *records = calloc(1, sizeof *records);
        if (!records)
            break;
        records->cell = &cell[i];
        records->offset = offset + (uint64_t)i * sizeof *cell;
        records->next = spare;
        spare = records;
    }
    return spare != NULL;
}

struct sim_records *sim_records_new(void)
{
    if (!spare && !records_grow())
        return NULL;
    struct sim_records *records = spare;
    spare = records->next;
    records->cell->before = atomic_load(&records->cell->last);
    return records;
}

void sim_records_drop(struct sim_records *records)
{
    if (records->page) {
        munmap(records->page, PAGE);
        free(records);
    } else {
        records->next = spare;
        spare = records;
    }
}

uint64_t sim_records_begin(struct sim_records *records)
{
    struct cell *cell = records->cell;
    uint64_t number = atomic_fetch_add(&cell->last, 1) + 1;
    atomic_store(&cell->place[number % PLACES].process, getpid());
    return number - cell->before;
}

void sim_records_end(struct sim_records *records, uint64_t number)
{
    number += records->cell->before;
    _Atomic uint64_t *reached = &records->cell->place[number % PLACES].reached;
    uint64_t now = atomic_load(reached);
    while (now < number && !atomic_compare_exchange_weak(reached, &now, number)) {
    }
}

uint64_t sim_records_last(const struct sim_records *records)
{
    return atomic_load(&records->cell->last) - records->cell->before;
}

/* A process that has ended and that nobody has waited for yet counts as ended. Where the kernel has no such
   descriptors, before Linux 5.3, none does. */
static bool record_has_ended(pid_t process)
{
    int fd = (int)syscall(SYS_pidfd_open, process, 0);
    if (fd < 0)
        return errno == ESRCH;
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    bool result = poll(&ended, 1, 0) == 1;
    close(fd);
    return result;
}

bool sim_records_reached(const struct sim_records *records, uint64_t number)
{
    struct cell *cell = records->cell;
    number += cell->before;
    if (number == cell->before || atomic_load(&cell->place[number % PLACES].reached) >= number)
        return true;
    pid_t process = (pid_t)atomic_load(&cell->place[number % PLACES].process);
    return process != 0 && process != getpid() && record_has_ended(process);
}

CUresult sim_records_export(const struct sim_records *records, CUipcEventHandle *ret)
{
    if (records->page)
        return CUDA_ERROR_INVALID_HANDLE;
    struct ticket ticket = {magic, getpid(), records->offset, sim.devices[0].fd};
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &ticket, sizeof ticket);
    return CUDA_SUCCESS;
}

CUresult sim_records_import(const CUipcEventHandle *handle, struct sim_records **ret)
{
    struct ticket ticket;
    memcpy(&ticket, handle, sizeof ticket);
    if (ticket.magic != magic)
        return CUDA_ERROR_INVALID_HANDLE;
    if (ticket.process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_records *records = calloc(1, sizeof *records);
    if (!records)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t within = ticket.offset % PAGE;
    CUresult result = sim_ipc_map(ticket.process, ticket.fd, ticket.offset - within, PAGE, &records->page);
    if (result != CUDA_SUCCESS) {
        free(records);
        return result;
    }
    records->offset = ticket.offset;
    records->cell = (struct cell *)((char *)records->page + within);
    *ret = records;
    return CUDA_SUCCESS;
}
