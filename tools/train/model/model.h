/* A Qwen2-like decoder: its shape, its parameters on the device, and what of it is trained. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "device/tensor.h"

/* How the ranks of a data-parallel training share parameters, gradients and moments. In a dry run one rank makes its
   allocations without the others. */
enum sharding_kind {
    SHARDING_NONE,
    SHARDING_ZERO2, /* gradients and moments */
    SHARDING_ZERO3, /* parameters too, gathered where they are used into flat buffers of a bounded size */
    SHARDING_FSDP,  /* the same a layer at a time, float parts of bfloat16 parameters, gradients reduced in float */
};

struct sharding {
    enum sharding_kind kind;
    int ranks, rank;
    int64_t bucket, prefetch; /* elements of a bucket of gradients, and of a flat buffer of parameters */
    bool offload_parameters, offload_optimizer; /* what is not in use lies in host memory; the first only with both */
};

struct shape {
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary;
    bool tied;          /* the head is the embedding */
    double rope_theta, norm_eps;
    enum dtype dtype;   /* of weights, adapters and activations */
    int rank;           /* of the LoRA adapters on all linear layers; 0 for none */
    double lora_alpha;
    bool train_all;     /* the weights too, not only the adapters */
    bool no_bias;       /* of the projections to queries, keys and values */
    bool qk_norm;       /* queries and keys are normed a head at a time, as in Qwen3 */
    bool mixed;         /* weights in float, cast where they are used, as under PyTorch's autocast */
    int selected;       /* keys that sparse attention gathers for each query, at most half of the length; 0: dense */
    double dropout;     /* of what LoRA's first matrix is given */
    struct sharding sharding;
    size_t workspace, workspace_small; /* of the library of matrix products, once for each direction; 0 for none */
};

struct offload;

struct parameter {
    struct tensor *value; /* NULL: the model has no such parameter, or it is not gathered */
    struct tensor *gradient, *mean, *variance; /* made when first needed */
    struct tensor *cast;  /* of value, while a mixed forward and backward use it */
    struct tensor *part;  /* this rank's, where parameters are sharded */
    struct offload *offload;                /* this rank's, where that is in host memory */
    struct tensor *master, *whole_gradient; /* float copy for the optimizer; gradient not yet reduced */
    int64_t rows, columns;
    bool trained, adapter;
    bool reduced;         /* its gradient is summed over the ranks, of which each keeps a part */
};

struct linear {
    struct parameter weight, bias, lora_a, lora_b;
    int number; /* in the model, from 1 */
};

enum projection { PROJECTION_Q, PROJECTION_K, PROJECTION_V, PROJECTION_O, PROJECTION_GATE, PROJECTION_UP,
                  PROJECTION_DOWN, PROJECTION_COUNT };

struct layer {
    struct linear projections[PROJECTION_COUNT];
    struct parameter input_norm, attention_norm, q_norm, k_norm;
};

struct model {
    struct shape shape;
    struct parameter embedding, final_norm, head; /* head.value NULL where tied */
    struct tensor *inverse_frequencies, *original_inverse_frequencies;
    struct tensor *workspaces[4]; /* forward, backward: large, small */
    struct layer *layers;
    struct parameter **parameters; /* all, in the order of the module tree */
    int parameter_count;
    int64_t elements, trained_elements;
};

/* Returns NULL if the shape makes sense, else what is wrong with it. */
const char *shape_fault(const struct shape *shape);

/* Takes and initialises all parameters. */
void model_open(struct model *model, struct device *device, const struct shape *shape, uint64_t seed);
/* Drops what is left of the model, in the order in which a program of PyTorch's does at its end: first the weights and
   the optimizer's moments, then (model_close) gradients, adapters and workspaces. */
void model_drop_weights(struct model *model);
void model_close(struct model *model, struct device *device);

/* Lists the parameters of a layer in *ret, of room for LAYER_PARAMETERS, and returns how many there are. */
enum { LAYER_PARAMETERS = 4 * PROJECTION_COUNT + 4 };
int layer_parameters(struct layer *layer, struct parameter **ret);

float model_lora_scale(const struct shape *shape);

/* Gives the parameter a gradient, taking over the reference: the first is kept, further ones are added to it. */
void parameter_accept(struct device *device, struct parameter *parameter, struct tensor *gradient);
/* Drops all gradients, like set_to_none: the next backward makes new ones. */
void model_drop_gradients(struct model *model);

#endif
