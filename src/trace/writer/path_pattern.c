#include "writer/path_pattern.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* torchrun, Slurm, Open MPI, and what MPICH and Intel MPI set; the first one that is there. */
static const char *const rank_variables[] = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

/* The rank of this process as text; "0": no launcher has set a number. */
static const char *path_rank(sg_environment_fn *environment)
{
    for (size_t i = 0; environment && i < sizeof(rank_variables) / sizeof(rank_variables[0]); i++) {
        const char *value = environment(rank_variables[i]);
        if (value && *value && !value[strspn(value, "0123456789")])
            return value;
    }
    return "0";
}

int sg_path_rank_variable(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(rank_variables) / sizeof(rank_variables[0]); i++)
        if (strlen(rank_variables[i]) == length && strncmp(rank_variables[i], name, length) == 0)
            return (int)i;
    return -1;
}

int sg_path_expand(const char *pattern, sg_environment_fn *environment, char *path, size_t size)
{
    struct utsname host;
    char pid[16];
    size_t used = 0;
    for (const char *p = pattern; *p; p++) {
        const char *part = NULL;
        if (*p != '%' || p[1] == '%') {
            p += *p == '%';
            if (used + 1 >= size)
                return -ENAMETOOLONG;
            path[used++] = *p;
            continue;
        }
        switch (*++p) {
        case 'p':
            snprintf(pid, sizeof(pid), "%ld", (long)getpid());
            part = pid;
            break;
        case 'h':
            part = uname(&host) ? "host" : host.nodename;
            break;
        case 'r':
            part = path_rank(environment);
            break;
        case 'e':
            part = program_invocation_short_name;
            break;
        default:
            return -EINVAL;
        }
        for (; *part; part++) {
            if (used + 1 >= size)
                return -ENAMETOOLONG;
            /* A slash or a control character of a host or a program would lead elsewhere. */
            path[used++] = *part == '/' || *part < ' ' ? '_' : *part;
        }
    }
    path[used] = '\0';
    return 0;
}

/* Writes the pattern as one of fnmatch(): each letter behind a % is a star, and its own special characters are quoted.
   False: no room. */
static bool path_as_glob(const char *pattern, char *glob, size_t size)
{
    size_t used = 0;
    for (const char *p = pattern; *p; p++) {
        bool any = *p == '%' && p[1] && p[1] != '%';
        p += *p == '%' && p[1];
        if (used + 3 > size)
            return false;
        if (!any && strchr("*?[\\", *p))
            glob[used++] = '\\';
        glob[used++] = any ? '*' : *p;
    }
    glob[used] = '\0';
    return true;
}

bool sg_path_is_there(const char *pattern, int64_t since)
{
    char folder[4096], glob[512];
    const char *slash = strrchr(pattern, '/'), *name = slash ? slash + 1 : pattern;
    size_t length = (size_t)(name - pattern);
    if (length >= sizeof(folder) || memchr(pattern, '%', length) || !path_as_glob(name, glob, sizeof(glob)))
        return true;
    memcpy(folder, length ? pattern : ".", length ? length : 1);
    folder[length ? length : 1] = '\0';
    DIR *open = opendir(folder);
    bool found = false;
    for (struct dirent *entry; open && !found && (entry = readdir(open));) {
        struct stat status;
        found = fnmatch(glob, entry->d_name, 0) == 0 &&
                syscall(SYS_newfstatat, dirfd(open), entry->d_name, &status, 0) == 0 && status.st_mtime >= since;
    }
    if (open)
        closedir(open);
    return found;
}

int sg_path_make_parents(const char *path)
{
    char folder[4096];
    size_t length = strlen(path);
    if (length >= sizeof(folder))
        return -ENAMETOOLONG;
    memcpy(folder, path, length + 1);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        /* EISDIR and EROFS come for folders that exist too, on some systems for "/" itself. */
        int error = mkdir(folder, 0777) < 0 && errno != EEXIST ? -errno : 0;
        if (error && access(folder, F_OK) < 0)
            return error;
        *slash = '/';
    }
    return 0;
}
