/* From below: one file of the system's, staging, one file of blocks, then all of a tag. One order at a time is carried out, so
   that nothing here has a lock.

   For example, blocks of 300 MiB and 7 bytes of process 41 become segalloc-41-1.contents and segalloc-41-2.contents. */
#include "serve/contents_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/meta.h"
#include "process/environment.h"
#include "process/log.h"
#include "serve/contents_copies.h"
#include "serve/contents_places.h"

enum { STAGING = 256 << 20, STAGING_LEAST = 8192, TRIES = 1000 };
#define TMPFS UINT32_C(0x01021994) /* TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h */
#define RAMFS UINT32_C(0x858458f6)

/* A file of neighbours in the order of addresses. Its places are [first, end) of the table. */
struct file {
    unsigned number; /* in its name; 0: it is gone */
    uint64_t bytes;
    size_t first, end, left; /* left: places that are not gone */
};

static struct filed {
    char *folder; /* PATH_MAX bytes, as it was when the tag was saved */
    struct sg_places places;
    struct file *file;  /* places name them by index */
    size_t count, room; /* files, and how many the table can have */
    bool saved;
} filed_of[SG_DEVICES_MAX][SG_TAGS];

static char folder_now[PATH_MAX];
static uint64_t staging_bytes = STAGING;
static unsigned last_number;
static bool said_memory;

/* Host memory by which bytes go. */
struct staging {
    unsigned char *host;
    uint64_t bytes; /* of a half */
    bool registered;
};

static struct filed *filed_by(const struct sg_contents *contents)
{
    return &filed_of[contents->device][contents->tag];
}

bool sg_contents_file_folder(const char *folder, uint64_t staging)
{
    if (!folder || !*folder || strlen(folder) >= sizeof folder_now - 64)
        return false;
    strcpy(folder_now, folder);
    staging_bytes = staging == 0 ? STAGING : staging < STAGING_LEAST ? STAGING_LEAST : staging;
    return true;
}

/* A line with the system's reason, and the driver's number for it. */
static CUresult file_failed(const char *what, const char *path, int error)
{
    char line[PATH_MAX + 160];
    snprintf(line, sizeof line, "contents can't be %s %s: %s", what, path, strerror(error));
    sg_log_line(line);
    return error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                                                                   : CUDA_ERROR_OPERATING_SYSTEM;
}

static void file_name(char ret[PATH_MAX], const char *folder, unsigned number)
{
    snprintf(ret, PATH_MAX, "%.*s/segalloc-%d-%u.contents", PATH_MAX - 64, folder, (int)getpid(), number);
}

/* For example, TMPDIR=/scratch and no folder of the program's: files are made in /scratch. A folder that can't be made is no
   error yet; the first file there says so.

   The folder of new files, made if it is not there. It was chosen by the program, or is the system's for what is temporary. */
static const char *file_folder(void)
{
    struct statfs system;
    const char *temporary = sg_environment("TMPDIR");
    if (!*folder_now && !sg_contents_file_folder(temporary, 0))
        (void)sg_contents_file_folder("/tmp", 0);
    (void)mkdir(folder_now, S_IRWXU);
    if (!said_memory && statfs(folder_now, &system) == 0 &&
        ((uint32_t)system.f_type == TMPFS || (uint32_t)system.f_type == RAMFS)) {
        char line[PATH_MAX + 160];
        said_memory = true;
        snprintf(line, sizeof line, "%s is a folder in memory: contents there take as much of it as without files",
            folder_now);
        sg_log_line(line);
    }
    return folder_now;
}

/* Makes a file that is new, with room for `bytes`. A name that is there is another process's of
   the same number, which was killed. The next number is tried, so nothing of it is overwritten. A file system without fallocate() takes the room as it is written. */
static CUresult file_make(const char *folder, uint64_t bytes, int *ret, unsigned *ret_number)
{
    char path[PATH_MAX];
    int descriptor = -1;
    for (int i = 0; i < TRIES && descriptor < 0; i++) {
        file_name(path, folder, ++last_number);
        descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
        if (descriptor < 0 && errno != EEXIST)
            break;
    }
    if (descriptor < 0)
        return file_failed("written to", path, errno);
    int error = posix_fallocate(descriptor, 0, (off_t)bytes);
    if (error && error != EOPNOTSUPP && error != EINVAL) {
        (void)close(descriptor);
        (void)unlink(path);
        return file_failed("written to", path, error);
    }
    *ret = descriptor;
    *ret_number = last_number;
    return CUDA_SUCCESS;
}

