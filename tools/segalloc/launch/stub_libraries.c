#include "launch/stub_libraries.h"

#include "launch/elf_read.h"
#include "launch/elf_write.h"
#include "tool.h"
#include "launch/torch_install.h"
#include "wrap.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The vendor's libraries, and how the names of those begin that their symbols carry no version for. */
static const struct {
    const char *library, *prefix;
} vendors[] = {
    {"libcublasLt.so.", "cublasLt"}, {"libcublas.so.", "cublas"}, {"libcudnn.so.", "cudnn"},
    {"libcusparseLt.so.", "cusparseLt"}, {"libcusparse.so.", "cusparse"}, {"libcusolverMg.so.", "cusolverMg"},
    {"libcusolver.so.", "cusolver"}, {"libcufft.so.", "cufft"}, {"libcurand.so.", "curand"},
    {"libcufile.so.", "cuFile"}, {"libnccl.so.", "nccl"}, {"libnvrtc.so.", "nvrtc"}, {"libcupti.so.", "cupti"},
    {"libnvshmem_host.so.", "nvshmem"}, {"libnvJitLink.so.", "nvJitLink"}, {"libnvToolsExt.so.", "nvtx"},
};
enum { VENDOR_COUNT = sizeof vendors / sizeof *vendors, LIBRARIES_MOST = 48, FUNCTIONS_MOST = 16384 };

static const struct {
    const char *pattern, *target;
} answers[] = {
#define ANSWER(pattern, handler) {pattern, "sg_standin_" #handler},
#define OUT(pattern, width, position) {pattern, "sg_standin_out" #width "_" #position},
#include "answers.def"
};

struct library {
    char *soname;
    struct sg_elf_function *functions;
    size_t count;
};

struct collection {
    struct library libraries[LIBRARIES_MOST];
    size_t count;
    const char *needed[LIBRARIES_MOST]; /* by the file that is being read, only for as long */
    size_t needed_count;
    bool vendor; /* it needs a library of the vendor's */
};

/* The collection that nftw()'s callback adds to; this program does one at a time. */
static struct collection *collecting;

static size_t vendor_of(const char *soname)
{
    size_t i = 0;
    while (i < VENDOR_COUNT && strncmp(soname, vendors[i].library, strlen(vendors[i].library)) != 0)
        i++;
    return i;
}

static struct library *library_named(struct collection *c, const char *soname)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->libraries[i].soname, soname) == 0)
            return c->libraries + i;
    }
    if (c->count == LIBRARIES_MOST)
        return NULL;
    struct library *library = c->libraries + c->count;
    library->functions = calloc(FUNCTIONS_MOST, sizeof *library->functions);
    library->soname = strdup(soname);
    if (!library->functions || !library->soname) {
        free(library->functions);
        free(library->soname);
        return NULL;
    }
    c->count++;
    return library;
}

static const char *answer_to(const char *symbol)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (fnmatch(answers[i].pattern, symbol, 0) == 0)
            return answers[i].target;
    }
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void add_function(struct library *library, const char *symbol, const char *version)
{
    for (size_t i = 0; i < library->count; i++) {
        if (strcmp(library->functions[i].name, symbol) == 0 && same_text(library->functions[i].version, version))
            return;
    }
    if (library->count == FUNCTIONS_MOST)
        return;
    struct sg_elf_function *function = library->functions + library->count;
    function->name = strdup(symbol);
    function->version = version ? strdup(version) : NULL;
    function->target = answer_to(symbol);
    library->count += function->name && (function->version || !version);
}

static void visit_library(void *data, const char *name)
{
    struct collection *c = data;
    if (vendor_of(name) == VENDOR_COUNT)
        return;
    struct library *library = library_named(c, name);
    c->vendor = true;
    if (library && c->needed_count < LIBRARIES_MOST)
        c->needed[c->needed_count++] = library->soname;
}

static void visit_symbol(void *data, const struct sg_elf_need *need)
{
    struct collection *c = data;
    if (need->file) {
        if (vendor_of(need->file) < VENDOR_COUNT) {
            struct library *library = library_named(c, need->file);
            if (library)
                add_function(library, need->symbol, need->version);
        }
        return;
    }
    for (size_t v = 0; v < VENDOR_COUNT; v++) {
        if (strncmp(need->symbol, vendors[v].prefix, strlen(vendors[v].prefix)) != 0)
            continue;
        for (size_t i = 0; i < c->needed_count; i++) {
            struct library *library = vendor_of(c->needed[i]) == v ? library_named(c, c->needed[i]) : NULL;
            if (library)
                add_function(library, need->symbol, NULL);
        }
        return;
    }
}

