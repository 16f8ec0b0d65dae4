#include "rehearse/ends.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/peaks.h"
#include "install_paths.h"

/* The last number of the line that begins so in a file of /proc. 0: there is none. */
static long ends_read_number(const char *path, const char *beginning)
{
    char line[256];
    long number = 0;
    FILE *file = fopen(path, "re");
    while (file && !number && fgets(line, sizeof line, file))
        if (strncmp(line, beginning, strlen(beginning)) == 0)
            number = atol(strrchr(line, '\t') ? strrchr(line, '\t') : "");
    if (file)
        fclose(file);
    return number;
}

/* A thread's process by the number that it has itself, which in a namespace of its own is the last of several. 0: it is gone. */
static long ends_process_of(pid_t thread)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)thread);
    return ends_read_number(path, "NStgid:");
}

pid_t sg_ends_process_behind(pid_t thread, int file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fdinfo/%d", (long)thread, file);
    return (pid_t)ends_read_number(path, "NSpid:");
}

/* The file of what the process runs now: the last, if it has called exec. */
static int ends_open_last(const char *folder, long process)
{
    char path[SG_PLACE_BYTES + 64];
    int file = -1;
    for (int i = 0;; i++) {
        snprintf(path, sizeof path, "%s/%ld-%d.peaks", folder, process, i);
        int next = open(path, O_RDWR | O_CLOEXEC);
        if (next < 0)
            return file;
        if (file >= 0)
            close(file);
        file = next;
    }
}

/* A process that another one tells to end may do so with an error. */
static void ends_write(const char *folder, long process, uint64_t end)
{
    uint64_t before = SIM_END_IS_NOT_KNOWN;
    int file = process > 0 ? ends_open_last(folder, process) : -1;
    if (file < 0)
        return;
    (void)!pread(file, &before, sizeof before, offsetof(struct sim_peaks, end));
    if (end != SIM_END_IS_AN_ERROR || before != SIM_END_BY_ANOTHER)
        (void)!pwrite(file, &end, sizeof end, offsetof(struct sim_peaks, end));
    close(file);
}

void sg_ends_note(const char *folder, pid_t thread, int status)
{
    ends_write(folder, ends_process_of(thread), (status & 0xff) ? SIM_END_IS_AN_ERROR : SIM_END_IS_GOOD);
}

/* True if a process that does nothing about it is ended by this signal. */
static bool ends_by_default(int signal)
{
    static const int harmless[] = {0, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    bool ends = true;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        ends &= signal != harmless[i];
    return ends;
}

/* A process that has ended, and that its parent has not asked about yet, takes signals too. */
static bool ends_is_running(long process)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "re");
    const char *name_end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    return name_end && strncmp(name_end, ") Z", 3) != 0 && strncmp(name_end, ") X", 3) != 0;
}

static void ends_note_by_another(const char *folder, long process)
{
    if (ends_is_running(process))
        ends_write(folder, process, SIM_END_BY_ANOTHER);
}

void sg_ends_note_signal(const char *folder, pid_t thread, pid_t target, int signal)
{
    long sender = ends_process_of(thread), group = target ? -target : getpgid(thread);
    if (!ends_by_default(signal) || target == sender)
        return;
    if (target > 0) {
        ends_note_by_another(folder, target);
        return;
    }
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        long process = strstr(entry->d_name, ".peaks") ? atol(entry->d_name) : 0;
        if (process && process != sender && (target == -1 || getpgid((pid_t)process) == group))
            ends_note_by_another(folder, process);
    }
    if (files)
        closedir(files);
}

/* The sum of what the files of one process say. */
struct process {
    long pid;
    struct sg_life life;
};

static int ends_by_begin(const void *a, const void *b)
{
    const struct sg_life *one = &((const struct process *)a)->life, *other = &((const struct process *)b)->life;
    return one->began < other->began ? -1 : one->began > other->began;
}

/* A process that calls exec goes on as another program, with files of its own. */
static void process_add(struct process *process, const struct sg_life *life)
{
    struct sg_life *all = &process->life;
    bool first = process->pid == 0;
    all->began = first || life->began < all->began ? life->began : all->began;
    all->ended = first || life->ended > all->ended ? life->ended : all->ended;
    all->later = life->refused ? life->later : all->later || (all->refused && life->asked);
    all->refused |= life->refused;
    all->asked |= life->asked;
    all->end = life->end != SG_END_IS_NOT_KNOWN ? life->end : all->end;
    all->most = life->most > all->most ? life->most : all->most;
    all->failed = life->failed > all->failed ? life->failed : all->failed;
}

