/* For example, a context is lost while 40 blocks are guarded, 3 of them freed. On a real GPU the text lists those 3, the one that
   was freed last first, and 5 of the 37 that are live. 32 more are counted. On the simulated one the address is known. Where it lies in
   the range of one block, or within 2 MiB of it, the text has that one alone. Else it has none.

   Such an error comes once: the context is lost by it, and its text is the last one about the GPU in the process. */
#include "check/faults.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "check/finding_text.h"
#include "check/findings.h"
#include "check/guard_state.h"
#include "check/guard_table.h"
#include "check/live.h"
#include "check/state.h"
#include "process/process.h"
#include "process/symbols.h"
#include "sites/note.h"
#include "sites/sites.h"

#define NEAR (2 * SG_MIB) /* of addresses around a block: a granule of every GPU of today */

enum { SHOWN = 8, TEXT_REST = 2000 /* bytes for one more block, and what comes behind them */ };

atomic_bool sg_faults_watched;
static uint64_t (*simulated)(void); /* the simulator's function that knows the address (sim/extra.h); NULL: a real GPU */

void sg_faults_open(void)
{
    void *symbol = sg_cuda_symbol("segalloc_sim_fault");
    memcpy(&simulated, &symbol, sizeof simulated);
    atomic_store(&sg_faults_watched, true);
}

void sg_faults_close(void)
{
    atomic_store(&sg_faults_watched, false);
}

/* One error with the blocks that it may be about. */
struct fault {
    CUresult result;
    const char *call;
    size_t count, listed, shown; /* guarded blocks that there are; in `view`; those of them that it may be about */
    struct sg_guard_view view[SHOWN];
};

/* Shorter than the driver's own text, which the program prints. */
static const char *error_name(CUresult result)
{
    return result == CUDA_ERROR_ILLEGAL_ADDRESS         ? "an illegal memory access"
           : result == CUDA_ERROR_INVALID_ADDRESS_SPACE ? "an access to the wrong address space"
                                                        : "a launch that failed";
}

/* Where an address lies, as seen from a block: "120 bytes behind the end of the block". */
static void text_offset(struct sg_finding_text *text, const struct sg_guard_view *view, CUdeviceptr address)
{
    uint64_t bytes = view->block->bytes, offset = address - view->base;
    if (address < view->base)
        sg_text_print(text, "%llu bytes in front of the block", view->base - address);
    else if (offset < bytes)
        sg_text_print(text, "byte %" PRIu64 " of the block", offset);
    else
        sg_text_print(text, "%" PRIu64 " bytes behind the end of the block", offset - bytes);
}

/* The error, the call that returned it first, and the address as far as it is known. */
static void text_where(struct sg_finding_text *text, const struct fault *fault, CUdeviceptr address)
{
    sg_text_print(text, "  where    error %d, %s, returned by %s", (int)fault->result, error_name(fault->result),
        fault->call);
    if (address && fault->shown) {
        sg_text_print(text, ", at 0x%" PRIx64 ", ", (uint64_t)address);
        text_offset(text, &fault->view[0], address);
    } else if (address) {
        sg_text_print(text, ", at 0x%" PRIx64 "%s", (uint64_t)address,
            fault->count ? ", which lies in no guarded block" : "");
    } else {
        sg_text_print(text, "; the driver does not say at which address");
    }
    sg_text_print(text, "\n");
}

/* The next step: where the address can be had, or how more blocks are guarded. */
static void text_next(struct sg_finding_text *text, const struct fault *fault, CUdeviceptr address)
{
    if (!fault->count || (address && !fault->shown))
        sg_text_print(text,
            "  next     segalloc run --check=guard --conf guard_rate:%d -- CMD: %sblocks that end at "
            "unmapped memory show whose it is\n",
            fault->count ? 1 : 10, fault->count ? "more " : "");
    else if (address)
        sg_text_print(text, "  next     look at the places above, and at what was launched before %s\n", fault->call);
    else
        sg_text_print(text,
            "  next     `dmesg | grep Xid` has the address (faulted @ 0x…): it is in the block whose unmapped "
            "addresses have it. "
            "None has: --conf guard_rate:10, or guard_site: and guard_size: for the block that you suspect\n");
}

/* The blocks come after what is known of the error. Those for which there is no room are counted, so that the advice at the end
   stays in the text. */
