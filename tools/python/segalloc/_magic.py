"""`%%segalloc` in IPython and Jupyter: a cell, and below it what the cell did with device memory."""
# mypy: allow-subclassing-any, allow-untyped-decorators, disable-error-code="import-not-found,import-untyped,no-untyped-call"
import warnings
from typing import Any, List, Optional

from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from . import _library
from ._watch import DeviceWatch, Site, Watch

NOT_LOADED = "segalloc is not in this kernel: start it with `segalloc run -- jupyter lab`"


def size(count: float) -> str:
    """Bytes in the largest unit that gives at least 1, as the tools print them."""
    for unit in "B", "KiB", "MiB", "GiB":
        if abs(count) < 1024:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"


def _device(watch: DeviceWatch) -> str:
    held = watch.end_requested_bytes - watch.begin_requested_bytes
    after = f"{size(abs(held))} {'more' if held > 0 else 'less'} held after it" if held else "as much held after it as before"
    line = (f"device {watch.device}: peak {size(watch.peak_requested_bytes)} requested, {size(watch.peak_reserved_bytes)} reserved; "
            f"{after}; {watch.allocations} allocation{'s' if watch.allocations != 1 else ''}")
    return line + (f", {watch.failures} failed for want of memory" if watch.failures else "")


def _site(site: Site) -> str:
    phase = f" ({site.phase})" if site.phase else ""
    return f"  {size(site.bytes):>11}  {site.site or 'unknown'}{phase}"


def report(watch: Watch, rows: int) -> str:
    """The lines below a cell. Sites are in it where the program records a trace with places."""
    devices = [each for each in watch.devices.values() if each.allocations or each.failures or each.end_requested_bytes]
    lines = [_device(each) for each in devices] or ["no device memory was used"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a kernel without a trace is no error
        sites: List[Site] = watch.sites() if rows > 0 and devices else []
    lines += ["held at the peak, by place:"] * bool(sites) + [_site(each) for each in sites[:rows]]
    return "\n".join(lines)


@magics_class
class SegallocMagics(Magics):
    """The magics that `%load_ext segalloc` adds."""

    @magic_arguments()
    @argument("-n", "--sites", type=int, default=5, help="how many places to list, 5 unless given")
    @argument("-o", "--output", help="a variable that gets the segalloc.Watch of the cell")
    @argument("statement", nargs="*", help="as a line magic: what to run")
    @line_cell_magic  # type: ignore[untyped-decorator, unused-ignore]
    def segalloc(self, line: str, cell: Optional[str] = None) -> None:
        """Runs a cell, and prints its peak of device memory."""
        arguments = parse_argstring(self.segalloc, line)
        code = cell if cell is not None else " ".join(arguments.statement)
        shell: Any = self.shell
        with Watch() if _library.get() is not None else warnings.catch_warnings() as watch:
            shell.run_cell(code, store_history=False)
        if watch is None:
            print(NOT_LOADED)
            return
        print(report(watch, arguments.sites))
        if arguments.output:
            shell.user_ns[arguments.output] = watch


def load(shell: Any) -> None:
    """Registers the magic with an IPython shell."""
    shell.register_magics(SegallocMagics)
