// As much of PyTorch's c10 as its errors take, under the same names.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#define C10_API __attribute__((visibility("default")))

namespace c10 {

struct SourceLocation {
    const char *function, *file;
    uint32_t line;
};

class C10_API Error : public std::exception {
public:
    Error(SourceLocation where, std::string message);
    ~Error() override;
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept;

    static std::atomic<int> alive; // objects made and not destroyed

private:
    std::string message_;
    std::vector<std::string> context_;
    std::string what_;
};

class C10_API OutOfMemoryError : public Error {
    using Error::Error;
};

namespace detail {
[[noreturn]] C10_API void torchCheckFail(const char *function, const char *file, uint32_t line, const std::string &message);
}

}
