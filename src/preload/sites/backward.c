/* The table of nodes by number. An entry is one word: 24 bits of the number, 16 of the thread, 24 of the site. A reader
   compares the first 40, so an entry that was overwritten counts as unknown. */
#include "process/glibc_symver.h"

#include "sites/backward.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "process/process.h"
#include "process/symbols.h"

/* How a release has torch::autograd::Node and pointers to it. A function takes such a pointer, so its mangled name has the
   type. The node begins with its type, and has `sequence` and `thread` as words at these places. Source:
   torch/csrc/autograd/function.h of PyTorch 2.0 to 2.11, node.h and c10/util/intrusive_ptr.h of 2.15.

   For example, 2.15 has intrusive pointers: {type, references, sequence, topological, has_parent, thread}. Before, with two
   words of std::enable_shared_from_this: {type, self, self, sequence, topological, has_parent, thread}. */
struct layout {
    const char *known_by;
    unsigned sequence, thread;
    bool is_intrusive;
};
static const struct layout layouts[] = {
    {"_ZNK5torch8autograd13SavedVariable6unpackESt10shared_ptrINS0_4NodeEE", 3, 6, false},
    {"_ZNK5torch8autograd13SavedVariable6unpackEN3c1013intrusive_ptrINS0_4NodeENS2_6detail34intrusive_target_default_"
     "null_typeIS4_EEEE",
        2, 5, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, AT_TYPE = 0, AT_REFERENCES = 1 };

/* std::shared_ptr of libstdc++: the object, and what counts how many pointers there are. An intrusive pointer is the first
   word alone, and the object itself has the count. Either is returned in memory, as a struct of C is that is as large as
   this one. */
struct node_pointer {
    uint64_t *node;
    struct {
        const void *type;
        _Atomic int uses;
    } *count;
    void *unused;
};

enum { REMEMBERED = 1 << 16, SEQUENCE_BITS = 24, THREAD_BITS = 16 };

static struct {
    _Atomic(struct node_pointer (*)(void)) current; /* set last */
    const struct layout *layout;
    uint64_t (*next_sequence)(void);
    uint64_t (*thread)(void);
    /* Indexed by number of the node: that, the thread that made it, and the site. */
    _Atomic uint64_t made[REMEMBERED];
} torch;

/* NULL: a release whose nodes are not known, of which nothing is said. */
static const struct layout *backward_layout_of(void *library)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (sg_dlsym()(library, layouts[i].known_by))
            return &layouts[i];
    }
    return NULL;
}

/* Found when PyTorch's library is there, which may be after the first allocation. `current` is stored last, so a thread
   that finds it finds the others. */
void sg_backward_look(void)
{
    if (atomic_load_explicit(&torch.current, memory_order_relaxed) || !sg_library_loaded("libtorch_cpu.so"))
        return;
    void *library = sg_library_find("libtorch_cpu.so");
    if (!library)
        return;
    void *found[] = {sg_dlsym()(library, "_ZN5torch8autograd16get_current_nodeEv"),
        sg_dlsym()(library, "_ZN2at15sequence_number4peekEv"),
        sg_dlsym()(library, "_ZN2at14RecordFunction15currentThreadIdEv")};
    const struct layout *layout = backward_layout_of(library);
    sg_library_close(library); /* PyTorch is not unloaded */
    if (!found[0] || !found[1] || !found[2] || !layout)
        return;
    struct node_pointer (*current)(void);
    torch.layout = layout;
    memcpy(&torch.next_sequence, &found[1], sizeof found[1]);
    memcpy(&torch.thread, &found[2], sizeof found[2]);
    memcpy(&current, &found[0], sizeof found[0]);
    atomic_store_explicit(&torch.current, current, memory_order_release);
}

/* The word that a node is remembered by; the site is above these bits. */
static uint64_t node_mark(uint64_t sequence, uint64_t thread)
{
    return (sequence & ((UINT64_C(1) << SEQUENCE_BITS) - 1)) |
        (thread & ((UINT64_C(1) << THREAD_BITS) - 1)) << SEQUENCE_BITS;
}

/* Each thread counts for itself: their windows of what is still to be evaluated are kept apart. */
static _Atomic uint64_t *backward_place_of(uint64_t sequence, uint64_t thread)
{
    return &torch.made[(sequence + thread * 24593) % REMEMBERED];
}

/* The next number has moved if this thread has made a node since its last allocation; the node's own number is one
   less. */
void sg_backward_forward(struct sg_thread *self, uint32_t site)
{
    if (!atomic_load_explicit(&torch.current, memory_order_acquire))
        return;
    uint64_t next = torch.next_sequence();
    if (next == self->place.sequence || !next)
        return;
    self->place.sequence = next;
    uint64_t thread = torch.thread();
    atomic_store_explicit(backward_place_of(next - 1, thread),
        node_mark(next - 1, thread) | (uint64_t)site << (SEQUENCE_BITS + THREAD_BITS), memory_order_relaxed);
}

/* Takes back the use that the returned pointer is. The engine's thread holds the node that it evaluates, and so does its
   task. So two uses are left: the last one would end the node, the last but one concerns its Python object. */
static void backward_let_go(const struct node_pointer *pointer)
{
    if (torch.layout->is_intrusive)
        __atomic_fetch_sub(&pointer->node[AT_REFERENCES], 1, __ATOMIC_ACQ_REL);
    else
        atomic_fetch_sub_explicit(&pointer->count->uses, 1, memory_order_release);
}

/* The pointer that PyTorch returns holds the node; the count is taken down again by hand, as no destructor of C++ runs
   here. */
bool sg_backward_now(struct sg_backward *ret)
{
    struct node_pointer (*current)(void) = atomic_load_explicit(&torch.current, memory_order_acquire);
    if (!current)
        return false;
    const struct node_pointer pointer = current();
    if (!pointer.node || (!torch.layout->is_intrusive && !pointer.count))
        return false;
    uint64_t sequence = pointer.node[torch.layout->sequence], thread = pointer.node[torch.layout->thread];
    uint64_t made = atomic_load_explicit(backward_place_of(sequence, thread), memory_order_relaxed);
    bool known = made && (made & ((UINT64_C(1) << (SEQUENCE_BITS + THREAD_BITS)) - 1)) == node_mark(sequence, thread);
    *ret = (struct sg_backward){pointer.node[AT_TYPE], known ? (uint32_t)(made >> (SEQUENCE_BITS + THREAD_BITS)) : 0};
    backward_let_go(&pointer);
    return true;
}

/* The class's name out of its vtable's symbol: _ZTVN5torch8autograd9generated11MmBackward0E gives MmBackward0. */
bool sg_backward_name(uint64_t type, char *ret, size_t room)
{
    Dl_info info;
    if (!dladdr((const void *)(uintptr_t)type, &info) || !info.dli_sname || strncmp(info.dli_sname, "_ZTVN", 5) != 0)
        return false;
    /* _ZTVN5torch8autograd9generated11MmBackward0E: the last of the names, each behind its length. */
    const char *name = info.dli_sname + 5;
    size_t length = 0;
    for (;;) {
        size_t digits = strspn(name, "0123456789"), number = 0;
        for (size_t i = 0; i < digits && i < 4; i++)
            number = number * 10 + (size_t)(name[i] - '0');
        if (!digits || strnlen(name + digits, number) < number)
            return false;
        name += digits;
        length = number;
        if (name[length] == 'E' || name[length] == 'I')
            break;
        name += length;
    }
    length = length < room ? length : room - 1;
    memcpy(ret, name, length);
    ret[length] = '\0';
    return true;
}
