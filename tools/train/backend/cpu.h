/* The kernels of the CPU backend, one function each, under the names of kernels.def. */
#ifndef TRAIN_BACKEND_CPU_H
#define TRAIN_BACKEND_CPU_H

#include "backend/arithmetic.h"

#define CPU_KERNEL(name) void cpu_##name(const struct kernel_args *a)

CPU_KERNEL(embed);
CPU_KERNEL(embed_gradient);
CPU_KERNEL(float_positions);
CPU_KERNEL(position_angles);
CPU_KERNEL(join_twice);
CPU_KERNEL(mul_heads);
CPU_KERNEL(negate_half);
CPU_KERNEL(join_halves);
CPU_KERNEL(pad_half);
CPU_KERNEL(pad_half_of);
CPU_KERNEL(repeat_heads);
CPU_KERNEL(sum_heads);
CPU_KERNEL(attention);
CPU_KERNEL(attention_gradient);
CPU_KERNEL(count_up);
CPU_KERNEL(add_integer);
CPU_KERNEL(difference);
CPU_KERNEL(not_one);
CPU_KERNEL(widen_bytes);
CPU_KERNEL(running_sum);
CPU_KERNEL(not_after);
CPU_KERNEL(same_segment);
CPU_KERNEL(set_byte);
CPU_KERNEL(both);
CPU_KERNEL(mask_bias);
CPU_KERNEL(shift_labels);
CPU_KERNEL(log_softmax);
CPU_KERNEL(log_softmax_gradient);
CPU_KERNEL(nll);
CPU_KERNEL(nll_gradient);

#endif
