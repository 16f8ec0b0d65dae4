"""The seeded bugs: name, the rule that it breaks, the file, the text to find there and what stands there instead.

`kinds` limits the random programs to those that can notice, to save time; `tests` are tests of the build that are tried
first; `times` says how often the text occurs, where that is not once.
"""

MUTATIONS = [
    dict(name="strict_does_not_wait", what="a strict free does not wait for the device",
         file="src/core/core.c", kinds=["cuda"],
         find="    CUresult result = core->driver->ctx_synchronize();\n    uint32_t count",
         replace="    CUresult result = CUDA_SUCCESS;\n    uint32_t count"),
    dict(name="strict_only_current_context", what="a strict free waits for the current context alone",
         file="src/core/core.c", kinds=["cuda"],
         find="        if (context && context != tag->context)\n            result = synchronize(core->driver, context);",
         replace="        if (context && context == tag->context)\n            result = synchronize(core->driver, context);"),
]
