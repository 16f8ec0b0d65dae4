/* A file in /dev/shm for each communicator, with a place for each rank; it is unlinked as soon as all have opened it.
   Whoever waits for another rank looks whether its process is still there, so that none waits for the dead. */
#include "nccl_exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 64, SLOTS = 8, JOIN_NS = 100000, JOIN_TURNS = 6000000 /* ten minutes */, LOOK_TURNS = 1000 };

struct place {
    atomic_int pid;
    _Atomic uint64_t given, done; /* the last round that this rank has given to, and is done with */
    char bytes[SG_EXCHANGE_BYTES];
};

/* From one rank to another, of those on their way. */
struct channel {
    _Atomic uint64_t sent, received;
    char bytes[SLOTS][SG_EXCHANGE_BYTES];
};

struct sg_exchange {
    int ranks, rank;
    atomic_bool aborted;
    _Atomic uint64_t rounds, to[RANKS_MOST], from[RANKS_MOST];
    struct place *places;
    struct channel *channels; /* by sender, then receiver */
};

static void exchange_rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = JOIN_NS}, NULL);
}

static bool is_gone(const struct place *place)
{
    return kill(atomic_load(&place->pid), 0) != 0 && errno == ESRCH;
}

/* Until a rank's counter has reached a round. */
static bool exchange_await(const struct sg_exchange *exchange, const struct place *place,
    const _Atomic uint64_t *counter, uint64_t round)
{
    for (unsigned turn = 1; atomic_load(counter) < round; turn++) {
        if (atomic_load(&exchange->aborted) || (turn % LOOK_TURNS == 0 && is_gone(place)))
            return atomic_load(counter) >= round;
        exchange_rest();
    }
    return true;
}

/* Waits for every rank. True if all have come, and each is a process of its own. */
static bool await_all(const struct sg_exchange *exchange)
{
    for (int i = 0; i < exchange->ranks; i++) {
        const struct place *place = &exchange->places[i];
        for (unsigned turn = 0; !atomic_load(&place->pid); turn++) {
            if (turn == JOIN_TURNS)
                return false;
            exchange_rest();
        }
        if (i != exchange->rank && atomic_load(&place->pid) == getpid())
            return false;
    }
    return true;
}

/* Most of it is never touched, and costs nothing. */
static size_t shared_bytes(int ranks)
{
    return (size_t)ranks * (sizeof(struct place) + (size_t)ranks * sizeof(struct channel));
}

static struct place *exchange_map(const char *path, int ranks)
{
    size_t size = shared_bytes(ranks);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    void *places = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)size) == 0)
        places = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return places == MAP_FAILED ? NULL : places;
}

struct sg_exchange *sg_exchange_join(uint64_t key, int ranks, int rank)
{
    char path[96];
    struct sg_exchange *made = NULL;
    if (ranks < 2 || ranks > RANKS_MOST || rank < 0 || rank >= ranks || !(made = calloc(1, sizeof *made)))
        return NULL;
    snprintf(path, sizeof path, "/dev/shm/segalloc-nccl-%u-%016" PRIx64, (unsigned)geteuid(), key);
    made->ranks = ranks;
    made->rank = rank;
    made->places = exchange_map(path, ranks);
    if (!made->places) {
        free(made);
        return NULL;
    }
    made->channels = (struct channel *)(made->places + ranks);
    int expected = 0;
    bool joined = atomic_compare_exchange_strong(&made->places[rank].pid, &expected, getpid()) && await_all(made);
    unlink(path); /* everybody has it, or nobody is to find half of it */
    if (joined)
        return made;
    munmap(made->places, shared_bytes(ranks));
    free(made);
    return NULL;
}

void sg_exchange_abort(struct sg_exchange *exchange)
{
    atomic_store(&exchange->aborted, true);
}

uint64_t sg_exchange_number(struct sg_exchange *exchange)
{
    return atomic_fetch_add(&exchange->rounds, 1) + 1;
}

bool sg_exchange_begin(struct sg_exchange *exchange, uint64_t number, const void *given, size_t bytes)
{
    struct place *own = &exchange->places[exchange->rank];
    for (int i = 0; i < exchange->ranks; i++) { /* what was given to the round before has been seen by all */
        if (!exchange_await(exchange, &exchange->places[i], &exchange->places[i].done, number - 1))
            return false;
    }
    memcpy(own->bytes, given, bytes);
    atomic_store(&own->given, number);
    for (int i = 0; i < exchange->ranks; i++) {
        if (!exchange_await(exchange, &exchange->places[i], &exchange->places[i].given, number))
            return false;
    }
    return true;
}

const void *sg_exchange_given(const struct sg_exchange *exchange, int rank)
{
    return exchange->places[rank].bytes;
}

void sg_exchange_end(struct sg_exchange *exchange, uint64_t number)
{
    atomic_store(&exchange->places[exchange->rank].done, number);
}

uint64_t sg_exchange_number_to(struct sg_exchange *exchange, int peer)
{
    return atomic_fetch_add(&exchange->to[peer], 1) + 1;
}

uint64_t sg_exchange_number_from(struct sg_exchange *exchange, int peer)
{
    return atomic_fetch_add(&exchange->from[peer], 1) + 1;
}

static struct channel *exchange_channel(const struct sg_exchange *exchange, int sender, int receiver)
{
    return &exchange->channels[sender * exchange->ranks + receiver];
}

bool sg_exchange_send(struct sg_exchange *exchange, int peer, uint64_t number, const void *bytes, size_t size)
{
    struct channel *way = exchange_channel(exchange, exchange->rank, peer);
    const struct place *place = &exchange->places[peer];
    if (!exchange_await(exchange, place, &way->sent, number - 1) ||
        !exchange_await(exchange, place, &way->received, number > SLOTS ? number - SLOTS : 0))
        return false;
    memcpy(way->bytes[number % SLOTS], bytes, size);
    atomic_store(&way->sent, number);
    return true;
}

bool sg_exchange_receive(struct sg_exchange *exchange, int peer, uint64_t number, void *ret, size_t size)
{
    struct channel *way = exchange_channel(exchange, peer, exchange->rank);
    const struct place *place = &exchange->places[peer];
    if (!exchange_await(exchange, place, &way->received, number - 1) ||
        !exchange_await(exchange, place, &way->sent, number))
        return false;
    memcpy(ret, way->bytes[number % SLOTS], size);
    atomic_store(&way->received, number);
    return true;
}
