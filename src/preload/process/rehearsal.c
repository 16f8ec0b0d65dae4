/* The file of words is named by a variable. Its lines of settings begin with "conf ", those on questions with "asks ", those on tensors with "sent "; the
   Python module adds others. */
#include "process/rehearsal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own_write.h"
#include "base/rest.h"
#include "process/environment.h"

/* Appends a line, in one call, because processes of the program write in the same file. A hook may come here, so errno and
   the thread's cancellation are as they were afterwards. */
static void rehearsal_write(const char *line)
{
    int before = errno, cancel = sg_cancel_off();
    const char *path = sg_environment("SEGALLOC_REHEARSAL_NEEDS");
    int file = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600) : -1;
    if (file >= 0) {
        (void)sg_own_write(file, line, strlen(line));
        close(file);
    }
    sg_cancel_restore(cancel);
    errno = before;
}

void sg_rehearsal_ask_for(const char *settings)
{
    char line[80];
    snprintf(line, sizeof line, "conf %.64s\n", settings);
    rehearsal_write(line);
}

void sg_rehearsal_note_sent(size_t bytes)
{
    char line[40];
    snprintf(line, sizeof line, "sent %zu\n", bytes);
    rehearsal_write(line);
}

/* A row for questions that were told, and one for others. Once in a process is enough. A child by fork() begins with its
   parent's, which has written for both.

   For example, a program asks in each of 10,000 steps how much is free. It writes one line of 11 bytes. */
static atomic_bool noted[2];

void sg_rehearsal_note_question(bool told)
{
    if (!atomic_exchange_explicit(&noted[told], true, memory_order_relaxed))
        rehearsal_write(told ? "asks card\n" : "asks machine\n");
}
