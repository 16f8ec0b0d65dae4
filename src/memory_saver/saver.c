/* The C names of torch_memory_saver 0.0.10 (csrc/entrypoint.cpp there has their meaning).

   Each thread has a tag, whether it allocates under it (*interesting*), and whether contents are kept. The three together
   become one tag on the thread's stack of tags: a change pops what stood there and pushes the new one. Without a backup
   it has SEGALLOC_TAG_DISCARD. disable() makes the thread uninteresting, which pushes none.

   Why one entry and no stack of our own: the Python module notes what was set, and sets it again where a region ends.

   For example, tms_set_interesting_region(true) and tms_set_current_tag("kv") leave "kv" with that flag on the stack.
   tms_set_enable_cpu_backup(true) then has it popped, and "kv" without the flag is pushed: another tag of that name. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

#include "memory_saver/bring_library.h"
#include "memory_saver/saver.h"
#include "segalloc/segalloc.h"

enum { TAG_BYTES = 256, TAG_SHOWN = 80, NOT_FOUND = 500, NOT_SUPPORTED = 801, DEVICES_MOST = 64 };

/* The library's functions, as far as they are loaded; NULL: an older one lacks it, or none is loaded. They are looked up once, since a
   process does not load the library later. */
static struct {
    int (*tag_push)(const char *tag, unsigned flags);
    int (*tag_pop)(void);
    int (*pause)(const char *tag);
    int (*resume)(const char *tag);
    const void *(*backup)(const void *address, size_t bytes);
    int (*backup_retain)(int retain);
    int (*backup_folder)(const char *folder, size_t staging);
    size_t (*set_limit)(int device, size_t bytes);
    void *(*torch_malloc)(size_t bytes, int device, void *stream);
    void (*torch_free)(void *pointer, size_t bytes, int device, void *stream);
} library;
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

/* The state of a thread. `begun`: the environment was read. `pushed`: an entry of ours stands on the thread's stack of tags. The
   tag may be longer than the library takes, which it refuses then. */
static _Thread_local struct {
    bool begun, pushed;
    bool interesting, cpu_backup, disk_backup, by_mmap;
    char tag[TAG_BYTES];
} self;

/* A tag's name is copied, since Python's own bytes go. Its first 80 are shown where it can't be used.
   Settings of the process, and whether a line was printed, which is once at most. */
static _Atomic bool retains, has_folder;
static _Atomic bool said_tag;

static void library_find(void *ret, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(ret, &found, sizeof found);
}

/* For pthread_once(). Nothing here is loaded by it. */
static void library_look_up(void)
{
    library_find(&library.tag_push, "segalloc_tag_push");
    library_find(&library.tag_pop, "segalloc_tag_pop");
    library_find(&library.pause, "segalloc_pause");
    library_find(&library.resume, "segalloc_resume");
    library_find(&library.backup, "segalloc_backup");
    library_find(&library.backup_retain, "segalloc_backup_retain");
    library_find(&library.backup_folder, "segalloc_backup_folder");
    library_find(&library.set_limit, "segalloc_set_limit");
    library_find(&library.torch_malloc, "segalloc_torch_malloc");
    library_find(&library.torch_free, "segalloc_torch_free");
}

static void saver_say(const char *line)
{
    fprintf(stderr, "segalloc: torch_memory_saver: %s\n", line);
}

/* torch_memory_saver takes 1, true and yes for true. */
static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 || strcasecmp(value, "yes") == 0);
}

/* Has the thread allocate as it has set. The entry that was pushed before goes first, so the stack is never deeper by more
   than one. A name that is too long, or one too many, is said once: memory under it stays. A process that the library does
   not serve is told nothing: a shell that starts the program has the same environment. */
