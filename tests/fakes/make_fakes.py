"""Makes a fake of each function that headers declare: it records the call, and answers what the test said (fakes.h).

    make_fakes.py SOURCE_ROOT OUTPUT DEPFILE HEADER...

HEADER: of the core, as sources include it. All headers of src/preload are taken too. A fake is a weak symbol, so the linker takes the function itself where a test has
it. Variables that the headers declare are there too, all zero."""
import pathlib
import re
import sys

ROOT, OUTPUT, DEPFILE = map(pathlib.Path, sys.argv[1:4])
PRELOAD = ROOT / "src/preload"
# Those of functions that the driver has (fakes.c), that programs define, or that are no functions.
OTHERS = ("process/hooks.h", "process/hook_table.h", "process/glibc_symver.h", "torch/cxx_function.h")
PARAMETERS = r"\((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*\)"
ATTRIBUTE = re.compile(r"\s+(?:SG_\w+\(\w+\)|__attribute__\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\))")
FUNCTION = re.compile(rf"^(?!static|typedef|extern|struct \w+;)((?:[\w*]+[\s*]+)+?\**)(\w+)({PARAMETERS})\s*;", re.MULTILINE)
VARIABLE = re.compile(r"^extern ((?:\w+ )+)(\*?\w+(?:,\s*\*?\w+)*);", re.MULTILINE)
OWN = {"sg_process_driver", "sg_enter_allocation", "sg_enter_traced"}  # those of fakes.c
KEPT = ("sg_tag", "sg_request", "sg_stream_id", "sg_vector_clock")  # what is behind a pointer to one of them is kept


def code_of(path):
    """The text without comments, directives, attributes and what stands in braces."""
    text = re.sub(r"/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = ATTRIBUTE.sub("", text)
    while re.search(r"\{[^{}]*\}", text):
        text = re.sub(r"\{[^{}]*\}", " ", text)
    # What is left of an inline function would be read together with what follows.
    return re.sub(rf"^static inline\b[^;]*?{PARAMETERS}\s*$", "", text, flags=re.MULTILINE)


def parameters(text):
    """(declaration, name) of each."""
    depth, parts = 0, [""]
    for char in text.strip()[1:-1]:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    for part in map(str.strip, parts):
        if part and part != "void":
            yield part, (re.search(r"\(\*(\w+)\)", part) or re.search(r"(\w+)(?:\[[^\]]*\])?$", part))[1]


def is_struct(declaration):
    return bool(re.match(r"(?:const )?(?:struct \w+|CUipc\w+|CUmemLocation) \w+$", declaration))


def fake(result, name, text):
    given = list(parameters(text))
    values = ", ".join("0" if is_struct(declaration) else f"(uintptr_t){argument}" for declaration, argument in given)
    lines = [f"__attribute__((weak)) {result}{name}{' '.join(text.split())}", "{", "    static struct fakes_function *made_fake;",
             f'    made_fake = made_fake ? made_fake : fakes_function("{name}");']
    kinds = "".join("s" if is_struct(declaration) else "p" if "*" in declaration else "n" for declaration, _ in given)
    lines += [f'    made_fake->kinds = "{kinds}";']
    lines += [f"    (void){argument};" for declaration, argument in given if is_struct(declaration)]
    for declaration, argument in given:
        kept = re.match(r"const struct (\w+) \*", declaration)
        if kept and kept[1] in KEPT:
            lines.append(f"    fakes_keep(made_fake, {argument}, sizeof *{argument});")
    call = f"fakes_call(made_fake, {len(given)}, (const uint64_t[]){{{values or '0'}}})"
    if result.strip() == "void":
        lines.append(f"    (void){call};")
    elif re.match(r"struct \w+ $", result):
        lines += [f"    (void){call};", f"    return ({result.strip()}){{0}};"]
    else:
        lines.append(f"    return ({result.strip()}){'(uintptr_t)' if '*' in result else ''}{call};")
    return "\n".join(lines + ["}"])


def main():
    files = {header: ROOT / "src" / header for header in sys.argv[4:]}
    files |= {str(path.relative_to(PRELOAD)): path for path in sorted(PRELOAD.glob("*/*.h"))}
    out = ["/* Made by make_fakes.py. */", '#include "fakes.h"', ""]
    out += [f'#include "{header}"' for header in files if header not in OTHERS]
    seen = set(OWN)
    for code in (code_of(path) for header, path in files.items() if header not in OTHERS):
        for result, name, text in FUNCTION.findall(code):
            if name not in seen:
                seen.add(name)
                out += ["", fake(" ".join(result.split()) + ("" if result.endswith("*") else " "), name, text)]
        for kind, names in VARIABLE.findall(code):
            for name in names.split(","):
                if name.strip("* \n") not in seen:
                    seen.add(name.strip("* \n"))
                    out += ["", f"{kind}{name.strip()} __attribute__((weak));"]
    OUTPUT.write_text("\n".join(out) + "\n")
    folders = {path.parent for path in files.values()} # a new header changes one
    DEPFILE.write_text(f"{OUTPUT.name}: {' '.join(map(str, [*files.values(), *sorted(folders)]))}\n")


if __name__ == "__main__":
    main()
