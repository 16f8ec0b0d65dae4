/* A card that several processes share, under a name (the setting card=NAME): what each of them holds, and how many
   mappings it has, is in a file of the machine's shared memory, and counts against all. A process has a row there for as
   long as it lives: it holds a lock on it, which the kernel takes back however the process ends. The last one to end
   removes the file; after one that was killed the next that ends does. */
#include "device/card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"
#include "device/host.h"
#include "device/peaks.h"

enum { ROWS = 64, GUARD = ROWS }; /* the byte after the rows' is locked while somebody takes memory */

struct row {
    _Atomic uint64_t used[SIM_DEVICES_MAX], contexts[SIM_DEVICES_MAX]; /* by the machine's index */
    _Atomic uint64_t managed[SIM_DEVICES_MAX];                         /* the part of `used` that is managed memory */
    _Atomic uint64_t evicted[SIM_DEVICES_MAX]; /* the part of `managed` that others had moved to the host since */
    _Atomic uint64_t mappings;
    _Atomic int64_t pid;
};

static struct {
    struct row *rows;
    int fd, own;
    _Atomic uint64_t contexts[SIM_DEVICES_MAX]; /* of this process: alive, by the machine's index */
} card = {.fd = -1, .own = -1};

static bool card_lock(int byte, short type, int command)
{
    struct flock what = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do {
        result = fcntl(card.fd, command, &what);
    } while (result < 0 && errno == EINTR);
    return result == 0 && (command != F_GETLK || what.l_type == F_UNLCK);
}

/* Opens the card's file and keeps others from removing it; the lock is the caller's to give back. */
static bool card_open(const char *path)
{
    struct stat status = {0};
    for (bool removed = true; removed;) {
        card.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (card.fd < 0 || !card_lock(GUARD, F_WRLCK, F_SETLKW) || fstat(card.fd, &status) != 0)
            return false;
        removed = status.st_nlink == 0; /* since it was opened */
        if (removed)
            close(card.fd);
    }
    return ftruncate(card.fd, sizeof(struct row) * ROWS) == 0;
}

