"""Reads the tables of the command line, for the manual and for completion: verbs.def, and verbs/NAME.def of each verb.

    verbs = read(folder of tools/segalloc)    a list of Verb, in the order of verbs.def

A row is a call in C's syntax, such as OPTION(keep, 0, "SIZE", SIZE, "leave as much", "0", ""); texts that stand side by side are one."""
import ast
import pathlib
import re

TOKEN = re.compile(r'\s+|/\*.*?\*/|#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*")|(?P<letter>\'.\')|(?P<word>[\w.]+)|(?P<mark>[(),])', re.S)


class Option:
    """One option: `letter` and `argument` are None where it has none, `text` where the help leaves it out, `initial` is its default in words."""

    def __init__(self, name, letter, argument, value, text, initial, more):
        self.name, self.letter, self.argument, self.value = "--" + name.replace("_", "-"), letter and f"-{letter}", argument, value
        self.text, self.initial, self.more = text, initial, more

    def names(self):
        return [name for name in (self.letter, self.name) if name]


class Verb:
    def __init__(self, name, summary, rows):
        self.name, self.summary = name, summary
        of = {kind: [values for row, values in rows if row == kind] for kind in ("OPERANDS", "USAGE", "ABOUT", "TERM", "OPTION", "STATUS")}
        self.operands, self.status = of["OPERANDS"][0][0], of["STATUS"][0][0]
        self.usage, self.about = [text for text, in of["USAGE"]], [text for text, in of["ABOUT"]]
        self.terms, self.options = of["TERM"], [Option(*values) for values in of["OPTION"]]


def rows(path):
    """Each row of a .def as its name and its values: a text, a letter or a word; None for NULL and 0."""
    text, at, found, values, joins = pathlib.Path(path).read_text(), 0, [], None, False
    name = None
    while at < len(text):
        token = TOKEN.match(text, at)
        if not token:
            raise ValueError(f"{path}: what is {text[at:at + 20]!r}?")
        at = token.end()
        kind, part = token.lastgroup, token[0]
        if kind == "text":
            part = ast.literal_eval(part)
            if joins:
                values[-1] += part
            else:
                values.append(part)
            joins = True
        elif kind == "letter":
            values.append(part[1])
        elif kind == "word" and values is None:
            name = part
        elif kind == "word":
            values.append(None if part in ("NULL", "0") else part)
        elif part == "(":
            values = []
        elif part == ")":
            found.append((name, values))
            values = None
        joins = joins if kind is None else kind == "text"
    return found


def read(folder):
    folder = pathlib.Path(folder)
    return [Verb(name, summary, rows(folder / "verbs" / f"{name}.def")) for _, (name, summary) in rows(folder / "cli/verbs.def")]
