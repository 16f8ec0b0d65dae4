/* Each caller gets its own runtime, whatever is loaded and unloaded. */
#include "callers_fakes.h"

/* Another library goes. The answer is the loader's. */
static void unload(void)
{
    int closes = fake.closes;
    fake.open++;
    assert_int_equal(dlclose(&fake), 7);
    assert_int_equal(fake.closes - closes, 1);
}

static void kinds_are_told_by_the_beginning_of_the_name(void **state)
{
    static const struct {
        const char *path;
        enum sg_caller kind;
    } list[] = {
        {"libc10_cuda.so", SG_CALLER_TORCH},
        {"/usr/lib/libc10_cuda.so.2", SG_CALLER_TORCH},
        {"/libc10_cuda.so/libother.so", SG_CALLER_OTHER},
        {"libc10_cuda", SG_CALLER_OTHER},
        {"/a/xlibnccl.so.2", SG_CALLER_OTHER},
        {"/a/b/libnccl.so.2", SG_CALLER_NCCL},
        {"/a/libnvjpeg.so.12", SG_CALLER_DRIVER},
        {"/a/libuct_cuda.so", SG_CALLER_OTHER},
        {"/bin/program", SG_CALLER_OTHER},
        {"", SG_CALLER_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct sg_module spare;
        int library = add(list[i].path);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), list[i].kind);
        assert_int_equal(sg_caller_kind(code_in(library, 10)), list[i].kind); /* remembered */
        assert_int_equal(module_at(library, &spare)->kind, list[i].kind);
        assert_int_equal(module_at(library, &spare)->kind, list[i].kind);
    }
    assert_false(sg_caller_passes(SG_CALLER_OTHER) || sg_caller_passes(SG_CALLER_TORCH) ||
        !sg_caller_passes(SG_CALLER_NCCL) || !sg_caller_passes(SG_CALLER_DRIVER));
}

static void code_of_no_library_is_nobodys(void **state)
{
    struct sg_module spare;
    (void)state;
    fake.calling = -1;
    const void *nowhere = (const void *)(uintptr_t)8;
    for (int i = 1; i <= 2; i++) { /* each time anew */
        assert_int_equal(sg_caller_kind(nowhere), SG_CALLER_OTHER);
        const struct sg_module *module = sg_caller_module(nowhere, &spare);
        assert_ptr_equal(module, &spare);
        assert_int_equal(module->kind, SG_CALLER_OTHER);
        assert_ptr_equal(module->malloc, mallocs[NEXT]);
        assert_int_equal(fake.asked, 2 * i);
    }
}

/* Its own runtime first, then what the loader finds next, then any; never ourselves. */
static void runtime_is_the_callers_own_where_it_has_one(void **state)
{
    (void)state;
    for (int mask = 0; mask < 1 << 6; mask++) {
        start_afresh(state);
        int library = add("/a/libuser.so"), expected = -1;
        for (int i = PLACES - 1; i >= 0; i--) {
            fake.has[i] = mask >> i & 1;
            fake.has_own_only[i] = mask >> (3 + i) & 1;
            if (fake.has[i] && !fake.has_own_only[i])
                expected = i;
        }
        for (int i = 0; i < 2; i++) {
            struct sg_module spare;
            const struct sg_module *module = module_at(library, &spare);
            assert_ptr_equal(module->malloc, expected < 0 ? NULL : mallocs[expected]);
            assert_ptr_equal(module->free, expected < 0 ? NULL : frees[expected]);
            bool any = fake.has[OWN] || fake.has[NEXT] || fake.has[LOADED];
            int first = fake.has[OWN] ? OWN : fake.has[NEXT] ? NEXT : LOADED;
            assert_ptr_equal(module->get_last_error, any ? errors[first] : NULL);
            assert_int_equal(module->fast_path, any);
            assert_int_equal(fake.open, 0);
        }
        assert_int_equal(is_remembered(library), expected >= 0);
    }
}

/* From its first segment to the end of its last. */
static void module_is_remembered_where_it_lies(void **state)
{
    static const struct {
        ptrdiff_t offset;
        bool inside;
    } list[] = {{0, true}, {1, true}, {PAGE, true}, {3 * PAGE - 1, true}, {3 * PAGE, false}, {-1, false}};
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    (void)module_at(library, &spare);
    (void)sg_caller_kind(code_in(library, 0));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int asked = fake.asked;
        const struct sg_module *module = sg_caller_module(code_in(library, list[i].offset), &spare);
        assert_int_equal(module != &spare, list[i].inside);
        assert_int_equal(fake.asked - asked, !list[i].inside);
        asked = fake.asked;
        (void)sg_caller_kind(code_in(library, list[i].offset));
        assert_int_equal(fake.asked - asked, !list[i].inside);
    }
}

/* What calls the driver and what calls the runtime is remembered apart: of the former nothing but the kind is known. */
static void callers_of_the_driver_are_no_callers_of_the_runtime(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so.2");
    assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
    assert_int_equal(fake.asked, 1);
    assert_ptr_equal(module_at(library, &spare)->malloc, mallocs[NEXT]);
    assert_int_equal(fake.asked, 2);
}

