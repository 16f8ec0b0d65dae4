/* libc10.so as far as the library deals with it: c10::utils::check_env(const char *), which returns
   std::optional<bool>. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) uint16_t _ZN3c105utils9check_envEPKc(const char *name);

uint16_t _ZN3c105utils9check_envEPKc(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        return 0;
    return strcmp(value, "1") == 0 ? 0x101 : 0x100;
}
