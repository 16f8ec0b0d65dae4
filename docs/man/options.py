"""Prints segalloc.conf(5) in scdoc's language, from the table of `segalloc conf --help-options`.

Usage: options.py FILE   (what that command printed)"""
import pathlib
import re
import sys

INTRODUCTION = """segalloc.conf(5)

# NAME

segalloc.conf - options of libsegalloc.so

# SYNOPSIS

SEGALLOC_CONF="max_split_size_mb:128,reserve_slack:1.02" program

# DESCRIPTION

Options are written _key_:_value_ and separated by commas; in a file also by new lines, with comments after #. Lists are in brackets. The
library reads, each overriding the one before: its defaults, /etc/segalloc.conf, the user's file for the card and its driver, the file
that *SEGALLOC_CONF_FILE* names, and *SEGALLOC_CONF*. The file for the card is _NAME-VERSION.conf_ in $XDG_CONFIG_HOME/segalloc or
~/.config/segalloc, such as NVIDIA-A10-12.8.conf for the first device "NVIDIA A10" under a driver for CUDA 12.8; *segalloc selftest --apply*
writes it. It is read at the first allocation, so *backend* has no effect there. PyTorch's options that none of these sets are taken from *PYTORCH_CUDA_ALLOC_CONF*, or where that is not set from
*PYTORCH_ALLOC_CONF*, so that a line made for PyTorch can be used as it is.

An unknown key or a bad value is reported once, in one line on stderr, and has no effect; with abort_conf:True it ends the program.
*segalloc conf* prints what is in force and where it came from.

# OPTIONS
"""


def escaped(text):
    return re.sub(r"([\\*_#`\[\]])", r"\\\1", text)


def sentence(text, values):
    """Begins with a capital, but for a value, which is written as it is."""
    first = re.match(r"[\w.]+", text)
    if text.startswith(f"{first[0]}:") or first[0] in re.findall(r"\w+", values):
        return text
    return text[0].upper() + text[1:]


entries = pathlib.Path(sys.argv[1]).read_text()
print(INTRODUCTION)
for entry in entries.strip().split("\n\n"):
    head, text, *values = (line.strip() for line in entry.split("\n"))
    if "without effect" in head:
        print(f"{escaped(head)} {', '.join(f'_{escaped(name)}_' for name in (text, *values))}.\n")
        continue
    name, default = head.split(":", 1)
    print(f"*{escaped(name)}* (default: {escaped(default) or 'empty'})")
    print(f"\t{escaped(sentence(text, values[0]))} {escaped(values[0])}\n")
print("# SEE ALSO\n\n*segalloc*(1)")
