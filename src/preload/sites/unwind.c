/* Two walks over a stack. The short one reads a return address, looks up the size of the frame that returns there, and
   goes up by that much. The long one has the C++ runtime unwind by tables and notes the sizes for the next time.

   The short walk reads memory only between this frame and `top`, the highest end that was seen of this stack. So a
   wrong size ends the walk, which can't leave the stack. */
#include "process/glibc_symver.h"

#include "sites/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "process/symbols.h"

/* Types of <unwind.h>, the Itanium C++ ABI's. The runtime that unwinds is looked up, so that nothing is linked for it.
   */
struct context;
typedef int visit_fn(struct context *context, void *user);
enum { GO_ON = 0, END_OF_STACK = 5 };

/* Frames that are unwound to find a stack's end. The first is the function that asks and no return address. */
enum { DEEPEST = 256 };

static struct {
    _Atomic(int (*)(visit_fn *unwind_visit, void *user)) unwind;
    uintptr_t (*address)(struct context *context);
    uintptr_t (*end)(struct context *context); /* of the caller's frame: where this one begins */
    atomic_bool absent;
} runtime;

/* An entry of sg_unwinder.size: the address, and above it the frame's size in words of 8 bytes. */
enum { ADDRESS_BITS = 48, VARIES = 0xffff, OUTERMOST = 0xfffe };
#define ADDRESS_MASK ((UINT64_C(1) << ADDRESS_BITS) - 1)

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static inline bool code_is_ours(uintptr_t address)
{
    return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)_end;
}

/* Finds the C++ runtime's unwinder, in the process or by loading libgcc_s. Where there is none, native stacks are
   unknown for good. */
static bool unwind_look(void)
{
    if (atomic_load_explicit(&runtime.absent, memory_order_relaxed))
        return false;
    void *found = sg_dlsym()(RTLD_DEFAULT, "_Unwind_Backtrace"), *library = NULL;
    if (!found && (library = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL)))
        found = sg_dlsym()(library, "_Unwind_Backtrace");
    void *from = library ? library : RTLD_DEFAULT;
    void *others[2] = {sg_dlsym()(from, "_Unwind_GetIP"), sg_dlsym()(from, "_Unwind_GetCFA")};
    if (!found || !others[0] || !others[1]) {
        atomic_store(&runtime.absent, true);
        return false;
    }
    memcpy(&runtime.address, &others[0], sizeof others[0]);
    memcpy(&runtime.end, &others[1], sizeof others[1]);
    int (*unwind)(visit_fn *, void *);
    memcpy(&unwind, &found, sizeof found);
    atomic_store_explicit(&runtime.unwind, unwind, memory_order_release);
    return true;
}

