/* What a thread of PyTorch's backward pass works at, by functions of PyTorch's made up here. They are looked for once in
   a process, so that what is not there comes first. With the argument `intrusive` nodes are as in PyTorch 2.15, else as up to
   2.11. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sites/backward.h"
#include "process/process.h"
#include "process/symbols.h"

/* As backward.c has them from PyTorch. */
struct node {
    uint64_t type;
    void *self[2];
    uint64_t sequence, topological, has_parent, thread;
};
struct count {
    const void *type;
    _Atomic int uses;
};
struct shared_node {
    void *node;
    struct count *count;
    void *unused;
};
struct intrusive_node {
    uint64_t type;
    _Atomic uint64_t references; /* the upper half counts weak ones */
    uint64_t sequence, topological, has_parent, thread;
};

/* torch::autograd::SavedVariable::unpack(pointer to a node) */
#define SHARED "_ZNK5torch8autograd13SavedVariable6unpackESt10shared_ptrINS0_4NodeEE"
#define INTRUSIVE                                                                                                     \
    "_ZNK5torch8autograd13SavedVariable6unpackEN3c1013intrusive_ptrINS0_4NodeENS2_6detail34intrusive_target_default_" \
    "null_typeIS4_EEEE"

static struct {
    bool loaded, gone, other_layout;
    const char *lacks;
    int opened, closed;
    struct node node;
    struct count count;
    struct intrusive_node intrusive;
    bool is_intrusive;
    bool no_node, no_count;
    uint64_t next, thread;
    const char *symbol;
} fake;

static struct shared_node get_current_node(void)
{
    if (fake.is_intrusive) { /* one word alone is written */
        if (!fake.no_node)
            atomic_fetch_add(&fake.intrusive.references, 1);
        return (struct shared_node){fake.no_node ? NULL : &fake.intrusive, (struct count *)8, (void *)8};
    }
    if (!fake.no_node && !fake.no_count)
        atomic_fetch_add(&fake.count.uses, 1);
    return (struct shared_node){fake.no_node ? NULL : &fake.node, fake.no_count ? NULL : &fake.count, NULL};
}

static uint64_t peek(void)
{
    return fake.next;
}

static uint64_t current_thread(void)
{
    return fake.thread;
}

bool sg_library_loaded(const char *name)
{
    assert_string_equal(name, "libtorch_cpu.so");
    return fake.loaded;
}

void *sg_library_find(const char *name)
{
    assert_string_equal(name, "libtorch_cpu.so");
    if (fake.gone)
        return NULL;
    fake.opened++;
    return &fake;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &fake);
    fake.closed++;
    return 0;
}

static void *look_up(void *handle, const char *name)
{
    struct shared_node (*current)(void) = get_current_node;
    uint64_t (*number[2])(void) = {peek, current_thread};
    void *found[3];
    static const char *const names[] = {"_ZN5torch8autograd16get_current_nodeEv", "_ZN2at15sequence_number4peekEv",
        "_ZN2at14RecordFunction15currentThreadIdEv"};
    assert_ptr_equal(handle, &fake);
    if (strncmp(name, SHARED, 30) == 0)
        return strcmp(name, fake.is_intrusive ? INTRUSIVE : SHARED) == 0 && !fake.other_layout ? &fake : NULL;
    memcpy(&found[0], &current, sizeof found[0]);
    memcpy(&found[1], number, sizeof number);
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0 && (!fake.lacks || strcmp(name, fake.lacks) != 0))
            return found[i];
    return NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

int symbol_of(const void *address, Dl_info *ret);
int symbol_of(const void *address, Dl_info *ret)
{
    *ret = (Dl_info){.dli_sname = fake.symbol};
    return (uintptr_t)address == 7;
}

static void none_before_it_is_there(void **state)
{
    struct sg_backward now;
    struct sg_thread self = {.place.site = 0};
    (void)state;
    sg_backward_look();
    assert_false(sg_backward_now(&now));
    sg_backward_forward(&self, 1);
    assert_int_equal(self.place.sequence, 0);
    fake.loaded = fake.gone = true; /* unloaded between the two looks */
    sg_backward_look();
    fake.gone = false;
    for (const char **lacks = (const char *[]){"_ZN5torch8autograd16get_current_nodeEv",
             "_ZN2at15sequence_number4peekEv", "_ZN2at14RecordFunction15currentThreadIdEv", NULL};
         *lacks; lacks++) {
        fake.lacks = *lacks; /* of another version */
        sg_backward_look();
        assert_false(sg_backward_now(&now));
    }
    fake.lacks = NULL;
    fake.other_layout = true; /* nodes that are not known */
    sg_backward_look();
    assert_false(sg_backward_now(&now));
    fake.other_layout = false;
    assert_int_equal(fake.opened, 4);
    assert_int_equal(fake.closed, 4);
    sg_backward_look();
    fake.no_node = true;
    assert_false(sg_backward_now(&now)); /* in no backward pass */
    sg_backward_look();
    assert_int_equal(fake.opened, 5); /* known from then on */
    assert_int_equal(fake.closed, 5);
}

