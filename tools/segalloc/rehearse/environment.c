/* The variables by which the processes of a rehearsal know of it. */
#include "rehearse/rehearse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "install_paths.h"

/* The Python module counts the steps, and ends the program. Ranks note in a file of the folder when they are steady. */
static void environment_set_steps(const struct sg_rehearse *rehearse, const char *folder)
{
    char steps[32], ranks[SG_PLACE_BYTES];
    snprintf(steps, sizeof steps, "%lu", rehearse->steps);
    snprintf(ranks, sizeof ranks, "%s/steady", folder);
    if (rehearse->steps || rehearse->steady)
        setenv("SEGALLOC_REHEARSE_STEPS", rehearse->steady ? "steady" : steps, 1);
    else
        unsetenv("SEGALLOC_REHEARSE_STEPS");
    setenv("SEGALLOC_REHEARSE_RANKS", ranks, 1);
}

/* The trace says which cards were asked about. */
static void environment_set_cards(const struct sg_rehearse *rehearse)
{
    char text[SG_REHEARSE_CARDS * 48] = "";
    size_t length = 0;
    for (unsigned i = 0; i < rehearse->card_count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%" PRIu64 "+%" PRIu64, i ? "," : "",
            rehearse->card[i].bytes, rehearse->card[i].margin);
    setenv("SEGALLOC_REHEARSED_CARDS", text, 1);
}

/* Loggers of experiments are off, unless asked for. MLflow has no switch: what it records goes to the folder of the run. */
static void environment_set_trackers(const struct sg_rehearse *rehearse, const char *folder)
{
    static const struct {
        const char *variable, *value;
    } trackers[] = {
#define TRACKER(variable, value) {variable, value},
#include "rehearse/trackers.def"
    };
    char place[SG_PLACE_BYTES];
    setenv("SEGALLOC_REHEARSAL", rehearse->trackers ? "trackers" : "no-trackers", 1);
    if (rehearse->trackers)
        return;
    for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++)
        setenv(trackers[i].variable, trackers[i].value, 1);
    snprintf(place, sizeof place, "file://%s/mlflow", folder);
    setenv("MLFLOW_TRACKING_URI", place, 1);
}

void sg_rehearse_set_environment(const struct sg_rehearse *rehearse, const char *folder)
{
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%" PRIu64, sg_rehearse_largest(rehearse)->bytes);
    setenv("SEGALLOC_TOLD_BYTES", bytes, 1);
    environment_set_cards(rehearse);
    environment_set_trackers(rehearse, folder);
    environment_set_steps(rehearse, folder);
}
