/* Plays a trace through an allocator on a card that only keeps the books.

   A *play* is one pass over a trace under given settings. The *card* is a device with a size and no GPU. `segalloc replay`
   is one play; the tuner, a smallest card and a verdict are many, each with other settings or another card.

   Why it can be exact: the core decides from its calls alone. A play makes the calls of the trace, and the card answers as
   a driver would. So the play of a trace with its own settings repeats every decision (`as_recorded`), and a play with
   other settings says what would have happened.

   Example, the smallest card of tests/data/lmcleaner-3b-zero3.csv.zst, which has 353941 events. 18561 MiB are live at its
   peak. A caller plays it with `stop_at_oom` on ever closer cards, in steps of 2 MiB:
     18934 MiB    fits     the live bytes and a fiftieth; 18560 MiB cannot
     18746 MiB    fits     the middle of 18560 and 18934
     18652 MiB    fits
     18606 MiB    fits
     18582 MiB    fits
     18570 MiB    new_ooms 1, and the play ends there
     18576 MiB    new_ooms 1
     18578 MiB    new_ooms 1
     18580 MiB    fits     one step above a card that does not: the answer, 18.14 GiB

   Limits: kernels are not played, so a play says nothing about time. Memory that others held is played as far as the trace
   has it. One play uses one thread at a time, but for operations of `as_recorded` (interleaver.h). */
#ifndef SG_PLAYER_H
#define SG_PLAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/conf.h"
#include "core/core.h"
#include "segalloc/trace_format.h"
#include "base/size.h"
#include "base/stats.h"
#include "pytorch/allocator_config.h"

enum {
    SG_PLAY_ERROR = 256,
    SG_PLAY_CONTRADICTS = -1 /* the records contradict each other */
};

/* A card when nothing says how large: what PyTorch's allocator was measured on for the recorded traces. */
#define SG_PLAY_CARD SG_TIB

/* The source of records: writes at most `n` and returns the number written; 0 at the end. */
typedef size_t sg_play_next(void *source, struct segalloc_trace_record *out, size_t n);

enum sg_policy { SG_POLICY_SEGALLOC, SG_POLICY_PYTORCH };

struct sg_play {
    enum sg_policy policy;
    struct sg_conf conf;         /* of SG_POLICY_SEGALLOC */
    struct sg_torch_conf torch;  /* of SG_POLICY_PYTORCH */
    uint64_t card_bytes;         /* of each device; 0: what the trace says of it, and where it doesn't SG_PLAY_CARD */
    uint64_t card[SG_DEVICES_MAX]; /* of single ones; 0: as above */
    uint64_t others[SG_DEVICES_MAX]; /* bytes of each card that other programs hold all the time; of
                                        SG_POLICY_SEGALLOC */
    uint64_t live_bytes;         /* the most that lives on one device, where no card is known; 0: not known either */
    uint64_t granularity;
    bool ordered;                /* work is played too, and memory is used again in its order; not with as_recorded */
    uint64_t run_ahead;          /* K: work is complete once so many more allocations have been made */
    bool possible_users; /* a free waits for all that may hold its block's address; else for those that were recorded */
    bool as_recorded;            /* a trace of ours, with the settings it was recorded with: played section by
                                    section */
    uint64_t stop_at_oom;        /* bits of devices: ends once each of them has had an allocation that does not fit;
                                    0: plays the whole trace */
    const uint64_t *made_good;   /* ascending: events of the program that are refused allocations which came to something
                                    (refusal.h); under other settings nobody asks for them. May be NULL */
    size_t made_goods;
    uint64_t part_end;           /* events of the program after which the first part ends; 0: no parts */
    sg_play_next *next;
    /* Called after each record, with the number of what the program has done so far; `core` is NULL under PyTorch's
       rules. False: the play ends there. May be NULL. */
    bool (*watch)(void *watcher, const struct segalloc_trace_record *record, uint64_t event, struct sg_core *core);
    void *watcher;
    uint64_t (*place)(void *source); /* byte at which the record after those that `next` last wrote stands; 0: unknown.
                                        May be NULL */
    void *source;
};