/* Site of the node that is evaluated. The node is held by one more than before, which is given back. */
static uint32_t forward_of(uint64_t sequence, uint64_t thread)
{
    struct sg_backward now = {0};
    fake.no_node = fake.no_count = false;
    fake.node = (struct node){.type = 7, .sequence = sequence, .thread = thread, .topological = 91, .has_parent = 1};
    fake.intrusive = (struct intrusive_node){.type = 7,
        .references = UINT64_C(1) << 32 | 5,
        .sequence = sequence,
        .thread = thread,
        .topological = 91,
        .has_parent = 1};
    atomic_store(&fake.count.uses, 5);
    assert_true(sg_backward_now(&now));
    assert_int_equal(now.type, 7);
    assert_int_equal(atomic_load(&fake.count.uses), 5);
    assert_int_equal(atomic_load(&fake.intrusive.references), UINT64_C(1) << 32 | 5);
    return now.forward;
}

static void the_site_of_the_forward_part(void **state)
{
    struct sg_thread one = {.place.site = 0}, other = {.place.site = 0};
    struct sg_backward now;
    (void)state;
    fake.thread = 1;
    fake.next = 0;
    sg_backward_forward(&one, 3); /* no node yet */
    assert_int_equal(one.place.sequence, 0);
    assert_int_equal(forward_of(0, 1), 0);
    fake.next = 1;
    sg_backward_forward(&one, 11); /* the node 0 was made there */
    sg_backward_forward(&one, 12); /* and no other since */
    fake.next = 5;
    sg_backward_forward(&one, 15);
    fake.next = 0;
    sg_backward_forward(&one, 16); /* no node has been made at 0, whatever was before */
    assert_int_equal(one.place.sequence, 5);
    fake.next = 5;
    fake.thread = 2;
    sg_backward_forward(&other, 25); /* that one counts for itself */
    assert_int_equal(forward_of(0, 1), 11);
    assert_int_equal(forward_of(4, 1), 15);
    assert_int_equal(forward_of(4, 2), 25);
    assert_int_equal(forward_of(3, 1), 0);
    assert_int_equal(forward_of(4, 3), 0);
    assert_int_equal(forward_of(4 + (1 << 16), 1), 0); /* of the same place, and another node */
    fake.next = 5 + (1 << 16);
    fake.thread = 1;
    sg_backward_forward(&one, 0xabcdef);
    assert_int_equal(forward_of(4 + (1 << 16), 1), 0xabcdef);
    assert_int_equal(forward_of(4, 1), 0);
    fake.no_count = true;
    fake.no_node = fake.is_intrusive; /* an intrusive pointer has no count beside it */
    assert_false(sg_backward_now(&now));
}

static const char *name_of(const char *symbol, uint64_t type, size_t room)
{
    static char text[64];
    fake.symbol = symbol;
    memset(text, '?', sizeof text);
    return sg_backward_name(type, text, room) ? text : "none";
}

static void classes_have_names(void **state)
{
    (void)state;
    assert_string_equal(name_of("_ZTVN5torch8autograd9generated11MmBackward0E", 7, 64), "MmBackward0");
    assert_string_equal(name_of("_ZTVN5torch8autograd9generated11MmBackward0E", 7, 3), "Mm");
    assert_string_equal(name_of("_ZTVN5torch8autograd7CppNodeI4MineEE", 7, 64), "CppNode");
    assert_string_equal(name_of("_ZTVN1aE", 7, 64), "a");
    assert_string_equal(name_of("_ZTVN5torch8autograd9generated11MmBackward0E", 8, 64), "none"); /* in no library */
    assert_string_equal(name_of(NULL, 7, 64), "none");
    assert_string_equal(name_of("_ZTIN5torch4NodeE", 7, 64), "none");
    assert_string_equal(name_of("_ZTV4Node", 7, 64), "none");
    assert_string_equal(name_of("_ZTVN5torch9", 7, 64), "none"); /* cut off */
    assert_string_equal(name_of("_ZTVN5torch4NodE", 7, 64), "none");
    assert_string_equal(name_of("_ZTVN99999999999999999999a", 7, 64), "none");
    assert_string_equal(name_of("_ZTVN5torch", 7, 64), "none");
}

int main(int count, char **words)
{
    fake.is_intrusive = count > 1 && strcmp(words[1], "intrusive") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_before_it_is_there),
        cmocka_unit_test(the_site_of_the_forward_part),
        cmocka_unit_test(classes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
