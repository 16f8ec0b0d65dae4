/* SEGALLOC_SIM. */
#include "config.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct sim_config config = {.bytes = 1};
    const char *error = sim_config_parse(text, &config);
    if (error) {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
        FUZZ_EXPECT(config.bytes == 1);
    } else {
        unsigned char uuid[16];
        FUZZ_EXPECT(config.bytes >= UINT64_C(2) << 20 && config.bytes <= UINT64_C(64) << 40);
        FUZZ_EXPECT(config.devices >= 0 && config.devices <= SIM_DEVICES_MAX);
        sim_config_uuid(&config, 0, uuid);
    }
    free(text);
    return 0;
}