/* Any of what is known of a library in a certain place may have changed once one was unloaded. */
static void module_is_looked_at_anew_once_a_library_has_gone(void **state)
{
    (void)state;
    for (int change = 0; change < 8; change++) {
        start_afresh(state);
        struct sg_module spare, before;
        int library = add("/a/libuser.so"), neighbour = add("/a/libbeside.so");
        before = *module_at(library, &spare);
        (void)module_at(neighbour, &spare);
        assert_true(is_remembered(library) && is_remembered(neighbour));
        unload();
        switch (change) {
        case 0:
            fake.generation = 1;
            break;
        case 1:
            fake.quick = false;
            break;
        case 2:
            fake.without_errors = true;
            break;
        case 3:
            snprintf(fake.library[library].path, sizeof fake.library[library].path, "/a/libnccl.so.2");
            break;
        case 4:
            fake.library[library].segments[1].p_memsz += PAGE;
            break;
        case 5:
            fake.library[library].segments[1].p_memsz -= 1;
            break;
        case 6:
            fake.other_free = true;
            break;
        default: /* nothing */
            break;
        }
        assert_false(is_remembered(library));
        assert_true(is_remembered(library));
        const struct sg_module *module = module_at(library, &spare);
        assert_ptr_equal(module->malloc, mallocs[NEXT + fake.generation]);
        assert_ptr_equal(module->free, frees[change == 6 ? 0 : NEXT + fake.generation]);
        assert_ptr_equal(module->get_last_error, change == 2 ? NULL : errors[NEXT + fake.generation]);
        assert_int_equal(module->fast_path, change != 1);
        assert_int_equal(module->kind, change == 3 ? SG_CALLER_NCCL : before.kind);
        int asked = fake.asked;
        (void)sg_caller_module(code_in(library, 3 * PAGE), &spare);
        assert_int_equal(fake.asked - asked, change != 4);
        asked = fake.asked;
        (void)sg_caller_module(code_in(library, 3 * PAGE - 1), &spare);
        assert_int_equal(fake.asked - asked, change == 5);
        assert_false(is_remembered(neighbour)); /* each by itself */
    }
}

/* Its malloc alone, or its free, may be another's. */
static void each_function_counts(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    fake.has[LOADED] = true;
    (void)module_at(library, &spare);
    unload();
    fake.without_free = true; /* nobody's then: not remembered, and no harm to who has it */
    fake.has[NEXT] = true;
    const struct sg_module *module = module_at(library, &spare);
    assert_ptr_equal(module, &spare);
    assert_null(module->free);
    assert_non_null(module->malloc);
    fake.without_free = false;
    assert_ptr_equal(module_at(library, &spare)->free, frees[NEXT]);
}

/* Where the program's dlclose is not ours, a library may go and another lie in its place, unheard. */
static void nothing_is_remembered_where_unloads_are_not_heard(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so");
    fake.deaf = true;
    for (int i = 0; i < 2; i++) {
        int asked = fake.asked;
        assert_ptr_equal(module_at(library, &spare), &spare);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
        assert_int_equal(fake.asked - asked, 2);
    }
}

/* Another thread of the parent may hold the loader's lock in the child for good: nothing is kept, and all is found. */
static void a_forked_child_looks_without_the_loaders_lock(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libnccl.so");
    fake.over = true;
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(module_at(library, &spare), &spare);
        assert_int_equal(sg_caller_kind(code_in(library, 0)), SG_CALLER_NCCL);
    }
}

/* A library that is unloaded while it is looked at is not remembered: from before its end, nor from after its begin. */
static void what_goes_meanwhile_is_not_remembered(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    (void)module_at(library, &spare);
    unload();
    (void)module_at(library, &spare);
    int asked = fake.asked;
    for (int i = 0; i < 3; i++)
        (void)module_at(library, &spare);
    assert_int_equal(fake.asked, asked);
    for (int i = 0; i < 3; i++) {
        unload();
        assert_false(is_remembered(library));
    }
}

/* A signal handler allocates while the call that it interrupts notes its own module. It waited for ever. */
static void what_interrupts_a_note_goes_on_without_one(void **state)
{
    struct sg_module spare;
    (void)state;
    int library = add("/a/libuser.so");
    sg_process_lock(SG_LOCK_CALLERS);
    assert_ptr_equal(module_at(library, &spare), &spare);
    sg_process_unlock(SG_LOCK_CALLERS);
    assert_false(is_remembered(library));
    assert_true(is_remembered(library));
}

/* More libraries than are remembered: those that are stay right, the others are looked at each time. */
static void full_tables_answer_all_the_same(void **state)
{
    struct sg_module spare;
    int remembered = 0;
    (void)state;
    while (fake.libraries < LIBRARIES)
        add(fake.libraries % 2 ? "/a/libnccl.so" : "/a/libuser.so");
    for (int round = 0; round < 2; round++) {
        for (int i = 2; i < LIBRARIES; i++) {
            enum sg_caller kind = i % 2 ? SG_CALLER_NCCL : SG_CALLER_OTHER;
            assert_int_equal(module_at(i, &spare)->kind, kind);
            assert_int_equal(sg_caller_kind(code_in(i, 0)), kind);
        }
    }
    for (int i = 2; i < LIBRARIES; i++)
        remembered += is_remembered(i);
    assert_true(remembered <= REMEMBERED && remembered > REMEMBERED / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kinds_are_told_by_the_beginning_of_the_name), TEST(code_of_no_library_is_nobodys),
        TEST(callers_of_the_driver_are_no_callers_of_the_runtime),
        TEST(runtime_is_the_callers_own_where_it_has_one), TEST(module_is_remembered_where_it_lies),
        TEST(module_is_looked_at_anew_once_a_library_has_gone), TEST(each_function_counts),
        TEST(nothing_is_remembered_where_unloads_are_not_heard), TEST(a_forked_child_looks_without_the_loaders_lock),
        TEST(what_goes_meanwhile_is_not_remembered), TEST(what_interrupts_a_note_goes_on_without_one),
        TEST(full_tables_answer_all_the_same), /* the last: what is in them stays */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
