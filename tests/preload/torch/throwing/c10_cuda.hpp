#pragma once
#include "c10.hpp"

#include <cstddef>
#include <stdexcept>

namespace torch_standin {
C10_API void *tensor(size_t bytes);
C10_API void release(void *address);
C10_API void native_in_force(bool yes);
C10_API void share(void *address); // as a tensor that PyTorch's cache doesn't know
C10_API void fail_a_check(const std::string &message);
C10_API void run_out(const std::string &message);
}