static void thread_apply(void)
{
    char line[200];
    if (!library.tag_push || !library.tag_pop)
        return;
    if (self.pushed)
        (void)library.tag_pop();
    unsigned flags = self.cpu_backup ? 0 : self.disk_backup ? SEGALLOC_TAG_FILE : SEGALLOC_TAG_DISCARD;
    int result = library.tag_push(self.interesting ? self.tag : NULL, self.interesting ? flags : 0);
    self.pushed = result == 0;
    if (result == 0 || result == NOT_SUPPORTED || atomic_exchange(&said_tag, true))
        return;
    snprintf(line, sizeof line,
        "tag \"%.*s\" can't be used (CUDA error %d): what is allocated under it stays when it is paused", TAG_SHOWN,
        self.tag, result);
    saver_say(line);
}

/* For example, TMS_DISK_BACKUP_CHUNK_MB=64 and set_disk_backup_dir("/nvme") have files made there, and 64 MiB of host memory are
   used on the way. The variable is read when a folder is chosen, since programs set it after they have begun.

   Where files of contents go, and in which parts: TMS_DISK_BACKUP_CHUNK_MB is of host memory, 256 MiB unless it is set. */
static void saver_set_folder(const char *path)
{
    const char *chunk = getenv("TMS_DISK_BACKUP_CHUNK_MB");
    atomic_store(&has_folder, true);
    if (library.backup_folder && library.backup_folder(path, (size_t)(chunk ? strtoull(chunk, NULL, 10) : 0) << 20) == 1)
        saver_say("the folder for enable_disk_backup has no name, or too long a one: files go where they went before");
}

/* The folder of the environment, where the program has named none. */
static void saver_choose_folder(void)
{
    const char *path = getenv("TMS_DISK_BACKUP_DIR");
    if (!atomic_load(&has_folder))
        saver_set_folder(path && *path ? path : "/tmp");
}

/* The state of the calling thread, which begins as the environment has it. Each function comes by here first, since a thread may
   be one that this file has not seen begin: a thread of the C library's own, or one that was there before.

   For example, TMS_INIT_ENABLE=yes alone makes all threads allocate under "default", whose contents are not kept. */
static void thread_begin(void)
{
    pthread_once(&looked_up, library_look_up);
    if (self.begun)
        return;
    const char *backend = getenv("TMS_INIT_CPU_BACKUP_BACKEND");
    self.begun = true;
    self.interesting = is_set("TMS_INIT_ENABLE");
    self.cpu_backup = is_set("TMS_INIT_ENABLE_CPU_BACKUP");
    self.disk_backup = is_set("TMS_INIT_ENABLE_DISK_BACKUP");
    self.by_mmap = backend && strcmp(backend, "mmap") == 0;
    if (self.disk_backup)
        saver_choose_folder();
    strcpy(self.tag, "default");
    if (self.interesting)
        thread_apply();
}

void tms_set_interesting_region(bool interesting)
{
    thread_begin();
    self.interesting = interesting;
    thread_apply();
}

bool tms_get_interesting_region(void)
{
    thread_begin();
    return self.interesting;
}

void tms_set_current_tag(const char *tag)
{
    thread_begin();
    snprintf(self.tag, sizeof self.tag, "%s", tag ? tag : "");
    if (self.interesting)
        thread_apply();
}

const char *tms_get_current_tag(void)
{
    thread_begin();
    return self.tag;
}

void tms_set_enable_cpu_backup(bool enable)
{
    thread_begin();
    self.cpu_backup = enable;
    if (self.interesting)
        thread_apply();
}

bool tms_get_enable_cpu_backup(void)
{
    thread_begin();
    return self.cpu_backup;
}

/* Contents are kept the same way by both names: in memory that is mapped, and registered until it is resumed. Then all of it
   goes back to the system, which is what "mmap" is asked for. */
void tms_set_cpu_backup_backend(const char *backend)
{
    thread_begin();
    self.by_mmap = backend && strcmp(backend, "mmap") == 0;
}

const char *tms_get_cpu_backup_backend(void)
{
    thread_begin();
    return self.by_mmap ? "mmap" : "pinned";
}

