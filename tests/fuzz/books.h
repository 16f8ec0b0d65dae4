/* The driver of a random program. It keeps books like the card, and holds its caller to the rules of the virtual memory
   management interface. Sizes and addresses are on the granule, and maps go into reserved addresses without memory only.
   Unmaps take whole mappings, and a handle is released once. Each byte of a card has a number of its own, so that two
   addresses of one byte are seen to be that. Any call can be made to fail. */
#ifndef FUZZ_BOOKS_H
#define FUZZ_BOOKS_H

#include "driver.h"
#include "work.h"

extern const struct sg_driver books_driver, books_older_driver;

/* The calls that can be made to fail. */
enum books_call {
#define BOOKS_CALLS(CALL)                                                                                         \
    CALL(create)                                                                                                  \
    CALL(release) CALL(map) CALL(unmap) CALL(set_access) CALL(address_reserve) CALL(address_free) CALL(mem_alloc) \
        CALL(mem_free) CALL(mem_info) CALL(event_create) CALL(event_destroy) CALL(event_record) CALL(event_query) \
            CALL(event_synchronize) CALL(ctx_record_event) CALL(ctx_synchronize) CALL(ctx_push) CALL(granularity) \
                CALL(device_total)
#define CALL(name) BOOKS_##name,
    BOOKS_CALLS(CALL)
#undef CALL
    BOOKS_CALL_COUNT
};
const char *books_call_name(enum books_call call);

/* A stretch of a card's memory, by the numbers of its bytes. */
struct books_span {
    uint64_t begin, end;
};

struct books_sums {
    uint64_t used, handle_bytes, mapped_bytes; /* of a device: in all; of handles that are held; of mappings, each
                                                  address for itself */
    uint64_t unmapped_bytes;                   /* of handles that are held and mapped nowhere */
    uint64_t plain_bytes;
    uint32_t events;                           /* alive, of all devices */
    uint32_t handles, ranges;                  /* of all devices; a range: reserved addresses or plain memory */
};

/* `named`: contexts have handles that are told; else there is one that nobody asks about. */
void books_reset(uint8_t devices, uint64_t total, uint64_t granularity, bool named);

/* The first rule that was broken, NULL if none was. */
const char *books_broken(void);
/* Notes that one was. */
void books_breaks(const char *what);

/* Of the calls of this kind the one after the next `after` fails, with `for_ever` all that follow it. */
void books_fail(enum books_call call, uint64_t after, bool for_ever);
/* No call fails from here on. */
void books_heal(void);
/* Calls that have failed because of books_fail(), and of those such as leave with the driver what its caller gave
   back. */
uint64_t books_failed(void);
uint64_t books_left(void);

/* The context that is current, by its number; 0 and above; and the device that it is of. */
void books_use(int context, int device);
int books_current(void);

/* Others have `bytes` of a device, as far as there are so many left. */
void books_outside(int device, uint64_t bytes);

/* The host's memory, in place of a device: pages there are made with its location. It has as much as all programs ask for. */
enum { BOOKS_HOST = FUZZ_DEVICES };

struct books_sums books_sums(int device);

/* Bytes of a device that are in use, by others too. */
uint64_t books_used(int device);

/* The memory behind [address, address + bytes), which `device` may access: up to `room` spans. How many there are; 0:
   not all of it is there. */
uint32_t books_spans(CUdeviceptr address, uint64_t bytes, int device, struct books_span *ret, uint32_t room);

/* The handle mapped at an address over exactly `bytes`, 0 if there is none. */
CUmemGenericAllocationHandle books_mapped(CUdeviceptr address, uint64_t bytes);

/* Called before addresses lose their memory, plain memory included. */
extern void (*books_on_unmap)(CUdeviceptr address, uint64_t bytes);

/* Called when a page of `bytes` has been made. */
extern void (*books_on_create)(int device, uint64_t bytes);

/* A context has ended: its events and its plain memory are gone with it. */
void books_context_gone(int context);

#endif
