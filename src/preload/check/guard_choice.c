/* A site is looked up once; its verdict stands in a table by its number.

   Numbers of sites end at 65,535, so the table has 64 KiB. A site that is described only later, because the table of texts was
   full, keeps the verdict OTHER. */
#include "check/guard_choice.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/wrap.h"
#include "process/thread.h"
#include "sites/sites.h"

enum { SITES = 65536, SITE_BYTES = 512 };
enum { UNKNOWN, OTHER, CHOSEN };

static uint64_t rate, seed, size; /* constant from the start on */
static const char *site_text;     /* NULL: none */
static _Atomic uint8_t site_verdict[SITES];
static _Atomic uint64_t allocations;

void sg_guard_choice_open(const struct sg_conf *conf)
{
    rate = (uint64_t)conf->guard_rate;
    seed = (uint64_t)conf->guard_seed;
    size = conf->guard_size;
    site_text = *conf->guard_site ? conf->guard_site : NULL;
}

/* For example, site 12 is "train.py:31 (forward)" and guard_site is "train.py:31". The first allocation there describes the
   site and compares; from then on the table says CHOSEN. Two threads that look at once come to the same verdict.

   True if the text of a site has the words that were asked for. */
static bool site_is_chosen(uint32_t site)
{
    char text[SITE_BYTES];
    if (!site || site >= SITES)
        return false;
    uint8_t verdict = atomic_load_explicit(&site_verdict[site], memory_order_relaxed);
    if (verdict == UNKNOWN) {
        bool chosen = sg_sites_describe(site, text, sizeof text) && strstr(text, site_text);
        verdict = chosen ? CHOSEN : OTHER;
        atomic_store_explicit(&site_verdict[site], verdict, memory_order_relaxed);
    }
    return verdict == CHOSEN;
}

/* Neighbouring numbers differ in their low bits alone, so the bits are mixed twice, and the upper ones are drawn from. */
static bool is_drawn(uint64_t number)
{
    uint64_t mixed = sg_fnv(sg_fnv(SG_FNV_BASIS, seed), number);
    return rate && (sg_hash(mixed ^ mixed >> 32) >> 24) % rate == 0;
}

bool sg_guard_choose(size_t bytes)
{
    uint64_t number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    return is_drawn(number) || (size && bytes == size) || (site_text && site_is_chosen(sg_self.place.shown));
}
