// Preloaded, with stand-ins for PyTorch's libraries: running out of memory is c10::OutOfMemoryError with PyTorch's text,
// in direct and in pluggable mode, in every thread; nothing is lost, and the program goes on. A failed check of PyTorch's
// says what it said, and of a tensor that can't be sent to another process how it could.
// Argument: direct or pluggable.
#include "c10_cuda.hpp"

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

extern "C" void *segalloc_torch_malloc(size_t, int, void *) __attribute__((weak));
extern "C" void segalloc_torch_free(void *, size_t, int, void *) __attribute__((weak));
extern "C" int cudaPeekAtLastError();

namespace {

constexpr size_t MIB = size_t(1) << 20;
int failures;

void expect(bool good, const char *what)
{
    if (!good)
        std::fprintf(stderr, "not so: %s\n", what);
    failures += !good;
}

void *allocate(bool pluggable, size_t bytes)
{
    return pluggable ? segalloc_torch_malloc(bytes, 0, nullptr) : torch_standin::tensor(bytes);
}

void release(bool pluggable, void *address)
{
    if (pluggable)
        segalloc_torch_free(address, 0, 0, nullptr);
    else
        torch_standin::release(address);
}

// Destroyed on the way of the error through these frames.
struct Guard {
    int *count;
    ~Guard() { ++*count; }
};

void too_much(bool pluggable, int *unwound)
{
    Guard guard{unwound};
    allocate(pluggable, 8192 * MIB);
}

void fill_and_run_out(bool pluggable)
{
    std::vector<void *> held;
    std::string text;
    try {
        for (int i = 0; i < 200; i++)
            held.push_back(allocate(pluggable, 100 * MIB));
    } catch (const c10::OutOfMemoryError &error) {
        text = error.what_without_backtrace();
    }
    expect(text.rfind("CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which", 0) == 0,
           "the text is PyTorch's");
    expect(text.find("is allocated by PyTorch, and") != std::string::npos, "what PyTorch holds is said");
    expect(held.size() >= 10 && held.size() < 41, "the card was filled");
    expect(cudaPeekAtLastError() == 0, "no error stays with the runtime");
    while (!held.empty()) {
        release(pluggable, held.back());
        held.pop_back();
    }
    int unwound = 0;
    try {
        too_much(pluggable, &unwound);
        expect(false, "more than the card has is an error");
    } catch (const c10::Error &) {
        unwound += 10;
    }
    expect(unwound == 11, "frames between are left in order");
    void *again = allocate(pluggable, 1000 * MIB);
    expect(again != nullptr, "the program goes on");
    release(pluggable, again);
}

}

template <typename Function> std::string error_of(Function function)
{
    try {
        function();
    } catch (const c10::Error &error) {
        return error.what_without_backtrace();
    }
    return "";
}

// A tensor that is to be sent to another process: not from PyTorch's cache.
void look_at_checks()
{
    void *address = torch_standin::tensor(4096);
    const std::string said = error_of([&] { torch_standin::share(address); });
    expect(said.rfind("invalid device pointer: 0x", 0) == 0, "PyTorch's own words come first");
    expect(said.find("SEGALLOC_CONF=pytorch:beneath,ipc:always") != std::string::npos, "the way out is said");
    expect(error_of([] { torch_standin::fail_a_check("short"); }) == "short", "other checks say what they said");
    const std::string text = "invalid device pointer: " + std::string(5000, 'x');
    expect(error_of([&] { torch_standin::fail_a_check(text); }) == text, "at any length");
    torch_standin::release(address);
}

void run_out(bool pluggable)
{
    try {
        allocate(pluggable, 8192 * MIB);
        expect(false, "more than the card has is an error");
    } catch (const c10::OutOfMemoryError &) {
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    bool pluggable = std::strcmp(mode, "pluggable") == 0;
    torch_standin::native_in_force(false);
    torch_standin::release(torch_standin::tensor(512));
    look_at_checks();
    std::thread at_once(run_out, pluggable); // the first two find out together how to throw
    run_out(pluggable);
    at_once.join();
    fill_and_run_out(pluggable);
    std::thread(fill_and_run_out, pluggable).join();
    for (int i = 0; i < 2000; i++)
        run_out(pluggable);
    expect(c10::Error::alive == 0, "every error is destroyed");
    if (pluggable) {
        torch_standin::native_in_force(true);
        expect(segalloc_torch_malloc(8192 * MIB, 0, nullptr) == nullptr, "a pool is told by NULL");
        expect(c10::Error::alive == 0, "and by nothing else");
    }
    return failures != 0;
}
