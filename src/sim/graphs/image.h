/* Images and executables: an image is a graph's nodes in one order that the dependencies allow. A launch runs them one after
   another, as a single piece of work of the stream. Steps of child graphs stand in the place of their node. */
#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include "graphs/graph.h"
#include "graphs/user_object.h"

/* A step of an image, with the node that it came from: only to be compared. */
struct sim_image_step {
    CUgraphNode node;
    struct sim_step step;
};

struct sim_image {
    unsigned refs; /* the executable, and each launch under way */
    unsigned count;
    struct sim_image_step *at;
    struct sim_object_ref *object_refs;
};

struct CUgraphExec_st {
    struct sim_handle handle;
    struct sim_image *image;
    cuuint64_t flags;
    CUstream last; /* where it was launched last, with a reference: launches of one executable do not overlap */
    uint64_t last_position;
    struct sim_clock clock; /* of that launch; for the hazard checker */
};

/* Locked, here and below. */
CUresult sim_image_new(CUgraph graph, struct sim_image **ret);
void sim_image_unref(struct sim_image *image);
/* The executable does `step`, which it takes in any case, where it did what `node` does. */
CUresult sim_image_replace(CUgraphExec exec, CUgraphNode node, struct sim_step step);

#endif
