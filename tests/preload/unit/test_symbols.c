/* The driver's functions and what is put in their place, by name and version. */
#include "symbols_fakes.h"

static int close_it(void *handle)
{
    fake.closed++;
    return handle == &other_handle ? 3 : 0;
}

/* Each function that the driver exports is known by its address, whatever was asked. */
static void the_drivers_own_are_replaced_by_ours(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) == 0)
            continue;
        fake.watched = false;
        fake.answers = &driver_code[i];
        assert_ptr_equal(answer_to("anything", 12000, 0), address_of(rows[i].ours));
        fake.watched = true;
        assert_ptr_equal(answer_to("anything", 12000, 0), &driver_code[i]);
        fake.watched = false;
        fake.answers = address_of(rows[i].ours); /* another library before ours has asked for it */
        assert_ptr_equal(answer_to("anything", 12000, 0), address_of(rows[i].ours));
    }
    assert_int_equal(fake.stubs, 0);
}

static void nothing_is_put_in_place_of_an_error(void **state)
{
    (void)state;
    fake.answers = &driver_code[9];
    fake.result = CUDA_ERROR_NOT_FOUND;
    assert_ptr_equal(answer_to("cuMemAlloc", 12000, 0), &driver_code[9]);
    fake.result = CUDA_SUCCESS;
    fake.answers = NULL;
    assert_null(answer_to("cuMemAlloc", 12000, 0));
    assert_int_equal(cuGetProcAddress("cuMemAlloc", NULL, 12000, 0), CUDA_SUCCESS);
    void *function = NULL;
    fake.answers = &driver_code[9];
    assert_int_equal(cuGetProcAddress(NULL, &function, 12000, 0), CUDA_SUCCESS);
    assert_ptr_equal(function, &driver_code[9]);
}

static void what_is_not_exported_is_known_by_name_and_version(void **state)
{
    static const int versions[] = {2000, 3019, 3020, 4000, 7000, 10010, 11030, 12000, 12080, 13000, 13050};
    (void)state;
    fake.answers = &other_code[0];
    for (int i = 0; i < ROWS; i++) {
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
            for (cuuint64_t flags = 0; flags <= 3; flags++) {
                enum threads threads = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PER_THREAD : LEGACY;
                const struct row *row = wanted(rows[i].base, versions[v], threads);
                void *answer = answer_to(rows[i].base, versions[v], flags);
                if (row)
                    assert_ptr_equal(answer, address_of(row->ours));
                else if (versions[v] < 3020)
                    assert_ptr_equal(answer, &other_code[0]); /* the twin of 32 bits */
                else
                    assert_true(answer == &other_code[0] || answer == &stub_code[SG_UNTRACKED_ORDER] ||
                        answer == &stub_code[SG_UNTRACKED_PAGES]);
            }
        }
        int stubs = fake.stubs; /* the table may lack a form that is newer than it */
        void *answer = answer_to(rows[i].base, 13060, 0);
        assert_true(answer == (fake.stubs > stubs ? &stub_code[fake.stub_kind] : &other_code[0]));
    }
}

static void expect_unknown(const struct unknown_name *name, void *answer, void *real)
{
    assert_ptr_equal(answer, name->kind < 0 ? real : &stub_code[name->kind]);
    assert_int_equal(fake.stubs, name->kind >= 0);
    if (name->kind < 0)
        return;
    assert_int_equal(fake.stub_kind, name->kind);
    assert_string_equal(fake.stub_name, name->name);
    assert_ptr_equal(fake.stub_real, real);
}

static void what_nobody_knows_gets_a_stub_where_it_matters(void **state)
{
    for (size_t i = 0; i < sizeof unknown_names / sizeof *unknown_names; i++) {
        start_afresh(state);
        fake.exported = unknown_names[i].name;
        fake.exported_at = fake.answers = &other_code[1];
        CUdriverProcAddressQueryResult status;
        void *function;
        for (int way = 0; way < 2; way++) { /* exported: under that name, or one that a known name begins */
            const char *asked = way ? "cuMemAlloc" : unknown_names[i].name;
            fake.stubs = 0;
            assert_int_equal(cuGetProcAddress_v2(asked, &function, 12000, 0, &status), CUDA_SUCCESS);
            expect_unknown(&unknown_names[i], function, &other_code[1]);
        }
        fake.stubs = 0;
        fake.answers = &other_code[2]; /* not exported, but by its name: as the inside of another function */
        assert_int_equal(cuGetProcAddress_v2(unknown_names[i].name, &function, 12000, 0, &status), CUDA_SUCCESS);
        expect_unknown(&unknown_names[i], function, &other_code[2]);
    }
}

