/* The C names of torch_memory_saver 0.0.10, as its Python module calls them (binary_wrapper.py there).

   The state that tms_set_…() changes is the calling thread's. A thread begins as the environment says: TMS_INIT_ENABLE,
   TMS_INIT_ENABLE_CPU_BACKUP, TMS_INIT_ENABLE_DISK_BACKUP (1, true, yes) and TMS_INIT_CPU_BACKUP_BACKEND.

   Nouns. A *region* is what a thread allocates while it is *interesting*. A *backup* is the host's copy of paused memory.

   Why these names and not our own: SGLang, verl, slime and others call them through that module, which is used as it is
   installed. So a program needs no change, and its own library is not loaded.

   Limits. Names of tags have at most 63 bytes, and 31 of them are known, each kind of backup apart.

   For example, tms_set_current_tag("kv"), tms_set_interesting_region(true) and cudaMalloc() give a block of the tag "kv".
   tms_pause("kv") takes its pages away. */
#ifndef SG_SAVER_H
#define SG_SAVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SAVER_API __attribute__((visibility("default")))

/* The region: true where the thread allocates under its tag. The tag is a name of at most 63 bytes, and is copied. */
SAVER_API void tms_set_interesting_region(bool interesting);
SAVER_API bool tms_get_interesting_region(void);
SAVER_API void tms_set_current_tag(const char *tag);
SAVER_API const char *tms_get_current_tag(void);

/* The backup: contents of what the thread allocates are kept while it is paused, in host memory or in files of the folder. The
   backend's name ("pinned", "mmap") changes nothing. A copy in host memory that is retained stays after a resume, until
   its block is freed, and serves the next pause. */
SAVER_API void tms_set_enable_cpu_backup(bool enable);
SAVER_API bool tms_get_enable_cpu_backup(void);
SAVER_API void tms_set_cpu_backup_backend(const char *backend);
SAVER_API const char *tms_get_cpu_backup_backend(void);
SAVER_API void tms_set_enable_disk_backup(bool enable);
SAVER_API bool tms_get_enable_disk_backup(void);
SAVER_API void tms_set_disk_backup_dir(const char *path);
SAVER_API void tms_set_retain_cpu_backup(bool retain);
SAVER_API bool tms_get_retain_cpu_backup(void);

/* At most the card's memory without `margin` bytes is held on each device from here on. An allocation beyond it fails as one
   on a full card does. There the margin is of what is free, whoever holds the rest. */
SAVER_API void set_memory_margin_bytes(uint64_t margin);

/* The memory of a tag leaves the device, or comes back; NULL: of all tags. Work that may use it is waited for, and other tags
   go on. 0, or the driver's error number: 2 on a full card, whose memory stays paused and can be resumed later. A tag that
   nobody has used is no error. Any thread may call these, but for one that captures a stream. */
SAVER_API int tms_pause(const char *tag);
SAVER_API int tms_resume(const char *tag);

/* The contents of paused memory, on the host, until it is resumed; NULL: there are none. */
SAVER_API const uint8_t *tms_get_cpu_backup_pointer(const uint8_t *address, uint64_t bytes);

/* For torch.cuda.memory.CUDAPluggableAllocator, by which the hook mode "torch" works. `stream` is a cudaStream_t, whose order
   decides when freed memory serves again. NULL: there is no memory, or the library is not loaded. */
SAVER_API void *tms_torch_malloc(ssize_t bytes, int device, void *stream);
SAVER_API void tms_torch_free(void *pointer, ssize_t bytes, int device, void *stream);

#endif
