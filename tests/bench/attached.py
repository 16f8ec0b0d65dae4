"""What `segalloc top` costs the program that it looks at: attached and left so many times in one run of it.

Usage: attached.py SEGALLOC HOTPATH [TIMES]. Both sides are the same process, whose page top reads meanwhile or does not."""
import os
import statistics
import subprocess
import sys
import threading
import time

SEGALLOC, HOTPATH, TIMES = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100
LOOKS, DELAY_S, WINDOW_MS = 5, 0.05, 5


def main():
    program = subprocess.Popen([HOTPATH, "--windows", str(WINDOW_MS), "--seconds", "3600"], stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, SEGALLOC_CONF="live:True"))
    windows, attached, load = [], [], os.getloadavg()[0]
    reader = threading.Thread(target=lambda: windows.extend(tuple(map(float, line.split())) for line in program.stdout))
    reader.start()
    time.sleep(1)
    for _ in range(TIMES):
        begin = time.monotonic_ns()
        looks = subprocess.run([SEGALLOC, "top", "--batch", "--json", "-n", str(LOOKS), "-d", str(DELAY_S), str(program.pid)], check=True,
                               stdout=subprocess.PIPE, text=True).stdout
        attached.append((begin, time.monotonic_ns()))
        assert looks.count('"requested_bytes"') == LOOKS, looks
        time.sleep((attached[-1][1] - begin) / 1e9)  # as long without it
    program.kill()
    reader.join()
    program.wait()
    sides = {True: [], False: []}
    for end, ns in windows:
        begin = end - WINDOW_MS * 1e6
        if end < attached[0][0] or begin > attached[-1][1] + (attached[-1][1] - attached[-1][0]):
            continue
        inside = any(first <= begin and end <= last for first, last in attached)
        apart = all(end < first or begin > last for first, last in attached)
        if inside or apart:
            sides[inside].append(ns)
    with_it, without = (statistics.median(sides[side]) for side in (True, False))
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after; {len(sides[True])} and {len(sides[False])} windows of {WINDOW_MS} ms")
    print(f"a pair takes {with_it:.2f} ns with top attached, {without:.2f} ns without: {100 * (with_it / without - 1):+.2f} %")


main()
