/* The public interface of libsegalloc.so. A program needs none of it: the library answers cudaMalloc and cudaFree when
   it is named in LD_PRELOAD. These functions are for programs, and frameworks, that know of it.

   Versioning: functions are only ever added; structs only grow at the end in a new soname. */
#ifndef SEGALLOC_SEGALLOC_H
#define SEGALLOC_SEGALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SEGALLOC_API __attribute__((visibility("default")))
#else
#define SEGALLOC_API
#endif

/* "0.1.0": the version of the library that is loaded. */
SEGALLOC_API const char *segalloc_version(void);

/* Gives memory that nobody uses back to the driver, until at most `keep` bytes are held on `device` beyond what is
   allocated. Returns the bytes given back; 0 too where the library isn't in use. */
SEGALLOC_API size_t segalloc_trim(int device, size_t keep);

struct segalloc_stat {
    const char *name; /* as in `segalloc report --json`; static */
    const char *unit; /* "bytes", "count" or "ns"; static */
    uint64_t value;   /* now, or the total since the start */
    uint64_t peak;    /* the largest value since the start or the last segalloc_reset_peaks(); 0 for totals */
};

/* A consistent snapshot of the statistics of `device`: writes up to `count` of them to `ret` and returns how many there
   are. 0 where nothing was allocated on the device, or the library isn't in use. */
SEGALLOC_API int segalloc_stats(int device, struct segalloc_stat *ret, int count);

/* The call by which the program gave streams work, or ordered them, in a way that segalloc doesn't know: a free waits for
   all work of the device since then, and more memory is held. NULL: there was none. Valid for good. */
SEGALLOC_API const char *segalloc_untracked_by(void);

/* Peaks of `device` as segalloc_stats() gives them begin again at the present values. Reports and files keep the peaks
   since the start. */
SEGALLOC_API void segalloc_reset_peaks(int device);

/* As segalloc_stats(), with the peaks since the last call of this function, for which they begin again at the present
   values. The peaks of segalloc_stats(), reports and files stay as they are. One reader in a process: the Python module
   calls this for segalloc.watch(). */
SEGALLOC_API int segalloc_take_peaks(int device, struct segalloc_stat *ret, int count);

/* What the program is doing from here on, for the trace and for what running out prints: "step 12", "eval". A mark holds
   for all threads until the next one; NULL ends it. A phase is the calling thread's own, within those that it is in
   already, and holds for other threads where they are in none. The text is copied, 511 bytes of it. Without `sites`
   they do nothing. Ranges of NVTX are phases too, where NVTX_INJECTION64_PATH names this library. */
SEGALLOC_API void segalloc_mark(const char *name);
SEGALLOC_API void segalloc_phase_push(const char *name);
SEGALLOC_API void segalloc_phase_pop(void);

/* Begins what the options `trace` and `sites` begin: a trace in `path`, with the places that ask for memory. It takes
   effect before the first allocation only, and a file that `trace` names already stays. NULL asks, and changes nothing.
   Returns the path of the trace with places, which may still have to be made; NULL: there is none. The text stays valid
   until the next call. */
SEGALLOC_API const char *segalloc_record(const char *path);

/* At most `bytes` may be held on `device` from here on; the configuration's own limit still bounds it. What is held
   beyond that stays until it is given back. Returns what is in force, 0 where the library doesn't serve the device. */
SEGALLOC_API size_t segalloc_set_limit(int device, size_t bytes);

/* A piece of the addresses that have memory behind them. */
enum segalloc_piece_state { SEGALLOC_PIECE_ALLOCATED = 1, SEGALLOC_PIECE_PENDING = 2, SEGALLOC_PIECE_FREE = 3 };
struct segalloc_piece {
    uint64_t address, bytes;
    uint64_t requested; /* bytes asked for; 0 of free pieces */
    uint64_t stream;    /* the CUstream that a block was allocated for; 0 if it isn't known */
    uint32_t state;     /* enum segalloc_piece_state; pending: freed, and still in use by queued work */
    uint32_t small;     /* 1: among the small blocks */
};

/* Writes up to `room` pieces of `device`, by address within each of its ranges, and returns how many there are. 0 where
   nothing was allocated, or with expandable_segments:False. */
SEGALLOC_API size_t segalloc_pieces(int device, struct segalloc_piece *ret, size_t room);

/* 0 where the library hands everything on to the driver, by configuration or because a tool watches it; else 1. */
SEGALLOC_API int segalloc_in_use(void);

/* The value in force of an option, as it is written in SEGALLOC_CONF, truncated to `size` bytes with the NUL. Returns
   its length; 0 for a name that is none, or an empty value. */
SEGALLOC_API size_t segalloc_option(const char *name, char *ret, size_t size);

/* For callers that order their own work by streams. A stream is a cudaStream_t or CUstream; NULL and 1 are the legacy
   default stream, 2 is the calling thread's own.

   segalloc_malloc_on() allocates on the current device, as cudaMalloc does, for use on `stream`. NULL: zero bytes, out
   of memory, or no device. segalloc_free() gives such a block back to its stream. It serves
   work that the stream is given from then on, and other streams that have waited for it. Neither the host nor the device
   waits. Where the block was used on other streams too, segalloc_record_stream() must name each of them
   before the free. No such call is needed for work that the block's own stream has waited for. That is the rule of PyTorch's
   Tensor.record_stream().

   Both take any memory that cudaFree() takes. cudaFree() of such a block waits as ever. The results are CUresult (0:
   fine); where the order of the stream can't be followed (a driver before CUDA 12, or more than 63 streams),
   segalloc_free() covers all work that there is, and segalloc_record_stream() may answer 801 (not supported) for a
   stream of another device: then that work must be waited for. It answers 1 (invalid value) for what is no live block,
   and 0 for memory that the driver served, whose free waits for every stream; any address within a block will do. */
