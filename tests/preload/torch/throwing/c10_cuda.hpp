#pragma once
#include "c10.hpp"

#include <cstddef>
#include <stdexcept>

namespace torch_standin {
C10_API void *tensor(size_t bytes);
C10_API void release(void *address);
C10_API void native_in_force(bool yes);
C10_API void run_out(const std::string &message);
}
