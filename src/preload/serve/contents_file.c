/* From below: one file, staging, one piece, then all of a tag. One order at a time is carried out, so that nothing here has
   a lock.

   For example, pieces of 13 MiB and 7 bytes of process 41 become segalloc-41-1.contents and segalloc-41-2.contents. */
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
#include "config/roundup.h"
#include "process/environment.h"
#include "process/log.h"
#include "process/process.h"
#include "serve/contents_copies.h"

enum { STAGING = 256 << 20, STAGING_LEAST = 8192, TRIES = 1000 };
#define TMPFS UINT32_C(0x01021994) /* TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h */
#define RAMFS UINT32_C(0x858458f6)

/* A row of blocks, or one, and its file. */
struct filed_piece {
    CUdeviceptr address;
    uint64_t bytes;
    unsigned number; /* in the file's name; 0: the file is gone */
};

static struct filed {
    char *folder; /* PATH_MAX bytes, as it was when the tag was saved */
    struct filed_piece *piece;
    size_t count, room; /* pieces, and how many the table can have */
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

/* For example, the largest of three pieces has 10 MiB and staging may have 256: two halves of 10 MiB are enough.

   Staging for pieces of at most `most` bytes; without registration copies go through the driver's own buffers. */
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

/* One piece to its file: while a part is written, the next is copied. The first copy is waited for, then the second is begun
   into the other half, and the first half is written meanwhile. The file is waited for at its end, so
   that an error of the disk is one of the pause. Bytes that the system has not written yet would keep host memory.

   For example, with halves of 128 MiB a piece of 300 MiB has copies of 128, 128 and 44 MiB, and three writes behind them. */
static CUresult piece_save(struct sg_contents *contents, const struct staging *staging, CUstream stream, int descriptor,
    const struct filed_piece *piece, int *ret_error)
{
    const struct sg_driver *driver = contents->driver;
    uint64_t half = staging->bytes, first = piece->bytes < half ? piece->bytes : half;
    CUresult result = driver->copy_to_host_async(staging->host, piece->address, first, stream);
    for (uint64_t at = 0; at < piece->bytes && result == CUDA_SUCCESS && !*ret_error; at += half) {
        uint64_t left = piece->bytes - at, part = left < half ? left : half;
        unsigned char *host = staging->host + at / half % 2 * half;
        result = driver->stream_synchronize(stream);
        if (result == CUDA_SUCCESS && left > half)
            result = driver->copy_to_host_async(staging->host + (at / half + 1) % 2 * half, piece->address + at + half,
                left - half < half ? left - half : half, stream);
        if (result == CUDA_SUCCESS)
            *ret_error = file_move(descriptor, host, at, part, /* home */ false);
    }
    if (!*ret_error && result == CUDA_SUCCESS && fdatasync(descriptor) != 0)
        *ret_error = errno;
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    return result;
}

/* [from, from + bytes) of a piece from its file: while a part is copied, the next is read. */
static CUresult piece_restore(struct sg_contents *contents, const struct staging *staging, CUstream stream,
    int descriptor, CUdeviceptr address, uint64_t from, uint64_t bytes, int *ret_error)
{
    const struct sg_driver *driver = contents->driver;
    uint64_t half = staging->bytes;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += half) {
        uint64_t part = bytes - at < half ? bytes - at : half;
        unsigned char *host = staging->host + at / half % 2 * half;
        *ret_error = file_move(descriptor, host, from + at, part, /* home */ true);
        if (*ret_error)
            break;
        result = driver->stream_synchronize(stream); /* the other half is free from here on */
        if (result == CUDA_SUCCESS)
            result = driver->copy_from_host_async(address + at, host, part, stream);
    }
    CUresult ended = driver->stream_synchronize(stream);
    return result == CUDA_SUCCESS ? ended : result;
}

/* Removes the files of a tag, and forgets them. A folder that was moved meanwhile keeps its files. Names are
   all that is known of them: descriptors of thousands of files would use up what the program may open. */
static void filed_drop(struct filed *filed)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < filed->count; i++) {
        file_name(path, filed->folder, filed->piece[i].number);
        if (filed->piece[i].number)
            (void)unlink(path);
    }
    if (filed->folder)
        sg_contents_count(-1);
    sg_meta_unmap(filed->folder, PATH_MAX);
    sg_meta_unmap(filed->piece, filed->room * sizeof *filed->piece);
    *filed = (struct filed){0};
}

/* The most bytes that a piece has, and the sum in *ret_all. */
static uint64_t pieces_most(const struct sg_memory_piece *pieces, size_t count, uint64_t *ret_all)
{
    uint64_t most = 0;
    *ret_all = 0;
    for (size_t i = 0; i < count; i++) {
        most = pieces[i].bytes > most ? pieces[i].bytes : most;
        *ret_all += pieces[i].bytes;
    }
    return most;
}

/* For example, staging has 256 MiB and a row has blocks of 10, 300 and 20 MiB. They go to three files: the second has one of its
   own, so the first ends before it.

   The bytes from `into` of a piece that go to one file. Bytes that are not known to be a block's go to one file, up to the piece's end. */
static uint64_t file_share(const struct sg_contents *contents, const struct sg_memory_piece *piece, uint64_t into)
{
    uint64_t share = 0, left = piece->bytes - into;
    while (share < left && share < staging_bytes) {
        struct sg_block_info block;
        CUdeviceptr at = piece->address + into + share;
        if (sg_core_block(contents->core, at, &block) != CUDA_SUCCESS || block.base != at)
            return left;
        uint64_t bytes = sg_roundup(sg_process_conf()->roundup_divisions, block.bytes);
        if (share && bytes >= staging_bytes)
            break; /* it has a file of its own */
        share += bytes;
    }
    return share < left ? share : left;
}

