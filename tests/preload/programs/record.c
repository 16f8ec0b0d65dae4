/* Preloaded, on the simulator: what segalloc_record() begins, and when. The first argument says what is tried, the second
   is a path for a trace. */
#include <stdbool.h>

#include "runtime.h"
#include "served.h"

static const char *(*record)(const char *path);

static void allocate(void)
{
    void *block = NULL;
    EXPECT(cudaMalloc(&block, 1000) == cudaSuccess && cudaFree(block) == cudaSuccess);
}

static bool names(const char *path, const char *expected)
{
    const char *found = record(path);
    return expected ? found && strcmp(found, expected) == 0 : !found;
}

/* The first path stays, and holds from the first allocation on. */
static void begin(const char *path)
{
    static char too_long[4096];
    memset(too_long, 'x', sizeof too_long - 1);
    EXPECT(names(NULL, NULL));
    EXPECT(names(too_long, NULL));
    EXPECT(names(path, path));
    EXPECT(names("/no/such/folder/trace", path));
    EXPECT(names(NULL, path));
    allocate();
    EXPECT(names(NULL, path) && names("/no/such/folder/trace", path));
}

/* The option `trace` names it already: places are what is added. */
static void add_places(const char *path)
{
    EXPECT(names(NULL, NULL));
    EXPECT(names("/no/such/folder/trace", path));
    allocate();
    EXPECT(names(NULL, path));
}

/* After the first allocation nothing begins. */
static void come_late(const char *path)
{
    allocate();
    EXPECT(names(path, NULL) && names(NULL, NULL));
}

int main(int argc, char **argv)
{
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_record");
    memcpy(&record, &symbol, sizeof record);
    if (argc < 3 || !record)
        return 2;
    if (strcmp(argv[1], "begin") == 0)
        begin(argv[2]);
    else if (strcmp(argv[1], "add_places") == 0)
        add_places(argv[2]);
    else if (strcmp(argv[1], "come_late") == 0)
        come_late(argv[2]);
    else if (strcmp(argv[1], "allocate") == 0)
        allocate();
    return failures != 0;
}
