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

from playwright.sync_api import sync_playwright

import loads

BROWSER, BUILD, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
COLUMNS, LINES, RANKS = 80, 24, 8


def screen():
    """What `segalloc top` shows of eight ranks on a terminal of 80 × 24."""
    environment = dict(os.environ, PYTHONPATH=str(loads.ROOT / "tools" / "python"), TERM="xterm", LC_ALL="C.UTF-8")
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
    """The cells of a terminal after the control sequences that curses uses of xterm."""
    cells, at, row, column = [[" "] * COLUMNS for _ in range(LINES)], 0, 0, 0
    while at < len(said):
        letter = said[at]
        at += 1
        if letter == "\x1b" and said[at:at + 1] == "[":
            end = at + 1
            while not said[end].isalpha():
                end += 1
            numbers = [int(part) if part.isdigit() else 0 for part in said[at + 1:end].split(";")]
            first = max(1, numbers[0])
            if said[end] in "Hf":
                row, column = first - 1, max(1, numbers[1] if len(numbers) > 1 else 1) - 1
            elif said[end] == "d":
                row = first - 1
            elif said[end] == "G":
                column = first - 1
            elif said[end] in "AB":
                row += first if said[end] == "B" else -first
            elif said[end] in "CD":
                column += first if said[end] == "C" else -first
            elif said[end] == "K":
                cells[row][0 if numbers[0] else column:column + 1 if numbers[0] == 1 else COLUMNS] = [" "] * (
                    column + 1 if numbers[0] == 1 else COLUMNS - (0 if numbers[0] else column))
            elif said[end] == "X":
                cells[row][column:column + first] = [" "] * len(cells[row][column:column + first])
            elif said[end] == "J":
                for line in range(0 if numbers[0] == 2 else row, LINES):
                    from_column = column if line == row and numbers[0] != 2 else 0
                    cells[line][from_column:] = [" "] * (COLUMNS - from_column)
            elif said[end] == "b":
                for _ in range(first):
                    cells[row][min(column, COLUMNS - 1)] = cells[row][column - 1]
                    column += 1
            at = end + 1
        elif letter == "\x1b":
            at += 2 if said[at:at + 1] in "()" else 1
        elif letter == "\r":
            column = 0
        elif letter == "\n":
            row = min(row + 1, LINES - 1)
        elif letter == "\b":
            column = max(0, column - 1)
        elif letter >= " ":
            cells[row][min(column, COLUMNS - 1)] = letter
            column += 1
    return "\n".join("".join(line) for line in cells)


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
