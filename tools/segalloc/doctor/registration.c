/* How network cards, and other processes, will have a job's memory: found from the libraries that its processes had loaded and
   from the configuration. The library decides by the same table, preload/process/modules.def. */
#include "doctor/registration.h"

#include <stdio.h>
#include <string.h>

#include "size.h"

/* True if the kernel has the module by which ibv_reg_mr() takes device memory. */
static bool registration_has_peermem(void)
{
    char line[256];
    bool found = false;
    FILE *modules = fopen("/proc/modules", "re");
    while (modules && !found && fgets(line, sizeof line, modules))
        found = strncmp(line, "nvidia_peermem ", strlen("nvidia_peermem ")) == 0;
    if (modules)
        fclose(modules);
    return found;
}

/* The first known module of any process; NULL: none has one. *ret_verbs: any had libibverbs. */
static const char *registration_module(const struct sg_watch *watch, bool *ret_verbs)
{
    const char *module = NULL;
    *ret_verbs = false;
    for (size_t i = 0; i < watch->count; i++) {
        *ret_verbs |= watch->process[i].verbs;
        module = module ? module : sg_watched_sharer(&watch->process[i]);
    }
    return module;
}

struct sg_registration sg_doctor_registration(const struct sg_examination *examination)
{
    struct sg_registration found = {.way = SG_REGISTRATION_PAGES};
    const struct sg_conf *conf = &examination->conf;
    found.module = registration_module(&examination->watch, &found.verbs);
    found.matters = found.module || found.verbs || conf->contiguous || conf->ipc == SG_IPC_ALWAYS;
    if (conf->ipc == SG_IPC_ALWAYS || (found.module && conf->ipc == SG_IPC_AUTO))
        found.way = SG_REGISTRATION_EACH_BLOCK;
    else if (!conf->expandable_segments)
        found.way = SG_REGISTRATION_SEGMENTS;
    else if (conf->contiguous)
        found.way = SG_REGISTRATION_CONTIGUOUS;
    if (found.way == SG_REGISTRATION_PAGES)
        found.set = found.module ? "ipc:auto" : found.verbs ? "contiguous:1MiB" : NULL;
    return found;
}

const char *sg_registration_word(enum sg_registration_way way)
{
    static const char *const words[] = {
        [SG_REGISTRATION_PAGES] = "pages",
        [SG_REGISTRATION_CONTIGUOUS] = "contiguous",
        [SG_REGISTRATION_EACH_BLOCK] = "each_block",
        [SG_REGISTRATION_SEGMENTS] = "segments",
    };
    return words[way];
}

/* The line for blocks that stand in pages, where somebody may register them. */
static void registration_print_pages(const struct sg_registration *found)
{
    if (found->module)
        printf("  network  %s registers memory with network cards or gives it to other processes, and ipc:never leaves "
               "blocks in pages: "
               "a range over two pages is refused, or slow without a word. Set %s\n",
            found->module, found->set);
    else
        printf("  network  libibverbs is loaded, by nobody who is known here: dma-buf takes a range over two pages, "
               "nvidia_peermem "
               "(%s here) refuses it. Set %s where memory is registered by that\n",
            registration_has_peermem() ? "loaded" : "not loaded", found->set);
}

void sg_registration_print(const struct sg_examination *examination)
{
    const struct sg_registration found = sg_doctor_registration(examination);
    char size[SG_SIZE_TEXT];
    if (!found.matters)
        return;
    switch (found.way) {
    case SG_REGISTRATION_PAGES:
        registration_print_pages(&found);
        break;
    case SG_REGISTRATION_CONTIGUOUS:
        printf("  network  blocks of %s and more are one allocation of the driver's each (contiguous): they can be "
               "registered\n",
            sg_size_format(examination->conf.contiguous, size));
        break;
    case SG_REGISTRATION_EACH_BLOCK:
        printf("  network  %s%s: each block is one allocation of the driver's, which can be registered and given "
               "away\n",
            found.module ? found.module : "ipc:always", found.module ? " is known" : "");
        break;
    case SG_REGISTRATION_SEGMENTS:
        puts("  network  memory is in segments of cuMemAlloc (expandable_segments:False): a block lies in one, and can "
             "be registered");
        break;
    }
}
