/* Phases of a program, by its own calls and by NVTX: they nest, and each has one number. */
#include "sites_fakes.h"

/* A text as the trace has it, put together of its pieces. */
static const char *text_of(uint32_t number)
{
    static char text[1024];
    size_t used = 0;
    bool begun = false;
    for (unsigned i = 0; i < trace.count; i++) {
        const struct segalloc_trace_record *piece = &trace.record[i];
        if (piece->kind != SEGALLOC_RECORD_DEFINE_TEXT || piece->stream != number)
            continue;
        assert_int_equal((piece->flags & SEGALLOC_FLAG_FIRST) != 0, !begun);
        begun = true;
        memcpy(text + used, &piece->id, 8);
        memcpy(text + used + 8, &piece->size, 8);
        used += 16;
        if (piece->flags & SEGALLOC_FLAG_LAST) {
            assert_int_equal(strnlen(text + used - 16, 16) == 16 || !text[used - 1], true);
            text[used] = '\0';
            return text;
        }
    }
    fail_msg("text %u is not whole", number);
    return NULL;
}

/* Frames say which texts are theirs, the innermost first. */
static void texts_are_whole(void **state)
{
    (void)state;
    uint32_t site = at(200, 21);
    unsigned frames = 0;
    for (unsigned i = 0; i < trace.count; i++) {
        const struct segalloc_trace_record *frame = &trace.record[i];
        if (frame->kind != SEGALLOC_RECORD_DEFINE_SITE || frame->stream != site)
            continue;
        assert_int_equal(frame->size, frames ? 21 : 200);
        assert_int_equal(frame->flags, frames ? SEGALLOC_FLAG_LAST : SEGALLOC_FLAG_FIRST);
        if (frames) { /* its file was written with an earlier frame, or is now */
            assert_string_equal(text_of((uint32_t)frame->id), "function_21");
        } else {
            assert_string_equal(text_of((uint32_t)(frame->id >> 32)),
                "/lib/python3.12/site-packages/torch/nn/functional.py");
            assert_string_equal(text_of((uint32_t)frame->id), "function_200");
        }
        frames++;
    }
    assert_int_equal(frames, 2);
    static const char *const lengths[] = {"a text of 15 by", "a text of 16 byt", "a text of 17 byte",
        "a text of 32 bytes, in two parts"};
    for (int i = 0; i < 4; i++) {
        uint32_t number = sg_sites_intern(lengths[i]);
        assert_true(sg_sites_write_text(number));
        assert_string_equal(text_of(number), lengths[i]);
        assert_int_equal(count(SEGALLOC_RECORD_DEFINE_TEXT, number), (strlen(lengths[i]) + 15) / 16);
        assert_string_equal(sg_sites_text(number), lengths[i]);
    }
}

static void phases_nest(void **state)
{
    (void)state;
    char latest[64] = "text", cut[10];
    assert_string_equal(phase(), "");
    sg_phases_latest(latest, sizeof latest);
    assert_string_equal(latest, "");
    segalloc_mark("step 1");
    assert_string_equal(phase(), "step 1<");
    segalloc_phase_push("forward");
    segalloc_phase_push("attention");
    assert_string_equal(phase(), "attention<forward<step 1<");
    follow(latest, sizeof latest);
    assert_string_equal(latest, "step 1, forward, attention");
    sg_phases_latest(cut, sizeof cut);
    assert_string_equal(cut, "step 1, f");
    unsigned written = trace.count;
    phase();
    assert_int_equal(trace.count, written);
    segalloc_phase_pop();
    uint32_t forward = (phase(), sg_this_thread()->place.phase);
    for (int i = 0; i < 3; i++) { /* one that is entered again is the same */
        segalloc_phase_push("attention");
        assert_string_equal(phase(), "attention<forward<step 1<");
        segalloc_phase_pop();
    }
    assert_string_equal(phase(), "forward<step 1<");
    assert_int_equal(sg_this_thread()->place.phase, forward);
    assert_int_equal(trace.count, written);
    segalloc_phase_push("");
    assert_string_equal(phase(), "forward<step 1<");
    segalloc_phase_pop();
    segalloc_phase_push(NULL);
    assert_string_equal(phase(), "forward<step 1<");
    segalloc_phase_pop();
    segalloc_phase_pop();
    segalloc_phase_pop(); /* one too many */
    segalloc_mark(NULL);
    assert_string_equal(phase(), "");
    for (int i = 0; i < 100; i++)
        segalloc_phase_push("deep");
    for (int i = 0; i < 99; i++)
        segalloc_phase_pop();
    assert_string_equal(phase(), "deep<");
    segalloc_phase_pop();
}

