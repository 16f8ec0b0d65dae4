/* Files that were there before the rehearsal, and that the program has written over or removed: keep_files.c keeps
   them meanwhile, here they are put back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "install_paths.h"
#include "rehearse/keep.h"
#include "tool.h"

/* The folder within that of the run: its name is like no other, for it names folders elsewhere too. */
static void place_of(const char *folder, char ret[SG_PLACE_BYTES])
{
    const char *end = strrchr(folder, '-');
    snprintf(ret, SG_PLACE_BYTES, "%.3000s/kept-%.60s", folder, end ? end + 1 : "");
}

/* An empty file, or the number of this process. Its time is that of the file system. */
static bool kept_write_file(const char *folder, const char *name, bool owner, struct timespec *ret)
{
    char path[SG_PLACE_BYTES + 16];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    bool good = file && (!owner || fprintf(file, "%ld", (long)getpid()) > 0);
    good = file && fclose(file) == 0 && good && stat(path, &status) == 0;
    if (good)
        *ret = status.st_mtim;
    return good;
}

bool sg_kept_begin(struct sg_keep *keep, const char *run_folder)
{
    place_of(run_folder, keep->folder);
    if (mkdir(keep->folder, 0700) == 0 && kept_write_file(keep->folder, "owner", true, &keep->began) &&
        kept_write_file(keep->folder, "began", false, &keep->began))
        return true;
    sg_tool_message(keep->verb, "%s: %s: files that are there can't be kept", keep->folder, strerror(errno));
    return false;
}

static void kept_make_folders(const char *path)
{
    char part[SG_PLACE_BYTES];
    for (const char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        (void)mkdir(part, 0777);
    }
}

/* To another file system. The file that is in the way goes only once the copy is whole. */
static bool copy_back(const char *from, const char *to)
{
    char bytes[65536], beside[SG_PLACE_BYTES + 32];
    struct stat status;
    ssize_t got = 0, put = 0;
    snprintf(beside, sizeof beside, "%s.segalloc-%ld", to, (long)getpid());
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = in >= 0 && out >= 0 && fstat(in, &status) == 0;
    while (good && put == got && (got = read(in, bytes, sizeof bytes)) > 0)
        put = write(out, bytes, (size_t)got);
    good = good && got == 0 && fchmod(out, status.st_mode & 07777) == 0;
    if (good) {
        const struct timespec times[2] = {status.st_atim, status.st_mtim};
        (void)!fchown(out, status.st_uid, status.st_gid);
        (void)futimens(out, times);
    }
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) != 0)
        good = false;
    good = good && rename(beside, to) == 0;
    if (!good)
        unlink(beside);
    return good && unlink(from) == 0;
}

/* A folder that was made on another file system, once it is empty. */
static void drop_folder_of(const char *path)
{
    char folder[SG_PLACE_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    slash = strrchr(folder, '/');
    if (slash && strncmp(slash, "/.segalloc-kept-", 16) == 0)
        rmdir(folder);
}

struct restored {
    const char *verb;
    unsigned files, lost;
    char first[SG_PLACE_BYTES]; /* a name of them */
};

static void put_back(struct restored *restored, const char *kept, const char *original)
{
    struct stat status;
    if (lstat(kept, &status) != 0)
        return; /* it was not kept after all */
    kept_make_folders(original);
    if (rename(kept, original) == 0 || (errno == EXDEV && copy_back(kept, original))) {
        restored->files++;
        snprintf(restored->first, sizeof restored->first, "%s", original);
        drop_folder_of(kept);
        return;
    }
    restored->lost++;
    sg_tool_message(restored->verb, "%s, as it was before, is in %s: it can't be put back: %s", original, kept, strerror(errno));
}

/* All of a file, and a zero byte behind it. NULL: there is none. */
static char *kept_read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size = 0, room = 0;
    for (size_t got = 1; file && got;) {
        if (room < size + 65536) {
            char *more = realloc(text, room = 2 * room + 65537);
            if (!more)
                break;
            text = more;
        }
        size += got = fread(text + size, 1, room - size - 1, file);
    }
    if (file)
        fclose(file);
    if (text)
        text[size] = '\0';
    *ret_size = size;
    return text;
}

/* Undoes what the journal says, the newest first: a letter and two names each. */
static void journal_undo(struct restored *restored, char *journal, size_t size)
{
    enum { LINE_MOST = 1 << 20 };
    char **line = calloc(LINE_MOST, sizeof *line);
    size_t lines = 0;
    for (char *at = journal; line && at < journal + size && lines < LINE_MOST;) {
        line[lines++] = at;
        at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
    while (lines-- > 0) {
        const char *one = line[lines] + 1, *other = one + strlen(one) + 1;
        if (*line[lines] == 'K')
            put_back(restored, one, other);
        else if (access(one, F_OK) != 0)
            (void)rename(other, one); /* a folder that got another name */
    }
    free(line);
}

bool sg_kept_end(const char *verb, const char *folder)
{
    struct restored restored = {.verb = verb};
    char place[SG_PLACE_BYTES], path[SG_PLACE_BYTES + 16];
    size_t size;
    place_of(folder, place);
    snprintf(path, sizeof path, "%s/journal", place);
    char *journal = kept_read_file(path, &size);
    if (journal)
        journal_undo(&restored, journal, size);
    free(journal);
    if (restored.files == 1)
        sg_tool_message(verb, "as it was before: %s, which the program wrote over or removed", restored.first);
    else if (restored.files)
        sg_tool_message(verb, "as they were before: %u files that the program wrote over or removed, such as %s", restored.files,
            restored.first);
    return restored.lost == 0;
}

static int drop_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path), 0;
}

void sg_kept_drop(const char *folder)
{
    nftw(folder, drop_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* True if the rehearsal whose folder this is has ended without putting its files back: it was killed. */
static bool is_abandoned(const char *folder)
{
    char place[SG_PLACE_BYTES], path[SG_PLACE_BYTES + 16];
    size_t size;
    place_of(folder, place);
    snprintf(path, sizeof path, "%s/owner", place);
    char *owner = kept_read_file(path, &size);
    long pid = owner ? atol(owner) : 0;
    free(owner);
    return pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void sg_kept_recover(const char *verb, const char *temporary)
{
    static const char name[] = "segalloc-rehearse-";
    DIR *folders = opendir(temporary);
    for (struct dirent *entry; folders && (entry = readdir(folders));) {
        char folder[SG_PLACE_BYTES];
        struct stat status;
        snprintf(folder, sizeof folder, "%.3000s/%s", temporary, entry->d_name);
        if (strncmp(entry->d_name, name, sizeof name - 1) != 0 || lstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) ||
            status.st_uid != geteuid() || !is_abandoned(folder))
            continue;
        sg_tool_message(verb, "a rehearsal was killed before it could put files back; that is done now");
        if (sg_kept_end(verb, folder))
            sg_kept_drop(folder);
    }
    if (folders)
        closedir(folders);
}
