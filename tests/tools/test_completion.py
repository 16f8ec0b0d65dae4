"""What bash, zsh and fish offer for what has been typed: each shell itself is asked, with the files that are installed.

Usage: test_completion.py SEGALLOC BASH ZSH FISH CARDS [SEGALLOC_TRAIN]     (BASH, ZSH, FISH: the files; CARDS: the table of cards)

A shell that is not here is left out, with a line that says so."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import shared

SEGALLOC, BASH, ZSH, FISH, CARDS, *TRAIN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:] if os.path.exists(argument))
sys.argv[1:] = [case for case in sys.argv[1:] if not os.path.exists(case)]
VERBS = set(re.findall(r"^  ([a-z]+)  ", subprocess.run([SEGALLOC, "--help"], capture_output=True, text=True, check=True).stdout, re.M))
KEYS = set(json.loads(subprocess.run([SEGALLOC, "conf", "--json"], capture_output=True, text=True, check=True).stdout)["options"])
NAMES = set(re.findall(r'^CARD\("([\w-]+)"', CARDS.read_text(), re.M))
# What has been typed, and all that is to be offered for its last word. An ellipsis: these, and others.
LINES = [
    ("segalloc ", VERBS), ("segalloc tr", {"trace", "trim"}), ("segalloc trace ", {"info", "cat", "export", "import"}),
    ("segalloc diff --", {"--at", "--by", "--all", "--json", "--help"}), ("segalloc replay --li", {"--limit"}),
    ("segalloc trace export t --format ", {"torch", "chrome", "csv", "folded", "speedscope", "json"}),
    ("segalloc trace export t --format c", {"chrome", "csv"}), ("segalloc diff a b --at ", {"peak", "failure", "end"}),
    ("segalloc replay -p ", {"segalloc", "pytorch"}), ("segalloc replay --sees p", {"possible"}),
    ("segalloc report t --fail-above ", {"frag=", "unserved=", "reserved=", "stranded=", "requested=", "ooms=", "findings="}),
    ("segalloc rehearse --card ", NAMES | {"24GiB", ...}), ("segalloc rehearse --card 24GiB,l4", {"24GiB,l4", "24GiB,l40", "24GiB,l40s"}),
    ("segalloc run --sim 24GiB,no-v", {"24GiB,no-vmm"}), ("segalloc run --sim 24GiB,coun", {"24GiB,count="}),
    ("segalloc run --conf ", {f"{key}:" for key in KEYS}), ("segalloc run --conf reserve_", {"reserve_slack:"}),
    ("segalloc run --conf free_sync:", {f"free_sync:{value}" for value in ("auto", "strict", "stream", "event")}),
    ("segalloc replay t --conf live:True,alias:o", {"live:True,alias:on", "live:True,alias:off"}),
    ("segalloc run --conf=live:True,alias:o", {"--conf=live:True,alias:on", "--conf=live:True,alias:off"}),
    ("segalloc conf reserve_", {"reserve_slack:"}), ("segalloc conf --help-options limit", {"limit", "limit_visible"}),
    ("segalloc tune t --param page_", {"page_size_mb="}), ("segalloc tune t --html a-", {"a-trace"}),
    ("segalloc run --conf trace:a-", {"trace:a-trace"}), ("segalloc run -o a-", {"a-trace"}), ("segalloc report a-", {"a-trace"}),
    ("segalloc run -- ./o-", {"./o-program"}), ("segalloc run --sim 24GiB ./o-", {"./o-program"}),
    ("segalloc run ./o-program --si", set()), ("segalloc run ./o-program a-t", {"a-trace"}), ("segalloc trim --keep ", set()),
]
if TRAIN:
    LINES += [
        ("segalloc-train --pres", {"--preset"}), ("segalloc-train --alloc ", {"eager", "arena"}), ("segalloc-train --preset sp", {"spiral-qwen3-4b"}),
        ("segalloc-train --scenario f", {"fsdp", "fence"}), ("segalloc-train --text a-", {"a-trace"}),
        ("segalloc-train --lengths ", {"lognormal", "bimodal", "growing", "uniform", "fixed", "file:"}),
    ]

# bash: the function that `complete` names, called as bash calls it. What bash had divided at : and = is put together again.
IN_BASH = r"""
source "$1"
compopt() { :; }
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    COMP_WORDS=()
    COMPREPLY=()
    $(complete -p segalloc | sed 's/.* -F \([^ ]*\) .*/\1/')
    word=${COMP_LINE##* }
    tail=${word##*[:=]}
    printf '%s\0' "${COMPREPLY[@]/#/${word:0:${#word}-${#tail}}}" $'\n'
done
"""
# zsh: its own completion system, on a terminal. What it would add to the line is written to a file.
IN_ZSH = r"""
PROMPT= fpath=($FUNCTIONS $fpath)
unsetopt beep
autoload -U compinit && compinit -u -D
compadd() {
    local -a hits apre hpre
    zparseopts -E -a others P:=apre p:=hpre S: s: X: x: d: J: V: F: r: R: W: M: q f e a k l o 1 2 n U O: A: D: i: I:
    if [[ " $others " != *' -'[OAD]' '* ]]; then
        builtin compadd -A hits "$@"
        local hit
        for hit in $hits; do print -rn -- "$IPREFIX${apre[2]-}${hpre[2]-}$hit"$'\0' >>$OFFERED; done
    fi
    builtin compadd "$@"
}
line-done() {
    print -rn -- $'\n\0' >>$OFFERED
    comppostfuncs=(line-done)
}
comppostfuncs=(line-done)
print ready >>$OFFERED.ready
"""


def by_record(output):
    """What was offered for each line: words that end in a null byte, a line in a newline of its own."""
    return [{word for word in record.split("\0") if word} for record in output.split("\n\0")][:-1]


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "a-trace").touch()
        (self.folder / "o-program").write_text("#!/bin/sh\n")
        (self.folder / "o-program").chmod(0o755)

    def check(self, lines, offered):
        self.assertEqual(len(offered), len(lines))
        for (line, wanted), got in zip(lines, offered):
            with self.subTest(line=line):
                if ... in wanted:
                    self.assertLessEqual(wanted - {...}, got)
                else:
                    self.assertEqual(got, wanted)

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_bash(self):
        typed = "".join(f"{line}\n" for line, _ in LINES)
        said = subprocess.run(["bash", "-c", IN_BASH, "bash", BASH], input=typed, cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(said.stderr, "")
        self.check(LINES, by_record(said.stdout))

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish(self):
        code = f"source '{FISH}'; while read -z line; complete -C \"$line\" | string replace -r '\\t.*' ''; echo .; end"
        (self.folder / "typed").write_text("\0".join(line for line, _ in LINES) + "\0")
        with open(self.folder / "typed") as typed:
            said = subprocess.run(["fish", "-Nc", code], stdin=typed, cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(said.stderr, "")
        self.check(LINES, [set(rows.split()) for rows in re.split(r"^\.\n", said.stdout, flags=re.M)[:-1]])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    @shared.needs_terminal
    def test_zsh(self):
        functions = self.folder / "functions"
        functions.mkdir()
        shutil.copy(ZSH, functions / "_segalloc")
        offered = self.folder / "offered"
        (self.folder / ".zshrc").write_text(IN_ZSH)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-d", "-i"], dict(os.environ, ZDOTDIR=str(self.folder), TERM="dumb", FUNCTIONS=str(functions),
                                                        OFFERED=str(offered)))
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.close, terminal)
        self.wait_for(terminal, lambda: pathlib.Path(f"{offered}.ready").exists())
        for number, (line, _) in enumerate(LINES):
            os.write(terminal, line.encode() + b"\t")
            self.wait_for(terminal, lambda: offered.exists() and len(by_record(offered.read_text())) > number)
            os.write(terminal, b"\x15")  # Ctrl-U: the line goes
        self.check(LINES, by_record(offered.read_text()))

    def wait_for(self, terminal, there):
        """Reads what the shell shows, until `there`."""
        until = time.monotonic() + 60
        while not there():
            self.assertLess(time.monotonic(), until)
            if select.select([terminal], [], [], 0.01)[0]:
                os.read(terminal, 4096)


if __name__ == "__main__":
    unittest.main(verbosity=2)
