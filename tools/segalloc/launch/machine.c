#include "launch/machine.h"

#include "cuda_abi.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *load_driver(const char *folders)
{
    for (const char *at = folders ? folders : ""; *at;) {
        char path[4200];
        size_t length = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)length, at);
        void *driver = length ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (driver)
            return driver;
        at += length + (at[length] == ':');
    }
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

static void driver_ask(const char *folders, struct sg_probe *probe)
{
    void *driver = load_driver(folders);
    if (!driver)
        return;
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    CUresult (*version)(int *) = (CUresult(*)(int *))dlsym(driver, "cuDriverGetVersion");
    CUresult (*count)(int *) = (CUresult(*)(int *))dlsym(driver, "cuDeviceGetCount");
    CUresult (*name)(char *, int, CUdevice) = (CUresult(*)(char *, int, CUdevice))dlsym(driver, "cuDeviceGetName");
    CUresult (*total)(size_t *, CUdevice) = (CUresult(*)(size_t *, CUdevice))dlsym(driver, "cuDeviceTotalMem_v2");
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) =
        (CUresult(*)(int *, CUdevice_attribute, CUdevice))dlsym(driver, "cuDeviceGetAttribute");
    if (!init || !version || !count || !name || !total || !attribute)
        return;
    probe->driver = true;
    version(&probe->version);
    probe->result = (int)init(0);
    if (probe->result != CUDA_SUCCESS || count(&probe->devices) != CUDA_SUCCESS)
        return;
    for (int i = 0; i < probe->devices && i < SG_PROBE_DEVICES; i++) {
        struct sg_probe_device *device = &probe->device[i];
        size_t bytes = 0;
        int vmm = 0;
        name(device->name, sizeof device->name, i);
        total(&bytes, i);
        attribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, i);
        device->bytes = bytes;
        device->vmm = vmm != 0;
    }
}

bool sg_probe_driver(const char *folders, struct sg_probe *ret)
{
    struct sg_probe *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    fflush(NULL);
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null >= 0) {
            dup2(null, STDOUT_FILENO);
            dup2(null, STDERR_FILENO);
        }
        driver_ask(folders, shared);
        _exit(0);
    }
    bool done = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    if (done)
        *ret = *shared;
    munmap(shared, sizeof *shared);
    return done;
}

/* A file in memory, all of whose offsets are checked. */
struct image {
    const unsigned char *at;
    size_t size;
};

static const char *image_part(const struct image *image, uint64_t offset, uint64_t size)
{
    if (offset > image->size || size > image->size - offset)
        return NULL;
    return (const char *)image->at + offset;
}

/* The same for structures, which a sound file aligns. */
static const void *image_structure(const struct image *image, uint64_t offset, uint64_t size, size_t alignment)
{
    return offset % alignment == 0 ? image_part(image, offset, size) : NULL;
}

/* Remembers NAME if it is GLIBC_x.y… and newer than what `best` holds. */
static void version_keep_newest(const char *name, char *best, size_t size)
{
    static const char prefix[] = "GLIBC_";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return;
    name += sizeof prefix - 1;
    if (*name >= '0' && *name <= '9' && strlen(name) < size && strverscmp(name, best) > 0)
        strcpy(best, name);
}

static bool versions_needed(const struct image *image, const ElfW(Shdr) * section, const ElfW(Shdr) * strings,
                            char *ret, size_t size)
{
    const char *text = image_part(image, strings->sh_offset, strings->sh_size);
    if (!text || strings->sh_size == 0 || text[strings->sh_size - 1] != '\0')
        return false;
    uint64_t at = section->sh_offset;
    for (unsigned i = 0; i < section->sh_info; i++) {
        const ElfW(Verneed) *need = image_structure(image, at, sizeof *need, _Alignof(ElfW(Verneed)));
        if (!need)
            return false;
        uint64_t entry = at + need->vn_aux;
        for (unsigned j = 0; j < need->vn_cnt; j++) {
            const ElfW(Vernaux) *version = image_structure(image, entry, sizeof *version, _Alignof(ElfW(Vernaux)));
            if (!version || version->vna_name >= strings->sh_size)
                return false;
            version_keep_newest(text + version->vna_name, ret, size);
            entry += version->vna_next;
        }
        at += need->vn_next;
    }
    return true;
}

static bool glibc_of(const struct image *image, char *ret, size_t size)
{
    const ElfW(Ehdr) *header = image_structure(image, 0, sizeof *header, 1);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_shentsize != sizeof(ElfW(Shdr)))
        return false;
    const ElfW(Shdr) *sections =
        image_structure(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof *sections, _Alignof(ElfW(Shdr)));
    if (!sections)
        return false;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_GNU_verneed)
            continue;
        if (sections[i].sh_link >= header->e_shnum ||
            !versions_needed(image, &sections[i], &sections[sections[i].sh_link], ret, size))
            return false;
    }
    return true;
}

bool sg_probe_glibc(const char *path, char *ret, size_t size)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    void *at = fstat(file, &status) == 0 && status.st_size > 0
                   ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0)
                   : MAP_FAILED;
    close(file);
    if (at == MAP_FAILED)
        return false;
    const struct image image = {at, (size_t)status.st_size};
    char best[32] = "";
    bool read = glibc_of(&image, best, sizeof best);
    munmap(at, (size_t)status.st_size);
    if (read)
        snprintf(ret, size, "%s", best);
    return read;
}
