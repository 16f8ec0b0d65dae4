/* The driver that hides the simulator: what its written and its generated half share. */
#ifndef HIDDEN_H
#define HIDDEN_H

struct hidden_name {
    const char *name;
    void **inner; /* the simulator's function */
    void *outer;  /* ours, which jumps to it */
};

extern const struct hidden_name hidden_names[];
extern const unsigned hidden_count;

/* These are more than a jump. */
int cuInit(unsigned flags);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuGetProcAddress(const char *name, void **ret, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long long flags, int *status);

#endif