/* First the libraries only: most files need none of the vendor's, and then their symbols don't matter. */
static void collect_file(struct collection *c, const char *path)
{
    c->needed_count = 0;
    c->vendor = false;
    struct sg_elf_visitor libraries = {.library = visit_library, .data = c};
    if (!sg_elf_needs(path, &libraries) || !c->vendor)
        return;
    struct sg_elf_visitor symbols = {.library = visit_library, .symbol = visit_symbol, .data = c};
    c->needed_count = 0;
    sg_elf_needs(path, &symbols);
}

static int collect_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    const char *name = path + where->base;
    if (type == FTW_D && (strcmp(name, "nvidia") == 0 || strcmp(name, "__pycache__") == 0))
        return FTW_SKIP_SUBTREE; /* the vendor's own packages need one another */
    const char *end = strstr(name, ".so");
    if (type == FTW_F && end && (end[3] == '\0' || end[3] == '.'))
        collect_file(collecting, path);
    return FTW_CONTINUE;
}

static void drop_collection(struct collection *c)
{
    for (size_t i = 0; i < c->count; i++) {
        for (size_t j = 0; j < c->libraries[i].count; j++) {
            free((char *)c->libraries[i].functions[j].name);
            free((char *)c->libraries[i].functions[j].version);
        }
        free(c->libraries[i].functions);
        free(c->libraries[i].soname);
    }
}

static uint64_t hash_mix_in(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = sg_fnv(hash, ((const uint8_t *)bytes)[i]);
    return hash;
}

/* A hash with the table of answers in it, which the files hold. */
static uint64_t mix_answers(uint64_t hash)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        hash = hash_mix_in(hash, answers[i].pattern, strlen(answers[i].pattern) + 1);
        hash = hash_mix_in(hash, answers[i].target, strlen(answers[i].target) + 1);
    }
    return hash;
}

/* A hash with the name and the time of a file in it. */
static uint64_t mix_file(uint64_t hash, const char *path)
{
    struct stat status;
    hash = hash_mix_in(hash, path, strlen(path) + 1);
    if (stat(path, &status) == 0) {
        hash = hash_mix_in(hash, &status.st_mtim, sizeof status.st_mtim);
        hash = S_ISREG(status.st_mode) ? hash_mix_in(hash, &status.st_size, sizeof status.st_size) : hash;
    }
    return hash;
}

static bool stub_make_folders(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* Our folder among the user's caches, made if it is missing. */
static bool cache_folder(char ret[SG_PLACE_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *temporary = getenv("TMPDIR");
    if (cache && *cache == '/')
        snprintf(ret, SG_PLACE_BYTES, "%s/segalloc/stand-ins", cache);
    else
        snprintf(ret, SG_PLACE_BYTES, "%s/.cache/segalloc/stand-ins", home && *home == '/' ? home : "/nonexistent");
    if (stub_make_folders(ret) && access(ret, W_OK) == 0)
        return true;
    snprintf(ret, SG_PLACE_BYTES, "%s/segalloc-%u", temporary && *temporary ? temporary : "/tmp", (unsigned)getuid());
    return stub_make_folders(ret) && access(ret, W_OK) == 0;
}

static int write_libraries(const char *folder, const char *needed, const struct collection *c)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < c->count; i++) {
        char path[SG_PLACE_BYTES * 2];
        struct sg_elf_library library = {
            .soname = c->libraries[i].soname, .needed = needed, .functions = c->libraries[i].functions,
            .function_count = c->libraries[i].count,
        };
        snprintf(path, sizeof path, "%s/%s", folder, library.soname);
        error = sg_elf_write(path, &library);
    }
    return error;
}

/* A file beside the libraries that says for which versions PyTorch was built, where its metadata says so: it compares
   them with what the libraries answer. */
static int write_versions(const char *folder, const struct sg_wheel *wheel)
{
    static const struct {
        const char *name, *package;
    } known[] = {{"cudnn", "nvidia-cudnn-cu"}, {"nccl", "nvidia-nccl-cu"}};
    char path[SG_PLACE_BYTES * 2], version[32];
    snprintf(path, sizeof path, "%s/versions", folder);
    FILE *file = fopen(path, "we");
    if (!file)
        return -errno;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (sg_wheel_requires(wheel, known[i].package, version))
            fprintf(file, "%s %s\n", known[i].name, version);
    }
    return fclose(file) == 0 ? 0 : -errno;
}

static void remove_folder(const char *folder)
{
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));)
        unlinkat(dirfd(open), entry->d_name, 0);
    if (open)
        closedir(open);
    rmdir(folder);
}

