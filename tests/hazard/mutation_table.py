"""The seeded bugs: name, the rule that it breaks, the file, the text to find there and what stands there instead.

`kinds` limits the random programs to those that can notice, to save time; `tests` are tests of the build, and
`programs` those that run under the library, with a configuration and a card, that are tried first; `times` says how
often the text occurs, where that is not once.
"""

FREE, CONTEXTS, ORDER, PENDING, MARKS, REGION, OWNER, PLACE, PLAN, PERFORM, SEW, ALIAS = (
    f"src/core/{f}.c" for f in ("free", "contexts", "order", "pending", "marks", "region", "owner", "place", "plan",
                                "perform", "sew", "alias"))
PARTS = "src/core/region_parts.h"
EVENTS, STREAMS, WAITS, CAPTURES, GRAPHS, MEMORY, GATED, TAINTS, SUBMIT, USERS, COPIES = (
    f"src/preload/{f}.c" for f in ("events", "streams", "waits", "captures", "graphs", "memory", "gated", "taints",
                                   "submit", "users", "copies"))
USERS_HEADER, PRELOAD_CONTEXTS = "src/preload/users.h", "src/preload/contexts.c"

ORDER_TEST = ["tests/preload/test_order"]
ORDER_MODEL = ["tests/core/test_order_model"]
ORDER_RULES, MARKS_TEST, EPOCHS_TEST, FREES_TEST, OWNER_TEST = (
    ["tests/core/test_" + part] for part in ("core_order", "marks", "epochs", "frees", "owner"))
DOUBT, WORK, GATED_TEST, CAPTURES_TEST, GRAPHS_TEST = (
    ["tests/preload/test_" + part] for part in ("order_doubt", "work", "gated", "captures", "graphs"))
EPOCHS = {which: [("tests/preload/preload_epochs " + which, "free_sync:event,wait_limit:0.1", "256MiB,hazard" + driver)]
          for which, driver in (("contexts", ""), ("streams", ",driver=12.4"), ("per_thread", ",driver=12.4"))}
FREE_WAITS = [("tests/preload/preload_free_waits", "free_sync:strict", "256MiB,count=2")]
GRAPHS_PROGRAM = [("tests/preload/preload_graphs", "free_sync:auto", "4GiB")]


def directed(rule, free_sync, schedule=",schedule=1"):
    return [("tests/hazard/directed " + rule, "free_sync:" + free_sync, "64MiB,hazard" + schedule)]


# Where parts of pages come to lie differs with who is ahead of whom, so a bug shows in some of these; one run takes
# 0.2 s.
PLAYED = [(f"tests/hazard/played caches {streams}", "free_sync:stream,reserve_slack:1.0",
           f"1GiB,hazard,run_ahead={ahead}")
          for ahead in (30, 300, 3, 10, 100) for streams in ("1", "3", "3 200", "2", "2 400")]

# Whether a context ends between a free's look at it and its wait is a matter of moments: a run without that takes
# 0.1 s.
ENDS_UNDER_FREES = [("tests/preload/preload_several ends", "free_sync:strict", "4GiB,count=2")] * 16


def bug(name, what, file, find, replace, kinds=("all",), tests=(), programs=(), times=1):
    return {"name": name, "what": what, "file": file, "find": find, "replace": replace, "kinds": list(kinds),
            "tests": list(tests), "programs": list(programs), "times": times}


