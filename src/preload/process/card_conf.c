#include "process/card_conf.h"

#include "config/conf_card.h"
#include "driver/driver.h"
#include "process/environment.h"
#include "process/process.h"
#include "process/process_state.h"
#include "process/symbols.h"

enum { CARD_NAME = 128 };

/* The name of the first device and the driver's version. False where the driver does not say. */
static bool card_ask(char ret_name[CARD_NAME], int *ret_version)
{
    CUresult (*name)(char *, int, CUdevice);
    CUresult (*version)(int *);
    *(void **)&name = sg_cuda_symbol("cuDeviceGetName");
    *(void **)&version = sg_cuda_symbol("cuDriverGetVersion");
    *ret_name = '\0';
    return name && version && name(ret_name, CARD_NAME, 0) == CUDA_SUCCESS && version(ret_version) == CUDA_SUCCESS && *ret_name;
}

unsigned sg_card_conf_read(sg_conf_warn_fn *warn)
{
    char name[CARD_NAME], path[SG_PATH_BYTES];
    int version = 0;
    if (!card_ask(name, &version) ||
        !sg_conf_card_path(sg_environment("XDG_CONFIG_HOME"), sg_environment("HOME"), name, version, path))
        return 0;
    /* Lines are written without the lock, and what other threads read changes where the file says something only. */
    struct sg_conf found = *sg_process_conf();
    unsigned bad = sg_conf_apply_card(&found, path, warn, NULL);
    bool says = false;
    for (int i = 0; i < SG_OPTION_COUNT; i++)
        says |= found.source[i] == SG_CONF_CARD;
    if (says) {
        sg_process_lock(SG_LOCK_PROCESS);
        (void)sg_conf_apply_card(&sg_process.conf, path, NULL, NULL);
        sg_process_unlock(SG_LOCK_PROCESS);
    }
    return bad;
}
