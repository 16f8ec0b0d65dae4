#include "c10.hpp"

#include <optional>

namespace c10 {

std::atomic<int> Error::alive;

Error::Error(SourceLocation where, std::string message)
    : message_(std::move(message)), context_(3, "a context that is longer than what a string keeps in itself"),
      what_(message_ + " (" + where.function + ")")
{
    alive++;
}

Error::~Error()
{
    alive--;
}

const char *Error::what() const noexcept
{
    return what_.c_str();
}

const char *Error::what_without_backtrace() const noexcept
{
    return message_.c_str();
}

namespace detail {
void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &message)
{
    throw Error({function, file, line}, message);
}
}

namespace utils {
C10_API std::optional<bool> check_env(const char *name);

std::optional<bool> check_env(const char *)
{
    return std::nullopt;
}
}

}