/* Adds a piece to the table, which doubles where it is full. False: the host has no memory. */
static bool filed_add(struct filed *filed, CUdeviceptr address, uint64_t bytes)
{
    if (filed->count == filed->room) {
        size_t room = filed->room ? 2 * filed->room : 64;
        struct filed_piece *more = sg_meta_map(room * sizeof *more);
        if (!more)
            return false;
        for (size_t i = 0; i < filed->count; i++)
            more[i] = filed->piece[i];
        sg_meta_unmap(filed->piece, filed->room * sizeof *filed->piece);
        filed->piece = more;
        filed->room = room;
    }
    filed->piece[filed->count++] = (struct filed_piece){address, bytes, 0};
    return true;
}

/* Shares pieces out among files. Blocks may be freed meanwhile, so a file may have less than one block would have had. */
static bool filed_lay_out(const struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    uint64_t share;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t into = 0; into < pieces[i].bytes; into += share) {
            share = file_share(contents, &pieces[i], into);
            if (!filed_add(filed_by(contents), pieces[i].address + into, share))
                return false;
        }
    }
    return true;
}

static CUresult filed_save_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct filed *filed = filed_by(contents);
    struct staging staging;
    char path[PATH_MAX];
    uint64_t all, done = 0;
    CUresult result = CUDA_SUCCESS;
    if (!staging_begin(contents->driver, &staging, pieces_most(pieces, count, &all)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < filed->count && result == CUDA_SUCCESS; i++) {
        struct filed_piece *piece = &filed->piece[i];
        int descriptor, error = 0;
        result = file_make(filed->folder, piece->bytes, &descriptor, &piece->number);
        if (result != CUDA_SUCCESS)
            break;
        result = piece_save(contents, &staging, stream, descriptor, piece, &error);
        (void)close(descriptor);
        file_name(path, filed->folder, piece->number);
        if (error)
            result = file_failed("written to", path, error);
        sg_contents_say(contents, "written to files", done += piece->bytes, all);
    }
    (void)contents->driver->stream_synchronize(stream); /* no copy into staging is under way after an error */
    staging_end(contents->driver, &staging);
    return result;
}

CUresult sg_contents_file_save(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    struct filed *filed = filed_by(contents);
    filed_drop(filed);
    filed->folder = sg_meta_map(PATH_MAX);
    if (filed->folder)
        sg_contents_count(1);
    if (!filed->folder || !filed_lay_out(contents, pieces, count)) {
        filed_drop(filed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    strcpy(filed->folder, file_folder());
    CUresult result = sg_contents_on_stream(contents, pieces, count, filed_save_each);
    filed->saved = result == CUDA_SUCCESS;
    return result;
}

/* The piece that has an address; NULL: none has. */
static const struct filed_piece *filed_find(const struct filed *filed, CUdeviceptr address)
{
    for (size_t i = 0; i < filed->count; i++)
        if (address - filed->piece[i].address < filed->piece[i].bytes && filed->piece[i].number)
            return &filed->piece[i];
    return NULL;
}

/* [address, ...) from the file that has it, up to the end of that file or `most` bytes; *ret: how many. */
static CUresult file_restore(struct sg_contents *contents, const struct staging *staging, CUstream stream,
    CUdeviceptr address, uint64_t most, uint64_t *ret)
{
    const struct filed *filed = filed_by(contents);
    const struct filed_piece *piece = filed_find(filed, address);
    char path[PATH_MAX];
    int error = 0;
    if (!piece)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t from = address - piece->address, left = piece->bytes - from;
    *ret = left < most ? left : most;
    file_name(path, filed->folder, piece->number);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0)
        return file_failed("read from", path, errno);
    CUresult result = piece_restore(contents, staging, stream, descriptor, address, from, *ret, &error);
    (void)close(descriptor);
    return error ? file_failed("read from", path, error) : result;
}

/* A row of blocks may stand in several files. */
static CUresult filed_restore_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream)
{
    struct staging staging;
    uint64_t all, done = 0, part;
    CUresult result = CUDA_SUCCESS;
    if (!staging_begin(contents->driver, &staging, pieces_most(pieces, count, &all)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t into = 0; into < pieces[i].bytes && result == CUDA_SUCCESS; into += part) {
            result = file_restore(contents, &staging, stream, pieces[i].address + into, pieces[i].bytes - into, &part);
            if (result != CUDA_SUCCESS)
                break;
            sg_contents_say(contents, "read from files", done += part, all);
        }
    }
    staging_end(contents->driver, &staging);
    return result;
}

CUresult sg_contents_file_restore(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count)
{
    return sg_contents_on_stream(contents, pieces, count, filed_restore_each);
}

bool sg_contents_file_has(const struct sg_contents *contents)
{
    return filed_by(contents)->saved;
}

void sg_contents_file_end(const struct sg_contents *contents)
{
    filed_drop(filed_by(contents));
}

/* A file goes once nothing of its piece is left. */
static void filed_freed(struct filed *filed, CUdeviceptr begin, CUdeviceptr end)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < filed->count; i++) {
        struct filed_piece *piece = &filed->piece[i];
        if (!piece->number || begin > piece->address || end < piece->address + piece->bytes)
            continue;
        file_name(path, filed->folder, piece->number);
        (void)unlink(path);
        piece->number = 0;
    }
}

void sg_contents_file_freed(CUdeviceptr address, uint64_t bytes)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            filed_freed(&filed_of[device][tag], address, address + bytes);
}

void sg_contents_file_close(void)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        for (uint32_t tag = 0; tag < SG_TAGS; tag++)
            filed_drop(&filed_of[device][tag]);
}
