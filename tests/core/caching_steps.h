/* A driver with a card, and steps of tests of PyTorch's allocator over again. */
#ifndef CACHING_STEPS_H
#define CACHING_STEPS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "size.h"
#include "ledger_device.h"

enum { STREAM = 0, OTHER = 7 };

struct bench {
    struct sg_ledger_device card;
    struct sg_torch *torch;
    const struct sg_torch_stats *stats;
};

static inline void start(struct bench *bench, const struct sg_torch_conf *conf, uint64_t capacity)
{
    sg_ledger_device_init(&bench->card, capacity);
    bench->torch = sg_torch_create(conf, capacity, &sg_ledger_device_ops, &bench->card);
    assert_non_null(bench->torch);
    bench->stats = sg_torch_stats(bench->torch);
}

static inline void set_up(struct bench *bench, const char *conf_text, uint64_t capacity)
{
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT] = "";
    assert_int_equal(sg_torch_conf_parse(conf_text, &conf, error), 0);
    start(bench, &conf, capacity);
}

static inline struct sg_torch_block *get_on(struct bench *bench, uint64_t bytes, uint64_t stream)
{
    struct sg_torch_block *block = NULL;
    assert_int_equal(sg_torch_alloc(bench->torch, bytes, stream, &block), 0);
    assert_int_equal(bench->stats->reserved.current, bench->card.used);
    return block;
}

static inline struct sg_torch_block *get(struct bench *bench, uint64_t bytes)
{
    return get_on(bench, bytes, STREAM);
}

static inline void put(struct bench *bench, struct sg_torch_block *block)
{
    sg_torch_free(bench->torch, block);
}

static inline void must_run_out(struct bench *bench, uint64_t bytes)
{
    struct sg_torch_block *block = (struct sg_torch_block *)(void *)bench;
    assert_int_equal(sg_torch_alloc(bench->torch, bytes, STREAM, &block), -ENOMEM);
    assert_ptr_equal(block, bench);
}

/* Everything freed and the cache emptied, nothing may be left. */
static inline void tear_down(struct bench *bench)
{
    sg_torch_empty_cache(bench->torch);
    assert_int_equal(bench->stats->allocated.current, 0);
    assert_int_equal(bench->stats->active.current, 0);
    assert_int_equal(bench->stats->requested.current, 0);
    assert_int_equal(bench->stats->reserved.current, 0);
    assert_int_equal(bench->card.used, 0);
    sg_torch_destroy(bench->torch);
    sg_ledger_device_clear(&bench->card);
}

#endif
