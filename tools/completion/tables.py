"""Prints completion for bash, zsh or fish: tables.py SHELL SIM_SETTINGS FILE….

Verbs, options, their values and descriptions are those that the programs print by --help, and by `segalloc conf --help-options`. The
files hold what was printed: segalloc.txt, a VERB.txt each, options.txt, and train.txt where the trainer is built. SIM_SETTINGS is the
table of what --sim takes. The template segalloc.SHELL has a line @TABLES@, which is replaced."""
import pathlib
import re
import sys

SIZES = ["8GiB", "12GiB", "16GiB", "24GiB", "32GiB", "40GiB", "48GiB", "80GiB", "94GiB"]  # of cards that are sold
FILES, FOLDERS, NOTHING, CONF, KEYS, PIDS = "@files", "@folders", "@nothing", "@conf", "@keys", "@pids"
# An option, its metavariable (in capitals, a range or a choice) and what the line says of it.
OPTION = re.compile(r"^ {2,6}(?:(-\w), )?(--[a-z][a-z-]*)(?: ([^a-z\s]\S*|[a-z]\w*\|\S+))?(?:, --.*| +(.*))?$")
# What a metavariable stands for, where it isn't its own list of alternatives.
KINDS = {"FILE": FILES, "TRACE": FILES, "PAGE": FILES, "OUTPUT": FILES, "CSV": FILES, "FOLDER": FOLDERS, "K:V,…": CONF}
# Verbs whose arguments aren't files: a command, processes, both of these, settings.
ARGUMENTS = {"run": "@command", "rehearse": "@command", "doctor": "@command", "top": PIDS, "metrics": PIDS, "trim": PIDS, "conf": CONF}


class Option:
    """One option: `short` may be None, `value` is None where it takes none, `kind` says what a value may be."""

    def __init__(self, short, long, metavar, text):
        self.short, self.long, self.value, self.text = short, long, metavar and metavar.rstrip(","), text
        self.kind = None


def options_of(text):
    """The options of a --help, in its order, each with its whole description."""
    found = {}
    option = None
    for line in text.splitlines():
        match = OPTION.match(line)
        if match:
            option = found.setdefault(match[2], Option(match[1], match[2], match[3], match[4] or ""))
        elif option and line.startswith(" " * 8):
            option.text = f"{option.text} {line.strip()}".strip()
        else:
            option = None
    return list(found.values())


def section(text, heading):
    """The names under a heading such as `Presets:`."""
    rows = re.search(rf"^{heading}:\n((?: .*\n)+)", text, re.M)
    return re.findall(r"^ {2}([a-z][\w-]*) ", rows[1], re.M) if rows else []


def kind_of(option, text, formats, settings):
    """What completes the value of an option: one of the kinds above, `@list` and words that are separated by commas, or words."""
    value = option.value
    if option.long == "--sim":
        return ["@list", *SIZES, *settings]
    if option.long == "--card" and value == "LIST":
        return ["@list", *SIZES, *re.findall(r"[\w-]+", option.text.split("names:")[1])]
    if option.long == "--format" and value == "NAME":
        return formats
    if option.long in ("--preset", "--scenario"):
        return section(text, option.long[2:].capitalize() + "s")
    if value in KINDS:
        return [KINDS[value]]
    if value == "SIZE":
        return SIZES if option.long in ("--card", "--limit") else [NOTHING]
    if value.startswith("NAME="):
        return ["@param"] if option.long == "--param" else [NOTHING]
    if value == "K=V":
        return re.findall(r"\b[a-z]+=", option.text)
    if value == "MODEL":
        return re.findall(r"([a-z]+:?)(?=[\[,P]| or)", option.text.split(": ", 1)[1])
    words = [word for word in value.split("|") if re.fullmatch(r"[a-z][a-z0-9]*", word)]
    return words or [NOTHING]


def conf_values(text):
    """For each key of --conf the values that are words, and examples of others."""
    values = {}
    for entry in text.strip().split("\n\n"):
        head, *_, takes = entry.split("\n")
        if ":" not in head:  # PyTorch's options without effect, which nobody need be offered
            continue
        takes = takes.strip()[len("Takes "):].split(". PyTorch")[0].rstrip(".")
        words = []
        for part in re.split(r", or | or |, ", takes):
            if re.fullmatch(r"[A-Za-z]\w*", part):
                words.append(part)
            elif part == "0 for off":
                words.append("0")
            words += re.findall(r"such as (\S+)", part)
        values[head.split(":")[0]] = [FILES] if takes.startswith("a path") else words
    return values


