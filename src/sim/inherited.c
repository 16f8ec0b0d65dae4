#include "inherited.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_NAME "segalloc-sim"

/* HIGH: programs expect the next file that they open to have a low number. */
enum { SETTING_BYTES = 1024, ANCESTORS_MOST = 256, PATH_BYTES = 64 + 256, HIGH = 200 };

static char setting[SETTING_BYTES];
static bool found;

/* Reads a file of /proc to its end. NULL: it can't be read. The caller frees it; it ends with a zero byte. */
static char *inherited_read(const char *path, size_t *ret_bytes)
{
    size_t room = 4096, had = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *bytes = file >= 0 ? malloc(room + 1) : NULL;
    ssize_t got = 0;
    while (bytes && (got = read(file, bytes + had, room - had)) > 0) {
        had += (size_t)got;
        if (had < room)
            continue;
        char *larger = realloc(bytes, 2 * room + 1);
        if (!larger)
            break;
        bytes = larger;
        room *= 2;
    }
    if (file >= 0)
        close(file);
    if (bytes)
        bytes[had] = '\0';
    *ret_bytes = had;
    return bytes;
}

static bool inherited_set(const char *text)
{
    found = text && strlen(text) < sizeof setting;
    if (found)
        strcpy(setting, text);
    return found;
}

static bool inherited_from_environment(long pid)
{
    static const char name[] = "SEGALLOC_SIM=";
    char path[64];
    size_t bytes;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    char *all = inherited_read(path, &bytes);
    for (const char *at = all; at && at < all + bytes && !found; at += strlen(at) + 1)
        if (strncmp(at, name, sizeof name - 1) == 0)
            inherited_set(at + sizeof name - 1);
    free(all);
    return found;
}

/* The number of a memory file of that name that a process has open, and its path in /proc. Negative: it has none. */
static int inherited_find_file(long pid, char *path, size_t size)
{
    static const char memory[] = "/memfd:" FILE_NAME " ";
    char folder[64], name[64];
    int number = -1;
    snprintf(folder, sizeof folder, "/proc/%ld/fd", pid);
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && number < 0 && (entry = readdir(files));) {
        snprintf(path, size, "%s/%s", folder, entry->d_name);
        ssize_t length = readlink(path, name, sizeof name - 1);
        name[length > 0 ? length : 0] = '\0';
        if (strncmp(name, memory, sizeof memory - 1) == 0)
            number = atoi(entry->d_name);
    }
    if (files)
        closedir(files);
    return number;
}

/* A program has the file that a tool opened before it became that program by exec. A tool that goes on is the parent of
   processes whose own parent has ended. */
static bool inherited_from_file(long pid)
{
    char path[PATH_BYTES];
    size_t bytes;
    if (inherited_find_file(pid, path, sizeof path) < 0)
        return false;
    char *text = inherited_read(path, &bytes);
    inherited_set(text);
    free(text);
    return found;
}

void sim_inherited_publish(const char *text)
{
    char path[PATH_BYTES];
    for (int old; (old = inherited_find_file(getpid(), path, sizeof path)) >= 0;)
        close(old);
    int low = memfd_create(FILE_NAME, MFD_CLOEXEC);
    int file = low >= 0 ? fcntl(low, F_DUPFD, HIGH) : -1;
    if (low >= 0)
        close(low);
    if (file >= 0)
        (void)!pwrite(file, text, strlen(text), 0);
}

/* 0: it has none, or is not there. The name of the program, in parentheses, may have anything in it. */
static long inherited_parent_of(long pid)
{
    char path[64];
    size_t bytes;
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    char *line = inherited_read(path, &bytes);
    const char *after = line ? strrchr(line, ')') : NULL;
    if (!after || sscanf(after, ") %*c %ld", &parent) != 1)
        parent = 0;
    free(line);
    return parent;
}

static void inherited_find(void)
{
    long pid = getpid();
    for (int i = 0; i < ANCESTORS_MOST && pid > 0; i++) {
        if (inherited_from_environment(pid) || inherited_from_file(pid))
            return;
        pid = inherited_parent_of(pid);
    }
}

const char *sim_inherited_setting(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *own = getenv("SEGALLOC_SIM");
    if (own)
        return own;
    pthread_once(&once, inherited_find);
    return found ? setting : NULL;
}
