#include "device/peaks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"
#include "question.h"

_Static_assert(SIM_DEVICES_MAX == sizeof((struct sim_peaks *)0)->bytes / sizeof(uint64_t), "a row for each device");

static struct sim_peaks *peaks;
static pid_t owner; /* a child by fork() has no mapping */
static bool served; /* the library is in the process: its hooks note what the program asks, and its own questions count as none */

static void peaks_end(int status, void *unused)
{
    (void)unused;
    bool error = status != 0;
    if (peaks && getpid() == owner && !(error && atomic_load(&peaks->end) == SIM_END_BY_ANOTHER))
        atomic_store(&peaks->end, error ? SIM_END_IS_AN_ERROR : SIM_END_IS_GOOD);
}

static int peaks_create(void)
{
    enum { EXECS_MOST = 1000 };
    char path[sizeof sim.config.peaks + 64];
    int file = -1;
    errno = EEXIST;
    for (int i = 0; i < EXECS_MOST && file < 0 && errno == EEXIST; i++) {
        snprintf(path, sizeof path, "%s/%ld-%d.peaks", sim.config.peaks, (long)getpid(), i);
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    return file;
}

/* The mapping keeps the file open. A child by fork() has none, so the file is closed when this process ends. */
bool sim_peaks_start(void)
{
    if (!sim.config.peaks[0])
        return true;
    int file = peaks_create();
    void *at = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof *peaks) == 0)
        at = mmap(NULL, sizeof *peaks, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        fprintf(stderr, "segalloc simulator: no file of peaks in %s: %s\n", sim.config.peaks, strerror(errno));
    if (file >= 0)
        close(file);
    if (at == MAP_FAILED)
        return false;
    madvise(at, sizeof *peaks, MADV_DONTFORK);
    peaks = at;
    owner = getpid();
    on_exit(peaks_end, NULL);
    served = dlsym(RTLD_DEFAULT, "segalloc_trim") != NULL;
    atomic_store(&peaks->served, served);
    return true;
}

static void peaks_raise(_Atomic uint64_t *most, uint64_t bytes)
{
    if (bytes > atomic_load(most))
        atomic_store(most, bytes);
}

void sim_peaks_note(const struct sim_device *device)
{
    if (peaks)
        peaks_raise(&peaks->bytes[device->index], device->used - device->managed.resident_bytes);
}

void sim_peaks_charged(uint64_t bytes, bool found)
{
    if (!peaks)
        return;
    if (!found) {
        atomic_fetch_add(&peaks->refused, 1);
        peaks_raise(&peaks->refused_bytes, bytes);
        atomic_store(&peaks->later, 0);
    } else if (atomic_load(&peaks->refused)) {
        atomic_fetch_add(&peaks->later, 1);
    }
}

void sim_peaks_managed(uint64_t bytes)
{
    if (peaks)
        peaks_raise(&peaks->managed, bytes);
}

void sim_peaks_asked(void)
{
    if (!served)
        sim_question_note(&sim.config);
}
