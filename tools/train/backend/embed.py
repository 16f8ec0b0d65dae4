#!/usr/bin/env python3
"""Makes a C array of a file's bytes: embed.py FILE NAME OUT"""
import sys
from pathlib import Path

data = Path(sys.argv[1]).read_bytes() + b"\0"
lines = (", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24))
Path(sys.argv[3]).write_text(f"static const char {sys.argv[2]}[] = {{\n" + ",\n".join(lines) + "};\n")
