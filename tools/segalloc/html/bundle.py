#!/usr/bin/env python3
"""Puts the page together and makes two C texts of it, what comes before the data and what comes after.

bundle.py OUT PAGE.html STYLE.css… SCRIPT.js…: of scripts whose name ends in .min.js each is an element of its own, the others
are one. The page says by their hashes that no other script or style may be used."""
import base64
import hashlib
import sys
from pathlib import Path

out, page, *parts = map(Path, sys.argv[1:])
styles = ["\n".join(part.read_text() for part in parts if part.suffix == ".css")]
scripts = [part.read_text() for part in parts if part.name.endswith(".min.js")]
scripts.append('"use strict";\n' + "\n".join(part.read_text() for part in parts if part.suffix == ".js" and not part.name.endswith(".min.js")))


def hashes(texts):
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


for text in styles + scripts:
    assert "</s" not in text and "<!--" not in text, "would end its element"
whole = page.read_text()
for mark, text in (("@POLICY@", f"default-src 'none'; img-src data:; style-src {hashes(styles)}; script-src {hashes(scripts)}"),
                   ("@STYLES@", "".join(f"<style>{text}</style>" for text in styles)),
                   ("@SCRIPTS@", "".join(f"<script>{text}</script>" for text in scripts))):
    assert whole.count(mark) == 1, mark
    whole = whole.replace(mark, text)
with out.open("w") as file:
    for name, text in zip((f"{page.stem}_before", f"{page.stem}_after"), whole.split("@DATA@")):
        data = text.encode() + b"\0"
        assert data.count(0) == 1
        lines = (", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24))
        file.write(f"static const unsigned char {name}[] = {{\n" + ",\n".join(lines) + "};\n")
