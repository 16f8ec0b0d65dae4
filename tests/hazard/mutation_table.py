"""The seeded bugs: name, the rule that it breaks, the file, the text to find there and what stands there instead.

`kinds` limits the random programs to those that can notice, to save time; `tests` are tests of the build, and
`programs` those that run under the library, with a configuration and a card, that are tried first; `times` says how
often the text occurs, where that is not once.
"""
from mutations_core import CORE_BUGS
from mutations_order import ORDER_BUGS
from mutations_preload import PRELOAD_BUGS
from mutations_work import WORK_BUGS

MUTATIONS = ORDER_BUGS + PRELOAD_BUGS + WORK_BUGS + CORE_BUGS
