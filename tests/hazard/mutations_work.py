"""Bugs in what is noted of work by the name of the call that gives it, and in what the host may learn by it."""
from mutation_terms import COPIES, SUBMIT, TAINTS, WORK, bug, told

WORK_BUGS = [
    bug("work_by_the_other_name_is_the_legacy_streams", "work by the other name counts as the legacy stream's", SUBMIT,
        "    HAND_ON(per_thread, parameters, arguments, stream, true, false)",
        "    HAND_ON(per_thread, parameters, arguments, stream, false, false)",
        ["aware"], WORK),
    bug("work_noted_before_it_is_given", "work is noted before the driver has been given it", SUBMIT,
        "        CUresult result = sg_real()->symbol arguments; \\\n"
        "        if (sg_beside_ran_out(result)) \\\n"
        "            result = sg_real()->symbol arguments; \\\n"
        "        sg_touched(stream, own); \\\n",
        "        sg_touched(stream, own); \\\n"
        "        CUresult result = sg_real()->symbol arguments; \\\n"
        "        if (sg_beside_ran_out(result)) \\\n"
        "            result = sg_real()->symbol arguments; \\\n",
        ["aware"], WORK),
    bug("one_call_gives_work_unnoticed", "the work of one call is not noted", SUBMIT,
        "        sg_touched(stream, own); \\\n",
        "        if (__builtin_strcmp(#symbol, \"cuMemsetD2D8Async\")) \\\n"
        "            sg_touched(stream, own); \\\n",
        ["aware"], WORK),
    bug("copy_to_the_host_tells_nothing",
        "a copy to the host does not count as telling it of the stream's work", SUBMIT,
        "        const bool telling = tells; \\\n",
        "        const bool telling = tells && __builtin_strcmp(#symbol, \"cuMemcpyDtoHAsync_v2\"); \\\n",
        ["aware"], WORK),
    bug("call_tells_only_when_it_has_returned",
        "who acts on what a call shows the host before it has returned is not reckoned with", SUBMIT,
        "        if (telling) \\\n"
        "            sg_streams_tell(stream, own); \\\n"
        "        CUresult result = sg_real()->symbol arguments; \\\n",
        "        CUresult result = sg_real()->symbol arguments; \\\n",
        ["aware"], WORK),
    bug("call_without_a_stream_tells_nothing",
        "copies from the host, and sets of its memory, do not count as waiting for the default stream", SUBMIT,
        "    HAND_ON(symbol, parameters, arguments, stream, false, sg_following()) \\\n",
        "    HAND_ON(symbol, parameters, arguments, stream, false, sg_following() && #stream[0] != 'N') \\\n",
        ["aware"], programs=told("copied") + told("set")),
    bug("set_of_the_hosts_memory_tells_nothing",
        "what a stream sets in the host's memory does not count as telling it of the stream's work", SUBMIT,
        "sg_memory_guesses() && !sg_life_owns(address);", "false && sg_life_owns(address);",
        ["aware"], programs=told("set_later", "")),
    bug("copies_are_no_work", "copies between any addresses are not noted as work", COPIES,
        "    sg_touched(stream, per_thread);\n",
        "    (void)per_thread;\n",
        ["aware"], WORK),
    bug("copy_tells_only_when_it_has_returned",
        "who acts on what a copy shows the host before it has returned is not reckoned with", COPIES,
        "        const enum tells tells = told; \\\n"
        "        tell(tells, stream, per_thread); \\\n",
        "        const enum tells tells = told; \\\n",
        ["aware"], WORK),
    bug("copy_to_the_host_ends_beside_it", "a copy to the host counts as one to an address that means nothing there",
        COPIES, "device_end((copy)->dstMemoryType, (copy)->dstDevice)", "(copy)->dstDevice", ["aware"],
        programs=told("flat_later", "")),
    bug("copy_from_the_host_tells_nothing", "a copy from the host does not count as waiting for the default stream",
        COPIES, "TELLS_OF_ALL : TELLS_OF_ITS_STREAM;", "TELLS_OF_ALL : told_later(dst);", ["aware"],
        programs=told("copied_any")),
    bug("copy_between_devices_orders_nothing", "a copy between devices does not count as ordered with all their work",
        COPIES, "return crossing ? TELLS_OF_ALL :", "return crossing ? told_later(dst) :", ["aware"],
        programs=told("peers", ",count=2,schedule=1")),
    bug("copy_by_another_device_unnoticed",
        "a block that another device's stream copies to is not known to be in its use", COPIES,
        "    used(core, dst, sg_stream_named(stream, per_thread));\n",
        "",
        ["aware"], WORK),
    bug("batch_of_waits_unnoticed",
        "a stream that waits for words of memory in a batch counts as one whose order is seen", TAINTS,
        "        opaque(stream, own); \\\n",
        "        if (__builtin_strcmp(#symbol, \"cuStreamBatchMemOp_v2\")) opaque(stream, own); \\\n",
        ["aware"], WORK),
    bug("batch_of_writes_tells_nothing", "what a batch writes does not count as telling the host of the stream's work",
        TAINTS, "const bool telling = sg_following() && has_write(count, params);",
        "const bool telling = false && has_write(count, params);", ["aware"], programs=told("batch", "")),
    bug("batch_tells_only_when_it_has_returned",
        "who acts on what a batch writes before it has returned is not reckoned with", TAINTS,
        "        if (telling) \\\n"
        "            sg_streams_tell_all(); \\\n"
        "        CUresult result = sg_real()->symbol(stream, count, params, flags); \\\n",
        "        CUresult result = sg_real()->symbol(stream, count, params, flags); \\\n",
        ["aware"], programs=told("early", ",depth=1")),
    bug("wait_for_a_word_abroad_tells_nothing",
        "what a stream of another device waits for by a word of memory, nobody is thought to know", TAINTS,
        "    if (!followed || sg_contexts_devices())\n"
        "        sg_streams_told_all(core);\n",
        "", ["aware"], WORK),
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
        "    else if (sg_following())\n"
        "        sg_streams_tell(stream, per_thread);\n",
        "    (void)stream, (void)per_thread;\n",
        ["aware"], WORK),
    bug("graph_launch_by_the_other_name_unnoticed", "a graph's launch by the other name is not noted", TAINTS,
        "    return launch(sg_real()->cuGraphLaunch_ptsz, exec, stream, true);",
        "    return sg_real()->cuGraphLaunch_ptsz(exec, stream);",
        ["aware"], WORK),
    bug("graph_tells_only_when_its_launch_has_returned",
        "who acts on what a graph shows the host before its launch has returned is not reckoned with", TAINTS,
        "    tell_of_graph(stream, per_thread);\n"
        "    CUresult result = real(exec, stream);\n",
        "    CUresult result = real(exec, stream);\n",
        ["aware"], WORK),
]
