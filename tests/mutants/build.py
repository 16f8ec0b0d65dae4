"""A build folder in which single files are replaced: what it is made of, and programs linked anew around a mutant."""
import json
import os
import shlex
import subprocess


def output_of(command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", **kwargs)
    if done.returncode:
        raise SystemExit(f"mutants: {' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout


class DoesNotBuild(Exception):
    pass


class Build:
    """The mutants' build: optimized a little, so that compiling is quick, and with assertions. Of the tests, those of
    `suites`; of these, where there are `names`, those."""

    def __init__(self, root, folder, suites, names=()):
        self.root, self.folder = root, folder
        if not os.path.exists(os.path.join(folder, "build.ninja")):
            output_of(["meson", "setup", folder, root, "-Dbuildtype=plain", "-Db_ndebug=false", "-Dc_args=-O1",
                       "-Dtrain=disabled"], env=dict(os.environ, CC=os.environ.get("CC", "gcc")))
        output_of(["ninja", "-C", folder, "build.ninja"])  # what meson knows may be older than the tests
        self.tests = [test for test in self.introspect("--tests") if test["suite"][0].split(":")[-1] in suites
                      and (not names or test["name"] in names)]
        needed = {target for test in self.tests for target in test["depends"]}
        made = [os.path.relpath(target["filename"][0], folder) for target in self.introspect("--targets")
                if target["id"] in needed]
        if made:
            output_of(["ninja", "-C", folder, *made])
        self.source, self.arguments = {}, {}  # of each object
        with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
            for command in json.load(file):
                made = command["output"]
                self.source[made] = os.path.relpath(os.path.join(folder, command["file"]), root)
                self.arguments[made] = self.for_copies(shlex.split(command["command"]))
        self.includes = self.read_includes()
        self.links = {}

    def introspect(self, what):
        return json.loads(output_of(["meson", "introspect", what, self.folder]))

    def for_copies(self, command):
        """A compilation's arguments without its file, its output and what ninja wants of it."""
        kept, skip = [], False
        for argument in command:
            if skip or argument in ("-MD", "-c"):
                skip = False
            elif argument in ("-o", "-MF", "-MQ"):
                skip = True
            elif not argument.startswith("-") and argument.endswith((".c", ".cpp")):
                continue
            elif os.path.basename(argument) != "ccache":
                kept.append(argument)
        return kept

    def read_includes(self):
        includes, current = {}, None
        for line in output_of(["ninja", "-C", self.folder, "-t", "deps"]).split("\n"):
            if line.startswith("    ") and current:
                includes[current].add(os.path.relpath(os.path.join(self.folder, line.strip()), self.root))
            elif ": #deps" in line:
                current = line.split(": #deps")[0]
                includes[current] = set()
        return includes

    def parser_arguments(self):
        """{source: arguments for libclang}, of what is compiled in place."""
        builtin = output_of(["clang", "-print-file-name=include"]).strip()
        found = {}
        for made, source in self.source.items():
            kept = [a for a in self.arguments[made] if a.startswith(("-D", "-std"))]
            kept += ["-I" + os.path.join(self.folder, a[2:]) for a in self.arguments[made] if a.startswith("-I")]
            found.setdefault(source, kept + ["-isystem", builtin])
        return found

    def target(self, path):
        """The name of what ninja links at a path; None for everything else."""
        name = os.path.relpath(os.path.join(self.folder, path), self.folder)
        if name.startswith("..") or not os.path.isfile(os.path.join(self.folder, name)):
            return None
        return name if self.link_of(name) else None

    def link_of(self, name):
        """A link's arguments, with the objects and members of archives that it is made of; None: it is no link."""
        if name not in self.links:
            listed = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", name], capture_output=True,
                                    text=True)
            last = "" if listed.returncode else listed.stdout.strip().split("\n")[-1]
            command = shlex.split(last.split(" && ")[0])
            linked = "-o" in command and any(a.endswith(".o") for a in command)
            self.links[name] = (command, self.members(command)) if linked else None
        return self.links[name]

    def members(self, command):
        found = {}
        for argument in command:
            if argument.endswith(".o"):
                found[argument] = None
            elif argument.endswith(".a") and not os.path.isabs(argument):
                listed = output_of(["ar", "t", os.path.join(self.folder, argument)]).split()
                folder = argument + ".p/"
                found.update({folder + os.path.basename(member): argument for member in listed})
        return found

    def touched(self, name, file):
        """The objects of a link that a source or header is part of: {object: its archive or None}."""
        link = self.link_of(name)
        return {made: archive for made, archive in link[1].items()
                if self.source.get(made) == file or file in self.includes.get(made, ())}


class Mutant:
    """One site's mutant in a folder of its own: objects and links are made when they are asked for."""

    def __init__(self, build, site, folder):
        self.build, self.site, self.folder = build, site, folder
        self.objects, self.linked = {}, {}
        self.layer = "/".join(site.file.split("/")[:2])
        self.at = os.path.join(folder, "source", self.layer)
        original = os.path.join(build.root, site.file)
        if site.file.endswith(".h"):  # so that the rest of its layer, which includes it, is found in place
            for at, _, names in os.walk(os.path.join(build.root, self.layer)):
                there = os.path.join(self.at, os.path.relpath(at, os.path.join(build.root, self.layer)))
                os.makedirs(there, exist_ok=True)
                for other in names:
                    if other.endswith((".h", ".c", ".def")):
                        os.symlink(os.path.join(at, other), os.path.join(there, other))
            os.remove(self.copy_of(site.file))
        os.makedirs(os.path.dirname(self.copy_of(site.file)), exist_ok=True)
        with open(original, "rb") as file:
            text = site.apply(file.read())
        with open(self.copy_of(site.file), "wb") as file:
            file.write(text)

    def copy_of(self, source):
        return os.path.join(self.at, os.path.relpath(source, self.layer))

    def compile(self, made, *extra):
        """The object that takes the place of one of the build's. Where the same file is compiled twice, once is enough,
        as code that may be loaded anywhere. Not optimized: most mutants cost more to compile than to notice. What a
        sanitizer's build would report ends the program, since the same tests run there."""
        source = self.build.source[made]
        arguments = self.build.arguments[made]
        extra = extra or ("-O0", "-g0", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
        key = (source, *sorted(a for a in arguments if a.startswith("-D")), *extra)
        if key not in self.objects:
            output = os.path.join(self.folder, f"{len(self.objects)}.o")
            copy = self.copy_of(source)
            if not source.startswith(self.layer + "/") or not os.path.exists(copy):
                copy = os.path.join(self.build.root, source)
            home = os.path.join(self.build.root, os.path.dirname(source))
            done = subprocess.run(
                [a for a in arguments if not a.startswith("-W")] +
                ["-w", "-fPIC", *extra, "-iquote", self.at, "-iquote", home, "-o", output, "-c", copy],
                cwd=self.build.folder, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise DoesNotBuild(done.stderr.strip()[:300])
            self.objects[key] = output
        return self.objects[key]

    def link(self, name):
        """The path of a program or library of the build with the mutant in it; where it is no part of that, of the
        build's own."""
        if name in self.linked:
            return self.linked[name]
        touched = self.build.touched(name, self.site.file)
        path = os.path.join(self.build.folder, name)
        if touched:
            path = os.path.join(self.folder, "build", name)
            self.make_room(path)
            arguments = list(self.build.link_of(name)[0])
            for made, archive in touched.items():
                if archive is None:
                    arguments[arguments.index(made)] = self.compile(made)
                else:  # an object before an archive takes the place of its member
                    first = next(i for i, a in enumerate(arguments) if a.endswith((".o", ".a")))
                    arguments.insert(first, self.compile(made))
            arguments[arguments.index("-o") + 1] = path
            home = os.path.join(self.build.folder, os.path.dirname(name))
            done = subprocess.run([a.replace("$ORIGIN", home) for a in arguments], cwd=self.build.folder,
                                  capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise DoesNotBuild(done.stderr.strip()[:300])
        self.linked[name] = path
        return path

    def make_room(self, path):
        """The folder of a link, and what the tools find beside themselves in a build: the library, the simulator."""
        folder, name = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        if ".so." in name:
            for short in (name.split(".so.")[0] + ".so", name.split(".so.")[0] + ".so.0"):
                os.symlink(name, os.path.join(folder, short))
        simulator = os.path.join(self.folder, "build", "src", "sim")
        if not os.path.lexists(simulator):
            os.makedirs(os.path.dirname(simulator), exist_ok=True)
            os.symlink(os.path.join(self.build.folder, "src", "sim"), simulator)

    def is_equal(self, targets):
        """Whether release builds make the same code of it: compared object by object."""
        release = ("-O2", "-DNDEBUG", "-g0")
        for made in {made for name in targets for made in self.build.touched(name, self.site.file)}:
            if not self.build.source[made].startswith("src/"):
                continue
            with open(self.compile(made, *release), "rb") as mutated, open(self.original(made, release), "rb") as kept:
                if mutated.read() != kept.read():
                    return False
        return True

    def original(self, made, release):
        """The unchanged object for comparing, made once a build; in a copy too, since objects name their source."""
        source = self.build.source[made]
        path = os.path.join(self.build.folder, "unchanged-" + source.replace("/", "-") + ".o")
        parts = [source, *self.build.includes.get(made, ())]
        newest = max(os.path.getmtime(os.path.join(self.build.root, part)) for part in parts)
        if not os.path.exists(path) or os.path.getmtime(path) < newest:
            copy = os.path.join(self.folder, os.path.basename(source))
            with open(os.path.join(self.build.root, source), "rb") as file, open(copy, "wb") as out:
                out.write(file.read())
            partial = f"{path}.{os.path.basename(self.folder)}"
            output_of([a for a in self.build.arguments[made] if not a.startswith("-W")] +
                      ["-w", "-fPIC", *release, "-iquote", os.path.join(self.build.root, os.path.dirname(source)),
                       "-o", partial, "-c", copy], cwd=self.build.folder)
            os.replace(partial, path)
        return path
