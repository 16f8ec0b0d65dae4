/* SEGALLOC_CONF, a file of SEGALLOC_CONF_FILE, PYTORCH_CUDA_ALLOC_CONF, --conf, and PyTorch's own reading of its
   settings. The first byte chooses. */
#include "config/conf_read.h"

#include "target.h"
#include "allocator_config.h"

enum { PRINTED = 1 << 16 };

static void warn(void *user, const char *line)
{
    FUZZ_EXPECT(*line && !strchr(line, '\n'));
    ++*(unsigned *)user;
}

/* Other paths come by variables of their own. */
static bool can_be_listed(const char *path)
{
    return !strpbrk(path, ",\n#") && *path != '[';
}

/* What is in force reads back as it was printed. */
static void check(const struct sg_conf *conf)
{
    static char first[PRINTED], second[PRINTED];
    struct sg_conf again;
    char accepted[160];
    FUZZ_EXPECT(sg_conf_print(conf, first, sizeof first) < sizeof first);
    sg_conf_init(&again);
    if (can_be_listed(conf->trace) && can_be_listed(conf->stats)) {
        FUZZ_EXPECT(sg_conf_apply(&again, SG_CONF_ARGUMENT, first, NULL, NULL) == 0);
        sg_conf_print(&again, second, sizeof second);
        FUZZ_EXPECT(strcmp(first, second) == 0);
    }
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++)
        sg_option_values(conf, i, accepted, sizeof accepted);
    FUZZ_EXPECT(sg_conf_limit(conf, UINT64_C(24) << 30) <= UINT64_C(24) << 30);
}

static void load_file(const uint8_t *data, size_t size, struct sg_conf *conf, unsigned *lines)
{
    char path[FUZZ_PATH];
    fuzz_file(data, size, path);
    const struct sg_conf_inputs inputs = {.system_file = "/nonexistent", .conf_file = path};
    FUZZ_EXPECT(sg_conf_load(conf, &inputs, warn, lines) == *lines);
}

static void load_texts(char *text, struct sg_conf *conf, unsigned *lines)
{
    char *second = strchr(text, '\1');
    if (second)
        *second++ = '\0';
    const struct sg_conf_inputs inputs = {.system_file = "/nonexistent", .environment = text, .pytorch_cuda = second,
        .trace = second};
    FUZZ_EXPECT(sg_conf_load(conf, &inputs, warn, lines) == *lines);
    conf->trace[0] = '\0'; /* a variable of its own may hold what no list of options can: spaces at an end, for one */
}

static void read_torch(const char *text)
{
    char error[SG_TORCH_ERROR_TEXT] = "";
    struct sg_torch_conf torch;
    if (sg_torch_conf_parse(text, &torch, error) != 0) {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
        return;
    }
    for (unsigned bit = 0; bit < 40; bit++) {
        uint64_t bytes = (UINT64_C(1) << bit) + 1;
        FUZZ_EXPECT(sg_torch_round(&torch, bytes) >= bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sg_conf conf;
    unsigned lines = 0;
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    sg_conf_init(&conf);
    switch (*data % 5) {
    case 0:
        FUZZ_EXPECT(sg_conf_apply(&conf, SG_CONF_ENVIRONMENT, text, warn, &lines) == lines);
        break;
    case 1:
        FUZZ_EXPECT(sg_conf_check(&conf, "--conf", text, warn, &lines) == lines);
        break;
    case 2:
        load_file(data + 1, size - 1, &conf, &lines);
        break;
    case 3:
        load_texts(text, &conf, &lines);
        break;
    case 4:
        read_torch(text);
        break;
    }
    check(&conf);
    free(text);
    return 0;
}
