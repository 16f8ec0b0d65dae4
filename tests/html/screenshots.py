"""Pictures of the pages and of `segalloc top`, by programs on the simulated GPU: tests/html/run --screenshots FOLDER.

Usage: screenshots.py CHROMIUM BUILD FOLDER"""
import fcntl
import html
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pyte
from playwright.sync_api import sync_playwright

import loads

BROWSER, BUILD, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
COLUMNS, LINES, RANKS = 80, 24, 8


def screen():
    """What `segalloc top` shows of eight ranks on a terminal of 80 × 24."""
    environment = dict(os.environ, PYTHONPATH=str(loads.ROOT / "tools" / "python"), TERM="linux", LC_ALL="C.UTF-8")
    programs = [subprocess.Popen([BUILD / "tools/segalloc/segalloc", "run", "--sim", "8GiB", "--conf", "live:True,sites:True", "--", sys.executable,
                                  loads.__file__, "train", "100000", "0.05"], env=dict(environment, RANK=str(rank))) for rank in range(RANKS)]
    time.sleep(3)
    watcher, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    top = subprocess.Popen([BUILD / "tools/segalloc/segalloc", "top", "-d", "0.2", *(str(program.pid) for program in programs)], stdin=terminal,
                           stdout=terminal, stderr=terminal, env=environment)
    said, until = b"", time.monotonic() + 5
    while time.monotonic() < until:
        if select.select([watcher], [], [], 0.2)[0]:
            said += os.read(watcher, 65536)
    top.send_signal(signal.SIGTERM)
    top.wait()
    for program in programs:
        program.kill()
    for program in programs:
        program.wait()
    subprocess.run([BUILD / "tools/segalloc/segalloc", "top", "--once"], stdout=subprocess.DEVNULL, check=True)  # removes their pages
    return draw(said.decode(errors="replace"))


def draw(said):
    """The cells of the terminal after what it was told."""
    cells = pyte.Screen(COLUMNS, LINES)
    pyte.Stream(cells).feed(said)
    return "\n".join(cells.display)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = pathlib.Path(name)
        os.chdir(folder)  # what a page says of its files is short
        loads.record(BUILD, "run.trace", "8GiB", 8)
        loads.record(BUILD, "short.trace", "3400MiB", 8)
        for rank in range(RANKS):
            loads.record(BUILD, "run.%r.trace", "8GiB", 5, rank)
        for out, *paths in (("one.html", "run.trace"), ("failure.html", "short.trace"), ("ranks.html", *(f"run.{rank}.trace" for rank in range(RANKS)))):
            loads.page(BUILD, out, *paths)
        terminal = screen()
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])

        def shoot(page_name, out, scheme="light", tab=None, view=None):
            """The page from its head to what was held, whatever its length: nothing that has a name is cut off."""
            page = browser.new_page(color_scheme=scheme, viewport={"width": 1100, "height": 900})
            page.goto((folder / page_name).as_uri())
            if tab:
                page.click("#tab-" + tab)
            if view:
                page.select_option("#as", view)
            page.mouse.move(0, 0)
            page.screenshot(path=FOLDER / out, full_page=True, clip={"x": 0, "y": 0, "width": 1100, "height": page.evaluate(
                "document.querySelector('main').getBoundingClientRect().bottom + 8")})
            page.close()
        shoot("one.html", "one-light.png")
        shoot("one.html", "one-dark.png", "dark", view="flame")
        shoot("failure.html", "failure.png", tab="map")
        shoot("ranks.html", "ranks-8.png", tab="ranks")
        page = browser.new_page(viewport={"width": 760, "height": 500})
        page.set_content(f"<body style='margin:0;background:#111;color:#ddd'><pre style='font:14px/19px monospace;margin:10px'>{html.escape(terminal)}</pre>")
        page.locator("pre").screenshot(path=FOLDER / "top-80x24.png")
        browser.close()
    for path in sorted(FOLDER.glob("*.png")):
        print(path, path.stat().st_size // 1024, "KiB")


main()
