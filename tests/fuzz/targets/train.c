/* What segalloc-train reads: a checkpoint, lengths from a file, a text, and its command line. The first byte chooses. */
#include "ranks/comm.h"
#include "data.h"
#include "lengths.h"
#include "options.h"
#include "checkpoint/safetensors.h"
#include "target.h"

enum { ERROR = 512, WORDS = 64, LENGTHS = 100 };

static void read_checkpoint(const char *path)
{
    static const char *const names[] = {"a", "model.norm.weight", "mean.model.norm.weight"};
    struct safetensors file;
    char error[ERROR] = "";
    uint64_t number;
    float sum = 0;
    if (safetensors_open(&file, path, error, sizeof error) != 0) {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int64_t count = 1; count < 5; count++) {
            const float *values = safetensors_find(&file, names[i], count);
            for (int64_t j = 0; values && j < count; j++)
                sum += values[j];
        }
    (void)safetensors_number(&file, "step", &number);
    (void)safetensors_number(&file, "lengths_next", &number);
    safetensors_close(&file);
    (void)sum;
}

static void draw_lengths(const char *text)
{
    struct lengths lengths;
    char error[ERROR] = "";
    if (lengths_open(&lengths, text, 512, 1, error, sizeof error) != 0) {
        FUZZ_EXPECT(*error);
        return;
    }
    lengths_bring(&lengths, LENGTHS, LENGTHS / 2);
    for (int i = 0; i < LENGTHS; i++) {
        int length = lengths_next(&lengths);
        FUZZ_EXPECT(length >= LENGTH_LEAST && length <= 512);
    }
    lengths_close(&lengths);
}

static void read_text(const char *path)
{
    struct text text;
    char error[ERROR] = "";
    int64_t token[32];
    if (text_open(&text, path, 32, 1, error, sizeof error) != 0) {
        FUZZ_EXPECT(*error);
        return;
    }
    text_window(&text, 32, token);
    text_close(&text);
}

/* A word a line. */
static void read_options(char *text)
{
    struct options options;
    char error[ERROR] = "", *argv[WORDS + 1] = {(char *)(uintptr_t)"segalloc-train"};
    int argc = 1;
    for (char *word; argc < WORDS && (word = strsep(&text, "\n"));)
        argv[argc++] = word;
    if (options_parse(&options, argc, argv, error, sizeof error) != 0 ||
        options_join(&options, NULL, error, sizeof error) != 0)
        FUZZ_EXPECT(*error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH], name[FUZZ_PATH + 8];
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    fuzz_file(data + 1, size - 1, path);
    switch (*data % 5) {
    case 0:
        read_checkpoint(path);
        break;
    case 1:
        snprintf(name, sizeof name, "file:%s", path);
        draw_lengths(name);
        break;
    case 2:
        draw_lengths(text);
        break;
    case 3:
        read_text(path);
        break;
    case 4:
        read_options(text);
        break;
    }
    free(text);
    return 0;
}