/* A signal may cut a call short, and a disk that is nearly full may take a part. The rest is tried then, and
   has the error.

   Writes or reads all of [offset, offset + bytes); the system's error, 0: fine. */
static int file_move(int descriptor, unsigned char *host, uint64_t offset, uint64_t bytes, bool home)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t part = home ? pread(descriptor, host + done, bytes - done, (off_t)(offset + done))
                            : pwrite(descriptor, host + done, bytes - done, (off_t)(offset + done));
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return part < 0 ? errno : EIO;
        done += (uint64_t)part;
    }
    return 0;
}

/* For example, the largest of three files has 10 MiB and staging may have 256: two halves of 10 MiB are enough.

   Staging for files of at most `most` bytes; without registration copies go through the driver's own buffers. */
static bool staging_begin(const struct sg_driver *driver, struct staging *ret, uint64_t most)
{
    uint64_t page = STAGING_LEAST / 2, half = staging_bytes / 2;
    half = (half < most ? half : most) + page - 1;
    *ret = (struct staging){.bytes = half / page * page};
    void *host = mmap(NULL, 2 * ret->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED)
        return false;
    ret->host = host;
    ret->registered = driver->host_register && driver->host_unregister &&
                      driver->host_register(host, 2 * ret->bytes, 0) == CUDA_SUCCESS;
    return true;
}

static void staging_end(const struct sg_driver *driver, struct staging *staging)
{
    if (staging->registered)
        (void)driver->host_unregister(staging->host);
    (void)munmap(staging->host, 2 * staging->bytes);
}

/* A part of a file, and its memory in staging. */
struct file_part {
    const struct file *file;
    uint64_t from, bytes;
    unsigned char *host;
    bool registered;
};

/* The part of a file that begins at `from`; without bytes: the file ends there. Parts use the halves of staging in turn. */
static struct file_part file_part_at(const struct file *file, const struct staging *staging, uint64_t from)
{
    uint64_t half = staging->bytes, left = from < file->bytes ? file->bytes - from : 0;
    return (struct file_part){file, from, left < half ? left : half, staging->host + from / half % 2 * half,
        staging->registered};
}

/* Begins copies of what chosen blocks have in a part, between the device and staging. *ret_any: there is any such block. Without
   `copies` only that is found out.

   For example, halves have 4 KiB, and a file has blocks of 3,000, 100 and 5,000 bytes. Its first part has the first two and 996
   bytes of the third: three copies. Its second part is one copy, to 996 bytes behind the third block's begin. */
static CUresult file_part_copy(const struct sg_contents *contents, const struct file_part *part,
    struct sg_copies *copies, bool *ret_any)
{
    const struct sg_places *places = &filed_by(contents)->places;
    CUresult result = CUDA_SUCCESS;
    uint64_t part_end = part->from + part->bytes;
    *ret_any = false;
    for (size_t i = part->file->first; i < part->file->end && result == CUDA_SUCCESS; i++) {
        const struct sg_place *place = &places->place[i];
        uint64_t begin = place->offset > part->from ? place->offset : part->from, end = place->offset + place->bytes;
        end = end < part_end ? end : part_end;
        if (!place->chosen || begin >= end)
            continue;
        *ret_any = true;
        if (copies)
            result = sg_copies_add(copies, part->host + (begin - part->from), place->address + (begin - place->offset),
                end - begin, part->registered);
    }
    return copies && result == CUDA_SUCCESS ? sg_copies_begin(copies) : result;
}

/* Blocks to their file: while a part is written, the next is copied. The first part is waited for, then the second is begun
   into the other half, and the first half is written meanwhile. The file is waited for at its end, so
   that an error of the disk is one of the pause. Bytes that the system has not written yet would keep host memory.

   For example, with halves of 128 MiB a block of 300 MiB has copies of 128, 128 and 44 MiB, and three writes behind them. */
