/* Calls that give a stream work, and calls that make it wait, by their own names. */
#ifndef WORK_CALLS_H
#define WORK_CALLS_H

#include "work_fakes.h"

/* All are called alike, with one value for all arguments. */
typedef CUresult any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
    uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct call {
    const char *name;
    any_call *function;
    bool own;      /* by the other meaning of the default stream */
    bool shows, of_default, waits;
    bool writes;      /* batches of memory operations: where they do, they tell of all */
    bool serializes;  /* shows the host the work of all streams */
    bool takes;       /* may run out of memory for something of its own, and is made again then */
    int ends;         /* that may be memory of ours */
    enum shape { PLAIN, FLAT, DEEP, DEEP_PEER } shape; /* how these are named: as arguments, or in such a struct */
    const char *peer; /* the driver's function for it between devices; NULL: itself */
};
#define CALL(symbol) .name = #symbol, .function = (any_call *)(void (*)(void))symbol

static const struct call work[] = {
#define BOTH(symbol, per_thread, stream_name, shown, count)                                                 \
    {CALL(symbol), .shows = shown, .of_default = stream_name[0] == 'N', .ends = count, .takes = true},      \
        {CALL(per_thread), .own = true, .shows = shown, .of_default = stream_name[0] == 'N', .ends = count, \
            .takes = true},
#define SUBMIT(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, #stream, false, 0)
#define SUBMIT_VISIBLE(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, #stream, true, 0)
#define SUBMIT_FUNCTION SUBMIT_VISIBLE
#define SUBMIT_CALLBACK SUBMIT_VISIBLE
#define SUBMIT_VISIBLE_FROM(symbol, per_thread, base, version, parameters, arguments, stream) \
    BOTH(symbol, per_thread, #stream, true, 1)
#define SUBMIT_VISIBLE_TO SUBMIT_VISIBLE_FROM
#define SUBMIT_WRITING SUBMIT_VISIBLE_FROM
#include "process/launch_hooks.def"
    {CALL(cuLaunchKernelEx), .takes = true}, {CALL(cuLaunchKernelEx_ptsz), .own = true, .takes = true},
    {CALL(cuGraphLaunch), .shows = true, .takes = true},
    {CALL(cuGraphLaunch_ptsz), .own = true, .shows = true, .takes = true}, {CALL(cuLaunch), .of_default = true},
    {CALL(cuLaunchGrid), .of_default = true}, {CALL(cuLaunchGridAsync)},
#define COPIES(symbol, suffix, between, of, is_of_default)                                                      \
    {CALL(symbol), .shows = true, .of_default = is_of_default, .ends = 2, .shape = of, .peer = #between},       \
        {CALL(symbol##suffix), .own = true, .shows = true, .of_default = is_of_default, .ends = 2, .shape = of, \
            .peer = #between #suffix},
#define PEERS(symbol, suffix, of) \
    {CALL(symbol), .serializes = true, .of_default = true, .ends = 2, .shape = of}, \
    {CALL(symbol##suffix), .own = true, .serializes = true, .of_default = true, .ends = 2, .shape = of},
#define PEERS_LATER(symbol, suffix, of)                    \
    {CALL(symbol), .shows = true, .ends = 2, .shape = of}, \
        {CALL(symbol##suffix), .own = true, .shows = true, .ends = 2, .shape = of},
    COPIES(cuMemcpy, _ptds, cuMemcpyPeer, PLAIN, true) COPIES(cuMemcpyDtoD_v2, _ptds, cuMemcpyPeer, PLAIN,
        true) COPIES(cuMemcpyAsync, _ptsz, cuMemcpyPeerAsync, PLAIN, false) COPIES(cuMemcpyDtoDAsync_v2, _ptsz,
        cuMemcpyPeerAsync, PLAIN, false) COPIES(cuMemcpyWithAttributesAsync, _ptsz, cuMemcpyPeerAsync, PLAIN, false)
        COPIES(cuMemcpy2D_v2, _ptds, cuMemcpy3DPeer, FLAT, true) COPIES(cuMemcpy2DUnaligned_v2, _ptds, cuMemcpy3DPeer,
            FLAT, true) COPIES(cuMemcpy3D_v2, _ptds, cuMemcpy3DPeer, DEEP, true) COPIES(cuMemcpy2DAsync_v2, _ptsz,
            cuMemcpy3DPeerAsync, FLAT, false) COPIES(cuMemcpy3DAsync_v2, _ptsz, cuMemcpy3DPeerAsync, DEEP, false)
            PEERS(cuMemcpyPeer, _ptds, PLAIN) PEERS(cuMemcpy3DPeer, _ptds, DEEP_PEER)
                PEERS_LATER(cuMemcpyPeerAsync, _ptsz, PLAIN) PEERS_LATER(cuMemcpy3DPeerAsync, _ptsz, DEEP_PEER)};

/* They make their stream wait for what can't be followed, and a graph that they are captured in whoever launches it. */
static const struct call waits[] = {
#define WAITS(symbol) {CALL(symbol), .waits = true}, {CALL(symbol##_ptsz), .own = true, .waits = true},
    WAITS(cuStreamWaitValue32)
    WAITS(cuStreamWaitValue32_v2)
    WAITS(cuStreamWaitValue64)
    WAITS(cuStreamWaitValue64_v2)
    {CALL(cuStreamBatchMemOp), .waits = true, .writes = true},
    {CALL(cuStreamBatchMemOp_ptsz), .own = true, .waits = true, .writes = true},
    {CALL(cuStreamBatchMemOp_v2), .waits = true, .writes = true},
    {CALL(cuStreamBatchMemOp_v2_ptsz), .own = true, .waits = true, .writes = true},
    WAITS(cuWaitExternalSemaphoresAsync)
};

#define EACH(call, list) (const struct call *call = list; call < list + sizeof(list) / sizeof *(list); call++)

#endif