void tms_set_enable_disk_backup(bool enable)
{
    thread_begin();
    self.disk_backup = enable;
    if (enable)
        saver_choose_folder();
    if (self.interesting)
        thread_apply();
}

bool tms_get_enable_disk_backup(void)
{
    thread_begin();
    return self.disk_backup;
}

void tms_set_disk_backup_dir(const char *path)
{
    thread_begin();
    saver_set_folder(path);
}

void tms_set_retain_cpu_backup(bool retain)
{
    thread_begin();
    atomic_store(&retains, retain);
    if (library.backup_retain)
        (void)library.backup_retain(retain);
}

bool tms_get_retain_cpu_backup(void)
{
    return atomic_load(&retains);
}

/* A margin of free memory becomes a limit of what is held on each device. The driver is asked by name: this file is linked with no
   library of CUDA's, because programs have one of several versions. For example, 2 GiB of a card of 80 GiB leave a limit
   of 78 GiB; a margin beyond the card leaves one of 0, so that nothing can be allocated. */
void set_memory_margin_bytes(uint64_t margin)
{
    int (*total_of)(size_t * ret, int device);
    library_find(&total_of, "cuDeviceTotalMem_v2");
    thread_begin();
    size_t total;
    for (int device = 0; total_of && library.set_limit && device < DEVICES_MOST && total_of(&total, device) == 0;
         device++)
        (void)library.set_limit(device, margin < total ? total - margin : 0);
}

/* A tag that nobody has used is no error there. Other errors are the library's numbers, and the state is as before then: one
   that was paused stays paused. torch_memory_saver itself ends the process. The Python part raises them. */
int tms_pause(const char *tag)
{
    thread_begin();
    int result = library.pause ? library.pause(tag) : NOT_SUPPORTED;
    return result == NOT_FOUND ? 0 : result;
}

int tms_resume(const char *tag)
{
    thread_begin();
    int result = library.resume ? library.resume(tag) : NOT_SUPPORTED;
    return result == NOT_FOUND ? 0 : result;
}

const uint8_t *tms_get_cpu_backup_pointer(const uint8_t *address, uint64_t bytes)
{
    thread_begin();
    return library.backup ? library.backup(address, bytes) : NULL;
}

void *tms_torch_malloc(ssize_t bytes, int device, void *stream)
{
    thread_begin();
    return library.torch_malloc ? library.torch_malloc((size_t)bytes, device, stream) : NULL;
}

void tms_torch_free(void *pointer, ssize_t bytes, int device, void *stream)
{
    thread_begin();
    if (library.torch_free)
        library.torch_free(pointer, (size_t)bytes, device, stream);
}

/* Threads of the program begin as the environment has it, before they allocate. Tags are a thread's own, so each thread pushes its
   tag when it begins. Without TMS_INIT_ENABLE a thread has none to begin with, and its start is the system's own. */
struct beginning {
    void *(*routine)(void *argument);
    void *argument;
};

static void *thread_run(void *given)
{
    struct beginning beginning = *(struct beginning *)given;
    free(given);
    thread_begin();
    return beginning.routine(beginning.argument);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *ret, const pthread_attr_t *attributes,
    void *(*routine)(void *), void *argument)
{
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!create)
        *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    struct beginning *beginning = is_set("TMS_INIT_ENABLE") ? malloc(sizeof *beginning) : NULL;
    if (!beginning)
        return create(ret, attributes, routine, argument);
    *beginning = (struct beginning){routine, argument};
    int result = create(ret, attributes, thread_run, beginning);
    if (result)
        free(beginning);
    return result;
}

__attribute__((constructor)) static void saver_begin(int argc, char **argv)
{
    (void)argc;
    sg_bring_library(argv);
    thread_begin();
    if (is_set("TMS_RETAIN_CPU_BACKUP"))
        tms_set_retain_cpu_backup(true);
}
