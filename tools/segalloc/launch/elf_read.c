#include "launch/elf_read.h"

#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_NONE };
#endif

struct file {
    const uint8_t *bytes;
    size_t size;
    const Elf64_Phdr *segments;
    size_t segment_count;
    uint64_t strings, string_bytes, symbols, versions, needs, gnu_hash, need_count;
    uint64_t looks; /* left at tables of versions: a file may have them refer to each other without end */
};

/* More than any object has: a symbol costs as many looks as there are versions, names of C++ have some kilobytes. */
enum { LOOKS_MOST = 1 << 26, SEGMENTS_MOST = 1024, STRING_MOST = 1 << 16 };

/* `bytes` bytes at the address, NULL where the file has none. */
static const void *at_address(const struct file *file, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < file->segment_count; i++) {
        const Elf64_Phdr *s = file->segments + i;
        if (s->p_type != PT_LOAD || address < s->p_vaddr || address - s->p_vaddr >= s->p_filesz)
            continue;
        uint64_t in = address - s->p_vaddr;
        if (bytes > s->p_filesz - in || s->p_offset > file->size || in > file->size - s->p_offset ||
            bytes > file->size - s->p_offset - in)
            return NULL;
        return file->bytes + s->p_offset + in;
    }
    return NULL;
}

/* Copies `bytes` bytes at the address, which need not be aligned; false where the file has none. */
static bool copy_at(const struct file *file, uint64_t address, void *ret, size_t bytes)
{
    const void *from = at_address(file, address, bytes);
    if (from)
        memcpy(ret, from, bytes);
    return from != NULL;
}

static const char *string_at(const struct file *file, uint64_t offset)
{
    if (offset >= file->string_bytes)
        return NULL;
    uint64_t most = file->string_bytes - offset < STRING_MOST ? file->string_bytes - offset : STRING_MOST;
    const char *text = at_address(file, file->strings + offset, most);
    return text && memchr(text, '\0', most) ? text : NULL;
}

static bool elf_read_header(struct file *file)
{
    const Elf64_Ehdr *header = (const void *)file->bytes;
    if (file->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_type != ET_DYN || header->e_machine != MACHINE)
        return false;
    if (header->e_phentsize != sizeof *file->segments || header->e_phoff > file->size || header->e_phoff % 8 != 0 ||
        header->e_phnum > (file->size - header->e_phoff) / sizeof *file->segments || header->e_phnum > SEGMENTS_MOST)
        return false;
    file->segments = (const void *)(file->bytes + header->e_phoff);
    file->segment_count = header->e_phnum;
    return true;
}

/* The entries of PT_DYNAMIC, up to DT_NULL. */
static const Elf64_Dyn *dynamic_entries(const struct file *file, size_t *ret_count)
{
    for (size_t i = 0; i < file->segment_count; i++) {
        const Elf64_Phdr *s = file->segments + i;
        if (s->p_type != PT_DYNAMIC)
            continue;
        const Elf64_Dyn *entries = at_address(file, s->p_vaddr, s->p_filesz);
        if (!entries || (uintptr_t)entries % 8 != 0)
            return NULL;
        size_t count = 0;
        while (count < s->p_filesz / sizeof *entries && entries[count].d_tag != DT_NULL)
            count++;
        *ret_count = count;
        return entries;
    }
    return NULL;
}

static void read_places(struct file *file, const Elf64_Dyn *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = entries[i].d_un.d_val;
        switch (entries[i].d_tag) {
        case DT_STRTAB: file->strings = value; break;
        case DT_STRSZ: file->string_bytes = value; break;
        case DT_SYMTAB: file->symbols = value; break;
        case DT_VERSYM: file->versions = value; break;
        case DT_VERNEED: file->needs = value; break;
        case DT_VERNEEDNUM: file->need_count = value; break;
        case DT_GNU_HASH: file->gnu_hash = value; break;
        default: break;
        }
    }
}

/* Undefined symbols come before those that the hash table lists, and .dynsym lies before .dynstr or the hash table. */
static uint64_t symbol_count(const struct file *file)
{
    uint32_t hash[4];
    if (file->gnu_hash && copy_at(file, file->gnu_hash, hash, sizeof hash) && hash[1] > 1)
        return hash[1];
    return file->strings > file->symbols ? (file->strings - file->symbols) / sizeof(Elf64_Sym) : 0;
}

/* The version that a symbol of this index wants, of those that one library has. */
static bool find_in_library(struct file *file, const Elf64_Verneed *library, uint64_t address, uint16_t index,
    struct sg_elf_need *need)
{
    Elf64_Vernaux aux;
    uint64_t aux_address = address + library->vn_aux;
    for (unsigned j = 0; j < library->vn_cnt && file->looks && copy_at(file, aux_address, &aux, sizeof aux); j++) {
        file->looks--;
        if ((aux.vna_other & 0x7fff) == index) {
            need->version = string_at(file, aux.vna_name);
            need->file = string_at(file, library->vn_file);
            return true;
        }
        if (aux.vna_next == 0)
            break;
        aux_address += aux.vna_next;
    }
    return false;
}

static void find_version(struct file *file, uint16_t index, struct sg_elf_need *need)
{
    Elf64_Verneed library;
    uint64_t address = file->needs;
    for (uint64_t i = 0; i < file->need_count && file->looks && copy_at(file, address, &library, sizeof library); i++) {
        file->looks--;
        if (find_in_library(file, &library, address, index, need) || library.vn_next == 0)
            return;
        address += library.vn_next;
    }
}

static void visit_symbols(struct file *file, const struct sg_elf_visitor *visitor)
{
    uint64_t count = symbol_count(file);
    Elf64_Sym symbol;
    for (uint64_t i = 1; i < count && copy_at(file, file->symbols + i * sizeof symbol, &symbol, sizeof symbol); i++) {
        uint16_t version;
        if (symbol.st_shndx != SHN_UNDEF)
            continue;
        struct sg_elf_need need = {.symbol = string_at(file, symbol.st_name)};
        if (file->versions && copy_at(file, file->versions + 2 * i, &version, sizeof version) && (version & 0x7fff) > 1)
            find_version(file, version & 0x7fff, &need);
        if (need.symbol && *need.symbol)
            visitor->symbol(visitor->data, &need);
    }
}

static bool elf_visit(struct file *file, const struct sg_elf_visitor *visitor)
{
    size_t count;
    const Elf64_Dyn *entries;
    if (!elf_read_header(file) || !(entries = dynamic_entries(file, &count)))
        return false;
    read_places(file, entries, count);
    for (size_t i = 0; i < count; i++) {
        const char *name = entries[i].d_tag == DT_NEEDED ? string_at(file, entries[i].d_un.d_val) : NULL;
        if (name)
            visitor->library(visitor->data, name);
    }
    if (visitor->symbol)
        visit_symbols(file, visitor);
    return true;
}

bool sg_elf_needs(const char *path, const struct sg_elf_visitor *visitor)
{
    struct stat status;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool good = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    struct file file = {.size = good ? (size_t)status.st_size : 0, .looks = LOOKS_MOST};
    void *bytes = good ? mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    close(descriptor);
    if (bytes == MAP_FAILED)
        return false;
    file.bytes = bytes;
    good = elf_visit(&file, visitor);
    munmap(bytes, file.size);
    return good;
}