/* The forms of 32 bits, and of other default streams, of what is hooked: they can't name memory of ours. */
static void twins_stay_the_drivers(void **state)
{
    static const struct {
        const char *name;
        bool twin;
    } list[] = {{"cuMemcpyDtoD", true}, {"cuMemcpyDtoDAsync_ptsz", true}, {"cuMemcpyDtoD_ptds", true},
        {"cuMemcpyDtoD_v9", false}, {"cuMemcpyDtoDx", false}, {"cuStreamQueryLater", false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.exported = list[i].name;
        fake.exported_at = fake.answers = &other_code[1];
        void *function;
        assert_int_equal(cuGetProcAddress("cuMemcpyDtoD", &function, 2000, 0), CUDA_SUCCESS);
        assert_ptr_equal(function, list[i].twin ? (void *)&other_code[1] : (void *)&stub_code[SG_UNTRACKED_ORDER]);
        fake.found = &other_code[1];
        struct answer answer = sg_dlsym_answer(&other_handle, list[i].name, NULL);
        assert_ptr_equal(answer.value, list[i].twin ? NULL : &stub_code[SG_UNTRACKED_ORDER]);
        assert_ptr_equal(answer.real, list[i].twin ? look_up : NULL);
    }
}

/* A libcuda.so.1 that loads another one may hand out that one's functions. They are known by the names that they have
   there, whatever version was asked for. */
static void what_another_library_exports_is_known_by_its_name(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        start_afresh(state);
        fake.exported = rows[i].symbol;
        fake.exported_at = fake.answers = &other_code[1];
        assert_ptr_equal(answer_to(rows[i].base, 2000, 0), address_of(rows[i].ours));
        assert_true(fake.preferred);
        fake.watched = true;
        assert_ptr_equal(answer_to(rows[i].base, 2000, 0), &other_code[1]);
    }
    assert_int_equal(fake.stubs, 0);
}

static void libraries_are_known_by_the_beginning_of_their_names(void **state)
{
    static char longest[PATH_MOST + 8];
    static const struct {
        const char *path;
        bool is;
    } list[] = {{"libcudart.so", true}, {"/a/libcudart.so.12", true}, {"/libcudart/libother.so", false}, {"", false},
        {"/a/xlibcudart.so", false}, {"/a/libcudar", false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.paths[0] = "/a/libfirst.so";
        fake.paths[1] = list[i].path;
        assert_int_equal(sg_library_loaded("libcudart"), list[i].is);
        assert_ptr_equal(sg_library_find("libcudart"), list[i].is ? &other_handle : NULL);
        if (list[i].is)
            assert_string_equal(fake.asked_name, list[i].path);
    }
    static const struct {
        const char *path;
        bool is;
    } in_folders[] = {{"/a/mooncake/engine.so", true}, {"mooncake/engine.so.1", true}, {"/a/other/engine.so", false},
        {"/a/xmooncake/engine.so", false}, {"engine.so", false}, {"/a/mooncake/b/engine.so", false}, {"", false}};
    for (size_t i = 0; i < sizeof in_folders / sizeof *in_folders; i++) {
        start_afresh(state);
        fake.paths[0] = in_folders[i].path;
        assert_int_equal(sg_library_loaded("mooncake/engine."), in_folders[i].is);
    }
    for (int length = PATH_MOST - 2; length <= PATH_MOST + 1; length++) {
        start_afresh(state);
        memset(longest, 'a', sizeof longest);
        longest[0] = '/';
        memcpy(longest + 100, "/libcudart", 10);
        longest[length] = '\0';
        fake.paths[0] = longest;
        assert_int_equal(sg_library_loaded("libcudart"), length < PATH_MOST);
        if (sg_library_find("libcudart"))
            assert_int_equal(strlen(fake.asked_name), (size_t)length);
    }
}

static void closing_is_the_loaders(void **state)
{
    int (*function)(void *) = close_it;
    (void)state;
    memcpy(&fake.found, &function, sizeof function);
    assert_int_equal(sg_library_close(&other_handle), 3);
    assert_string_equal(fake.asked_name, "dlclose");
    assert_int_equal(sg_library_close(&driver_handle), 0);
    assert_int_equal(fake.closed, 2);
}

/* What the driver lacks answers that it is not initialized. */
static void table_has_what_the_driver_has(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        void *function;
        memcpy(&function, (const char *)sg_real() + (size_t)i * sizeof function, sizeof function);
        if (strncmp(rows[i].symbol, "cuGetProcAddress", 16) != 0)
            assert_ptr_equal(function, &driver_code[i]);
    }
    assert_ptr_equal(sg_cuda_symbol("cuMemAlloc_v2"), sg_real()->cuMemAlloc_v2);
    assert_null(sg_cuda_symbol("cuNothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(closing_is_the_loaders), /* the first: it is looked up once */
        TEST(table_has_what_the_driver_has),
        TEST(the_drivers_own_are_replaced_by_ours),
        TEST(nothing_is_put_in_place_of_an_error),
        TEST(what_is_not_exported_is_known_by_name_and_version),
        TEST(what_nobody_knows_gets_a_stub_where_it_matters),
        TEST(twins_stay_the_drivers),
        TEST(what_another_library_exports_is_known_by_its_name),
        TEST(libraries_are_known_by_the_beginning_of_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
