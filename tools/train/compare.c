#include "compare.h"

#include <math.h>
#include <stdlib.h>

/* Relative, of a loss. The effect of rounding in another order grows with the steps in fp32; bf16 has 8 bits. */
static const double tolerances[DTYPE_COUNT] = {[DTYPE_F32] = 1e-3, [DTYPE_BF16] = 0.03};

static void print_list(FILE *out, const char *name, const struct run_result *r)
{
    fprintf(out, ",\"%s\":[", name);
    for (int i = 0; i < r->steps; i++)
        fprintf(out, "%s\"%a\"", i ? "," : "", (double)r->losses[i]);
    fputc(']', out);
}

static double loss_distance(const struct run_result *cpu, const struct run_result *gpu, int step)
{
    return fabs((double)gpu->losses[step] - (double)cpu->losses[step]) / fabs((double)cpu->losses[step]);
}

static bool has_run(const char *where, const struct run_result *r)
{
    if (r->outcome == OUTCOME_COMPLETED)
        return true;
    fprintf(stderr, "segalloc-train: %s: %s\n", where, r->outcome == OUTCOME_INTERRUPTED ? "interrupted" : r->error);
    return false;
}

bool compare_backends(FILE *out, const struct options *options, const struct cuda_rt *rt)
{
    struct options reference = *options, other = *options;
    reference.backend = BACKEND_CPU;
    reference.set.shape.dtype = DTYPE_F32;
    other.backend = BACKEND_GPU;
    reference.card_named = other.card_named = false;
    struct run_result cpu, gpu;
    training_run(&reference, &cuda_rt_host, NULL, NULL, &cpu);
    training_run(&other, rt, NULL, NULL, &gpu);
    const bool first = has_run("on the CPU", &cpu), second = has_run("on the GPU", &gpu), both = first && second;
    bool equal = both;
    const double tolerance = tolerances[options->set.shape.dtype];
    double largest = 0;
    for (int i = 0; both && i < cpu.steps; i++) {
        double apart = loss_distance(&cpu, &gpu, i);
        if (!options->json)
            fprintf(out, "step %d/%d  loss on the CPU %.6f, on the GPU %.6f, apart by %.2g\n", i + 1, cpu.steps,
                    (double)cpu.losses[i], (double)gpu.losses[i], apart);
        equal = equal && apart <= tolerance; /* not for what is no number */
        largest = apart > largest ? apart : largest;
    }
    const char *dtype = options->set.shape.dtype == DTYPE_F32 ? "fp32" : "bf16";
    if (both && options->json) {
        fprintf(out, "{\"schema\":\"segalloc.train.compare/1\",\"preset\":\"%s\",\"dtype\":\"%s\",\"steps\":%d",
                options->preset->name, dtype, cpu.steps);
        print_list(out, "losses_cpu", &cpu);
        print_list(out, "losses_gpu", &gpu);
        fprintf(out, ",\"largest_relative_difference\":%.9g,\"tolerance\":%g,\"equal\":%s}\n", largest, tolerance,
                equal ? "true" : "false");
    } else if (both) {
        fprintf(out, "%s: losses in %s are at most %.2g apart, %g is allowed\n", equal ? "equal" : "not equal", dtype,
                largest, tolerance);
    }
    free(cpu.losses);
    free(gpu.losses);
    return equal;
}
