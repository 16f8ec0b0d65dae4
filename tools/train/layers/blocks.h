/* The blocks of the decoder, forward and backward, in the order in which PyTorch (with transformers' Qwen2 and PEFT)
   takes and frees tensors. A forward that is given somewhere to save keeps there what its backward needs, as autograd
   does; given NULL it keeps nothing. A backward empties what was saved, as the engine frees a node's tensors after
   it. */
#ifndef TRAIN_BLOCKS_H
#define TRAIN_BLOCKS_H

#include "model/model.h"

/* One batch on its way through the model. */
struct pass {
    struct device *device;
    struct model *model;
    int64_t batch, length; /* rows of activations are batch * length */
    bool policy;           /* the loss of a policy gradient over scored tokens instead of cross-entropy */
    uint64_t dropout_seed; /* another for each micro-step: a recomputation drops the same elements */
    bool backward;         /* PyTorch runs it on a second thread, which has workspaces of its own */
    bool packed;           /* rows hold several sequences each, whose positions begin again */
    const int64_t *starts; /* page-locked, when packed and not dry: -1, then the position of each token of a row */
    struct tensor *positions, *mask, *cosines, *sines;
};

struct linear_saved {
    struct tensor *x, *low; /* input of lora_a, and lora_a of it */
    struct tensor *kept;    /* which elements dropout left */
    struct tensor *x_base;  /* the input again where the weight is trained */
};

struct norm_saved {
    struct tensor *x, *inverse; /* input as float, 1 / rms of each row */
    struct tensor *normed;      /* where the weight is trained */
};

struct attention_saved {
    struct tensor *q, *k, *v, *bias, *out, *log_sums;
    struct tensor *gathered; /* of sparse attention: selected keys and values of each query, in place of k and v */
};

struct layer_saved {
    struct norm_saved input_norm, attention_norm, q_norm, k_norm;
    struct linear_saved projections[PROJECTION_COUNT];
    struct attention_saved attention;
    struct tensor *gate, *activated, *up;
};

/* `only_low` stops after lora_a (or, without adapters, before the product) and returns NULL: the point at which a
   recomputation has all it needs. */
struct tensor *linear_forward(struct pass *pass, struct linear *linear, struct tensor *x, struct linear_saved *saved,
                              bool only_low);
/* Gradient of the adapters' scaling, the first step of linear_backward; NULL without adapters. */
struct tensor *linear_scale_gradient(struct pass *pass, struct linear *linear, struct tensor *gradient);
/* Drops *gradient and *scaled (of linear_scale_gradient). Adds the gradient of the input to *sum, or makes it if that
   is NULL. */
void linear_backward(struct pass *pass, struct linear *linear, struct linear_saved *saved, struct tensor **gradient,
                     struct tensor **scaled, struct tensor **sum);

struct tensor *norm_forward(struct pass *pass, struct parameter *weight, struct tensor *x, struct norm_saved *saved);
/* Drops *gradient, and the `last_count` tensors of `last` together with the last saved one. */
struct tensor *norm_backward(struct pass *pass, struct parameter *weight, struct norm_saved *saved,
    struct tensor **gradient, struct tensor **last[], int last_count);

/* Makes pass->positions, mask, cosines and sines for the batch and length of the pass. */
void positions_make(struct pass *pass);

/* x of `heads` heads, turned by the angles of its positions. */
struct tensor *rotary_forward(struct pass *pass, struct tensor *x, int heads);
struct tensor *rotary_backward(struct pass *pass, struct tensor **gradient, int heads);

struct tensor *attention_forward(struct pass *pass, struct tensor *q, struct tensor *k, struct tensor *v,
                                 struct attention_saved *saved);
/* Gradients of what attention_forward was given, k and v summed over the heads that share them. */
void attention_backward(struct pass *pass, struct attention_saved *saved, struct tensor **gradient,
                        struct tensor **ret_q, struct tensor **ret_k, struct tensor **ret_v);

/* The layer's output. With `stop_early` (needs `saved`) stops where the last tensor is saved and returns NULL. */
struct tensor *layer_forward(struct pass *pass, struct layer *layer, struct tensor *x, struct layer_saved *saved,
                             bool stop_early);
/* `gradient` of the output becomes that of the input, in place. With `recompute` (the layer's input) the forward is
   first done again; the tensors of `last` are dropped when the last saved one is. */
void layer_backward(struct pass *pass, struct layer *layer, struct layer_saved *saved, struct tensor *gradient,
    struct tensor *recompute, struct tensor **last[], int last_count);

struct loss_saved {
    struct tensor *labels, *log_softmax, *count, *x_head;
    struct tensor *raw, *scaled; /* of a policy gradient: the model's logits, and by its temperature */
};

/* Mean cross-entropy of the next tokens. Drops *x, the normed output of the last layer. */
struct tensor *loss_forward(struct pass *pass, struct tensor **x, struct tensor *tokens, struct loss_saved *saved);
/* Drops what a forward without a backward has saved. */
void loss_forget(struct loss_saved *saved);
/* Gradient of x; `scaled` is the loss to start from, divided by `parts`. */
struct tensor *loss_backward(struct pass *pass, struct loss_saved *saved, struct tensor *scaled, int parts);

struct tensor *embedding_forward(struct pass *pass, struct tensor *tokens);
void embedding_backward(struct pass *pass, struct tensor *tokens, struct tensor *gradient);

/* The value of a parameter in the dtype of the computation: under mixed precision a copy made at its first use, which
   lives until casts_drop. */
struct tensor *weight_of(struct pass *pass, struct parameter *parameter);
void casts_drop(struct parameter *const *parameters, int count);

/* The workspace of the library of matrix products, taken at its first use in each direction. */
void workspace_take(struct pass *pass, bool with_bias);

#endif
