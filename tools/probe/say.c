/* Lines that rows print, and the clocks that they read. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

struct probe probe;

void probe_say(const char *format, ...)
{
    char line[16384], quoted[2048];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"row\": \"%s\", ", probe.row), length = strlen(format);
    if (length >= sizeof quoted)
        abort();
    for (size_t i = 0; i <= length; i++)
        quoted[i] = format[i] == '\'' ? '"' : format[i];
    va_list values;
    va_start(values, format);
    used += (size_t)vsnprintf(line + used, sizeof line - used - 3, quoted, values);
    va_end(values);
    if (used > sizeof line - 3)
        used = sizeof line - 3;
    memcpy(line + used, "}\n", 2);
    if (write(STDOUT_FILENO, line, used + 2) < 0)
        abort();
}

bool probe_skip(const char *format, ...)
{
    char why[256];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    probe_say("'skipped': '%s'", why);
    return true;
}

bool probe_refused(const char *call, CUresult result)
{
    char text[200];
    bool own = strstr(call, "cu.cu") || strncmp(call, "cu", 2) == 0;
    snprintf(text, sizeof text, "%s", own || !probe.refused ? call : probe.refused);
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || *at < ' ')
            *at = ' ';
    probe_say("'error': '%s', 'code': %d", text, (int)result);
    return false;
}

uint64_t probe_real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t probe_ns(void)
{
    return probe.virtual_ns ? probe.virtual_ns() : probe_real_ns();
}