/* Another thread's allocations are of the phase that was opened or closed last, where it has none itself. */
static void a_thread_without_phases(void **state)
{
    (void)state;
    segalloc_phase_push("decode");
    struct sg_thread kept = sg_self;
    sg_self = (struct sg_thread){0};
    assert_string_equal(phase(), "decode<");
    segalloc_phase_push("copy");
    assert_string_equal(phase(), "copy<");
    segalloc_phase_pop();
    assert_string_equal(phase(), "");
    sg_self = kept;
    assert_string_equal(phase(), "decode<");
    trace.count = 0;
    trace.refuses_kind = SEGALLOC_RECORD_DEFINE_PHASE;
    sg_sites_forget();
    sg_sites_note(sg_this_thread());
    trace.refuses_kind = SEGALLOC_RECORD_NONE;
    assert_string_equal(phase(), "decode<"); /* what was not taken is written again */
    segalloc_mark("");
    segalloc_phase_pop();
    assert_string_equal(phase(), "");
}

static void ranges_of_nvtx_are_phases(void **state)
{
    (void)state;
    int (*push)(const char *), (*pop)(void), (*domain_push)(void *, const void *), (*domain_pop)(void *);
    const void *(*intern)(void *, const char *);
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    memcpy(&push, &core[9], sizeof push);
    memcpy(&pop, &core[11], sizeof pop);
    memcpy(&domain_push, &core2[4], sizeof domain_push);
    memcpy(&domain_pop, &core2[5], sizeof domain_pop);
    memcpy(&intern, &core2[10], sizeof intern);
    assert_int_equal(push("eval"), 0);
    struct {
        uint16_t version, size;
        uint32_t before[5];
        uint64_t payload;
        int32_t type;
        const void *message;
    } event = {.version = 3, .type = 3, .message = intern(NULL, "batch")};
    assert_int_equal(domain_push(NULL, &event), 1);
    assert_string_equal(phase(), "batch<eval<");
    assert_int_equal(domain_pop(NULL), 1);
    assert_int_equal(pop(), 0);
    assert_string_equal(phase(), "");
}

static const void *no_table(uint32_t id)
{
    static const size_t bytes = 8; /* of a version before these functions */
    return id == 9 ? NULL : &bytes;
}

static void an_older_nvtx_is_left_alone(void **state)
{
    (void)state;
    assert_int_equal(InitializeInjectionNvtx2(none), 0);
    assert_int_equal(InitializeInjectionNvtx2(no_table), 0);
    for (nvtx_functions = 0; nvtx_functions <= 11;
         nvtx_functions++) /* of 12 there is a pop, the last that is asked for */
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    nvtx_functions = 12;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    for (int i = 4; i <= 10; i++) {
        lacking = i;
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), i != 4 && i != 5 && i != 10);
    }
    lacking = -1;
    for (core_lacking = 7; core_lacking <= 11; core_lacking++)
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), core_lacking == 7 || core_lacking == 10);
    core_lacking = -1;
    nvtx_has = false;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    nvtx_has = true;
}

/* Names that a range may have. */
static void events_of_nvtx(void **state)
{
    int (*push)(const void *), (*pop)(void);
    const void *(*intern)(void *, const char *);
    struct {
        uint16_t version, size;
        uint32_t before[5];
        uint64_t payload;
        int32_t type;
        const void *message;
    } event = {.version = 3, .type = 1, .message = "text"};
    (void)state;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    memcpy(&push, &core[8], sizeof push);
    memcpy(&pop, &core[11], sizeof pop);
    memcpy(&intern, &core2[10], sizeof intern);
    assert_int_equal(push(&event), 0);
    assert_string_equal(phase(), "text<");
    event.type = 2; /* of wide characters */
    assert_int_equal(push(&event), 1);
    assert_string_equal(phase(), "text<");
    assert_int_equal(push(NULL), 2);
    assert_string_equal(phase(), "text<");
    event.type = 3;
    event.message = intern(NULL, "registered");
    assert_int_equal(push(&event), 3);
    assert_string_equal(phase(), "registered<text<");
    assert_string_equal(intern(NULL, NULL), "");
    for (int depth = 3; depth >= 0; depth--)
        assert_int_equal(pop(), depth);
    assert_int_equal(pop(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(phases_nest, on),
        cmocka_unit_test_setup(ranges_of_nvtx_are_phases, on),
        cmocka_unit_test_setup(texts_are_whole, on),
        cmocka_unit_test_setup(a_thread_without_phases, on),
        cmocka_unit_test_setup(an_older_nvtx_is_left_alone, on),
        cmocka_unit_test_setup(events_of_nvtx, on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