/* Writes all of them under another name and renames the folder, so that no process ever sees half of it. */
static int stub_generate(const struct sg_wheel *wheel, const char *needed, const char *folder)
{
    char scratch[SG_PLACE_BYTES + 32];
    struct collection collection = {0};
    snprintf(scratch, sizeof scratch, "%s.%ld", folder, (long)getpid());
    if (mkdir(scratch, 0777) != 0)
        return -errno;
    collecting = &collection;
    nftw(wheel->site, collect_entry, 32, FTW_PHYS | FTW_ACTIONRETVAL);
    int error = write_libraries(scratch, needed, &collection);
    if (error == 0)
        error = write_versions(scratch, wheel);
    drop_collection(&collection);
    if (error == 0 && rename(scratch, folder) != 0 && errno != EEXIST && errno != ENOTEMPTY)
        error = -errno;
    if (error != 0 || access(scratch, F_OK) == 0)
        remove_folder(scratch);
    return error;
}

/* True if one of the vendor's packages beside PyTorch holds this library: site/nvidia/NAME/lib/SONAME. */
static bool vendor_installed(const struct sg_wheel *wheel, const char *soname)
{
    char path[2 * SG_PLACE_BYTES];
    snprintf(path, sizeof path, "%s/nvidia", wheel->site);
    DIR *packages = opendir(path);
    bool found = false;
    for (struct dirent *entry; packages && !found && (entry = readdir(packages));) {
        snprintf(path, sizeof path, "%s/nvidia/%s/lib/%s", wheel->site, entry->d_name, soname);
        found = *entry->d_name != '.' && access(path, F_OK) == 0;
    }
    if (packages)
        closedir(packages);
    snprintf(path, sizeof path, "%s/%s", wheel->libraries, soname);
    return found || access(path, F_OK) == 0;
}

static void add_preloads(const struct sg_wheel *wheel, const char *folder, struct sg_standin *ret)
{
    DIR *files = opendir(folder);
    size_t length = strlen(ret->preload);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        if (!strstr(entry->d_name, ".so.") || !vendor_installed(wheel, entry->d_name))
            continue;
        size_t room = sizeof ret->preload - length;
        int n = snprintf(ret->preload + length, room, "%s%s/%s", length ? ":" : "", folder, entry->d_name);
        if (n < 0 || (size_t)n >= room)
            ret->preload[length] = '\0';
        else
            length += (size_t)n;
    }
    if (files)
        closedir(files);
}

/* The one of the simulator's folders that a file lies in. */
static bool in_simulator(const char *folders, const char *name, char ret[SG_PLACE_BYTES])
{
    for (const char *at = folders; *at;) {
        size_t n = strcspn(at, ":");
        snprintf(ret, SG_PLACE_BYTES, "%.*s/%s", (int)n, at, name);
        if (access(ret, R_OK) == 0)
            return true;
        at += n + (at[n] != '\0');
    }
    return false;
}

bool sg_standin_prepare(const char *verb, char *const *command, const char *simulator, struct sg_standin *ret)
{
    static const char answers_library[] = "libsegalloc-standin.so";
    struct sg_wheel wheel;
    char needed[SG_PLACE_BYTES], cache[SG_PLACE_BYTES], path[SG_PLACE_BYTES * 2];
    *ret = (struct sg_standin){0};
    if (!sg_wheel_find(command, &wheel))
        return true;
    snprintf(ret->site, sizeof ret->site, "%s", wheel.site);
    if (!in_simulator(simulator, answers_library, needed)) {
        sg_tool_message(verb, "%s is not beside the simulated GPU; build or install it again", answers_library);
        return false;
    }
    if (!cache_folder(cache)) {
        sg_tool_message(verb, "no folder for stand-ins of CUDA's libraries can be made; name one in XDG_CACHE_HOME");
        return false;
    }
    snprintf(path, sizeof path, "%s/libtorch_cuda.so", wheel.libraries);
    uint64_t key = mix_file(mix_file(mix_file(mix_answers(SG_FNV_BASIS), path), wheel.site), needed);
    if ((size_t)snprintf(ret->folder, sizeof ret->folder, "%s/%016" PRIx64, cache, key) >= sizeof ret->folder)
        return false;
    int error = access(ret->folder, X_OK) == 0 ? 0 : stub_generate(&wheel, needed, ret->folder);
    if (error != 0) {
        sg_tool_message(verb, "stand-ins for CUDA's libraries can't be written to %s: %s", ret->folder,
            strerror(-error));
        return false;
    }
    add_preloads(&wheel, ret->folder, ret);
    for (const char *at = simulator; *at;) {
        char folder[SG_PLACE_BYTES];
        size_t n = strcspn(at, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)n, at);
        add_preloads(&wheel, folder, ret);
        at += n + (at[n] != '\0');
    }
    return true;
}
