/* A target without libFuzzer: each file of the folders given, once. What was ever found stays found with any compiler. */
#include <dirent.h>

#include "target.h"

enum { LARGEST = 1 << 20 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

static int run(const char *folder)
{
    static uint8_t data[LARGEST];
    DIR *files = opendir(folder);
    int count = 0;
    for (struct dirent *entry; files && (entry = readdir(files));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = *entry->d_name == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        fprintf(stderr, "%s\n", path); /* the last one where it ends here */
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *copy = malloc(size + 1); /* of no more room, so that reading behind it is seen */
        if (!copy)
            abort();
        memcpy(copy, data, size);
        (void)LLVMFuzzerTestOneInput(copy, size);
        free(copy);
        count++;
    }
    if (files)
        closedir(files);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;
    if (LLVMFuzzerInitialize(&argc, &argv) != 0)
        return 1;
    for (int i = 1; i < argc; i++)
        count += run(argv[i]);
    fprintf(stderr, "%d files\n", count);
    return count == 0;
}
