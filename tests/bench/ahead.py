"""What running ahead of the GPU costs on recorded traces: peak reserved memory and waits, as tables.

Usage: ahead.py SEGALLOC TRACE[=SLACK]...

SLACK is the reserve_slack at which frees wait for recorded streams (1.0). A trace NAME.sync.csv.zst has rows about work
and several streams; of others work follows each allocation on its stream. Multiples of the peak of live memory. Waits
are those that the program did not make; none is shown as nothing."""
import concurrent.futures
import json
import os
import subprocess
import sys

AHEAD = (0, 30, 300, 1000)
SLACK, SLACK_POSSIBLE = "1.0", "1.10"


def call(*arguments):
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    if result.returncode and not result.stdout:  # one that ran out of memory has figures too
        sys.exit(f"ahead.py: {' '.join(arguments)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def cell(result, live):
    waits = "".join(f", {result[key]} {word}" for key, word in (("host_waits", "host"), ("strict_waits", "strict"))
                    if result[key])
    return f"{result['peak_reserved_bytes'] / live:.4f}{waits}" + (f", **{result['ooms']} failed**"
                                                                   if result["ooms"] else "")


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


class Bench:
    def __init__(self, segalloc, traces):
        self.slack = {path: slack or SLACK for path, _, slack in (trace.partition("=") for trace in traces)}
        paths = list(self.slack)
        self.segalloc, self.pool = segalloc, concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.names = {path: os.path.basename(path).split(".")[0] for path in paths}
        self.single = [path for path in paths if ".sync." not in path]
        self.several = [path for path in paths if ".sync." in path]
        self.info = {path: call(segalloc, "trace", "info", "--json", path) for path in paths}

    def replay(self, path, conf, ahead, *more):
        live = self.info[path]["peak_requested_bytes"]
        command = (self.segalloc, "replay", path, "--json", "--conf", conf, "--run-ahead", str(ahead), *more)
        return self.pool.submit(lambda: cell(call(*command), live))

    def smallest(self, path, ahead):
        """The smallest card, and what happens on it; the replay that finds it has run on a roomy one."""
        command = (self.segalloc, "replay", path, "--json", "--run-ahead", str(ahead), "--conf", "free_sync:stream")
        limit = call(*command, "--min-limit")["min_limit_bytes"]
        live = self.info[path]["peak_requested_bytes"]
        waits = cell(call(*command, "--limit", str(limit)), live).partition(",")[2]
        return f"{limit / live:.4f}{',' if waits else ''}{waits}"

    def bound(self, path):
        bound = self.info[path]["order_bound"]
        return f"{bound['all_blocks']['ratio']:.4f}" if bound else "1"

    def by_ahead(self, title, first, jobs):
        """`jobs`: rows of (cells, function of K that starts a replay)."""
        started = [(cells, [job(ahead) for ahead in AHEAD]) for cells, job in jobs]
        table(title, [*first, *(f"K = {ahead}" for ahead in AHEAD)],
              [[*cells, *(one.result() for one in row)] for cells, row in started])

    def one_stream(self):
        jobs = [([self.names[path], conf], lambda ahead, path=path,
                 conf=conf: self.replay(path, f"reserve_slack:1.0,{conf}", ahead))
                for path in self.single for conf in ("free_sync:stream", "free_sync:event", "free_sync:strict")]
        self.by_ahead("**One stream**, `reserve_slack:1.0`", ["trace", "frees"], jobs)
        jobs = [([self.names[path]], lambda ahead, path=path: self.pool.submit(lambda: self.smallest(path, ahead)))
                for path in self.single]
        self.by_ahead("**One stream: the smallest card**, and the waits on it, `free_sync:stream`", ["trace"], jobs)

    def streams(self):
        def row(path, conf, *more):
            return lambda ahead: self.replay(path, conf, ahead, *more)
        jobs = []
        for path in self.several:
            own = self.slack[path]
            for text, conf, *more in (
                (f"stream, recorded, slack {own}", f"free_sync:stream,reserve_slack:{own}"),
                (f"stream, possible, slack {SLACK_POSSIBLE}", f"free_sync:stream,reserve_slack:{SLACK_POSSIBLE}",
                 "--sees", "possible"),
                (f"event, slack {own}", f"free_sync:event,reserve_slack:{own}"),
                (f"strict, slack {own}", f"free_sync:strict,reserve_slack:{own}"),
            ):
                jobs.append(([self.names[path], self.bound(path), text], row(path, conf, *more)))
        self.by_ahead("**Several streams**", ["trace", "by order alone", "frees"], jobs)

    def cards(self, ahead=300):
        cards, jobs = (1.01, 1.02, 1.05, 1.10, 1.20), []
        for path in self.several + self.single:
            live = self.info[path]["peak_requested_bytes"]
            for text, conf in (("stream", "free_sync:stream"), ("event", "free_sync:event")):
                jobs.append(([self.names[path], text], [self.replay(path, conf, ahead, "--limit", str(int(live * card)))
                                                    for card in cards]))
        table(f"**Memory against waits**, K = {ahead}: reserved on cards of so many times live",
              ["trace", "frees", *map(str, cards)], [[*cells, *(one.result() for one in row)] for cells, row in jobs])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bench = Bench(sys.argv[1], sys.argv[2:])
    if bench.single:
        bench.one_stream()
    if bench.several:
        bench.streams()
    bench.cards()


main()
