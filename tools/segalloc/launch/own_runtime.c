#include "launch/own_runtime.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/find_program.h"

/* An entry of the runtime's table of the names of errors, which stripping keeps. Found in libcudart 11.8, 12.4 and 13.0,
   and in what nvcc 13.0 links by default; a program that merely calls the runtime has no such table. In the table a zero
   byte stands before it, here another, so that this program is not taken for one. */
static const char mark[] = "?cudaErrorMapBufferObjectFailed";

/* Whether the mark is in what the loader maps. Debugging information has the names of all errors, too. */
static bool has_mark(const unsigned char *bytes, size_t size, const char *sought)
{
    const Elf64_Ehdr *header = (const void *)bytes;
    if (size < sizeof *header || memcmp(bytes, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff > size ||
        header->e_phnum > (size - header->e_phoff) / sizeof(Elf64_Phdr))
        return false;
    for (size_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr part;
        memcpy(&part, bytes + header->e_phoff + i * sizeof part, sizeof part);
        if (part.p_type == PT_LOAD && part.p_offset <= size && part.p_filesz <= size - part.p_offset &&
            memmem(bytes + part.p_offset, part.p_filesz, sought, sizeof mark))
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
    char sought[sizeof mark];
    memcpy(sought, mark, sizeof mark);
    sought[0] = '\0';
    bool found = has_mark(bytes, (size_t)status.st_size, sought);
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
