"""Prints completion for bash, zsh or fish: tables.py SHELL TOOLS SIM_SETTINGS FILE….

Verbs, options, their values and descriptions are those of the tables in TOOLS, the folder tools/segalloc; the configuration's are those
that `segalloc conf --help-options` prints, and the trainer's those of its --help. The files hold what was printed: options.txt, and
train.txt where the trainer is built. SIM_SETTINGS is the table of what --sim takes. The template segalloc.SHELL has a line @TABLES@,
which is replaced."""
import pathlib
import re
import sys

SHELL, TOOLS, SIM_SETTINGS, *FILES_PRINTED = sys.argv[1:]
sys.dont_write_bytecode = True  # not into the source folder
sys.path.insert(0, str(pathlib.Path(TOOLS) / "cli"))
import tables as command_line  # noqa: E402

SIZES = ["8GiB", "12GiB", "16GiB", "24GiB", "32GiB", "40GiB", "48GiB", "80GiB", "94GiB"]  # of cards that are sold
FILES, FOLDERS, NOTHING, CONF, KEYS, PIDS = "@files", "@folders", "@nothing", "@conf", "@keys", "@pids"
# Completions of a value, or of operands, of these kinds.
OFFERED = {"NONE": [NOTHING], "TEXT": [NOTHING], "NUMBER": [NOTHING], "SIZE": [NOTHING], "FILE": [FILES], "CARD_SIZE": SIZES, "SETTINGS": [CONF],
           "PARAMETER": ["@param"], "FILES": [FILES], "PIDS": [PIDS], "COMMAND": ["@command"]}
# An option of the trainer's help, its metavariable (in capitals, a range or a choice) and what the line says of it.
OPTION = re.compile(r"^ {2,6}(?:(-\w), )?(--[a-z][a-z-]*)(?: ([^a-z\s]\S*|[a-z]\w*\|\S+))?(?:, --.*| +(.*))?$")
# Completions of the trainer's metavariables that aren't their own list of alternatives.
METAVARIABLES = {"FILE": FILES, "OUTPUT": FILES, "FOLDER": FOLDERS}


class Option:
    """One option: `short` may be None, `kind` is what is offered for its value, None where it takes none."""

    def __init__(self, short, long, text, kind=None):
        self.short, self.long, self.text, self.kind = short, long, text, kind


def words_of(choice):
    """The words of `a|b|NAME`."""
    return [word for word in choice.split("|") if re.fullmatch(r"[a-z][a-z0-9]*", word)] or [NOTHING]


def offered(option, settings):
    """Completions of the value of an option of a table: a kind above, words, or `@list` and words between commas."""
    if option.argument and option.argument.startswith("[="): # the word after it is no value
        return None
    if option.value == "NONE":
        return [KEYS] if option.name == "--help-options" else None
    if option.value == "WORDS":
        return words_of(option.argument)
    if option.value == "KEYS":
        return re.findall(r"\b[a-z]+=", option.text)
    if option.value == "SIM":
        return ["@list", *SIZES, *settings]
    if option.value == "CARDS":
        return ["@list", *SIZES, *(values[0] for _, values in command_line.rows(pathlib.Path(TOOLS) / "../../src/driver/cards.def"))]
    if option.value == "FORMAT":
        return [values[0] for _, values in command_line.rows(pathlib.Path(TOOLS) / "export/formats.def")]
    return OFFERED[option.value]


def of_verb(verb, settings):
    """The options of a verb that its help has."""
    options = [Option(row.letter, row.name, row.text, offered(row, settings)) for row in verb.options if row.text]
    return [*options, Option("-h", "--help", "print this")]


def section(text, heading):
    """The names under a heading such as `Presets:`."""
    rows = re.search(rf"^{heading}:\n((?: .*\n)+)", text, re.M)
    return re.findall(r"^ {2}([a-z][\w-]*) ", rows[1], re.M) if rows else []


def kind_of(long, value, text, whole):
    """Completions of the value of an option of the trainer. `text` is its line in the help, `whole` all of the help."""
    if long in ("--preset", "--scenario"):
        return section(whole, long[2:].capitalize() + "s")
    if value in METAVARIABLES:
        return [METAVARIABLES[value]]
    if value == "SIZE":
        return SIZES if long == "--card" else [NOTHING]
    if value == "MODEL":
        return re.findall(r"([a-z]+:?)(?=[\[,P]| or)", text.split(": ", 1)[1])
    return words_of(value)


def of_trainer(text):
    """The options of the trainer's --help, in its order, each with its whole description."""
    found, values = {}, {}
    option = None
    for line in text.splitlines():
        match = OPTION.match(line)
        if match:
            option = found.setdefault(match[2], Option(match[1], match[2], match[4] or ""))
            values.setdefault(match[2], match[3] and match[3].rstrip(","))
        elif option and line.startswith(" " * 8):
            option.text = f"{option.text} {line.strip()}".strip()
        else:
            option = None
    for long, option in found.items():
        option.kind = kind_of(long, values[long], option.text, text) if values[long] else None
    return list(found.values())


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
    """All that is offered: `said` is what the programs print, by the names of the files."""

    def __init__(self, said, settings):
        verbs = command_line.read(TOOLS)
        self.verbs = [(verb.name, verb.summary) for verb in verbs]
        self.actions = next(verb.terms for verb in verbs if verb.name == "trace")
        self.conf = conf_values(said["options"])
        self.options = {verb.name: of_verb(verb, settings) for verb in verbs}
        self.operands = {verb.name: OFFERED[verb.operands][0] for verb in verbs}
        if "train" in said:
            self.options["train"], self.operands["train"] = of_trainer(said["train"]), NOTHING

    def arguments(self, verb):
        return self.operands[verb]


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
    keys = re.findall(r'^(FLAG|NUMBER|OTHER)\("([\w-]+)"', pathlib.Path(SIM_SETTINGS).read_text(), re.M)
    said = {pathlib.Path(file).stem.removeprefix("help-"): pathlib.Path(file).read_text() for file in FILES_PRINTED}
    tables = Tables(said, [key if kind == "FLAG" else f"{key}=" for kind, key in keys])
    template = (pathlib.Path(__file__).parent / f"segalloc.{SHELL}").read_text()
    print(template.replace("@TABLES@", {"bash": for_bash, "zsh": for_zsh, "fish": for_fish}[SHELL](tables)), end="")


if __name__ == "__main__":
    main()