/* The driver calls that a result counts; names as in the JSON. */
#define SG_PLAY_CALLS(CALL) \
    CALL(reserve) CALL(create) CALL(map) CALL(set_access) CALL(unmap) CALL(release) CALL(alloc) CALL(free) CALL(sync)

/* Those over handles. */
#define SG_PLAY_HANDLE_CALLS(CALL) CALL(create) CALL(map) CALL(set_access) CALL(unmap) CALL(release)

/* The result of one device. */
struct sg_play_device {
    bool used;                 /* memory was asked of it */
    uint64_t card_bytes;
    struct sg_stats stats;     /* by PyTorch's rules requested, allocated, active and reserved bytes only */
    uint64_t first_peak_reserved; /* at the end of the first part */
    uint64_t allocs;           /* those that failed when recorded included */
    uint64_t ooms, new_ooms;   /* allocations that do not fit; of them, those that had not failed when recorded */
    uint64_t largest_oom;      /* bytes */
    uint64_t first_oom_event;  /* its number, from 1; 0: none */
    uint64_t first_oom_bytes, first_oom_live; /* what it asked for, and what the program had in use there */
    uint64_t first_oom_outside; /* what the program had in use there by other calls */
    uint64_t first_oom_short;  /* how much it lacked; 0: not known */
    uint32_t first_oom_site, first_oom_phase; /* as the trace numbers them; 0: not known */
    enum segalloc_outside first_oom_by; /* by which call it was asked for; OTHER: it was the allocator's to serve */
    uint64_t peak_taken;       /* what the program had in use here, and what is held by other calls, at once, bytes */
    struct sg_outside at_peak; /* then */
};

/* Figures of a part of a trace, as sums over the devices. */
struct sg_play_part {
    uint64_t allocs, ooms, peak_reserved, calls, pages_moved, bytes_moved, growth_ns, move_ns;
};

/* Sums and peaks are over all devices, and peaks are sums of theirs; `first` is the earliest. */
struct sg_play_result {
    uint64_t events, allocs, frees;
    uint64_t ooms;     /* allocations that do not fit, those included that failed when recorded and still do */
    uint64_t new_ooms; /* those left out */
    uint64_t failures; /* that were recorded */
    uint64_t unmatched_frees;
    uint64_t peak_requested, peak_allocated, peak_pending, peak_reserved, end_reserved; /* bytes, over all devices */
    /* waits that the program did not make */
    uint64_t pages_moved, bytes_moved, aliased_pages, late_unmaps, host_waits, event_calls;
    uint64_t strict_frees, strict_waits; /* frees that had to see the device idle, and how many of them waited for
                                            work */
    uint64_t growth_ns, move_ns; /* by what the device's driver calls cost */
    uint64_t peak_mappings;      /* pages, at each address on each device with access */
    uint64_t diverged_event; /* number of the event from which on as_recorded could not be kept to, from 1; 0: none */
    uint64_t largest_request, largest_oom;
    uint64_t first_oom_event, first_oom_bytes, first_oom_live, first_oom_outside, first_oom_short; /* as of a device */
    enum segalloc_outside first_oom_by;
    bool parted; /* the trace went on after `part_end`; without: the next two are zeros */
    struct sg_play_part first, rest;
    struct sg_play_device device[SG_DEVICES_MAX];
    struct sg_play_calls {
#define CALL(name) uint64_t name;
        SG_PLAY_CALLS(CALL)
#undef CALL
    } calls;
    struct sg_play_handles { /* that those calls were over */
#define CALL(name) uint64_t name;
        SG_PLAY_HANDLE_CALLS(CALL)
#undef CALL
    } handles;
};

/* True if nothing says how large the cards are: page_size_mb:auto is then that of a card which `live_bytes` fill. */
bool sg_play_is_of_live_bytes(const struct sg_play *play);

/* Plays all of it. Returns 0, or SG_PLAY_CONTRADICTS or -ENOMEM with one line in `error`; *ret is set by success alone. The
   result is a pure function of `play` and the records: no clock, no environment. Takes host memory for the live blocks,
   and gives all of it back. */
int sg_play_run(const struct sg_play *play, struct sg_play_result *ret, char error[SG_PLAY_ERROR]);

#endif