static inline _Atomic uint64_t *entry_of(struct sg_unwinder *unwinder, uintptr_t address)
{
    return &unwinder->size[(address * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SG_NATIVE_SIZES];
}

/* A frame that returns to `address` has this many words; of several sizes none is right. */
static void unwind_note_size(struct sg_unwinder *unwinder, uintptr_t address, uint64_t words)
{
    _Atomic uint64_t *entry = entry_of(unwinder, address);
    uint64_t known = atomic_load_explicit(entry, memory_order_relaxed);
    if ((known & ADDRESS_MASK) == address && known >> ADDRESS_BITS != words)
        words = VARIES;
    if (words > VARIES)
        words = VARIES;
    atomic_store_explicit(entry, words << ADDRESS_BITS | address, memory_order_relaxed);
}

struct walk {
    struct sg_unwinder *unwinder;
    struct sg_picked picked;
    unsigned frames;
    uintptr_t address, end; /* of the frame before; 0: none */
    struct sg_stack seen;
};

static void unwind_keep(struct sg_picked *picked, uintptr_t address)
{
    struct sg_frame *place = code_is_ours(address) ? NULL : sg_picked_next(picked);
    if (place)
        *place = (struct sg_frame){.code = address};
}

/* One frame of the walk by tables. The frame that was visited before returns to this address, and the distance of the
   two ends is its size. */
static int unwind_visit(struct context *context, void *user)
{
    struct walk *walk = user;
    uintptr_t address = runtime.address(context), end = runtime.end(context);
    bool first = !walk->address; /* of who asks the runtime, and no return address */
    if (!address)
        return END_OF_STACK;
    if (first)
        walk->seen.low = end;
    else if (end > walk->end)
        unwind_note_size(walk->unwinder, walk->address, (end - walk->end) / 8);
    walk->address = address;
    walk->end = end;
    walk->seen.top = end > walk->seen.top ? end : walk->seen.top;
    if (!first)
        unwind_keep(&walk->picked, address);
    return ++walk->frames < DEEPEST ? GO_ON : END_OF_STACK;
}

/* Stacks do not overlap: what does is one. */
static void stack_note(struct sg_stack *stack, const struct sg_stack *seen)
{
    if (seen->low > stack->top || seen->top < stack->low) {
        *stack = *seen;
        return;
    }
    stack->low = seen->low < stack->low ? seen->low : stack->low;
    stack->top = seen->top > stack->top ? seen->top : stack->top;
}

#if defined(__x86_64__)
/* Walks by the known sizes of frames. `end`: where the frame that returns to the first address ends. False: not all is
   known. Frames can differ from the recorded size. Reads end at `top`; all below it is the stack of `end`. */
static bool unwind_follow(struct sg_unwinder *unwinder, uintptr_t end, uintptr_t top, struct sg_picked *picked)
{
    for (int frames = 1; end <= top; frames++) {
        uintptr_t address;
        memcpy(&address, (const void *)(end - sizeof address), sizeof address);
        unwind_keep(picked, address);
        if (frames + 1 == DEEPEST)
            return true;
        uint64_t known = atomic_load_explicit(entry_of(unwinder, address), memory_order_relaxed);
        if ((known & ADDRESS_MASK) != address || known >> ADDRESS_BITS == VARIES)
            return false;
        if (known >> ADDRESS_BITS == OUTERMOST)
            return true;
        end += (known >> ADDRESS_BITS) * 8;
    }
    return false;
}
#endif

__attribute__((noinline)) unsigned sg_unwind_frames(struct sg_unwinder *unwinder, struct sg_stack *stack,
    struct sg_frame *ret, unsigned most, unsigned outer)
{
    struct walk walk = {.unwinder = unwinder, .picked = {ret, most, outer, 0}};
#if defined(__x86_64__)
    uintptr_t end = (uintptr_t)__builtin_dwarf_cfa();
    if (end > stack->low && unwind_follow(unwinder, end, stack->top, &walk.picked) && walk.picked.met)
        return sg_picked_finish(&walk.picked);
    walk.picked.met = 0;
#endif
    int (*unwind)(visit_fn *, void *) = atomic_load_explicit(&runtime.unwind, memory_order_acquire);
    if (!unwind && !unwind_look())
        return 0;
    atomic_load_explicit(&runtime.unwind, memory_order_acquire)(unwind_visit, &walk);
    if (walk.frames < DEEPEST && walk.address)
        unwind_note_size(unwinder, walk.address, OUTERMOST);
    stack_note(stack, &walk.seen);
    return sg_picked_finish(&walk.picked);
}

/* Copies a name, cut to the room; NULL is empty. */
static void unwind_copy(char *to, size_t room, const char *from)
{
    size_t length = from ? strlen(from) : 0;
    length = length < room ? length : room - 1;
    if (length)
        memcpy(to, from, length);
    to[length] = '\0';
}

/* The address less one is looked up: a return address may be the first byte of the next function, after a call that
   never returns. */
bool sg_unwind_describe(uint64_t address, char *module, char *function, size_t room, uint32_t *ret_offset)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((const void *)(uintptr_t)(address - 1), &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    ssize_t length = map->l_name && *map->l_name ? -1 : readlink("/proc/self/exe", module, room - 1);
    if (length >= 0)
        module[length] = '\0';
    else
        unwind_copy(module, room, info.dli_fname);
    unwind_copy(function, room, info.dli_sname);
    *ret_offset = (uint32_t)(address - map->l_addr);
    return true;
}