class Tables:
    """All that the programs say of themselves: `said` by the names of the files."""

    def __init__(self, said, settings):
        self.verbs = re.findall(r"^  ([a-z]+)  +(.*)$", said["segalloc"], re.M)
        self.helps = {verb: said[verb] for verb, _ in self.verbs}
        actions = re.findall(r"^  ([a-z]+)  +(.*)$", self.helps["trace"], re.M)
        formats = re.findall(r"^ {12}([a-z]+) +([a-z].*)$", self.helps["trace"], re.M)
        self.actions, self.formats = actions, formats
        self.conf = conf_values(said["options"])
        if "train" in said:
            self.helps["train"] = said["train"]
        self.options = {verb: options_of(text) for verb, text in self.helps.items()}
        for verb, options in self.options.items():
            for option in options:
                if option.value:
                    option.kind = kind_of(option, self.helps[verb], [name for name, _ in formats], settings)
                elif option.long == "--help-options":
                    option.kind = [KEYS]

    def arguments(self, verb):
        return ARGUMENTS.get(verb, FILES if verb != "train" else NOTHING)


def shortened(text):
    """The beginning of a description, for the list that a shell shows."""
    clause = re.split(r"[;:(]|\. ", re.sub(r"^[a-z]+(, [a-z]+)*: ", "", text))[0].strip()
    if " " not in clause:  # a single word says nothing
        clause = text.replace(":", ",")
    return clause if len(clause) <= 60 else clause[:60].rsplit(" ", 1)[0].rstrip(",")


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def arrays(tables, row):
    """The tables as associative arrays, by VERB and by `VERB OPTION`; `row` writes a key with its value."""
    lines = [f"_segalloc_{name}=(" + " ".join(quoted(f"{word}:{shortened(text)}") for word, text in pairs) + ")"
             for name, pairs in (("verbs", tables.verbs), ("actions", tables.actions))]
    options = {verb: "\n".join(f"{option.long}:{shortened(option.text)}" for option in each) for verb, each in tables.options.items()}
    values = {f"{verb} {name}": " ".join(option.kind) for verb, each in tables.options.items() for option in each if option.kind
              for name in (option.long, option.short) if name}
    arguments = {verb: tables.arguments(verb) for verb in tables.options}
    conf = {key: " ".join(words) for key, words in tables.conf.items()}
    for name, table in (("options", options), ("arguments", arguments), ("values", values), ("conf", conf)):
        lines += [f"_segalloc_{name}=(", *("    " + row(quoted(key), quoted(value)) for key, value in table.items()), ")"]
    return "\n".join(lines)


def for_bash(tables):
    return arrays(tables, lambda key, value: f"[{key}]={value}")


def for_zsh(tables):
    return arrays(tables, lambda key, value: f"{key} {value}")


def for_fish(tables):
    """One `complete` for each verb, option and kind of argument."""
    takers = [f"{verb} {name}" for verb, options in tables.options.items() for option in options if option.kind
              for name in (option.long, option.short) if name]
    lines = [f"set -g __segalloc_conf {' '.join(fish_quoted(' '.join([key, *words])) for key, words in tables.conf.items())}",
             f"set -g __segalloc_takers {' '.join(map(fish_quoted, takers))}"]
    for name, text in tables.verbs:
        lines.append(f"complete -c segalloc -n '__segalloc_at 1' -f -a {name} -d {fish_quoted(text)}")
    for name, text in tables.actions:
        lines.append(f"complete -c segalloc -n '__segalloc_at 2; and __segalloc_verb trace' -f -a {name} -d {fish_quoted(shortened(text))}")
    for verb, options in tables.options.items():
        command, when = ("segalloc-train", "") if verb == "train" else ("segalloc", f" -n '__segalloc_verb {verb}'")
        kind = tables.arguments(verb)
        if kind == "@command":
            lines.append(f"complete -c segalloc -n '__segalloc_command {verb}' -x -a '(__segalloc_subcommand)'")
        elif kind != FILES:
            lines.append(f"complete -c {command}{when} -f" + (f" -a '(__segalloc_values {kind})'" if kind != NOTHING else ""))
        for option in options:
            line = f"complete -c {command}{when} -l {option.long[2:]}" + (f" -s {option.short[1]}" if option.short else "")
            if option.kind and option.kind[0] == FILES:
                line += " -r -F"
            elif option.kind:
                words = fish_quoted(f"(__segalloc_values {' '.join(option.kind)})") if option.kind[0].startswith("@") else fish_quoted(" ".join(option.kind))
                line += f" -x -a {words}"
            lines.append(f"{line} -d {fish_quoted(shortened(option.text))}")
    return "\n".join(lines)


def main():
    shell, settings, *files = sys.argv[1:]
    keys = re.findall(r'^(FLAG|NUMBER|OTHER)\("([\w-]+)"', pathlib.Path(settings).read_text(), re.M)
    said = {pathlib.Path(file).stem.removeprefix("help-"): pathlib.Path(file).read_text() for file in files}
    tables = Tables(said, [key if kind == "FLAG" else f"{key}=" for kind, key in keys])
    template = (pathlib.Path(__file__).parent / f"segalloc.{shell}").read_text()
    print(template.replace("@TABLES@", {"bash": for_bash, "zsh": for_zsh, "fish": for_fish}[shell](tables)), end="")


if __name__ == "__main__":
    main()
