#include "launch/torch_install.h"

#include "launch/find_program.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char option[] = "-c", question[] =
    "import importlib.util as u\ns=u.find_spec('torch')\nprint(s.origin if s and s.origin else '')";

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_python(const char *program)
{
    return strncmp(last_part(program), "python", 6) == 0 || strncmp(last_part(program), "pypy", 4) == 0;
}

/* The interpreter in a script's first line; through env, the word behind it. False when it is no script. */
static bool script_interpreter(const char *program, char ret[SG_PLACE_BYTES])
{
    char line[SG_PLACE_BYTES];
    int file = open(program, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, line, sizeof line - 1) : -1;
    if (file >= 0)
        close(file);
    if (got < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[got] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *save = NULL, *word = strtok_r(line + 2, " \t", &save);
    if (word && strcmp(last_part(word), "env") == 0) {
        do
            word = strtok_r(NULL, " \t", &save);
        while (word && (*word == '-' || strchr(word, '=')));
    }
    return word && sg_find_program(word, ret);
}

static bool is_shell(const char *program)
{
    static const char *const names[] = {"sh", "bash", "dash", "zsh", "ksh", "fish", "make"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(last_part(program), names[i]) == 0)
            return true;
    }
    return false;
}

static bool find_python(char *const *command, char ret[SG_PLACE_BYTES])
{
    char program[SG_PLACE_BYTES], interpreter[SG_PLACE_BYTES];
    for (size_t i = 0; command[i]; i++) {
        if (*command[i] == '-' || strchr(command[i], '=') || !sg_find_program(command[i], program))
            continue;
        if (!script_interpreter(program, interpreter))
            snprintf(interpreter, sizeof interpreter, "%s", program);
        if (is_python(interpreter)) {
            snprintf(ret, SG_PLACE_BYTES, "%s", interpreter);
            return true;
        }
        if (is_shell(interpreter))
            return sg_find_program("python3", ret) || sg_find_program("python", ret);
    }
    return false;
}

bool sg_wheel_may_be_another(char *const *command, bool found)
{
    char program[SG_PLACE_BYTES], interpreter[SG_PLACE_BYTES];
    for (size_t i = 0; command[i]; i++) {
        if (*command[i] == '-' || strchr(command[i], '=') || !sg_find_program(command[i], program))
            continue;
        if (!script_interpreter(program, interpreter))
            snprintf(interpreter, sizeof interpreter, "%s", program);
        if (is_shell(interpreter))
            return true;
        if (is_python(interpreter))
            return !found && !(i == 0 && is_python(program));
    }
    return false;
}

/* This process's environment without what would load libraries of ours into the interpreter. */
static char **clean_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **clean = calloc(count + 1, sizeof *clean);
    size_t kept = 0;
    for (size_t i = 0; clean && i < count; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 && strncmp(environ[i], "SEGALLOC_", 9) != 0)
            clean[kept++] = environ[i];
    }
    return clean;
}

/* Runs it and takes the first line that it prints. */
static bool python_ask(char *python, char ret[SG_PLACE_BYTES])
{
    char *const command[] = {python, option, question, NULL};
    int ends[2];
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    char **environment = clean_environment();
    int error = environment ? posix_spawn(&child, python, &actions, NULL, command, environment) : -1;
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    close(ends[1]);
    size_t length = 0;
    ssize_t got = 0;
    /* not to the end of the pipe, which what it leaves behind may hold */
    while (error == 0 && !memchr(ret, '\n', length) && (got = read(ends[0], ret + length, SG_PLACE_BYTES - 1 - length)) > 0)
        length += (size_t)got;
    close(ends[0]);
    int status = -1;
    if (error == 0)
        waitpid(child, &status, 0);
    ret[length] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    return error == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && *ret;
}

bool sg_wheel_find(char *const *command, struct sg_wheel *ret)
{
    char python[SG_PLACE_BYTES], origin[SG_PLACE_BYTES], file[SG_PLACE_BYTES * 2];
    struct sg_wheel found;
    if (!find_python(command, python) || !python_ask(python, origin))
        return false;
    char *slash = strrchr(origin, '/'); /* …/site-packages/torch/__init__.py */
    if (!slash)
        return false;
    *slash = '\0';
    if ((size_t)snprintf(found.libraries, sizeof found.libraries, "%s/lib", origin) >= sizeof found.libraries)
        return false;
    slash = strrchr(origin, '/');
    if (!slash)
        return false;
    *slash = '\0';
    memcpy(found.site, origin, sizeof found.site);
    snprintf(file, sizeof file, "%s/libtorch_cuda.so", found.libraries);
    if (access(file, R_OK) != 0)
        return false;
    *ret = found;
    return true;
}

/* "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"" */
static bool requirement_version(const char *line, const char *package, char ret[32])
{
    static const char word[] = "Requires-Dist: ";
    size_t length = strlen(package);
    if (strncmp(line, word, sizeof word - 1) != 0 || strncmp(line + sizeof word - 1, package, length) != 0)
        return false;
    const char *at = line + sizeof word - 1 + length;
    at += strspn(at, "0123456789");
    at += strspn(at, " (");
    if (strncmp(at, "==", 2) != 0)
        return false;
    at += 2 + strspn(at + 2, " ");
    size_t size = strspn(at, "0123456789.");
    if (size == 0 || size >= 32)
        return false;
    memcpy(ret, at, size);
    ret[size] = '\0';
    return true;
}

/* The folder of torch's metadata: torch-VERSION.dist-info. */
static bool find_metadata(const struct sg_wheel *wheel, char ret[2 * SG_PLACE_BYTES])
{
    DIR *site = opendir(wheel->site);
    bool found = false;
    for (struct dirent *entry; site && !found && (entry = readdir(site));) {
        const char *end = strstr(entry->d_name, ".dist-info");
        if (strncmp(entry->d_name, "torch-", 6) == 0 && end && !end[10]) {
            snprintf(ret, 2 * SG_PLACE_BYTES, "%s/%.200s/METADATA", wheel->site, entry->d_name);
            found = access(ret, R_OK) == 0;
        }
    }
    if (site)
        closedir(site);
    return found;
}

bool sg_wheel_requires(const struct sg_wheel *wheel, const char *package, char ret[32])
{
    char path[2 * SG_PLACE_BYTES], line[1024];
    bool found = false;
    FILE *file = find_metadata(wheel, path) ? fopen(path, "re") : NULL;
    while (file && !found && fgets(line, sizeof line, file) && *line != '\n')
        found = requirement_version(line, package, ret);
    if (file)
        fclose(file);
    return found;
}

bool sg_wheel_version(const struct sg_wheel *wheel, char ret[32])
{
    char path[2 * SG_PLACE_BYTES];
    if (!find_metadata(wheel, path))
        return false;
    const char *version = strstr(path + strlen(wheel->site), "torch-") + strlen("torch-");
    size_t length = strspn(version, "0123456789.");
    if (length && version[length - 1] == '.')
        length--; /* of ".dist-info" */
    if (!length || length >= 32)
        return false;
    memcpy(ret, version, length);
    ret[length] = '\0';
    return true;
}