static void fault_say_text(const struct sg_finding *finding, const struct fault *fault)
{
    struct sg_finding_text text = {.length = 0};
    sg_text_print(&text, "segalloc: check: %s\n", sg_finding_words(finding->kind));
    text_where(&text, fault, finding->address);
    size_t said = 0;
    for (; said < fault->shown && text.length < SG_FINDING_TEXT_BYTES - TEXT_REST; said++) {
        const struct sg_guard_view *view = &fault->view[said];
        sg_text_block(&text, view->block);
        sg_text_print(&text, "           unmapped from 0x%" PRIx64 " to 0x%" PRIx64 "%s\n", (uint64_t)(view->gap),
            (uint64_t)view->end, view->freed ? "" : ", which is behind it");
    }
    if (fault->count > said && !finding->address)
        sg_text_print(&text, "  and      %zu more guarded blocks\n", fault->count - said);
    sg_text_note(&text, "  now      seen", &finding->now->note);
    sg_text_print(&text, "\n  likely   %s\n",
        fault->shown   ? sg_finding_likely(finding->kind)
        : fault->count ? "work of the program used memory that was never a guarded block's, or is none's any more"
                       : "no block is guarded, so it is not known which one it is about");
    text_next(&text, fault, finding->address);
    sg_text_write(&text);
}

/* The same as one object. A block that does not fit as a whole is left out, and "guarded" says how many there are. */
static void fault_say_json(const struct sg_finding *finding, const struct fault *fault)
{
    struct sg_finding_text text = {.length = 0};
    sg_text_print(&text, "segalloc: check: {\"finding\":\"%s\",\"pid\":%ld,\"error\":%d",
        sg_finding_words(finding->kind), (long)getpid(), (int)fault->result);
    sg_text_json(&text, "call", fault->call);
    if (finding->address)
        sg_text_print(&text, ",\"address\":%" PRIu64, (uint64_t)finding->address);
    sg_text_print(&text, ",\"guarded\":%zu,\"blocks\":[", fault->count);
    for (size_t i = 0; i < fault->shown; i++) {
        const struct sg_guard_view *view = &fault->view[i];
        size_t before = text.length;
        sg_text_print(&text,
            "%s{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"device\":%d,\"gap\":%" PRIu64 ",\"end\":%" PRIu64,
            i ? "," : "", (uint64_t)view->base, view->block->bytes, view->block->device, (uint64_t)view->gap,
            (uint64_t)view->end);
        sg_text_json_note(&text, "allocated", &view->block->allocated);
        if (view->freed)
            sg_text_json_note(&text, "freed", &view->block->freed);
        sg_text_print(&text, "}");
        if (text.length > SG_FINDING_TEXT_BYTES - TEXT_REST / 2) { /* whole objects only */
            text.length = before;
            break;
        }
    }
    text.at[text.length] = '\0';
    sg_text_print(&text, "]");
    sg_text_json_note(&text, "seen", &finding->now->note);
    sg_text_print(&text, "}\n");
    sg_text_write(&text);
}

static void fault_say(const struct sg_finding *finding, bool json, const void *user)
{
    if (json)
        fault_say_json(finding, user);
    else
        fault_say_text(finding, user);
}

/* True if the address lies in the range of a guarded block, or next to it. */
static bool is_near(const struct sg_guard_view *view, CUdeviceptr address)
{
    return address + NEAR >= view->begin && address < view->end + NEAR;
}

/* The thread is inside. */
static void fault_tell(CUresult result, const char *call)
{
    struct fault fault = {.result = result, .call = call};
    CUdeviceptr address = simulated ? simulated() : 0;
    fault.count = sg_guards_list(address, fault.view, SHOWN);
    fault.listed = fault.count < SHOWN ? fault.count : SHOWN;
    fault.shown = address ? fault.listed && is_near(&fault.view[0], address) : fault.listed;
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    const struct sg_check_block now = {.address = address, .note = sg_check_note_now(&(struct sg_tag){0})};
    const struct sg_finding finding = {
        .kind = SG_FINDING_GPU_FAULT,
        .device = fault.shown ? fault.view[0].block->device : 0,
        .block = fault.shown ? fault.view[0].block : NULL,
        .now = &now,
        .address = address,
        .offset = fault.shown && address > fault.view[0].base ? address - fault.view[0].base : 0,
        .call = call,
    };
    sg_findings_add_by(&finding, fault_say, &fault);
    for (size_t i = 0; i < fault.listed; i++)
        sg_live_drop(fault.view[i].block);
    sg_guard_close();
}

/* A signal handler within one of our calls leaves it to the program's next call, which gets the same error. */
void sg_fault_say(CUresult result, const char *call)
{
    if (sg_this_thread()->guards || sg_process_over() || !atomic_exchange(&sg_faults_watched, false))
        return;
    bool outer = sg_thread_enter();
    fault_tell(result, call);
    sg_thread_leave(outer);
}