static CUresult file_save(struct sg_contents *contents, const struct staging *staging, struct sg_copies *copies,
    int descriptor, const struct file *file, int *ret_error)
{
    bool any;
    struct file_part part = file_part_at(file, staging, 0);
    CUresult result = file_part_copy(contents, &part, copies, &any);
    while (part.bytes && result == CUDA_SUCCESS && !*ret_error) {
        struct file_part next = file_part_at(file, staging, part.from + part.bytes);
        result = sg_copies_await(copies);
        if (result == CUDA_SUCCESS)
            result = file_part_copy(contents, &next, copies, &any);
        if (result == CUDA_SUCCESS)
            *ret_error = file_move(descriptor, part.host, part.from, part.bytes, /* home */ false);
        part = next;
    }
    if (!*ret_error && result == CUDA_SUCCESS && fdatasync(descriptor) != 0)
        *ret_error = errno;
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    return result;
}

/* Blocks that are chosen from their file: while a part is copied, the next is read. A part without any is not read. */
static CUresult file_restore(struct sg_contents *contents, const struct staging *staging, struct sg_copies *copies,
    int descriptor, const struct file *file, int *ret_error)
{
    CUresult result = CUDA_SUCCESS;
    struct file_part part = file_part_at(file, staging, 0);
    for (; part.bytes && result == CUDA_SUCCESS; part = file_part_at(file, staging, part.from + part.bytes)) {
        bool any;
        (void)file_part_copy(contents, &part, NULL, &any);
        if (any)
            *ret_error = file_move(descriptor, part.host, part.from, part.bytes, /* home */ true);
        if (*ret_error)
            break;
        result = sg_copies_await(copies); /* the other half is free from here on */
        if (result == CUDA_SUCCESS && any)
            result = file_part_copy(contents, &part, copies, &any);
    }
    CUresult ended = sg_copies_await(copies);
    return result == CUDA_SUCCESS ? ended : result;
}

/* Removes a file, unless it is gone. A folder that was moved meanwhile keeps its files. */
static void filed_remove(const struct filed *filed, struct file *file)
{
    char path[PATH_MAX];
    file_name(path, filed->folder, file->number);
    if (file->number)
        (void)unlink(path);
    file->number = 0;
}

/* Removes the files of a tag, and forgets them. Names are
   all that is known of them: descriptors of thousands of files would use up what the program may open. */
static void filed_drop(struct filed *filed)
{
    for (size_t i = 0; i < filed->count; i++)
        filed_remove(filed, &filed->file[i]);
    if (filed->folder)
        sg_contents_count(-1);
    sg_meta_unmap(filed->folder, PATH_MAX);
    sg_meta_unmap(filed->file, filed->room * sizeof *filed->file);
    sg_places_drop(&filed->places);
    *filed = (struct filed){0};
}

/* True if the next block begins a file: it is large, or the last file has as much as staging. */
static bool file_begins(const struct file *last, uint64_t bytes)
{
    return !last || bytes >= staging_bytes || last->bytes >= staging_bytes;
}

/* Shares blocks out among files, in the order of addresses.

   For example, staging has 256 MiB, and blocks have 10, 20, 300, 5, 255 and 7 MiB. The files have 30, 300, 260 and 7 MiB. */
static void filed_lay_out(struct filed *filed)
{
    struct file *last = NULL;
    for (size_t i = 0; i < filed->places.count; i++) {
        struct sg_place *place = &filed->places.place[i];
        if (file_begins(last, place->bytes)) {
            last = &filed->file[filed->count++];
            *last = (struct file){.first = i};
        }
        place->holder = (uint32_t)(filed->count - 1);
        place->offset = last->bytes;
        last->bytes += place->bytes;
        last->end = i + 1;
        last->left++;
    }
}

/* Makes the table of a tag: its blocks, and as many files as there may be. False: the host has no memory. */
static bool filed_make(struct filed *filed, const struct sg_memory_piece *pieces, size_t count)
{
    filed_drop(filed);
    filed->folder = sg_meta_map(PATH_MAX);
    if (!filed->folder)
        return false;
    sg_contents_count(1);
    filed->file = sg_meta_map(count * sizeof *filed->file);
    filed->room = count;
    if (!filed->file || !sg_places_make(&filed->places, pieces, count)) {
        filed_drop(filed);
        return false;
    }
    filed_lay_out(filed);
    strcpy(filed->folder, file_folder());
    return true;
}