SEGALLOC_API void *segalloc_malloc_on(size_t bytes, void *stream);
SEGALLOC_API int segalloc_free(void *pointer);
SEGALLOC_API int segalloc_record_stream(void *pointer, void *stream);

/* Tags: names under which memory is paused. Memory that the calling thread allocates between push and pop stands on pages
   of the tag alone. They cost no more than the last of them. Tags nest, 63 deep, and NULL is memory without one. With
   SEGALLOC_TAG_DISCARD a pause saves no contents: a resume brings zeros. With SEGALLOC_TAG_FILE contents go to files. A
   name with one of these flags and one without are two tags, which are paused together. 31 tags of 63 bytes are known; a further one is refused by 2 (out of memory).

   segalloc_pause() waits for the work that may use the tag's memory, saves its contents on the host and gives its pages
   back to the driver, idle ones among them. NULL: all tags, and all that is idle besides. Addresses, pointers and
   captured graphs stay good, but must not be used before segalloc_resume() has brought pages and contents back.
   Meanwhile memory of the tag can be freed, and a new allocation of it is refused with 800 (not permitted). A tag that
   is in the wanted state already is no error.

   Results are a CUresult as int, 0: fine. After any other a pause has changed nothing, and a resume leaves the tag
   paused, to be repeated. 2 (out of memory): the device, or the host, is full. 500 (not found): nobody has pushed that name.
   600 (not ready): its work does not end. 800: others remember its pages, such as a network card or a process that they
   were exported to. 801 (not supported): the library serves nothing here, or is checking itself. 900: a stream is being
   captured. One line on standard error says why. */
#define SEGALLOC_TAG_DISCARD 1u
#define SEGALLOC_TAG_FILE 2u
SEGALLOC_API int segalloc_tag_push(const char *tag, unsigned flags);
SEGALLOC_API int segalloc_tag_pop(void);
SEGALLOC_API int segalloc_pause(const char *tag);
SEGALLOC_API int segalloc_resume(const char *tag);

/* segalloc_pause() without contents, whatever the tag's flag: a resume brings zeros. */
SEGALLOC_API int segalloc_discard(const char *tag);

/* Bytes that the program has asked for under tags of that name and not freed, over all devices, paused or not. NULL: under any. */
SEGALLOC_API size_t segalloc_tag_bytes(const char *tag);

/* The contents of [address, address + bytes) while they are paused: host memory, to be read until the tag is resumed. NULL
   where they are not paused, were not saved on the host, or do not belong to one allocation. */
SEGALLOC_API const void *segalloc_backup(const void *address, size_t bytes);

/* 1: from the next resume on, host memory with contents stays until its allocation is freed. It can be read meanwhile, and the
   next pause uses it again. 0, as at first: a resume gives it back. Returns 0, or 801. */
SEGALLOC_API int segalloc_backup_retain(int retain);

/* The folder for contents of tags with SEGALLOC_TAG_FILE that are paused from here on; TMPDIR or /tmp at first. Files are
   named segalloc-PID-NUMBER.contents; a resume removes them. `staging`: bytes of host memory by which they go, 0 for 256 MiB.
   Returns 0; 1 (invalid value) for an empty or too long name; 801. A folder that can't be used is an error of the pause: 2 where
   the disk is full, else 304 (operating system). */
SEGALLOC_API int segalloc_backup_folder(const char *folder, size_t staging);

/* For torch.cuda.memory.CUDAPluggableAllocator and MemPool. `stream` (a cudaStream_t) is the one that the block belongs
   to. Running out is c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError, thrown through the caller; for
   a MemPool it is NULL. Where PyTorch's libraries have no such error, it ends the process with a message, because
   PyTorch would take NULL for a tensor; but not at the end of the process, when the driver has ended before the
   thread. */
SEGALLOC_API void *segalloc_torch_malloc(size_t bytes, int device, void *stream);
SEGALLOC_API void segalloc_torch_free(void *pointer, size_t bytes, int device, void *stream);

/* 0 where PyTorch is loaded and its libraries lack that error, so that its own cache is the better choice; else 1. */
SEGALLOC_API int segalloc_torch_raises(void);

/* Whether PyTorch's own allocator, as the process has loaded it, can be told to hand tensors on, and what it says of memory
   then has what is served here: statistics and snapshots. No pluggable allocator is needed for them. */
SEGALLOC_API int segalloc_torch_answers(void);

/* Its optional hooks are set_record_stream_fn, set_reset_fn, set_memory_fraction_fn and set_base_alloc_fn.
   record_stream: without the hook PyTorch keeps Tensor.record_stream() to itself. Until it is called for the first time, a
   free covers every stream that could have seen the block, which holds memory back for longer. A call with NULL says
   that the hook is set: other devices' streams are not covered from then on.
   reset (torch.cuda.empty_cache): waits for freed memory that queued work still uses, then gives everything idle back. A
   device on which that wait fails keeps what it has; the next call of the program answers the error. */
SEGALLOC_API void segalloc_torch_record_stream(void *pointer, void *stream);
SEGALLOC_API void segalloc_torch_reset(void);
SEGALLOC_API void segalloc_torch_memory_fraction(double fraction, int device);
SEGALLOC_API void *segalloc_torch_base(void *pointer, size_t *ret_bytes);

#ifdef __cplusplus
}
#endif

#endif
