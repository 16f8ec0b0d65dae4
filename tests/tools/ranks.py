"""A launcher: starts ranks at once, and ends them when each has what it asks for or has failed.

Usage: ranks.py ACTS HOW RANK…   HOW: `turns`: one after the other, each lives on; `forgives`: status 0 whatever becomes of
them; `waits`: for ever, if one has failed; else `once`. RANK: VISIBLE:ACT ACT…, with CUDA_VISIBLE_DEVICES=VISIBLE unless that is empty."""
import os
import subprocess
import sys
import time

ACTS, HOW, *RANKS = sys.argv[1:]


def start(rank):
    visible, acts = rank.split(":")
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES=visible) if visible else None
    return subprocess.Popen([ACTS, *acts.split(), "say=ready", "wait"], stdout=subprocess.PIPE, env=environment)


started, ready = [], []
for each in RANKS:
    started.append(start(each))
    if HOW == "turns":
        ready.append(started[-1].stdout.readline())
if HOW != "turns":
    ready = [rank.stdout.readline() for rank in started]
while HOW == "waits" and not all(ready):
    time.sleep(1)
for rank in started:
    rank.terminate()
    rank.wait()
sys.exit(0 if HOW == "forgives" or all(ready) else 1)
