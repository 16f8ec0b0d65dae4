/* uthash for keys that are a uint64_t, with Fibonacci hashing (uthash's own function also draws clang's warning about
   cases that fall through). Without host memory an addition leaves hh.tbl NULL. */
#ifndef SG_POINTER_HASH_H
#define SG_POINTER_HASH_H

#include <stdint.h>

#include "base/meta.h"
#include "base/wrap.h"

#define HASH_NONFATAL_OOM 1
#define uthash_malloc(bytes) sg_meta_noted(malloc(bytes))
#define HASH_FUNCTION(key, bytes, ret) \
    ((void)(bytes), (ret) = (unsigned)(sg_hash(*(const uint64_t *)(const void *)(key)) >> 32))
#include <uthash.h>

#endif
