"""Bugs in what the library believes and tells of streams, events, captures, graphs and contexts."""
from mutation_terms import (CAPTURES, CAPTURES_TEST, CONTEXTS_TEST, DOUBT, EVENTS, GATED, GATED_TEST, GRAPHS,
                            GRAPHS_TEST, HOOKS, MEMORY, MEMORY_TEST, PRELOAD_CONTEXTS, QUICK, QUICK_TEST, STREAMS,
                            TAINTS, WAITS, bug, directed, shown, told)

PRELOAD_BUGS = [
    # What is believed of a stream, an event and a context.
    bug("taint_ends_with_a_context_record",
        "an event that others may record counts as known again once it stands for a context", EVENTS,
        "event->state = event->state == TAINTED ? TAINTED : UNKNOWN;\n"
        "    }\n"
        "    sg_unguard(SG_GUARD_EVENTS);\n"
        "}\n"
        "\n"
        "void sg_events",
        "event->state = UNKNOWN;\n"
        "    }\n"
        "    sg_unguard(SG_GUARD_EVENTS);\n"
        "}\n"
        "\n"
        "void sg_events",
        ["aware"], DOUBT),
    bug("taint_meanwhile_unnoticed",
        "what was known of an event is believed although it has been given to others meanwhile", EVENTS,
        "        event->generation++;\n"
        "        event->state = TAINTED;\n",
        "        event->state = TAINTED;\n",
        ["aware"], DOUBT),
    bug("context_record_meanwhile_unnoticed",
        "what was known of an event is believed although it stands for a context meanwhile", EVENTS,
        "        event->generation++;\n"
        "        event->state = event->state == TAINTED ? TAINTED : UNKNOWN;\n"
        "    }\n"
        "    sg_unguard(SG_GUARD_EVENTS);\n"
        "}\n"
        "\n"
        "void sg_events",
        "        event->state = event->state == TAINTED ? TAINTED : UNKNOWN;\n"
        "    }\n"
        "    sg_unguard(SG_GUARD_EVENTS);\n"
        "}\n"
        "\n"
        "void sg_events",
        ["aware"], DOUBT),
    bug("known_while_it_is_recorded",
        "an event is believed to stand for its last place while it is being recorded at another", EVENTS,
        "        ret->shared = event->state == TAINTED;\n"
        "        event->state = event->state == TAINTED ? TAINTED : UNKNOWN;\n",
        "        ret->shared = event->state == TAINTED;\n",
        ["aware"], DOUBT),
    bug("event_of_another_process_trusted", "records of an event of another process are believed", EVENTS,
        "created(sg_real()->cuIpcOpenEventHandle(ret, handle), ret, true);",
        "created(sg_real()->cuIpcOpenEventHandle(ret, handle), ret, false);",
        ["aware"], DOUBT),
    bug("events_outlive_their_context", "what was known of events outlives their context", EVENTS,
        "        if (events.list[i].handle && events.list[i].context == context)\n"
        "            drop(events.list[i].handle);",
        "        (void)context;",
        ["aware"], DOUBT),
    bug("older_destroy_not_heard", "an event that the older call destroys is still known", EVENTS,
        "    forget(event);\n"
        "    return sg_real()->cuEventDestroy(event);",
        "    return sg_real()->cuEventDestroy(event);",
        ["aware"], DOUBT),
    bug("event_too_many_counts_as_new", "an event that could not be kept counts as never recorded", EVENTS,
        "ret->state = events.full || sg_follow_late() ? UNKNOWN : BLANK;",
        "ret->state = sg_follow_late() ? UNKNOWN : BLANK;",
        ["aware"], DOUBT),
    bug("record_without_a_slot_counts_as_none",
        "an event recorded on a stream that is not followed counts as never recorded", EVENTS,
        "        } else if (recording->early) {",
        "        } else if (recording->early || !recording->followed) {",
        ["aware"], DOUBT),
    bug("capture_that_ends_is_believed", "a record in a capture that ends meanwhile counts as one outside", EVENTS,
        "    ret->followed = !sg_captures_capturing(stream, per_thread) &&\n"
        "        sg_streams_place",
        "    ret->followed = sg_streams_place",
        ["aware"], DOUBT),
    bug("record_with_flags_on_the_legacy_stream",
        "cuEventRecordWithFlags by the other name counts as on the legacy stream", EVENTS,
        "return record_with_flags(event, stream, flags, true, sg_real()->cuEventRecordWithFlags_ptsz);",
        "return record_with_flags(event, stream, flags, false, sg_real()->cuEventRecordWithFlags_ptsz);",
        ["aware"], DOUBT),
    bug("external_record_trusted", "an event that a graph records counts as recorded by its stream", EVENTS,
        "    taint_external(event, flags);\n"
        "    if (!sg_following()",
        "    (void)taint_external;\n"
        "    if (!sg_following()",
        ["aware"], DOUBT),
    bug("external_wait_trusted", "a graph that waits for an event of outside counts as one that does not", EVENTS,
        "        sg_taints_graph_waits();\n",
        "        ;\n",
        ["aware"], DOUBT),
    bug("wait_joins_a_capture_unnoticed", "a stream joins a capture by waiting, without the lock", EVENTS,
        "    if (live)\n"
        "        sg_captures_joining();\n"
        "    CUresult result = real(stream, event, flags);\n"
        "    if (live)\n"
        "        sg_captures_joined();\n",
        "    CUresult result = real(stream, event, flags);\n",
        ["aware"], DOUBT),
    bug("captured_wait_believed", "a wait in a capture counts as made", EVENTS,
        "knowledge.state != CAPTURED && !sg_captures_capturing(stream, per_thread))",
        "knowledge.state != CAPTURED)",
        ["aware"], DOUBT),
    bug("clock_of_another_device", "an event's clock is believed on another device than its own", EVENTS,
        "followed && knowledge->device == place.device && is_believed",
        "followed && is_believed",
        ["aware"], DOUBT),
    bug("events_of_a_newer_driver_believed",
        "events are believed although a newer driver has calls that are not known", EVENTS,
        "still(event, knowledge) && !sg_streams_untracked();",
        "still(event, knowledge);",
        ["aware"], DOUBT),
    bug("unknown_event_tells_the_host_nothing",
        "the host learns nothing from an event that nothing is known of", EVENTS,
        "        sg_core_completed(core, knowledge->device, &knowledge->clock);\n"
        "    if (!known || knowledge->opaque)\n",
        "        sg_core_completed(core, knowledge->device, &knowledge->clock);\n"
        "    if (knowledge->opaque)\n",
        ["aware"], DOUBT),
    bug("stream_that_is_not_followed_passes_nothing_on",
        "what a stream comes after that is not followed, nobody is thought to know", EVENTS,
        "else if (!followed || sg_contexts_devices())", "else if (followed && sg_contexts_devices())", ["aware"],
        programs=told("abroad", ",count=2,schedule=1")),
    bug("blocking_stream_abroad_passes_nothing_on",
        "what a blocking stream waits for of another device's, others of its own are not thought to know", EVENTS,
        "else if (!followed || sg_contexts_devices())", "else if (!followed)", ["aware"],
        programs=told("abroad_neighbour", ",count=2,schedule=1")),
    bug("context_abroad_passes_nothing_on",
        "what another device's context waits for, the host is not thought to learn there", EVENTS,
        "        if (knowledge->state != BLANK)\n"
        "            tell_of(core, event, knowledge);\n"
        "        sg_end();",
        "        sg_end();", ["aware"], programs=told("abroad_whole", ",count=2,schedule=1")),
    bug("time_between_events_tells_nothing", "who is told the time between two events is not thought to know of them",
        EVENTS, "        learn(start, &of_start);\n        learn(end, &of_end);\n", "", ["aware"], programs=told("measured", "")),
    bug("shared_event_tells_nothing", "another process is not thought to say that it has waited for an event", EVENTS,
        "        ret->shared = event->state == TAINTED;\n", "        ret->shared = false;\n", ["aware"],
        programs=told("shared")),
    bug("end_of_a_context_tells_nothing", "the end of a context is not thought to show that its work is over",
        PRELOAD_CONTEXTS, "        sg_streams_told_all(now); ", "        (void)0; ", ["aware"], programs=told("ended")),
    bug("drivers_free_tells_nothing", "a free of the driver's own memory is not thought to show what it has waited for",
        HOOKS, "            sg_streams_tell_all(); ", "            (void)0; ", ["aware"], programs=told("freed")),
    bug("taint_before_following_forgotten",
        "who records an event by other means counts only where order was followed when that was said", EVENTS,
        "    if (!sg_following())\n        atomic_store(&events.early, true);",
        "    if (!sg_following())\n        return;",
        ["aware"], programs=directed("before_graph", "auto", ",schedule=4")),
    bug("external_record_before_following_forgotten",
        "an event that a capture makes a graph record counts only where order was followed by then", EVENTS,
        "    taint_external(event, flags);\n    if (!sg_following() || sg_thread_inside())\n"
        "        return real(event, stream, flags);",
        "    if (!sg_following() || sg_thread_inside())\n"
        "        return real(event, stream, flags);\n    taint_external(event, flags);",
        ["aware"], programs=directed("before_external", "auto", ",schedule=4")),
    bug("external_wait_before_following_forgotten",
        "a graph that waits for an event of outside counts only where order was followed when it was captured", EVENTS,
        "    if (live && flags & CU_EVENT_WAIT_EXTERNAL)", "    if (sg_following() && live && flags & CU_EVENT_WAIT_EXTERNAL)",
        ["torch"], programs=shown("before_graph", ",schedule=4")),
    bug("wait_before_following_forgotten", "a stream's wait for memory counts only where order was followed by then", TAINTS,
        "        sg_streams_waited_early();", "        (void)stream;", ["torch"],
        programs=shown("before_value", ",schedule=4")),
    bug("green_context_tells_nothing", "a wait for a green context tells the host nothing of its streams", WAITS,
        "    if (sg_streams_any_opaque() || sg_contexts_green(context))", "    if (sg_streams_any_opaque())", ["torch"],
        programs=shown("green", ",schedule=4")),
    bug("idle_legacy_stream_tells_nothing",
        "a wait for the legacy stream tells nothing of blocking ones where that was never given work", WAITS,
        "(legacy ? sg_streams_place : sg_streams_find)(core", "(legacy ? sg_streams_find : sg_streams_find)(core",
        ["torch"], programs=shown("legacy_only", ",schedule=4")),
    bug("pluggable_allocator_tells", "a pluggable allocator counts as one that tells before it has told", MEMORY,
        "    return sg_torch_direct() || (", "    return sg_torch_direct() || (false && ", ["torch"],
        programs=shown("plugged", ",schedule=4")),
    bug("green_wait_not_noticed", "streams of a green context that waits are not known to have seen it", EVENTS,
        "context_waited(sg_real()->cuGreenCtxWaitEvent(green, event), sg_contexts_of_green(green), event, &knowledge);",
        "sg_real()->cuGreenCtxWaitEvent(green, event);",
        ["aware"], DOUBT),
    bug("clock_read_after_the_question", "what a stream was given while it was waited for counts as complete", WAITS,
        "    CUresult result = real(stream);\n"
        "    if (known && result == CUDA_SUCCESS)",
        "    CUresult result = real(stream);\n"
        "    known = lesson_of(stream, per_thread, &lesson);\n"
        "    if (known && result == CUDA_SUCCESS)",
        ["aware"], DOUBT),
    bug("threads_own_stream_trusted", "a thread's own stream counts as one whose order is seen", STREAMS,
        "    if (stream == CU_STREAM_PER_THREAD)\n"
        "        return SG_STREAM_BLOCKING | SG_STREAM_OPAQUE;",
        "    if (stream == CU_STREAM_PER_THREAD)\n"
        "        return SG_STREAM_BLOCKING;",
        ["aware"], DOUBT),
    bug("stream_of_unknown_kind_trusted",
        "a stream that the driver says nothing of counts as ordered by its events alone", STREAMS,
        "!= CUDA_SUCCESS)\n"
        "        return SG_STREAM_BLOCKING | SG_STREAM_OPAQUE;\n"
        "    return flags",
        "!= CUDA_SUCCESS)\n"
        "        return 0;\n"
        "    return flags",
        ["aware"], DOUBT),
    bug("stream_of_another_device_trusted", "a stream of another device counts as one whose order is seen", STREAMS,
        "    bool unseen = elsewhere >= 0 || ",
        "    bool unseen = ",
        ["aware"], DOUBT),
    bug("events_on_streams_of_green_contexts", "events of ours are recorded on streams of green contexts", STREAMS,
        "    flags |= primary ? SG_STREAM_UNMARKED : 0;\n",
        "",
        ["aware"], DOUBT),
    bug("default_stream_of_any_context",
        "the default stream is that of the context in which it was last named", STREAMS,
        "if (seen->stream == named && seen->context == context && seen->changes == changes) {",
        "if (seen->stream == named && seen->changes == changes) {",
        ["aware"], DOUBT),
    bug("handle_means_the_stream_before", "a new stream counts as the one before of its handle", STREAMS,
        "        atomic_fetch_add(&streams.changes, 1);\n"
        "        sg_unguard(SG_GUARD_STREAMS);\n"
        "        for",
        "        sg_unguard(SG_GUARD_STREAMS);\n"
        "        for",
        ["aware"], DOUBT),
    bug("stream_goes_unnoticed", "a stream is destroyed before an event of ours is recorded after its work", STREAMS,
        "    retire(stream);\n"
        "    return sg_captures_destroyed(sg_real()->cuStreamDestroy_v2(stream), stream);",
        "    CUresult result = sg_captures_destroyed(sg_real()->cuStreamDestroy_v2(stream), stream);\n"
        "    retire(stream);\n"
        "    return result;",
        ["aware"], DOUBT),
    bug("work_seen_on_one_device_alone",
        "work of a stream that uses another device's memory counts on its own device alone", STREAMS,
        "        touch_foreign(core, place.entry);\n",
        "        (void)touch_foreign;\n",
        ["aware"], DOUBT),
    bug("primary_context_waits_for_itself_alone",
        "a wait of a primary context is not one of those that it stands for", STREAMS,
        "(entry->context == context || entry->device == device))",
        "entry->context == context)",
        ["aware"], DOUBT),
    bug("wait_for_one_device_completes_all",
        "a wait for the contexts of one device completes what was freed after all devices' work", WAITS,
        "    if (sg_contexts_devices())\n"
        "        ret_clock->at[0] = 0;",
        "    if (false)\n"
        "        ret_clock->at[0] = 0;",
        ["aware"], DOUBT),
    # The driver while captures begin and go on.
    bug("capture_begins_beside_calls_of_ours",
        "a capture begins while calls are made that it must not begin beside", CAPTURES,
        "    while (atomic_load(&gate.holders))\n"
        "        rest();\n",
        "",
        ["cuda"], GATED_TEST),
    bug("one_call_begins_captures_unnoticed", "a capture begins by one of the calls without being counted", CAPTURES,
        "    unsigned joins = begin();\n"
        "    return begun(sg_real()->cuStreamBeginCapture_v2(stream, mode), joins, stream, false);",
        "    return sg_real()->cuStreamBeginCapture_v2(stream, mode);",
        ["cuda"], CAPTURES_TEST),
    bug("capture_begins_unseen_by_the_short_way",
        "what was learnt while there were no captures is believed in one", CAPTURES,
        "    atomic_fetch_add(&captures.live, 1);\n"
        "    atomic_fetch_add(&sg_life_gate, 1);\n",
        "    atomic_fetch_add(&captures.live, 1);\n",
        ["cuda"], GATED_TEST),
    bug("capture_of_the_legacy_stream_for_the_own",
        "whether a thread's own stream is captured is asked of the legacy stream", CAPTURES,
        "driver->stream_is_capturing(sg_stream_named(stream, per_thread), &status)",
        "driver->stream_is_capturing(stream, &status)",
        ["cuda"], GATED_TEST),
    bug("capture_of_any_thread_is_the_own", "an allocation belongs to another thread's capture", CAPTURES,
        "if (capture->thread == &sg_self) {",
        "if (true) {",
        ["cuda"], GATED_TEST),
    bug("capture_never_has_other_streams",
        "a capture that other streams have joined gives memory on to the next in its own", CAPTURES,
        "capture->joins == atomic_load(&captures.joins);",
        "true;",
        ["cuda"], GATED_TEST),
    bug("captures_outlive_their_context", "a capture goes on for ever when its context has gone", CAPTURES,
        "        if (captures.list[i].context != context)\n"
        "            continue;",
        "        if (true)\n"
        "            continue;",
        ["cuda"], GATED_TEST),
    bug("question_ruins_a_capture", "an event is asked about in a capture without the mode that allows that", GATED,
        "    bool relaxed = live && sg_captures_relax(&mode);\n"
        "    if (!live || relaxed)\n"
        "        result = real->event_query",
        "    bool relaxed = false;\n"
        "    (void)mode;\n"
        "    result = real->event_query",
        ["cuda"], GATED_TEST),
    bug("captured_stream_waits_for_us", "a stream that is captured is made to wait for an event of ours", GATED,
        "CUresult result = is_open(stream) ? real->stream_wait_event(stream, event, flags)",
        "CUresult result = is_open(stream) || true ? real->stream_wait_event(stream, event, flags)",
        ["cuda"], GATED_TEST),
    bug("legacy_stream_used_in_captures",
        "the legacy stream is given an event of ours beside a captured one that it orders", GATED,
        "    return stream && stream != CU_STREAM_LEGACY && real->stream_is_capturing &&",
        "    return real->stream_is_capturing &&",
        ["cuda"], GATED_TEST),
    bug("context_record_without_the_lock", "an event over a context is recorded while a capture may begin", GATED,
        "    sg_captures_hold();\n"
        "    CUresult result = sg_captures_live() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : record_over(context, event);\n"
        "    sg_captures_unhold();",
        "    CUresult result = sg_captures_live() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : record_over(context, event);",
        ["cuda"], GATED_TEST),
    bug("context_marked_in_a_capture",
        "a context is waited for by an event although a capture has begun meanwhile", GATED,
        "    if (!sg_captures_live()) {\n"
        "        result = real->event_create",
        "    if (true) {\n"
        "        result = real->event_create",
        ["cuda"], GATED_TEST),
    bug("program_that_captures_waited_for_plainly",
        "a program that captures is waited for by a call that a capture could begin beside", GATED,
        "return sg_captures_any() ? synchronize_beside(NULL) : real->ctx_synchronize();",
        "return real->ctx_synchronize();",
        ["cuda"], GATED_TEST),
    bug("context_stays_current_after_a_wait", "the context that was waited for stays current", GATED,
        "    if (pushed)\n"
        "        (void)real->ctx_pop(&popped);\n"
        "    return result;",
        "    (void)popped;\n"
        "    return result;",
        ["cuda"], GATED_TEST),
    bug("wait_under_the_lock",
        "an event is waited for by the driver's own call, which keeps captures from beginning", GATED,
        "    ret->event_synchronize = synchronize_in_slices;\n",
        "    (void)synchronize_in_slices;\n",
        ["cuda"], GATED_TEST),
    # What is believed of streams, contexts and waits where little tells of it.
    bug("any_graphs_end_is_its_own", "a block is let go as soon as any graph has gone", GRAPHS,
        "bool over = hold && (all || atomic_load(&hold->gone));",
        "bool over = hold && (all || atomic_load(&sg_graphs_gone));",
        ["cuda"], GRAPHS_TEST),
    bug("block_of_very_many_graphs_let_go", "a block of more graphs than fit is let go when those have gone", GRAPHS,
        "    block->forever |= place < 0;\n",
        "",
        ["cuda"], GRAPHS_TEST),
    bug("graph_without_memory_forgotten", "a graph whose memory the driver has freed is taken for another", GRAPHS,
        "if (unused < 0 && (!hold->capture || (!hold->blocks && atomic_load(&hold->gone))))",
        "if (unused < 0 && (!hold->capture || !hold->blocks || atomic_load(&hold->gone)))",
        ["cuda"], GRAPHS_TEST),
    bug("spare_of_two_graphs", "a block that another graph uses too is given out again in a capture", GRAPHS,
        "return its && holds == 1 && !block->forever;",
        "return its;",
        ["cuda"], GRAPHS_TEST),
    bug("spare_of_another_stream", "a block of another stream is given out again in a capture", GRAPHS,
        "block->freed && block->born == stream && is_of_one",
        "block->freed && is_of_one",
        ["cuda"], GRAPHS_TEST),
    bug("spare_of_another_capture", "a block of one capture is given out in another", GRAPHS,
        "found = spare->capture == capture && spare->stream == stream && spare->units",
        "found = spare->stream == stream && spare->units",
        ["cuda"], GRAPHS_TEST),
    bug("spare_for_another_stream", "what one stream of a capture has freed is given out to another", GRAPHS,
        "found = spare->capture == capture && spare->stream == stream && spare->units",
        "found = spare->capture == capture && spare->units",
        ["cuda"], GRAPHS_TEST),
    bug("spare_is_not_live_again",
        "a block that was given out again in a capture is free when its graph has gone", GRAPHS,
        "        block->freed = false;\n"
        "        graphs.spare",
        "        graphs.spare",
        ["cuda"], GRAPHS_TEST),
    bug("blocks_of_graphs_outlive_their_context", "the blocks of graphs outlive their context", GRAPHS,
        "        while (block->address && block->context == context)\n"
        "            remove_block(block);",
        "        (void)context; while (false)\n"
        "            remove_block(block);",
        ["cuda"], GRAPHS_TEST),
    bug("driver_freed_but_held", "what the driver has freed is a graph's still", GRAPHS,
        "    if (block->address && !origin) {\n"
        "        remove_block(block);\n"
        "    } else if",
        "    if (block->address && !origin) {\n"
        "    } else if",
        ["cuda"], GRAPHS_TEST),
    bug("captured_block_is_its_streams", "a block of a capture is given to others in the order of its stream", MEMORY,
        "        !sg_captures_capturing(origin->stream, false) &&\n"
        "        sg_streams_place",
        "        sg_streams_place",
        ["cuda"], MEMORY_TEST),
    bug("block_of_another_devices_stream", "a block is in the order of a stream of another device", MEMORY,
        "sg_streams_place(core, origin->stream, false, &place) && place.device == device)",
        "sg_streams_place(core, origin->stream, false, &place))",
        ["cuda"], MEMORY_TEST),
    bug("calls_of_a_newer_driver_are_seen",
        "the streams that could have seen a block count as known beside calls that are not", MEMORY,
        "return sg_streams_complete() && !sg_streams_untracked();",
        "return sg_streams_complete();",
        ["cuda"], MEMORY_TEST),
    bug("pluggable_allocator_tells_of_all",
        "a pluggable allocator that was told of no stream counts as one that tells of all", MEMORY,
        "(origin->pluggable && atomic_load_explicit(&torch_records, memory_order_relaxed));",
        "origin->pluggable;",
        ["cuda"], MEMORY_TEST),
    bug("streams_followed_late_are_all", "streams that were followed late count as all", MEMORY,
        ".followed = sg_following() && !sg_follow_late() && is_seen(),",
        ".followed = sg_following() && is_seen(),",
        ["cuda"], MEMORY_TEST),
    bug("unseen_streams_are_followed", "streams count as followed beside calls that are not seen", MEMORY,
        ".followed = sg_following() && !sg_follow_late() && is_seen(),",
        ".followed = sg_following() && !sg_follow_late(),",
        ["cuda"], MEMORY_TEST),
    bug("nothing_is_unseen", "a free takes no account of work that is not seen", MEMORY,
        ".unseen = !is_seen(),",
        ".unseen = false,",
        ["cuda"], MEMORY_TEST),
    bug("free_put_off_takes_effect_at_once", "a free that was put off takes effect at once", MEMORY,
        "return origin->kept ? SG_FREE_SYNC_EVENT : SG_FREE_SYNC_STRICT;\n"
        "    case SG_FREE_SYNC_EVENT",
        "return origin->kept ? SG_FREE_SYNC_AUTO : SG_FREE_SYNC_STRICT;\n"
        "    case SG_FREE_SYNC_EVENT",
        ["cuda"], MEMORY_TEST),
    bug("stream_without_a_slot_forgotten", "a stream that could not be followed is not recorded", MEMORY,
        "        result = sg_core_record_stream(core, block.base, 0);\n"
        "        if (result",
        "        if (result",
        ["cuda"], MEMORY_TEST),
    bug("stream_of_another_context_on_fixed_segments",
        "a stream of another context that uses a fixed segment is forgotten", MEMORY,
        "    if (sg_streams_context_of(stream) != block.context)\n"
        "        sg_core_used_abroad(core, block.base);\n",
        "",
        ["cuda"], MEMORY_TEST),
    bug("captured_block_is_no_graphs", "a block that was handed out in a capture does not belong to its graph", MEMORY,
        "    if (live && result == CUDA_SUCCESS)\n"
        "        adopt(core, origin, *ret);\n",
        "    (void)adopt;\n",
        ["cuda"], MEMORY_TEST),
    bug("graphs_block_was_waited_for_by_all", "what waits for its graph counts as waited for by all", MEMORY,
        "enum sg_graphs_answer answer = sg_graphs_keep(address, origin, all);",
        "enum sg_graphs_answer answer = sg_graphs_keep(address, origin, true);",
        ["cuda"], MEMORY_TEST),
    bug("settled_in_a_capture", "what a capture has put off is freed in the next", MEMORY,
        "    if (!sg_memory_unsettled() || sg_captures_live())\n"
        "        return;",
        "    if (!sg_memory_unsettled())\n"
        "        return;",
        ["cuda"], MEMORY_TEST),
    bug("stream_that_could_not_be_recorded",
        "a free in the order of a stream that cannot be followed takes effect in the order of its own", MEMORY,
        "        tag->sync = SG_FREE_SYNC_EVENT;", "        ;",
        ["cuda"], MEMORY_TEST),
    bug("wait_that_failed_lets_a_graph_keep", "a free of a graph's block goes on although its wait failed", MEMORY,
        "    *ret_done = result != CUDA_SUCCESS;\n"
        "    if (*ret_done)\n"
        "        return result;",
        "",
        ["cuda"], MEMORY_TEST),
    bug("invalid_capture_is_none", "a capture that has become invalid counts as ended", CAPTURES,
        "return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;\n"
        "}\n"
        "\n"
        "bool sg_captures_own",
        "return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE + 1;\n"
        "}\n"
        "\n"
        "bool sg_captures_own",
        ["cuda"], CAPTURES_TEST),
    bug("short_way_after_what_it_was_learnt_from",
        "the short way is taken although a capture has begun, or a context has gone", QUICK,
        "if (quick->gate != atomic_load_explicit(&sg_life_gate, memory_order_acquire) || !quick->core",
        "if (!quick->core",
        ["cuda"], QUICK_TEST),
    bug("short_way_in_another_context", "the short way is taken in another context", QUICK,
        "quick->driver->ctx_get_current(&context) != CUDA_SUCCESS || context != quick->tag.context)",
        "quick->driver->ctx_get_current(&context) != CUDA_SUCCESS)",
        ["cuda"], QUICK_TEST),
    bug("short_way_for_blocks_of_graphs", "a block of a graph is freed on the short way", QUICK,
        "self->runtime != runtime_of(module) || sg_graphs_holding() || !begin(self, quick))",
        "self->runtime != runtime_of(module) || !begin(self, quick))",
        ["cuda"], QUICK_TEST),
    bug("short_way_for_named_blocks_of_graphs",
        "a block of a graph is freed on the short way of callers that name their streams", QUICK,
        "return !sg_graphs_holding() && begin",
        "return begin",
        ["cuda"], QUICK_TEST),
    bug("short_way_past_what_was_put_off",
        "memory is asked for on the short way before what was put off is free", QUICK,
        "self->runtime != runtime_of(module) || sg_memory_unsettled() || !begin",
        "self->runtime != runtime_of(module) || !begin",
        ["cuda"], QUICK_TEST),
    bug("short_way_of_another_runtime", "the short way is taken past a runtime that never went the long one", QUICK,
        "if (!ret || !bytes || self->runtime != runtime_of(module) ||",
        "if (!ret || !bytes ||",
        ["cuda"], QUICK_TEST),
    bug("ending_context_not_told_to_the_core",
        "the core asks about a context while it is being ended", PRELOAD_CONTEXTS,
        "    if (ours)\n"
        "        sg_core_context_ending(core, context, true);",
        "    if (ours && false)\n"
        "        sg_core_context_ending(core, context, true);",
        ["cuda"], CONTEXTS_TEST),
    bug("streams_not_told_of_an_end", "what is known of streams outlives their context", PRELOAD_CONTEXTS,
        "    sg_streams_context_gone(context);\n",
        "",
        ["cuda"], CONTEXTS_TEST),
    bug("events_not_told_of_an_end",
        "what is known of events is not told of the end of their context", PRELOAD_CONTEXTS,
        "    sg_events_context_gone(context);\n",
        "",
        ["cuda"], CONTEXTS_TEST),
    bug("captures_not_told_of_an_end", "captures are not told of the end of their context", PRELOAD_CONTEXTS,
        "    sg_captures_context_gone(context);\n",
        "",
        ["cuda"], CONTEXTS_TEST),
    bug("graphs_not_told_of_an_end", "the blocks of graphs are not told of the end of their context", PRELOAD_CONTEXTS,
        "    sg_graphs_context_gone(context);\n",
        "",
        ["cuda"], CONTEXTS_TEST),
    bug("primary_context_stands_for_others",
        "a wait for a primary context counts as one for others of its device", PRELOAD_CONTEXTS,
        "all = other == entry || other->green || other->device != entry->device;",
        "all = true;",
        ["cuda"], CONTEXTS_TEST),
    bug("any_context_stands_for_all",
        "a wait for the only context known counts as one for all, although it is no primary one", PRELOAD_CONTEXTS,
        "bool all = entry && entry->primary && contexts.count",
        "bool all = entry && contexts.count",
        ["cuda"], CONTEXTS_TEST),
    bug("end_of_a_green_context_unnoticed", "the end of a green context goes unnoticed", PRELOAD_CONTEXTS,
        "    CUresult result = sg_real()->cuGreenCtxDestroy(green);\n"
        "    if (result == CUDA_SUCCESS && context)\n"
        "        gone(core, context, id);",
        "    CUresult result = sg_real()->cuGreenCtxDestroy(green);\n"
        "    if (false)\n"
        "        gone(core, context, id);",
        ["cuda"], CONTEXTS_TEST),
    bug("handle_of_an_ended_context_known",
        "a handle that is used again is taken for the context before", PRELOAD_CONTEXTS,
        "if (self->last.context != context || self->last.changes != changes)",
        "if (self->last.context != context)",
        ["cuda"], CONTEXTS_TEST),
]
