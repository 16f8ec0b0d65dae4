"""Prints the manual page of a verb, or segalloc(1), in scdoc's language.

Usage: pages.py TOOLS TEMPLATE        (TOOLS: the folder tools/segalloc, whose tables have the options)

A template has what is in the manual alone. Its lines @HEAD@, @ABOUT@, @OPTIONS@ and @STATUS@ are replaced by the name and the usage of
the verb, what it does, its options and its exit statuses; @VERBS@ and @PAGES@ by a list of all verbs, and of their pages; @TRAINER@ by
the options of segalloc-train, from its table."""
import pathlib
import re
import sys

TOOLS, TEMPLATE = map(pathlib.Path, sys.argv[1:])
sys.dont_write_bytecode = True  # not into the source folder
sys.path.insert(0, str(TOOLS / "cli"))
import tables  # noqa: E402

# Parts of a text with a markup of their own: `code`, a page (1), an option, a variable, a word to replace.
MARKED = re.compile(r"`(?P<code>[^`]+)`|(?P<page>[\w.-]+\([1-8]\))|(?<![\w-])(?P<option>--?[a-z][\w-]*)|(?P<variable>\b[A-Z]+_[A-Z_]+\b)"
                    r"|(?P<word>\b[A-Z]+(?:[.:=|,][A-Z…]+)*(?![\w…]))")


def escaped(text):
    return re.sub(r"([\\*_#`\[\]<>~])", r"\\\1", text)


def marked(text, words=()):
    """A text with markup. `words`: those in capitals that stand for something of the user's."""
    parts, at = [], 0
    for match in MARKED.finditer(text):
        kind, part = match.lastgroup, match[match.lastgroup]
        if kind == "word" and not set(re.findall(r"[A-Z]+", part)) <= set(words):
            continue
        if kind == "page":
            name, section = part.rsplit("(", 1)
            part = f"*{escaped(name)}*({section}"
        else:
            part = f"_{escaped(part)}_" if kind == "word" else f"*{escaped(part)}*"
        parts += [escaped(text[at:match.start()]), part]
        at = match.end()
    return "".join(parts) + escaped(text[at:])


def words_of(verb):
    """The words in capitals in its usage and its options' arguments."""
    return set(re.findall(r"[A-Z]+", " ".join([*verb.usage, *(option.argument or "" for option in verb.options)])))


def usage(verb, text):
    """A line of usage: options and actions are bold, what is to be replaced is underlined."""
    found = re.sub(r"(?<![\w-])--?(?:[a-z][\w-]*)?(?![\w-])", lambda part: f"*{part[0]}*", escaped(text).replace("\\[", "[").replace("\\]", "]"))
    found = re.sub(r"[A-Z](?:[\w:=,.…|]*[\w…])?", lambda part: f"_{part[0]}_", found)
    action = re.match(r"[a-z]+ ", found)
    if action:
        found = f"*{action[0].strip()}* {found[action.end():]}"
    return f"*segalloc {verb.name}* {found}"


def sentence(text, kept=()):
    """Begins with a capital, but for the words that are to be typed, and ends with a full stop."""
    text = text if re.match(r"\w+", text) and re.match(r"\w+", text)[0] in kept else text[0].upper() + text[1:]
    return text if text.endswith((".", ":")) else text + "."


def head(verb):
    yield f"segalloc-{verb.name}(1)"
    yield "# NAME"
    yield f"segalloc-{verb.name} - {verb.summary}"
    yield "# SYNOPSIS"
    for text in verb.usage:
        yield usage(verb, text)


def about(verb):
    words = words_of(verb)
    for text in verb.about:
        yield marked(text, words)
    for word, text in verb.terms:
        yield f"*{word}*\n\t{marked(sentence(text), words)}"


def argument_of(option):
    """An option's argument: what the reader replaces is underlined, and alternatives in small letters are words to type."""
    return re.sub(r"[A-Z][\w:=,.…]*", lambda part: f"_{part[0]}_", escaped(option)).replace("\\[", "[").replace("\\]", "]")


def options(verb):
    words, actions = words_of(verb), [word for word, _ in verb.terms]
    yield "# OPTIONS"
    for option in verb.options:
        names = ", ".join(f"*{escaped(name)}*" for name in option.names())
        argument = option.argument and argument_of(option.argument)
        text = option.text or ""
        if option.value == "CARDS":
            text += ": " + ", ".join(values[0] for _, values in tables.rows(TOOLS / "../../src/driver/cards.def"))
        if option.initial:
            text += f" (default: {option.initial})"
        body = " ".join(marked(part if part is option.more else sentence(part, actions), words) for part in (text, option.more) if part)
        if option.value == "FORMAT":
            formats = "; ".join(f"*{name}*, {marked(text)}" for _, (name, text, _) in tables.rows(TOOLS / "export/formats.def"))
            body = body.replace("The formats are:", f"The formats are {formats}.")
        yield f"{names}{'' if not argument or argument.startswith('[=') else ' '}{argument or ''}\n\t{body}"


def trainer():
    rows = [values for _, values in tables.rows(TOOLS / "../train/options.def")]
    words = set(re.findall(r"[A-Z]+", " ".join(argument or "" for _, argument, _ in rows)))
    for name, argument, text in rows:
        name = name.replace("_", "-")
        first = re.match(r"\w+", text)[0]
        said = marked(sentence(text, [first] if first in (argument or "").split("|") else []), words)
        yield f"*--{name}*{' ' + argument_of(argument) if argument else ''}\n\t{said}"


def status(verb):
    yield "# EXIT STATUS"
    yield marked(sentence(verb.status), words_of(verb))


def main():
    verbs = tables.read(TOOLS)
    text = TEMPLATE.read_text()
    name = re.fullmatch(r"segalloc-(\w+)\.1\.scd", TEMPLATE.name)
    parts = {"VERBS": (f"*{verb.name}*\n\t{marked(sentence(verb.summary))} See *segalloc-{verb.name}*(1)." for verb in verbs),
             "PAGES": [", ".join(f"*segalloc-{verb.name}*(1)" for verb in verbs)], "TRAINER": trainer()}
    if name and name[1] != "train":
        verb = next(verb for verb in verbs if verb.name == name[1])
        parts |= {"HEAD": head(verb), "ABOUT": about(verb), "OPTIONS": options(verb), "STATUS": status(verb)}
    for part, paragraphs in parts.items():
        text = text.replace(f"@{part}@", "\n\n".join(paragraphs))
    left = re.search(r"^@[A-Z]+@", text, re.M)
    if left:
        sys.exit(f"{TEMPLATE}: nothing stands for {left[0]}")
    print(text, end="")


main()
