#include "path_pattern.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* torchrun, Slurm, Open MPI, and what MPICH and Intel MPI set; the first one that is there. */
static const char *const rank_variables[] = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

static const char *rank(sg_environment_fn *environment)
{
    for (size_t i = 0; environment && i < sizeof(rank_variables) / sizeof(rank_variables[0]); i++) {
        const char *value = environment(rank_variables[i]);
        if (value && *value)
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
            part = rank(environment);
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
            path[used++] = *part == '/' || *part < ' ' ? '_' : *part;
        }
    }
    path[used] = '\0';
    return 0;
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
        if (mkdir(folder, 0777) < 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
            return -errno;
        *slash = '/';
    }
    return 0;
}
