#include "launch/own_runtime.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/find_program.h"

/* An entry of the runtime's table of the names of errors, which stripping keeps. Found in libcudart 11.8, 12.4 and
   13.0, and in what nvcc 13.0 links by default. A program may have a table of those names for its messages. So the
   runtime's call for private tables of the driver must be named as well. A zero byte stands before either, here
   another, so that this program is not taken for one. */
static const char *const marks[] = {"?cudaErrorMapBufferObjectFailed", "?cuGetExportTable"};
enum { MARK_BYTES = 64 };

/* True if a mark is in a part that the loader maps. Other parts do not count: debugging information has the names of
   all errors, too. */
static bool has_mark(const unsigned char *bytes, size_t size, const char *mark)
{
    char sought[MARK_BYTES];
    size_t sought_bytes = strlen(mark) + 1;
    memcpy(sought, mark, sought_bytes);
    sought[0] = '\0';
    const Elf64_Ehdr *header = (const void *)bytes;
    if (size < sizeof *header || memcmp(bytes, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff > size ||
        header->e_phnum > (size - header->e_phoff) / sizeof(Elf64_Phdr))
        return false;
    for (size_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr part;
        memcpy(&part, bytes + header->e_phoff + i * sizeof part, sizeof part);
        if (part.p_type == PT_LOAD && part.p_offset <= size && part.p_filesz <= size - part.p_offset &&
            memmem(bytes + part.p_offset, part.p_filesz, sought, sought_bytes))
            return true;
    }
    return false;
}

bool sg_own_runtime_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat status;
    if (strncmp(slash ? slash + 1 : path, "libcudart", 9) == 0)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    bool sized = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > SELFMAG;
    void *bytes = sized ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (bytes == MAP_FAILED)
        return false;
    bool found = true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && found; i++)
        found = has_mark(bytes, (size_t)status.st_size, marks[i]);
    munmap(bytes, (size_t)status.st_size);
    return found;
}

bool sg_own_runtime_find(char *const *command, char ret[SG_PLACE_BYTES])
{
    for (size_t i = 0; command[i]; i++) {
        if (*command[i] != '-' && sg_find_program(command[i], ret) && sg_own_runtime_in(ret))
            return true;
    }
    return false;
}
