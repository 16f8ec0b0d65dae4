#include "question.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void sim_question_note(const struct sim_config *config)
{
    static const char line[] = SIM_QUESTION_WORD "\n";
    static atomic_bool noted;
    char path[sizeof config->peaks + sizeof "/" SIM_QUESTION_FILE];
    int before = errno;
    if (!config->peaks[0] || atomic_exchange(&noted, true))
        return;
    snprintf(path, sizeof path, "%s/" SIM_QUESTION_FILE, config->peaks);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (file >= 0) {
        ssize_t written = write(file, line, sizeof line - 1);
        (void)written;
        close(file);
    }
    errno = before;
}