/* The most bytes that a file of a tag has. *ret_all: of all chosen blocks. */
static uint64_t filed_most(const struct filed *filed, uint64_t *ret_all)
{
    uint64_t most = 0;
    *ret_all = 0;
    for (size_t i = 0; i < filed->count; i++)
        most = filed->file[i].bytes > most ? filed->file[i].bytes : most;
    for (size_t i = 0; i < filed->places.count; i++)
        *ret_all += filed->places.place[i].chosen ? filed->places.place[i].bytes : 0;
    return most;
}

/* True if a file has a block that is chosen. */
static bool file_is_chosen(const struct filed *filed, const struct file *file)
{
    for (size_t i = file->first; i < file->end; i++)
        if (filed->places.place[i].chosen)
            return true;
    return false;
}

/* Opens a file of a tag: a new one, or with `home` the one that was saved. */
static CUresult file_open(const struct filed *filed, struct file *file, bool home, int *ret)
{
    char path[PATH_MAX];
    if (!home)
        return file_make(filed->folder, file->bytes, ret, &file->number);
    file_name(path, filed->folder, file->number);
    *ret = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return *ret < 0 ? file_failed("read from", path, errno) : CUDA_SUCCESS;
}

/* Saves the files of a tag, or puts back the blocks that are chosen. */
static CUresult filed_move(struct sg_contents *contents, struct sg_copies *copies)
{
    bool home = copies->home;
    struct filed *filed = filed_by(contents);
    struct staging staging;
    char path[PATH_MAX];
    uint64_t all, done = 0;
    CUresult result = CUDA_SUCCESS;
    if (!staging_begin(contents->driver, &staging, filed_most(filed, &all)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < filed->count && result == CUDA_SUCCESS; i++) {
        struct file *file = &filed->file[i];
        int descriptor, error = 0;
        if (!file_is_chosen(filed, file))
            continue;
        result = file_open(filed, file, home, &descriptor);
        if (result != CUDA_SUCCESS)
            break;
        result = (home ? file_restore : file_save)(contents, &staging, copies, descriptor, file, &error);
        (void)close(descriptor);
        file_name(path, filed->folder, file->number);
        if (error)
            result = file_failed(home ? "read from" : "written to", path, error);
        sg_contents_say(contents, home ? "read from files" : "written to files", done += file->bytes, all);
    }
    result = sg_copies_end(copies, result); /* no copy into staging is under way */
    staging_end(contents->driver, &staging);
    return result;
}

static CUresult filed_save_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    struct sg_copies *copies)
{
    (void)sg_places_choose(&filed_by(contents)->places, pieces, count);
    return filed_move(contents, copies);
}

static CUresult filed_restore_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    struct sg_copies *copies)
{
    return sg_places_choose(&filed_by(contents)->places, pieces, count) ? filed_move(contents, copies)
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

CUresult sg_contents_file_save(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    struct filed *filed = filed_by(contents);
    if (!filed_make(filed, pieces, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sg_contents_on_stream(contents, pieces, count, /* home */ false, filed_save_each);
    filed->saved = result == CUDA_SUCCESS;
    return result;
}

CUresult sg_contents_file_restore(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    return sg_contents_on_stream(contents, pieces, count, /* home */ true, filed_restore_each);
}

bool sg_contents_file_has(const struct sg_contents *contents)
{
    return filed_by(contents)->saved;
}

void sg_contents_file_end(const struct sg_contents *contents)
{
    filed_drop(filed_by(contents));
}

/* A file goes once none of its blocks is left. */
static void filed_forget(struct filed *filed, CUdeviceptr address)
{
    struct sg_place *place = sg_places_find(&filed->places, address);
    if (!place || place->address != address)
        return;
    place->bytes = 0;
    if (--filed->file[place->holder].left == 0)
        filed_remove(filed, &filed->file[place->holder]);
}

void sg_contents_file_freed(CUdeviceptr address)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            filed_forget(&filed_of[device][tag], address);
}

void sg_contents_file_close(void)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            filed_drop(&filed_of[device][tag]);
}