CUresult sim_card_start(void)
{
    if (!sim.config.card[0])
        return CUDA_SUCCESS;
    char path[SIM_CARD_PATH];
    sim_config_card_path(sim.config.card, path);
    if (card_open(path)) {
        void *rows = mmap(NULL, sizeof(struct row) * ROWS, PROT_READ | PROT_WRITE, MAP_SHARED, card.fd, 0);
        card.rows = rows == MAP_FAILED ? NULL : rows;
    }
    for (int i = 0; card.rows && card.own < 0 && i < ROWS; i++) {
        if (card_lock(i, F_WRLCK, F_SETLK))
            card.own = i;
    }
    if (card.own < 0) {
        fprintf(stderr, "segalloc simulator: no place on the card in %s: %s\n", path, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memset(&card.rows[card.own], 0, sizeof card.rows[card.own]);
    atomic_store(&card.rows[card.own].pid, getpid());
    card_lock(GUARD, F_UNLCK, F_SETLK);
    return CUDA_SUCCESS;
}

/* In a forked child the rows that show as locked are those of its parent too. */
__attribute__((destructor)) static void card_leave(void)
{
    char path[SIM_CARD_PATH];
    bool alone = card.own >= 0 && card_lock(GUARD, F_WRLCK, F_SETLK);
    for (int i = 0; i < ROWS && alone; i++)
        alone = card_lock(i, F_WRLCK, F_GETLK);
    if (!alone)
        return;
    sim_config_card_path(sim.config.card, path);
    unlink(path);
}

/* Bytes that the process of a row holds of a device. The owner of the row may write meanwhile, but not under the
   guard. */
static uint64_t card_row_holds(const struct row *row, int index)
{
    uint64_t evicted = atomic_load(&row->evicted[index]), used = atomic_load(&row->used[index]);
    return evicted < used ? used - evicted : 0;
}

static uint64_t card_row_mappings(const struct row *row, int unused)
{
    (void)unused;
    return atomic_load(&row->mappings);
}

/* The sum of one number over the rows of other processes that are alive. */
static uint64_t card_sum_of_others(uint64_t (*number)(const struct row *row, int index), int index)
{
    uint64_t sum = 0;
    for (int i = 0; card.rows && i < ROWS; i++) {
        uint64_t theirs = i == card.own ? 0 : number(&card.rows[i], index);
        if (theirs && card_lock(i, F_WRLCK, F_GETLK))
            theirs = 0; /* nobody holds that row: its process has ended */
        sum += theirs;
    }
    return sum;
}

uint64_t sim_card_evicted(const struct sim_device *device)
{
    return card.rows ? atomic_load(&card.rows[card.own].evicted[device->index]) : 0;
}

uint64_t sim_card_used(const struct sim_device *device)
{
    return device->used - sim_card_evicted(device);
}

/* Bytes of the device that all processes on the card hold. */
static uint64_t card_used_by_all(const struct sim_device *device)
{
    return sim_card_used(device) + card_sum_of_others(card_row_holds, device->index);
}

/* Bytes of the device beyond `used`. */
static uint64_t card_left(const struct sim_device *device, uint64_t used)
{
    return used < device->bytes ? device->bytes - used : 0;
}

uint64_t sim_card_free(const struct sim_device *device)
{
    return card_left(device, card_used_by_all(device) + sim_host_neighbour(device) + sim_host_cache(device));
}

void sim_card_look_at_host(const struct sim_device *device)
{
    if (sim.config.host[0]) /* to ask all processes takes a call for each */
        sim_host_show(device, card_used_by_all(device));
}

size_t sim_card_processes(int index, struct segalloc_sim_process *ret, size_t room)
{
    size_t count = 0;
    const struct sim_device *own = sim_device_by_index(index);
    if (own && !card.rows && (own->used || atomic_load(&card.contexts[index]))) {
        if (room)
            ret[0] = (struct segalloc_sim_process){getpid(), own->used};
        return 1;
    }
    for (int i = 0; index >= 0 && index < sim.config.devices && card.rows && i < ROWS; i++) {
        uint64_t used = card_row_holds(&card.rows[i], index);
        if ((!used && !atomic_load(&card.rows[i].contexts[index])) || (i != card.own && card_lock(i, F_WRLCK, F_GETLK)))
            continue;
        if (count < room)
            ret[count] = (struct segalloc_sim_process){atomic_load(&card.rows[i].pid), used};
        count++;
    }
    return count;
}

void sim_card_context(const struct sim_device *device, bool begins)
{
    _Atomic uint64_t *own = &card.contexts[device->index];
    atomic_fetch_add(own, begins ? 1 : UINT64_MAX);
    if (card.rows)
        atomic_store(&card.rows[card.own].contexts[device->index], atomic_load(own));
}

static void card_publish(const struct sim_device *device)
{
    if (!card.rows)
        return;
    atomic_store(&card.rows[card.own].used[device->index], device->used);
    atomic_store(&card.rows[card.own].managed[device->index], device->managed.resident_bytes);
}

/* Around what one process takes and no other one is to take meanwhile. */
static void card_guard(bool begin)
{
    if (card.rows)
        card_lock(GUARD, begin ? F_WRLCK : F_UNLCK, begin ? F_SETLKW : F_SETLK);
}

bool sim_mappings_take(uint64_t count)
{
    card_guard(true);
    bool fits = count <= sim.config.mappings && sim.mappings <= sim.config.mappings - count &&
                card_sum_of_others(card_row_mappings, 0) <= sim.config.mappings - count - sim.mappings;
    if (fits) {
        sim.mappings += count;
        if (card.rows)
            atomic_store(&card.rows[card.own].mappings, sim.mappings);
    }
    card_guard(false);
    return fits;
}

void sim_mappings_give(uint64_t count)
{
    sim.mappings -= count;
    if (card.rows)
        atomic_store(&card.rows[card.own].mappings, sim.mappings);
}

static bool card_charge(struct sim_device *device, uint64_t bytes, uint64_t managed)
{
    card_guard(true);
    /* The driver of an integrated device gives what the host lacks, too. */
    uint64_t used = card_used_by_all(device), neighbour = sim.config.integrated ? 0 : sim_host_neighbour(device);
    bool fits = bytes <= card_left(device, used + neighbour) && !sim_host_forbids(device, used, bytes);
    if (fits) {
        device->used += bytes;
        device->managed.resident_bytes += managed;
        card_publish(device);
        sim_peaks_note(device);
    }
    card_guard(false);
    sim_card_look_at_host(device);
    return fits;
}

bool sim_card_charge(struct sim_device *device, uint64_t bytes)
{
    return card_charge(device, bytes, 0);
}

bool sim_card_charge_managed(struct sim_device *device, uint64_t bytes)
{
    return card_charge(device, bytes, bytes);
}

void sim_device_discharge(struct sim_device *device, uint64_t bytes)
{
    device->used -= bytes;
    card_publish(device);
    sim_card_look_at_host(device);
}

void sim_card_discharge_managed(struct sim_device *device, uint64_t bytes)
{
    card_guard(true);
    device->managed.resident_bytes -= bytes;
    uint64_t evicted = sim_card_evicted(device);
    sim_device_discharge(device, bytes);
    if (evicted)
        atomic_store(&card.rows[card.own].evicted[device->index], evicted > bytes ? evicted - bytes : 0);
    card_guard(false);
}

bool sim_card_evict_others(const struct sim_device *device, uint64_t bytes)
{
    int index = device->index;
    card_guard(true);
    uint64_t found = sim_card_free(device), before = found;
    for (int i = 0; card.rows && i < ROWS && found < bytes; i++) {
        uint64_t evicted = atomic_load(&card.rows[i].evicted[index]),
                 managed = atomic_load(&card.rows[i].managed[index]);
        if (i == card.own || managed <= evicted || card_lock(i, F_WRLCK, F_GETLK))
            continue;
        uint64_t taken = managed - evicted < bytes - found ? managed - evicted : bytes - found;
        atomic_store(&card.rows[i].evicted[index], evicted + taken);
        found += taken;
    }
    card_guard(false);
    return found > before;
}