/* All processes, in the order in which they began. NULL: no host memory left. */
static struct process *ends_by_process(const struct sg_lives *lives, unsigned *ret_count)
{
    struct process *process = calloc(lives->count + 1, sizeof *process), *file = calloc(lives->count + 1, sizeof *file);
    *ret_count = 0;
    for (unsigned i = 0; file && i < lives->count; i++)
        file[i] = (struct process){atol(lives->life[i].name), lives->life[i]};
    if (file)
        qsort(file, lives->count, sizeof *file, ends_by_begin);
    for (unsigned i = 0; process && file && i < lives->count; i++) {
        unsigned j = 0;
        while (j < *ret_count && process[j].pid != file[i].pid)
            j++;
        process_add(&process[j], &file[i].life);
        process[j].pid = file[i].pid;
        *ret_count += j == *ret_count;
    }
    free(file);
    return process;
}

static bool process_is_lost(const struct sg_life *life)
{
    return life->refused && (life->end == SG_END_IS_AN_ERROR || !life->later);
}

/* One process after the other, as requests of one that asks for what each of them needs. */
static void search_add(struct sg_rehearse_ends *ends, const struct sg_life *life, unsigned *ended)
{
    if (life->began < *ended)
        ends->overlap = true;
    *ended = life->ended;
    if (process_is_lost(life))
        sg_search_refused(&ends->search, life->most + life->failed);
    else
        sg_search_served(&ends->search, life->most);
}

/* Sorts one process, as what has gone before it is sorted already. */
static void ends_add(struct sg_rehearse_ends *ends, const struct sg_life *life, unsigned *bad_ended)
{
    bool lost = process_is_lost(life), error = !lost && life->end == SG_END_IS_AN_ERROR;
    bool killed = !lost && life->end == SG_END_BY_ANOTHER;
    ends->lost += lost;
    ends->errors += error;
    ends->stopped += error && life->asked;
    ends->killed += killed;
    ends->cut_off += killed && life->refused;
    if (lost || error || (killed && life->refused)) {
        *bad_ended = life->ended > *bad_ended ? life->ended : *bad_ended;
        ends->good_after = 0;
    } else if (life->asked && !killed) {
        ends->good++;
        ends->good_after += life->began > *bad_ended;
    }
}

struct sg_rehearse_ends sg_ends_sum(const struct sg_lives *lives, bool watched)
{
    struct sg_rehearse_ends ends = {.good = 0};
    unsigned count, bad_ended = 0, search_ended = 0;
    struct process *process = ends_by_process(lives, &count);
    for (unsigned i = 0; process && i < count; i++) {
        struct sg_life *life = &process[i].life;
        bool gone = life->ended != UINT_MAX;
        if (life->end == SG_END_IS_NOT_KNOWN && watched && gone)
            life->end = SG_END_IS_AN_ERROR;
        ends_add(&ends, life, &bad_ended);
        if (life->asked || life->refused)
            search_add(&ends, life, &search_ended);
        ends.own_is_good = count == 1 && life->end == SG_END_IS_GOOD;
    }
    if (ends.overlap || !process)
        ends.search = (struct sg_search){0};
    free(process);
    return ends;
}

bool sg_ends_are_hidden(const struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_ends *ends = &rehearse->ends;
    return rehearse->run.status == 0 && !ends->good && !ends->lost && ends->stopped;
}

bool sg_ends_search(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    const struct sg_rehearse_ends *there = &endless->ends, *here = &trial->ends;
    uint64_t begins = there->search.begins;
    return endless->run.status == 0 && begins && here->search.refused_at >= begins && there->lost == 1 && here->lost == 1 &&
           here->errors <= there->errors && here->good_after == there->good_after;
}

bool sg_ends_are_good(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    const struct sg_rehearse_ends *there = &endless->ends, *here = &trial->ends;
    bool as_there = !here->lost && here->errors <= there->errors && (!here->cut_off || there->killed);
    bool made_good = here->good_after && here->good >= there->good;
    bool searched = endless->run.status == 0 && sg_search_is_same(&endless->search, &trial->search);
    return as_there || made_good || searched || sg_ends_search(endless, trial);
}