MUTATIONS = [
    # Frees that wait as the driver's do.
    bug("strict_does_not_wait", "a strict free does not wait for the device", FREE,
        "    CUresult result = core->driver->ctx_synchronize();\n    uint64_t ended",
        "    CUresult result = CUDA_SUCCESS;\n    uint64_t ended", ["cuda"]),
    bug("strict_waits_for_the_current_context",
        "a strict free beside other contexts waits for the current one, whose memory it need not be", FREE,
        "owner == current ? core->driver->ctx_synchronize() : sg_driver_synchronize(core->driver, owner);",
        "core->driver->ctx_synchronize();", ["cuda"], programs=FREE_WAITS),
    bug("strict_waits_for_one_context",
        "a block that a strict free has waited for is free although other contexts may be using it", FREE,
        "        any = may_use(users, i);", "        any = may_use(users, i) && false;", ["cuda"], programs=FREE_WAITS),
    bug("strict_beside_one_context",
        "a block of the calling thread's context is free although others of its device may be using it", FREE,
        "tag->context) || has_others(&users))", "tag->context))", ["cuda"], programs=FREE_WAITS),
    bug("strict_beside_one_device", "a strict free forgets the work of other devices", FREE,
        "device->reached || node->also};", "false};", ["cuda"], programs=FREE_WAITS),
    bug("copies_between_devices_forgotten", "a strict free forgets the copies that other devices make of a block",
        COPIES,
        "        sg_core_used_abroad(core, block.base);", "        (void)core;", ["cuda"], programs=FREE_WAITS),
    bug("access_between_devices_forgotten", "a strict free forgets that another device has access", CONTEXTS,
        "    device->reached |= enable;", "    device->reached = false;", ["cuda"], programs=FREE_WAITS),
    bug("wait_for_one_context_is_for_all", "a program's wait for one context stands for all where there are several",
        CONTEXTS,
        "if (other && other != context)\n            return false;",
        "if (other && other == context)\n            return true;", ["cuda"],
        programs=[("tests/preload/preload_epochs contexts", "free_sync:stream,wait_limit:0.1", "256MiB,hazard")]),
    bug("context_ends_while_it_is_waited_for", "a context is destroyed although a free of another thread waits for it",
        USERS,
        "    return any;", "    return any && false;", ["cuda"], programs=ENDS_UNDER_FREES),
    bug("context_met_before_may_be_ending",
        "a free names a context that it named before, whether that is being destroyed or not", USERS_HEADER,
        "if (met->changes == atomic_load_explicit(&sg_users_changes, memory_order_acquire))", "if (true)", ["cuda"],
        programs=ENDS_UNDER_FREES),
    bug("context_made_at_the_start_forgotten", "a context made while the core comes to life is never told to it",
        PRELOAD_CONTEXTS,
        "core = sg_life_core();\n    if (!core || green)", "core = NULL;\n    if (!core || green)", ["cuda"],
        programs=[("tests/preload/preload_start_contexts", "free_sync:strict", "4GiB")]),
    bug("event_frees_at_once", "a free that takes effect later takes effect at once", FREE,
        "    sg_device_suspend(device, id, /* all streams of all contexts */ 1, time);",
        "    sg_device_release(device, id, 0, 0);", ["cuda"]),
    bug("completion_credited_before_the_wait", "a strict free believes the work complete before it has waited", FREE,
        "    CUresult result = wait_for_current(device->core, ret_ns);\n    if (result == CUDA_SUCCESS)",
        "    CUresult result = CUDA_SUCCESS;\n    if (result == CUDA_SUCCESS)", ["cuda"]),
    # Whom a free waits for.
    bug("recorded_streams_forgotten", "a free forgets the streams that record_stream named", FREE,
        "uint64_t others = node->also & order->alive & ~(UINT64_C(1) << slot);", "uint64_t others = 0;", ["aware"]),
    bug("possible_streams_forgotten", "a free covers its own stream alone where record_stream is not heard", FREE,
        "if (tag->sees == SG_SEES_POSSIBLE)", "if (tag->sees == SG_SEES_POSSIBLE && !tag->torch)", ["torch"]),
    bug("seen_by_wait_forgotten", "streams that waited for the block's stream do not count as having seen it", ORDER,
        "order->knows[other].at[slot] >= born)", "order->knows[other].at[slot] > UINT64_MAX - 1)", ["torch"]),
    bug("seen_by_host_forgotten", "what the host passed on after a wait does not count", ORDER,
        "if (order->opaque & sg_slot_bit(slot) || order->complete[slot] >= born || order->told[slot] >= born)",
        "if (order->opaque & sg_slot_bit(slot))",
        ["torch", "aware"], programs=directed("host", "auto")),
    bug("told_by_other_means_forgotten", "what the host learnt by way of streams that can't be followed does not count",
        ORDER,
        " || order->told[slot] >= born)", ")", ["torch"], programs=directed("tainted", "auto")),
    bug("functions_of_the_host_tell_nothing",
        "a function of the host does not count as telling it of the stream's work", SUBMIT,
        "        sg_streams_tell(stream, per_thread);", "        (void)per_thread;", ["torch"],
        programs=[("tests/hazard/directed function", "free_sync:auto", "64MiB,hazard")]),
    bug("other_devices_forgotten", "work of a device that has access does not count as having seen a block", FREE,
        "if (tag->sees == SG_SEES_POSSIBLE && device->peers)", "if (0)", ["torch"]),
    bug("blocking_streams_forgotten", "streams ordered by the legacy stream do not count as having seen a block", ORDER,
        "(order->blocking & sg_slot_bit(slot) ? order->blocking : 0)", "0", ["torch", "aware"],
        programs=directed("legacy", "auto")),
    bug("tagged_with_another_stream", "a block belongs to the legacy stream whatever stream was named", MEMORY,
        "        tag.slot = place.slot;", "        sg_streams_place(core, NULL, false, &place), tag.slot = place.slot;",
        ["aware"]),
    bug("async_free_without_its_stream", "cudaFreeAsync does not count the stream that it names", MEMORY,
        "if (origin->stream_order && tag.sync == SG_FREE_SYNC_STREAM &&", "if (0 && tag.sync == SG_FREE_SYNC_STREAM &&",
        ["aware"]),
    # Tracking of order.
    bug("wait_not_made", "events are believed to order streams that have not waited for them", EVENTS,
        "    know(event, &knowledge);\n    bool live",
        "    know(event, &knowledge);\n    knowledge.clock = (struct sg_clock){0};\n"
        "    for (int i = 1; i < SG_SLOTS; i++)\n        knowledge.clock.at[i] = knowledge.state == KNOWN ? "
        "UINT64_MAX : 0;\n"
        "    bool live", ["aware"]),
    bug("clock_read_after_the_record", "an event's clock is read after the driver has recorded it, later work included",
        EVENTS,
        "            event->clock = recording->clock;",
        "            event->clock = recording->clock;\n            for (int i = 1; i < SG_SLOTS; i++)\n"
        "                event->clock.at[i] += event->clock.at[i] ? 1000 : 0;", ["aware"]),
    bug("record_keeps_the_old_clock", "an event that is recorded anew keeps what it stood for first", EVENTS,
        "            event->clock = recording->clock;",
        "            for (int i = 0; i < SG_SLOTS; i++)\n                if (event->clock.at[i] < "
        "recording->clock.at[i])\n"
        "                    event->clock.at[i] = recording->clock.at[i];", ["aware"]),
    bug("query_of_a_busy_event_believed", "an event that is not complete counts as complete", EVENTS,
        "result == CUDA_SUCCESS && knowledge.state != BLANK ? sg_begin()", "knowledge.state != BLANK ? sg_begin()",
        ["aware"]),
    bug("destroyed_event_remembered", "an event's clock outlives it and is the next one's of that handle", EVENTS,
        "static void forget(CUevent handle)\n{\n    if (!sg_following() || !handle)\n        return;",
        "static void forget(CUevent handle)\n{\n    if (handle || !sg_following())\n        return;",
        ["aware"], ORDER_TEST),
    bug("captured_record_keeps_its_clock", "a record in a capture leaves the event with the clock that it had", EVENTS,
        "            event->state = CAPTURED;", "            event->state = KNOWN;", ["aware", "torch"], ORDER_TEST),
    bug("context_record_keeps_the_clock", "cuCtxRecordEvent leaves the event with the clock that it had", EVENTS,
        "CUresult cuCtxRecordEvent(CUcontext context, CUevent event)\n{\n    unknow(event);",
        "CUresult cuCtxRecordEvent(CUcontext context, CUevent event)\n{", ["aware"], ORDER_TEST),
    bug("context_wait_not_noticed", "streams of a context that waits for an event are not known to have seen it",
        EVENTS,
        "        sg_streams_opaque_context(core, context);", "        (void)context;", ["torch"], ORDER_TEST),
    bug("stream_query_unheard", "a stream that is busy counts as complete after a query", WAITS,
        "    if (known && result == CUDA_SUCCESS)\n        complete(place.device, &clock, ",
        "    if (known)\n        complete(place.device, &clock, ", ["aware"]),
    bug("wait_credits_later_work", "a stream that waited for an event has waited for what comes after it too", ORDER,
        "order->knows[slot].at[other] = clock->at[other];", "order->knows[slot].at[other] = device->serial + 1000;",
        ["aware"]),
    bug("completion_of_another_slot", "what is complete is noted for the slot beside", ORDER,
        "    order->complete[slot] = time;\n    order->version++;",
        "    order->complete[slot] = time;\n    order->complete[slot % (SG_SLOTS - 1) + 1] = time;\n    "
        "order->version++;", ["aware"]),
    bug("clock_includes_what_comes", "a stream's clock is ahead of what it was given", ORDER,
        "    ret->at[slot] = now;", "    ret->at[slot] = now + 1000;", ["aware"]),
    bug("slot_given_on_too_early", "a destroyed stream's slot serves another before its work is complete", ORDER,
        "if (order->state[slot] == SG_SLOT_GONE && order->complete[slot] >= order->gone_at[slot])",
        "if (order->state[slot] == SG_SLOT_GONE)", ["aware", "torch"]),
    # The time of a free.
    bug("work_does_not_move_time_on",
        "a block that is freed after new work comes after what was known before that work", ORDER,
        "order->given[slot] = order->moved_on[slot] = now;", "order->given[slot] = now;", ["aware"]),
    bug("wait_does_not_move_time_on",
        "a block that its own stream's wait made free comes after what was known before the wait", ORDER,
        "order->moved_on[slot] = order->learnt[slot].at[other] = sg_order_tick(device);",
        "order->learnt[slot].at[other] = sg_order_tick(device);", ["aware"], ORDER_RULES),
    bug("freed_by_legacy_rules_too_soon",
        "work that a stream comes after by the legacy stream's rules does not count when it frees", ORDER,
        "return slots & order->blocking ? slots | (order->blocking & order->alive) : slots;", "return slots;",
        ["aware"],
        programs=directed("legacy_free", "stream")),
    bug("opaque_stream_trusted", "a stream that waits for what is not known frees as if it had not waited", ORDER,
        "slots & (unseen ? UINT64_MAX : order->opaque);", "slots & (unseen ? UINT64_MAX : 0);", ["aware"],
        programs=directed("opaque_free", "stream")),
    bug("unseen_work_trusted", "where streams are given work that is not seen, a free believes that there was none",
        ORDER,
        "slots & (unseen ? UINT64_MAX : order->opaque);", "slots & order->opaque;", ["aware"], ORDER_RULES),
    bug("caught_up_with_work", "who has waited for a stream has waited for its later work too, once that stream waits",
        ORDER,
        "since >= order->moved_on[other] || since < order->given[other])", "since >= order->moved_on[other])",
        ["aware"], ORDER_RULES),
    bug("caught_up_with_waits", "who has waited for a stream has waited for what that one waits for later", ORDER,
        "        if (order->learnt[other].at[third] > since && !(known",
        "        if (order->learnt[other].at[third] > since && !(known || slot",
        ["aware"], ORDER_RULES),
    bug("stood_still_known_to_all",
        "of a stream that does nothing everybody has waited for all once a block that it used is freed", ORDER,
        "if (*known >= since && *known < time)", "if (*known < time)", ["aware"], ORDER_RULES),
    bug("stood_still_is_complete", "a stream that does nothing is complete once a block that it used is freed", ORDER,
        "if (order->complete[slot] >= since && order", "if (order", ["aware"], ORDER_RULES),
    bug("stood_still_by_legacy_rules",
        "a stream that is given nothing comes after nothing by the legacy stream's rules either", ORDER,
        "if (since >= time || !is_ordered_by_waits(order, slot))", "if (since >= time)", ["aware"],
        programs=directed("legacy_shared", "stream", schedule="")),
    bug("pages_after_their_owner_alone",
        "pages of a block that was used on several streams come after its own stream's work alone", REGION,
        "after = (struct sg_after){node->also, node->time};",
        "after = (struct sg_after){UINT64_C(1) << owner, node->time};",
        ["aware"], ORDER_MODEL),
    bug("several_users_freed_by_one", "of several streams that could have seen a block the free waits for one alone",
        ORDER,
        "            if (!has_come_after(order, after, before, fresh))\n                continue;\n            seen",
        "            seen", ["torch", "aware"], ORDER_RULES),
    bug("second_address_without_a_past", "what is left over of a page that has a second address is complete", PLACE,
        "    at(region, id)->time = region->after[page_of(region, at(region, id)->begin)].time;",
        "    at(region, id)->time = 0;",
        ["aware"], ["tests/core/test_alias"]),
    # Events of ours.
    bug("mark_not_waited_for", "our own event counts as passed without having been asked", MARKS,
        "if (device->core->driver->event_query(mark.event) == CUDA_SUCCESS) {",
        "if (device->core->driver->event_query(mark.event) != CUDA_ERROR_UNKNOWN) {"),
    bug("mark_on_the_wrong_stream", "our own event is recorded on the legacy stream", MARKS,
        "CUstream stream = order->stream[slot].handle;\n    sg_unlock(&device->lock);\n    sg_count",
        "CUstream stream = slot ? CU_STREAM_LEGACY : NULL;\n    sg_unlock(&device->lock);\n    sg_count",
        ["aware", "torch"]),
    bug("mark_in_the_wrong_context", "our event over a context is recorded over the current one", MARKS,
        "if (context && driver->ctx_get_current(&current) == CUDA_SUCCESS && current != context) {",
        "if (!context && driver->ctx_get_current(&current) == CUDA_SUCCESS && current != context) {", ["aware", "cuda"],
        programs=directed("stream_context", "stream")),
    bug("epoch_of_one_context", "events over one context stand for all where there are several", MARKS,
        "if (context && record_mark(", "if (context && i == 0 && record_mark(", ["cuda"], programs=EPOCHS["contexts"]),
    bug("epoch_without_a_stream", "events on streams leave one out where there are none over a context", MARKS,
        "uint64_t left = order->unproven & order->alive;",
        "uint64_t left = order->unproven & order->alive & (order->unproven - 1);",
        ["aware"], programs=EPOCHS["streams"]),
    bug("epoch_ends_with_its_first_event", "an epoch is over before all of its events are complete", PENDING,
        "device->mark[0].number > device->epoch[over].last", "device->mark[0].number >= device->epoch[over].last",
        ["cuda"], programs=EPOCHS["contexts"]),
    bug("threads_own_stream_left_out", "work in a thread's own stream counts as covered by events that it is not in",
        MARKS,
        ": is_unmarked(&order->stream[slot]) && order->met_at[slot] <= time)", ": false)", ["cuda"],
        programs=EPOCHS["per_thread"]),
    bug("pending_ends_with_a_context",
        "what was freed is anybody's once its context is gone, whoever else is at work on it",
        PENDING, "if (!context || !sg_device_contexts(device, /* own */ true)) {", "if (true) {", ["cuda"],
        programs=EPOCHS["contexts"]),
    bug("mark_covers_later_frees", "our own event covers what was freed after it too", MARKS,
        "        sg_pending_complete(device, mark.slots, mark.time);",
        "        sg_pending_complete(device, mark.slots, device->serial);"),
    bug("pending_freed_too_soon", "frees later than our event take effect with it", PENDING,
        "while ((id = device->pending.first) && device->nodes.node[id].time <= time) {",
        "while ((id = device->pending.first)) {", ["cuda"]),
    bug("blocked_freed_by_anybody", "a block used on several streams is free when its own says so", PENDING,
        "if (sg_after_usable(order, after, order->state[slot] == SG_SLOT_ALIVE ? slot : 0)) {", "if (slot) {",
        ["aware", "torch"]),
    bug("device_wait_not_made", "a stream is believed to wait for another that it does not wait for", MARKS,
        "if (core->driver->stream_wait_event(stream, mark.event, 0) != CUDA_SUCCESS)\n            continue;",
        "(void)stream;",
        ["aware", "torch"], ORDER_MODEL),
    # Free ranges with orders.
    bug("everything_is_usable", "free memory is anybody's whatever its order", PARTS,
        "    return node->owner == slot || is_complete(region, node) ||",
        "    return slot || node->owner == slot || is_complete(region, node) ||",
        ["aware"]),
    bug("orders_merged_wrongly", "neighbours of different streams join as if complete", PARTS,
        "        else\n            return false;\n    }\n    *ret_owner", "    }\n    *ret_owner", ["aware"],
        ORDER_MODEL),
    bug("merge_takes_the_earlier_time", "what joins has the earlier of two times", PARTS,
        "const struct sg_node *whose = a->time > b->time ? a : b;",
        "const struct sg_node *whose = a->time < b->time ? a : b;",
        ["aware"], ORDER_MODEL),
    bug("cut_forgets_the_order", "what is left of a range that is cut is complete", PLACE,
        "        at(region, right)->owner = node->owner;", "        at(region, right)->owner = 0;", ["aware"],
        ORDER_MODEL),
    bug("page_forgets_its_order", "a page that several freed parts of comes after the last of them alone", OWNER,
        "if (whole || sg_after_complete(region->order, *known)) {", "if (whole || known) {", ["aware"],
        ORDER_MODEL),
    bug("windows_of_anybody", "memory taken by pages belongs to whoever asks", OWNER,
        "        if (sg_after_usable(region->order, region->after[page], slot))", "        if (slot)", ["aware"]),
    bug("border_pages_of_anybody",
        "a page that several streams have freed parts of is taken by one that has not come after all of them", OWNER,
        "        if (!by_page && !is_usable(region, at(region, id), slot))",
        "        if (!by_page && !slot)", ["aware"], ORDER_MODEL),
    bug("border_pages_forget_their_order", "such a page is others' as soon as they have come after who freed it last",
        OWNER, "    uint64_t time = region->order->moved_on[slot];\n    for",
        "    uint64_t time = slot - slot;\n    for", ["aware"], ["tests/core/test_owner"]),
    # Pages at two addresses, and blocks that begin or end in pages of others.
    bug("second_address_for_anybody", "a page gets a second address for a stream that has not come after who used it",
        PLACE,
        "return taker.aliases ? sg_region_shareable(region, page, taker.slot)",
        "return taker.aliases ? !region->pin[page] && !sg_after_complete(region->order, region->after[page])",
        ["aware"], programs=PLAYED),
    bug("old_address_unmapped_at_once",
        "a page that gets a second address loses the first one, whatever work goes on there", PERFORM,
        "        if (!run->alias) {", "        if (true) {", ["aware"], programs=PLAYED),
    bug("old_address_unmapped_too_soon", "an old address is unmapped while the work there goes on", ALIAS,
        "if (region->pin[page] || !sg_after_complete(region->order, region->after[page]))", "if (region->pin[page])",
        ["aware"], programs=PLAYED),
    bug("part_lent_to_anybody", "part of a page is lent to a stream that has not come after who freed it", SEW,
        "           (!region->ordered || sg_after_complete(region->order, region->after[page]) ||\n"
        "               (taker.aliases && sg_region_shareable(region, page, taker.slot)));",
        "           true;", ["aware"], programs=PLAYED),
    bug("another_part_is_lent", "of a page's end that is lent in part the other part is taken at home", SEW,
        "        ret->head.begin += ret->head.size - units;\n", "", ["aware"], programs=PLAYED),
    bug("part_that_was_lent_is_nobodys", "a part that comes home belongs to nobody, whoever used it elsewhere", SEW,
        "    at(region, lent)->owner = at(region, id)->owner;", "    at(region, lent)->owner = 0;", ["aware"],
        programs=PLAYED),
    bug("part_that_was_lent_has_no_past", "of a part that comes home its page does not know who used it elsewhere", SEW,
        "        sg_region_note_after(home, at(home, lent)->begin, at(home, lent)->size, region->after[page]);",
        "        (void)page;", ["aware"], programs=PLAYED),
    bug("part_comes_home_while_in_use", "a part comes home although some of it is in use where it was lent", SEW,
        "at(region, id)->begin <= *ret_begin &&\n                  end_of(at(region, id)) >= *ret_end;",
        "at(region, id)->begin <= *ret_begin;", ["aware"], programs=PLAYED),
    bug("others_at_the_second_address_free",
        "at its second address a page that was lent is all the block's and free with it", PLACE,
        "    if (right && place->tail)\n        at(region, right)->state = SG_NODE_BUSY;\n    else if (right)",
        "    if (right)", ["aware"], programs=PLAYED),
    # Captures and graphs.
    bug("graph_does_not_hold", "a block freed in a capture is free when the capture is over", GRAPHS,
        "        block->freed = true;\n        block->waited = waited;\n        block->origin = *origin;\n        "
        "answer = SG_GRAPHS_KEPT;",
        "        remove_block(block);", ["aware", "torch"]),
    bug("idle_stream_tells_of_the_legacy_one", "a blocking stream without work left tells that the legacy stream's is done",
        "src/preload/waits.c", "        sg_core_idle_clock(", "        sg_core_clock(", ["cuda", "aware"],
        programs=directed("idle_plain", "stream", ",schedule=4") + directed("idle_named", "stream", ",schedule=4")),
    bug("idle_stream_tells_of_what_its_context_waits_for",
        "a stream without work left tells that what its context has waited for is done", EVENTS,
        "        sg_streams_context_waited();", "        (void)0;", ["aware"],
        programs=directed("idle_context", "stream", ",schedule=4")),
    bug("event_of_a_context_tells_of_other_streams",
        "an event of ours over a context tells of a stream that has since taken the slot of one that was in it", MARKS,
        "    mark.slots = told_by(device, context, slot); /* a slot may be another context's by now */\n", "",
        ["aware"], ["tests/core/test_slots"]),
    bug("waits_in_a_capture", "a strict free waits while a capture is live", MEMORY,
        "    if (live && !wrong)", "    if (false && !wrong)", ["cuda"]),
    bug("capture_before_a_wait_is_in_the_driver",
        "a capture begins while a thread of ours is on its way to wait for its context",
        CAPTURES, "    let_enter();\n", "", ["cuda"], ["tests/preload/test_captures"]),
    bug("put_off_frees_are_judged_anew",
        "the driver is asked once more whether a free that was put off may be made, beside another thread's capture",
        CAPTURES, "        parked.list[count].origin.judged = true;\n", "", ["cuda"], ["tests/preload/test_captures"]),
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
        "        event->mixed |= event->under_way > 1;\n"
        "        event->state = event->state == TAINTED ? TAINTED : UNKNOWN;\n",
        "        event->mixed |= event->under_way > 1;\n",
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
        "    begin_record",
        "    (void)taint_external;\n"
        "    begin_record",
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
        "knowledge->state == KNOWN && knowledge->device == place.device && still",
        "knowledge->state == KNOWN && still",
        ["aware"], DOUBT),
    bug("waits_of_a_newer_driver_believed",
        "waits are believed although a newer driver has calls that are not known", EVENTS,
        "still(event, knowledge) &&\n"
        "            !sg_follow_blind();",
        "still(event, knowledge);",
        ["aware"], DOUBT),
    bug("queries_of_a_newer_driver_believed",
        "events are believed complete although a newer driver has calls that are not known", EVENTS,
        "knowledge.state == KNOWN && !sg_follow_blind() && still",
        "knowledge.state == KNOWN && still",
        ["aware"], DOUBT),
    bug("unknown_event_tells_the_host_nothing",
        "the host learns nothing from an event that nothing is known of", EVENTS,
        "        if (!known || knowledge.opaque)\n"
        "            sg_streams_told_all(core);",
        "        if (knowledge.opaque)\n"
        "            sg_streams_told_all(core);",
        ["aware"], DOUBT),
    bug("green_wait_not_noticed", "streams of a green context that waits are not known to have seen it", EVENTS,
        "context_waited(sg_real()->cuGreenCtxWaitEvent(green, event), sg_contexts_of_green(green));",
        "sg_real()->cuGreenCtxWaitEvent(green, event);",
        ["aware"], DOUBT),
    bug("clock_read_after_the_question", "what a stream was given while it was waited for counts as complete", WAITS,
        "    CUresult result = real(stream);\n"
        "    if (known && result == CUDA_SUCCESS)",
        "    CUresult result = real(stream);\n"
        "    known = clock_of(stream, per_thread, &place, &clock);\n"
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
        "(elsewhere >= 0 ? SG_STREAM_OPAQUE : 0);",
        "0;",
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
    # Work, by the name of the call.
    bug("work_by_the_other_name_is_the_legacy_streams", "work by the other name counts as the legacy stream's", SUBMIT,
        "    HAND_ON(per_thread, parameters, arguments, stream, true, sg_touched)",
        "    HAND_ON(per_thread, parameters, arguments, stream, false, sg_touched)",
        ["aware"], WORK),
    bug("work_noted_before_it_is_given", "work is noted before the driver has been given it", SUBMIT,
        "        CUresult result = sg_real()->symbol arguments; \\\n"
        "        if",
        "        note(stream, own); \\\n"
        "        CUresult result = sg_real()->symbol arguments; \\\n"
        "        if (0) \\\n"
        "            note(stream, own); \\\n"
        "        if",
        ["aware"], WORK),
    bug("one_call_gives_work_unnoticed", "the work of one call is not noted", SUBMIT,
        "        note(stream, own); \\\n",
        "        if (__builtin_strcmp(#symbol, \"cuMemsetD2D8Async\")) \\\n"
        "            note(stream, own); \\\n",
        ["aware"], WORK),
    bug("copy_to_the_host_tells_nothing",
        "a copy to the host does not count as telling it of the stream's work", SUBMIT,
        "        note(stream, own); \\\n",
        "        if (__builtin_strcmp(#symbol, \"cuMemcpyDtoHAsync_v2\")) \\\n"
        "            note(stream, own); \\\n"
        "        else \\\n"
        "            sg_touched(stream, own); \\\n",
        ["aware"], WORK),
    bug("copies_are_no_work", "copies between any addresses are not noted as work", COPIES,
        "    sg_touched(stream, per_thread);\n",
        "    (void)per_thread;\n",
        ["aware"], WORK),
    bug("copy_by_another_device_unnoticed",
        "a block that another device's stream copies to is not known to be in its use", COPIES,
        "    used(core, dst, sg_stream_named(stream, per_thread));\n",
        "",
        ["aware"], WORK),
    bug("batch_of_waits_unnoticed",
        "a stream that waits for words of memory in a batch counts as one whose order is seen", TAINTS,
        "        opaque(stream, false); \\\n",
        "        if (__builtin_strcmp(#symbol, \"cuStreamBatchMemOp_v2\")) opaque(stream, false); \\\n",
        ["aware"], WORK),
    bug("wait_for_a_word_on_the_legacy_stream",
        "a wait for a word of memory by the other name counts as the legacy stream's", TAINTS,
        "        opaque(stream, true); \\\n",
        "        opaque(stream, false); \\\n",
        ["aware"], WORK),
    bug("captured_wait_for_a_word_unnoticed",
        "a graph that was captured with a wait for a word of memory counts as one that waits for nothing", TAINTS,
        "    if (sg_captures_live())\n"
        "        atomic_store(&graphs_wait, true);\n"
        "}",
        "}",
        ["aware"], WORK),
    bug("event_set_in_a_graph_trusted", "an event that a graph's node is changed to record is believed", TAINTS,
        "    sg_events_taint(event);\n"
        "    return sg_real()->cuGraphExecEventRecordNodeSetEvent",
        "    return sg_real()->cuGraphExecEventRecordNodeSetEvent",
        ["aware"], WORK),
    bug("any_node_that_waits_unnoticed", "a node that waits, added by the call for any kind, counts as none", TAINTS,
        "    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:\n"
        "        atomic_store(&graphs_wait, true);\n"
        "        break;",
        "    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:\n"
        "        break;",
        ["aware"], WORK),
    bug("event_of_a_launchs_end_trusted", "an event that a launch records when it has ended is believed", TAINTS,
        "if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)",
        "if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)",
        ["aware"], WORK),
    bug("graph_tells_the_host_nothing",
        "a graph's launch does not count as telling the host of the stream's work", TAINTS,
        "    if (sg_following())\n"
        "        sg_streams_tell(stream, per_thread); /* it may have functions of the host, or copies to it */\n",
        "",
        ["aware"], WORK),
    bug("graph_launch_by_the_other_name_unnoticed", "a graph's launch by the other name is not noted", TAINTS,
        "    return launched(result, stream, true);",
        "    return result;",
        ["aware"], WORK),
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
        "    CUresult result = sg_captures_live() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\n"
        "                                         : real->ctx_record_event(context, event);\n"
        "    sg_captures_unhold();",
        "    CUresult result = sg_captures_live() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\n"
        "                                         : real->ctx_record_event(context, event);",
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
    # Times and slots.
    bug("new_stream_is_complete_for_ever", "whatever a new stream is given counts as complete", ORDER,
        "    order->complete[slot] = device->serial; /* what its last stream was given is */\n",
        "",
        ["aware"], ORDER_RULES),
    bug("gone_before_its_last_work", "a destroyed stream's slot is free before its last work is complete", ORDER,
        "order->gone_at[slot] = sg_order_read(device, sg_slot_bit(slot));",
        "order->gone_at[slot] = order->complete[slot];",
        ["aware"], ORDER_RULES),
    bug("busy_streams_work_lost", "work of a stream that is busy already is not noted", ORDER,
        "if (device && !(atomic_load_explicit(&device->order.fresh, memory_order_relaxed) & sg_slot_bit(slot)))",
        "if (device && !((device->order.unproven | atomic_load_explicit(&device->order.fresh, memory_order_relaxed)) & sg_slot_bit(slot)))",
        ["aware"], ORDER_RULES),
    bug("reading_takes_no_time", "what a stream is given after its clock was read is not later than that", ORDER,
        "    uint64_t now = sg_order_tick(device);\n"
        "    if (fresh)",
        "    uint64_t now = device->serial;\n"
        "    if (fresh)",
        ["aware"], ORDER_RULES),
    bug("clock_leaves_work_to_the_next", "an event's clock leaves the work before it to the next one", ORDER,
        "    uint64_t now = sg_order_read(device, with_blocking(order, sg_slot_bit(slot)));\n",
        "    uint64_t now = sg_order_tick(device);\n",
        ["aware"], ORDER_RULES),
    bug("event_of_the_legacy_stream_says_nothing_new",
        "a stream that waits for an event of the legacy one, which had no work of its own, has come after nothing more",
        ORDER, "sg_order_read(device, with_blocking(order, sg_slot_bit(slot)));",
        "sg_order_read(device, sg_slot_bit(slot));", ["aware"], programs=directed("legacy_event", "stream", ",schedule=4")),
    bug("shared_block_freed_at_its_own_time", "a block used on several streams is free at the time of its own", ORDER,
        "    for (uint64_t left = slots; left; left &= left - 1) {\n"
        "        unsigned slot = (unsigned)__builtin_ctzll(left);\n"
        "        last =",
        "    for (uint64_t left = sg_slot_bit(own); left; left &= left - 1) {\n"
        "        unsigned slot = (unsigned)__builtin_ctzll(left);\n"
        "        last =",
        ["aware"], ORDER_RULES),
    bug("new_work_come_after", "who has come after a stream's work has come after what it was given since", ORDER,
        "return !(fresh >> other & 1) && order->knows[slot].at[other] >= order->folded[other];",
        "return order->knows[slot].at[other] >= order->folded[other];",
        ["aware"], ORDER_RULES),
    bug("opaque_user_forgotten", "a stream whose order is not seen does not count as having seen a block", ORDER,
        "known = order->opaque | order->eventless |",
        "known = order->eventless |",
        ["aware"], ORDER_RULES),
    bug("unseen_user_forgotten", "a stream that was in no event call does not count as having seen a block", ORDER,
        "known = order->opaque | order->eventless |",
        "known = order->opaque |",
        ["aware"], ORDER_RULES),
    bug("block_seen_one_moment_later",
        "a stream that has come after a block's allocation and nothing later has not seen it", ORDER,
        "order->knows[other].at[slot] >= born)",
        "order->knows[other].at[slot] > born)",
        ["aware"], ORDER_RULES),
    bug("threads_own_stream_trusted",
        "a thread's own stream does not count as ordered by means that are not seen", ORDER,
        "id->flags & SG_STREAM_OPAQUE || id->per_thread ?",
        "id->flags & SG_STREAM_OPAQUE ?",
        ["aware"], ORDER_RULES),
    bug("host_told_of_all_forgotten", "what the host may have learnt of all streams does not count", ORDER,
        "uint64_t time = clock ? clock->at[slot] : device->serial;",
        "uint64_t time = clock ? clock->at[slot] : 0;",
        ["torch"], programs=directed("tainted", "auto")),
    bug("mark_covers_what_came_meanwhile",
        "our own event covers what was given to the stream while it was recorded", MARKS,
        "    result = slot ? driver->event_record(mark.event, stream) : driver->ctx_record_event(context, mark.event);\n",
        "    result = slot ? driver->event_record(mark.event, stream) : driver->ctx_record_event(context, mark.event);\n"
        "    sg_lock(&device->lock);\n"
        "    mark.time = sg_order_read(device, mark.slots);\n"
        "    sg_unlock(&device->lock);\n",
        ["aware"], ORDER_MODEL),
    bug("wait_for_a_context_covers_what_came_meanwhile", "a wait for a context tells of what came meanwhile", MARKS,
        "    sg_count(device, SG_STAT_host_waits, 1);\n"
        "    sg_count(device, SG_STAT_calls_sync, 1);",
        "    sg_core_context_clock(device->core, device->ordinal, context, &clock);\n"
        "    sg_count(device, SG_STAT_host_waits, 1);\n"
        "    sg_count(device, SG_STAT_calls_sync, 1);",
        ["aware"], MARKS_TEST),
    bug("wait_for_a_context_completes_all", "a wait for a context tells of the streams of others", MARKS,
        "    sg_core_context_clock(device->core, device->ordinal, context, &clock);",
        "    sg_core_context_clock(device->core, device->ordinal, NULL, &clock);",
        ["aware"], MARKS_TEST),
    bug("epochs_mark_taken_for_another", "an event that an epoch waits for is recorded anew", MARKS,
        "if (last && last->number > needed && gap < least)",
        "if (last && gap < least)",
        ["cuda"], MARKS_TEST),
    bug("highest_range_of_anybody", "the highest free range is anybody's", REGION,
        "        if (is_usable(region, at(region, id), slot))\n            return id;\n        from",
        "        if (high || is_usable(region, at(region, id), slot))\n            return id;\n        from",
        ["aware"], ["tests/core/test_owner"]),
    bug("made_wait_covers_what_came_meanwhile",
        "a stream that is made to wait is believed to wait for what came meanwhile", MARKS,
        "        clock.at[other] = mark.time;\n",
        "        sg_core_clock(device->core, device->ordinal, other, &clock);\n",
        ["aware"], MARKS_TEST),
    bug("wait_covers_what_came_meanwhile", "a free that waits believes complete what came meanwhile", FREE,
        "    CUresult result = wait_for_current(device->core, ret_ns);\n"
        "    if (result == CUDA_SUCCESS)",
        "    CUresult result = wait_for_current(device->core, ret_ns);\n"
        "    sg_core_context_clock(device->core, device->ordinal, NULL, &clock);\n"
        "    if (result == CUDA_SUCCESS)",
        ["aware"], ORDER_MODEL),
    bug("inherited_at_the_first_users_time",
        "memory that goes to another stream than its own is free at the time of its users", PENDING,
        "uint64_t later = order->moved_on[slot] > after.time ? order->moved_on[slot] : after.time;",
        "uint64_t later = after.time;",
        ["aware"], ORDER_MODEL),
    bug("joined_below_at_the_old_time", "what joins the range below it has that one's time", PARTS,
        "        other->time = other->time > node->time ? other->time : node->time;\n"
        "        unlink_node(region, id);\n"
        "        if (right) {",
        "        unlink_node(region, id);\n"
        "        if (right) {",
        ["aware"], ORDER_MODEL),
    # What is believed of streams, contexts and waits where little tells of it.
    bug("new_stream_knows_what_the_last_did",
        "a new stream has come after what the one before it in its slot had waited for", ORDER,
        "    memset(&order->knows[slot], 0, sizeof order->knows[slot]);\n",
        "",
        ["aware"], ORDER_RULES),
    bug("work_before_a_stream_was_met_is_complete",
        "what a stream was given before it was met counts as complete", ORDER,
        "    order->given[slot] = order->moved_on[slot] = sg_order_tick(device); /* what this one was given before is not */\n",
        "",
        ["aware"], ORDER_RULES),
    bug("legacy_streams_events_are_one",
        "two events of the legacy stream count as one where it was given nothing between them", ORDER,
        "!(known && is_ordered_by_waits(order, third))",
        "!known",
        ["aware"], ORDER_RULES),
    bug("blocking_stream_comes_after_its_own_alone",
        "who has come after a blocking stream has come after the legacy one", ORDER,
        "if (is_ordered_by_waits(order, other) && comes_after",
        "if (comes_after",
        ["aware"], ORDER_RULES),
    bug("who_came_after_another_later",
        "a free waits for the last of a row of streams, which came after the second before that came after the first", ORDER,
        "uint64_t rest = stay >> before & 1 ? 0 : seen & ~sg_slot_bit(before)",
        "uint64_t rest = seen & ~sg_slot_bit(before)",
        ["aware"], ORDER_RULES),
    bug("own_stream_ordered_unseen", "the own stream counts as ordered by what is seen alone", ORDER,
        "if (order->opaque & sg_slot_bit(slot) || order->complete[slot] >= born ||",
        "if (order->complete[slot] >= born ||",
        ["aware"], ORDER_RULES),
    bug("streams_outlive_their_context", "the streams of a context that has ended live on", PENDING,
        "        if (order->state[slot] == SG_SLOT_ALIVE)\n"
        "            sg_order_gone(device, slot);\n",
        "",
        ["aware"], ORDER_RULES),
    bug("event_of_an_ending_context_asked_about", "an event of a context that is being ended is asked about", MARKS,
        "|| sg_core_is_ending(device->core, device->mark[i].context)",
        "",
        ["aware"], MARKS_TEST),
    bug("event_in_an_ending_context", "an event is recorded in a context that is being ended", MARKS,
        " || sg_core_is_ending(device->core, context))\n"
        "        return CUDA_ERROR_NOT_SUPPORTED;",
        ")\n"
        "        return CUDA_ERROR_NOT_SUPPORTED;",
        ["aware"], MARKS_TEST),
    bug("events_used_again_after_their_context",
        "events of a context that has ended are recorded in the next of its handle", PENDING,
        "if (context && device->idle_event[i].context != context)",
        "if (context)",
        ["aware"], MARKS_TEST),
    bug("marks_in_captures", "events of ours are recorded while a capture is live", MARKS,
        "    if (!begin_recording(device))\n"
        "        return;\n"
        "    if (wanted & 1)",
        "    (void)begin_recording(device);\n"
        "    if (wanted & 1)",
        ["aware"], MARKS_TEST),
    bug("streams_made_to_wait_in_captures", "a stream is made to wait while a capture is live", MARKS,
        "    if (!begin_recording(device)) {\n"
        "        sg_unlock(&device->asking);\n"
        "        return false;\n"
        "    }\n"
        "    for (sg_slot other",
        "    if (!begin_recording(device)) {\n"
        "    }\n"
        "    for (sg_slot other",
        ["aware"], MARKS_TEST),
    bug("memory_given_back_in_captures", "what is pending is waited for while a capture is live", MARKS,
        "    if (!begin_recording(device)) /* nothing may be waited for while a capture is live */\n"
        "        return;\n"
        "    end_recording(device);",
        "",
        ["aware"], MARKS_TEST),
    bug("gone_stream_counts_as_marked",
        "a stream that went counts as one whose last work an event was recorded after", MARKS,
        "(fresh >> slot & 1 || order->marked[slot] < order->folded[slot])",
        "(fresh >> slot & 1)",
        ["cuda"], EPOCHS_TEST),
    bug("work_of_a_gone_stream_unnoticed", "work that a stream was given while it went is in no epoch", MARKS,
        "(fresh >> slot & 1 || order->marked[slot] < order->folded[slot])",
        "(order->marked[slot] < order->folded[slot])",
        ["cuda"], EPOCHS_TEST),
    bug("contexts_too_many_are_forgotten",
        "an epoch is recorded over those contexts alone of which there was room to know", MARKS,
        "    if (atomic_load_explicit(&core->contexts_missed, memory_order_relaxed))\n"
        "        return false;\n",
        "",
        ["cuda"], EPOCHS_TEST),
    bug("epoch_of_one_device", "events on the streams of one device are an epoch beside others", MARKS,
        "(followed && !sg_device_contexts(device, /* own */ false) &&",
        "(followed &&",
        ["cuda"], EPOCHS_TEST),
    bug("other_device_since_the_free",
        "events on the streams of one device are an epoch where another came after the free", MARKS,
        "!untold(order, time) && !sg_device_contexts(device, /* own */ false);",
        "!untold(order, time);",
        ["cuda"], EPOCHS_TEST),
    bug("epoch_of_the_followed", "events on streams are an epoch where not all are followed", MARKS,
        "(followed && !sg_device_contexts(device, /* own */ false) &&",
        "(!sg_device_contexts(device, /* own */ false) &&",
        ["cuda"], EPOCHS_TEST),
    bug("thread_waits_for_one_context", "a thread of ours that waits for all contexts waits for the first alone", MARKS,
        "i < count && result == CUDA_SUCCESS; i++) {\n"
        "        CUcontext context = atomic_load_explicit(&core->context[i], memory_order_relaxed);\n"
        "        int use",
        "i < 1 && i < count && result == CUDA_SUCCESS; i++) {\n"
        "        CUcontext context = atomic_load_explicit(&core->context[i], memory_order_relaxed);\n"
        "        int use",
        ["cuda"], EPOCHS_TEST),
    bug("thread_frees_what_came_meanwhile", "what is freed while a thread of ours waits is free when it has", MARKS,
        "        sg_pending_complete(device, sg_slot_bit(0), time);\n"
        "    sg_unlock(&device->lock);\n"
        "    return result;",
        "        sg_pending_complete(device, sg_slot_bit(0), device->serial + (time & 0));\n"
        "    sg_unlock(&device->lock);\n"
        "    return result;",
        ["cuda"], EPOCHS_TEST),
    bug("freed_beside_an_epoch_for_ever", "what is freed while an epoch is recorded gets no event of its own", MARKS,
        "    if (device->nodes.node[device->pending.last].time <= time) /* none was freed meanwhile */\n"
        "        device->order.owed",
        "    device->order.owed",
        ["cuda"], EPOCHS_TEST),
    bug("contexts_of_any_device", "a context counts as one of whatever device is asked about", CONTEXTS,
        "(atomic_load_explicit(&core->context_device[i], memory_order_relaxed) == device->ordinal) == own;",
        "own;",
        ["cuda"], EPOCHS_TEST),
    bug("wait_for_the_owner_completes_all",
        "a free that waits for one of several contexts believes the work of all complete", FREE,
        "        sg_core_context_clock(core, users->device->ordinal, owner, &clock);",
        "        sg_core_context_clock(core, users->device->ordinal, NULL, &clock);",
        ["cuda"], FREES_TEST),
    bug("wait_for_the_owner_covers_what_came_meanwhile",
        "a free that waits for one of several contexts believes complete what came meanwhile", FREE,
        "    if (follows)\n"
        "        sg_core_context_clock(core, users->device->ordinal, owner, &clock);\n"
        "    CUresult result = owner == current ? core->driver->ctx_synchronize() : sg_driver_synchronize(core->driver, owner);\n",
        "    CUresult result = owner == current ? core->driver->ctx_synchronize() : sg_driver_synchronize(core->driver, owner);\n"
        "    if (follows)\n"
        "        sg_core_context_clock(core, users->device->ordinal, owner, &clock);\n",
        ["cuda"], FREES_TEST),
    bug("wait_shows_the_host_its_own_alone", "what a wait tells the host of other contexts goes unnoticed", FREE,
        "        tell_of_others(core);\n",
        "        (void)tell_of_others;\n",
        ["cuda"], FREES_TEST),
    bug("neighbour_taken_for_the_block", "whether a block was used abroad is asked of its neighbour alone", FREE,
        "(uint64_t)(uintptr_t)context && !node->also && !device->reached;",
        "(uint64_t)(uintptr_t)context && !device->reached;",
        ["cuda"], FREES_TEST),
    bug("copy_from_the_middle_unnoticed", "a copy between devices that begins inside a block goes unnoticed", FREE,
        "sg_region_block_around(range->region, (uint32_t)((address - range->begin) >> SG_UNIT_SHIFT));",
        "block_at(range, address, 0);",
        ["cuda"], FREES_TEST),
    bug("wait_for_the_owner_is_for_all",
        "a wait for the context of a block counts as one for all that may be using it", FREE,
        "*ret_all = result == CUDA_SUCCESS && !has_others(&users);",
        "*ret_all = result == CUDA_SUCCESS;",
        ["cuda"], FREES_TEST),
    bug("wait_that_failed_completes", "what was waited for in vain counts as complete", FREE,
        "    if (result == CUDA_SUCCESS && follows) {",
        "    if (follows) {",
        ["cuda"], FREES_TEST),
    bug("wait_for_the_owner_that_failed_frees", "a free goes on although its wait failed", FREE,
        "    *ret = wait_for_owner(&users, tag->context);\n"
        "    if (*ret != CUDA_SUCCESS)\n"
        "        return MUST_WAIT;\n",
        "    *ret = wait_for_owner(&users, tag->context);\n",
        ["cuda"], FREES_TEST),
    bug("wait_for_others_that_failed_frees", "a free goes on although a wait for others failed", FREE,
        "if (outcome == MUST_WAIT && (*ret = wait_for_others(&users)) == CUDA_SUCCESS)",
        "if (outcome == MUST_WAIT && ((*ret = wait_for_others(&users)) == CUDA_SUCCESS || true))",
        ["cuda"], FREES_TEST),
    bug("ended_context_stays_for_others",
        "events of other devices over a context that has ended are asked about for ever", CONTEXTS,
        "        if (!other || other == device)\n"
        "            continue;",
        "        if (true)\n"
        "            continue;",
        ["cuda"], FREES_TEST),
    bug("context_ends_while_it_is_marked", "a context is ended while an event is being recorded over it", CONTEXTS,
        "            sg_lock(&device->asking);\n"
        "            sg_unlock(&device->asking);\n",
        "",
        ["cuda"], FREES_TEST),
    bug("joined_on_both_sides_at_the_old_time", "what joins two ranges is free before the one above it was", PARTS,
        "            other->time = other->time > last->time ? other->time : last->time;\n",
        "",
        ["aware"], OWNER_TEST),
    bug("abandoned_place_is_anybodys", "what was free at a place whose pages were not to be had is anybody's", PLACE,
        "    node->owner = slot;\n"
        "        node->time = slot ? now : 0;",
        "    node->owner = 0;\n"
        "        node->time = 0;",
        ["aware"], OWNER_TEST),
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
]
