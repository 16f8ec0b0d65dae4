/* Asks a driver what the allocator and the simulator take for granted. Prints a line of JSON for each answer as it comes.

   usage: gpu_probe [--quick] [--gentle] [--rounds N] [--patience N] [--kernels FILE] [--group GROUP]… [ROW]…
          gpu_probe --list          (the rows, as JSON)
          gpu_probe --free          (bytes free on the device, by the driver's word)
          gpu_probe --hold BYTES    (takes memory until so much is free, and keeps it until its input ends) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"
#include "runner.h"

static int usage(void)
{
    fputs("usage: gpu_probe [--quick] [--gentle] [--rounds N] [--patience N] [--kernels FILE] [--group GROUP]... [ROW]... | --list | "
          "--free | "
          "--hold BYTES\n",
        stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct probe_choice choice = {.count = 0};
    signal(SIGPIPE, SIG_IGN); /* children may end first */
    probe.rounds = 30;
    probe.row = "start";
    if (argc > 1) {
        int status = probe_play_role(argv[1], strcmp(argv[1], "--free") == 0 ? "" : argc > 2 ? argv[2] : NULL);
        if (status >= 0)
            return status;
    }
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--list") == 0) {
            probe_list();
            return 0;
        }
        if (strcmp(argv[i], "--quick") == 0)
            probe.quick = true;
        else if (strcmp(argv[i], "--gentle") == 0)
            probe.gentle = true;
        else if (strcmp(argv[i], "--rounds") == 0 && more)
            probe.rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--patience") == 0 && more)
            probe.patience = atoi(argv[++i]);
        else if (strcmp(argv[i], "--kernels") == 0 && more)
            probe.kernels_path = argv[++i];
        else if (strcmp(argv[i], "--group") == 0 && more && probe_choose(&choice, argv[i + 1]))
            i++;
        else if (!probe_choose(&choice, argv[i]))
            return usage();
    }
    probe.rounds = probe.quick ? 1 : probe.rounds < 1 ? 1 : probe.rounds > 500 ? 500 : probe.rounds;
    return probe_run_rows(&choice);
}
