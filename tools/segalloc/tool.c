#include "tool.h"

#include "plain_text.h"
#include "segalloc/trace_format.h"
#include "size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

void sg_tool_print_plain(const char *text)
{
    char *copy = strdup(text);
    if (copy)
        fputs(sg_plain_text(copy), stdout);
    free(copy);
}

static void tool_print_message(const char *verb, const char *format, va_list arguments, const char *end)
{
    char text[8192];
    fflush(stdout);
    vsnprintf(text, sizeof text, format, arguments);
    sg_plain_text(text);
    fprintf(stderr, "segalloc%s%s: %s%s\n", *verb ? " " : "", verb, text, end);
}

void sg_tool_message(const char *verb, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tool_print_message(verb, format, arguments, "");
    va_end(arguments);
}

int sg_tool_error(const char *verb, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tool_print_message(verb, format, arguments, "");
    va_end(arguments);
    return SG_EXIT_ERROR;
}

int sg_tool_usage(const char *verb, const char *format, ...)
{
    char end[80];
    snprintf(end, sizeof end, " (see segalloc %s%s--help)", verb, *verb ? " " : "");
    va_list arguments;
    va_start(arguments, format);
    tool_print_message(verb, format, arguments, end);
    va_end(arguments);
    return SG_EXIT_USAGE;
}

bool sg_tool_pid(const char *text, pid_t *ret)
{
    uint64_t number = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || number > INT32_MAX)
            return false;
        number = number * 10 + (uint64_t)(*at - '0');
    }
    if (!number || number > INT32_MAX)
        return false;
    *ret = (pid_t)number;
    return true;
}

bool sg_tool_runs(uint64_t pid, const char *command)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%llu/cmdline", (unsigned long long)pid);
    int file = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i + 1 < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[length > 0 ? length : 0] = '\0';
    return length > 0 && strcmp(text, command) == 0;
}

bool sg_tool_card(const char *text, uint64_t *ret)
{
    uint64_t bytes;
    size_t length = strlen(text);
    bool unit = length > 0 && (text[length - 1] < '0' || text[length - 1] > '9');
    if (!sg_size_parse(text, &bytes) || bytes == 0 || bytes > SEGALLOC_TRACE_DEVICE_MOST || (!unit && bytes < SG_MIB))
        return false;
    *ret = bytes;
    return true;
}

bool sg_tool_size(const char *text, uint64_t *ret)
{
    uint64_t bytes;
    if (sg_size_parse(text, &bytes) && bytes == 0) {
        *ret = 0;
        return true;
    }
    return sg_tool_card(text, ret);
}

bool sg_tool_would_lose(const char *verb, const char *input, const char *output)
{
    struct stat in, out;
    bool same = output && stat(output, &out) == 0 && S_ISREG(out.st_mode) &&
                (strcmp(input, "-") ? stat(input, &in) : fstat(STDIN_FILENO, &in)) == 0 && in.st_dev == out.st_dev &&
                in.st_ino == out.st_ino;
    if (same)
        sg_tool_message(verb, "%s is also the input", output);
    return same;
}

int sg_tool_create(const char *verb, const char *path, const char *name, bool force)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0 && errno == EEXIST)
        sg_tool_message(verb, "%s is there already; -f replaces it", name);
    else if (fd < 0)
        sg_tool_message(verb, "%s: %s", name, strerror(errno));
    return fd;
}

bool sg_tool_folder(char *buffer, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", buffer, size);
    if (length <= 0 || (size_t)length >= size)
        return false;
    buffer[length] = '\0';
    char *slash = strrchr(buffer, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

void sg_tool_small_pages(void)
{
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* where it is refused more memory is taken, nothing else */
}
