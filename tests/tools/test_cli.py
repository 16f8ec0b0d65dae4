"""The command line without the library or a GPU: usage, exit statuses, messages, the environment that `run` prepares.

Usage: test_cli.py SEGALLOC"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # not into the source folder
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/segalloc/cli"))
import tables  # noqa: E402

SEGALLOC = os.path.abspath(sys.argv.pop(1))
# In a build with a sanitizer its runtime, which must come before all other libraries.
SANITIZER = os.environ.get("SANITIZER", "")
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH")


def segalloc(*arguments, env=None, cwd=None, stdout=subprocess.PIPE):
    """Runs segalloc in an environment without anything of ours but `env`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    if SANITIZER:
        clean["LD_PRELOAD"] = SANITIZER
    clean.update(env or {})
    return subprocess.run([SEGALLOC, *arguments], env=clean, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=60)


class CommandLine(unittest.TestCase):
    def one_line(self, result, status, *words):
        self.assertEqual(result.returncode, status, result)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_help_and_version(self):
        result = segalloc("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        verbs = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and line[2] != "-"]
        self.assertIn("run", verbs)
        pages = pathlib.Path(__file__).resolve().parents[2] / "docs" / "man"
        self.assertEqual([verb for verb in verbs if not (pages / f"segalloc-{verb}.1.scd").exists()], [])
        for verb in verbs:
            for arguments in ((verb, "--help"), ("help", verb)):
                result = segalloc(*arguments)
                self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
                self.assertTrue(result.stdout.startswith("usage: segalloc " + verb), result.stdout)
                self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, arguments)
        self.assertRegex(segalloc("--version").stdout, r"^segalloc \d+\.\d+\.\d+\n$")

    def test_manual_and_help_have_each_option(self):
        """Both are made from the table of a verb: each has all of its rows, and the usage names no option that there isn't."""
        root = pathlib.Path(__file__).resolve().parents[2]
        verbs = tables.read(root / "tools/segalloc")
        told = segalloc("--help").stdout
        self.assertEqual([(verb.name, verb.summary) for verb in verbs], re.findall(r"^  ([a-z]+)  +(.*)$", told, re.M))
        for verb in verbs:
            with self.subTest(verb=verb.name):
                told = segalloc(verb.name, "--help").stdout
                shown = [option for option in verb.options if option.text]
                self.assertEqual(re.findall(r"^ {2,6}(?:-\w, )?(--[\w-]+)", told, re.M), [*(option.name for option in shown), "--help"])
                self.assertEqual(re.findall(r"^  (-\w), --", told, re.M), [*(option.letter for option in shown if option.letter), "-h"])
                for text in (*verb.usage, *verb.about, *(option.text for option in shown), verb.status):
                    self.assertIn(" ".join(text.split()), " ".join(told.split()))
                used = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(verb.usage)))
                self.assertLessEqual(used, {name for option in verb.options for name in option.names()})
                page = subprocess.run([sys.executable, root / "docs/man/pages.py", root / "tools/segalloc", root / f"docs/man/segalloc-{verb.name}.1.scd"],
                                      stdout=subprocess.PIPE, text=True, check=True).stdout
                heads = re.findall(r"^\*-.*", page.split("\n# OPTIONS\n")[1].split("\n# ")[0], re.M)
                self.assertEqual([re.findall(r"\*(--?[\w-]+)\*", head) for head in heads], [option.names() for option in verb.options])
                for option in shown:
                    if option.argument and option.argument.startswith("["):
                        continue
                    if option.argument:
                        self.one_line(segalloc(verb.name, option.name), 125 if verb.name == "run" else 2, f"{option.name} needs a value")
                    else:
                        self.one_line(segalloc(verb.name, f"{option.name}=1"), 125 if verb.name == "run" else 2, f"{option.name} takes no value")

    def test_help_comes_before_what_is_wrong(self):
        """--help is answered where another option is wrong; not where it is the value of an option, or the command's own."""
        self.assertTrue(segalloc("tune", "--nope", "--help").stdout.startswith("usage: segalloc tune"))
        self.assertTrue(segalloc("report", "a-file", "-h").stdout.startswith("usage: segalloc report"))
        self.one_line(segalloc("trim", "--keep", "--help", "1"), 2, "--keep takes a size", '"--help"')
        self.one_line(segalloc("report", "--", "--help"), 1, "--help")

    def test_what_is_installed(self):
        """Path, completions and manual pages, wherever the tool is."""
        path = segalloc("--preload-path").stdout.strip()
        self.assertTrue(os.path.isabs(path) and os.access(path, os.R_OK) and "libsegalloc.so" in path, path)
        for shell in ("bash", "zsh", "fish"):
            told = segalloc("completion", shell)
            if told.returncode:  # a build that could not run the tool makes none
                self.one_line(told, 1, "not installed")
            else:
                self.assertIn("rehearse", told.stdout)
        self.one_line(segalloc("completion"), 2, "bash, zsh or fish")
        self.one_line(segalloc("completion", "csh"), 2, '"csh"')
        self.one_line(segalloc("man", "nothing"), 1, "no page nothing")
        self.one_line(segalloc("man", "../../x"), 1, "no page ../../x")

    def test_wrong_usage(self):
        self.one_line(segalloc(), 2, "which verb")
        self.one_line(segalloc("cnof"), 2, '"cnof"', "did you mean conf?")
        self.one_line(segalloc("zzzzzzzzz"), 2, "zzzzzzzzz")
        self.one_line(segalloc("--nope"), 2, "--nope")
        self.one_line(segalloc("conf", "--jsn"), 2, "--jsn", "did you mean --json?", "segalloc conf --help")
        self.one_line(segalloc("conf", "--json=1"), 2, "--json takes no value")
        self.one_line(segalloc("conf", "-x"), 2, "-x")
        self.one_line(segalloc("conf", "live:True", "live:False"), 2, "live:False")
        self.one_line(segalloc("conf", "--help-options", "limt"), 2, "did you mean limit?")
        self.assertIn("no effect on segalloc", segalloc("conf", "--help-options", "pinned_free_catch_all").stdout)
        self.assertIn("\n    pinned_free_catch_all\n", segalloc("conf", "--help-options").stdout)
        self.one_line(segalloc("run"), 125, "which program")
        self.one_line(segalloc("run", "--conf"), 125, "--conf needs a value")
        self.one_line(segalloc("run", "--sym", "24GiB", "true"), 125, "did you mean --sim?")

    def test_one_option(self):
        told = segalloc("conf", "--help-options", "limit").stdout
        self.assertTrue(told.startswith("limit:0\n") and told.count("\n") == 3, told)
        self.assertIn("1 (which rounds nothing either", segalloc("conf", "--help-options", "roundup_power2_divisions").stdout)

    def test_the_manual_of_options(self):
        """A sentence begins with a capital, but a value stays as it is written."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "man", "options.py")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as options:
            options.write(segalloc("conf", "--help-options").stdout)
            options.flush()
            page = subprocess.run([sys.executable, script, options.name], capture_output=True, text=True, timeout=60).stdout
        self.assertIn("_pinned\\_free\\_catch\\_all_", page)
        for begins in ("native, or cudaMallocAsync:", "always: serve", "direct: PyTorch", "Serve memory from"):
            self.assertIn(f"\t{begins}", page)

    def test_an_equals_sign(self):
        for arguments, env in ((("reserve_slack=1",), {}), ((), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments=True"})):
            said = segalloc("conf", *arguments, env=env).stderr
            self.assertIn("goes a colon", said)
            self.assertIn("reserve_slack:1" if arguments else "expandable_segments:True", said)

    def test_full_standard_output(self):
        with open("/dev/full", "w") as full:
            result = segalloc("conf", stdout=full)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", result.stderr)


class Conf(unittest.TestCase):
    def options(self, *arguments, env=None, status=0):
        result = segalloc("conf", "--json", *arguments, env=env)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout.count("\n"), 1)
        parsed = json.loads(result.stdout)
        self.assertEqual(parsed["schema"], "segalloc.conf/1")
        return parsed["options"], result.stderr

    def test_values_and_sources(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# of this machine\npage_size_mb:16\nfree_sync:event\n")
            file.flush()
            options, _ = self.options("free_sync:strict", env={
                "SEGALLOC_CONF_FILE": file.name, "SEGALLOC_CONF": "limit:0.5", "SEGALLOC_TRACE": "a,b",
                "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,garbage_collection_threshold:0.8",
                "PYTORCH_ALLOC_CONF": "max_split_size_mb:256"})
        told = {name: (option["value"], option["source"]) for name, option in options.items()}
        self.assertEqual(told["page_size_mb"], ("16", "SEGALLOC_CONF_FILE"))
        self.assertEqual(told["free_sync"], ("strict", "--conf"))
        self.assertEqual(told["limit"], ("0.5", "SEGALLOC_CONF"))
        self.assertEqual(told["trace"], ("a,b", "SEGALLOC_CONF"))
        self.assertEqual(told["max_split_size_mb"], ("128", "PYTORCH_CUDA_ALLOC_CONF"))
        self.assertEqual(told["garbage_collection_threshold"], ("0.8", "PYTORCH_CUDA_ALLOC_CONF"))
        self.assertEqual(told["live"], ("False", "default"))
        self.assertTrue(all(o["value"] == o["default"] for o in options.values() if o["source"] == "default"))

    def test_bad_values(self):
        options, errors = self.options(env={"SEGALLOC_CONF": "max_split_size_mb:7,liive:True,page_size_mb:8"}, status=1)
        self.assertEqual(options["page_size_mb"]["value"], "8")
        self.assertEqual(options["max_split_size_mb"]["value"], "0")
        self.assertEqual(len(errors.splitlines()), 2)
        self.assertIn("max_split_size_mb:7: must be 0 for off, or 20 to", errors)
        self.assertIn("did you mean live?", errors)

    def test_texts(self):
        names = set(self.options()[0])
        text = segalloc("conf").stdout
        self.assertEqual({line.split()[0] for line in text.splitlines()}, names)
        texts = segalloc("conf", "--help-options").stdout
        for name in names:
            self.assertIn(name + ":", texts)


class Run(unittest.TestCase):
    """A library that does nothing stands in for libsegalloc.so where one has to be there."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.library = os.path.join(os.path.realpath(cls.folder.name), "libsegalloc.so.0")
        source = os.path.join(cls.folder.name, "nothing.c")
        with open(source, "w") as file:
            file.write("int segalloc_stands_in = 1;\n")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-shared", "-fPIC", "-o", cls.library, source], check=True)
        cls.env = {"SEGALLOC_LIB": cls.library}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_it(self, *arguments, env=None, cwd=None):
        return segalloc("run", *arguments, env={**self.env, **(env or {})}, cwd=cwd)

    def environment(self, *arguments, env=None, cwd=None):
        result = self.run_it(*arguments, "env", "-0", env=env, cwd=cwd)
        self.assertEqual(result.returncode, 0, result.stderr)
        return dict(item.split("=", 1) for item in result.stdout.split("\0") if item)

    def test_exit_status(self):
        for status in (0, 1, 2, 77, 255):
            self.assertEqual(self.run_it("--", "sh", "-c", f"exit {status}").returncode, status)
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.assertEqual(self.run_it("sh", "-c", f"kill -{int(number)} $$").returncode, -number)
        missing = self.run_it("--", "no-such-program-anywhere")
        self.assertEqual(missing.returncode, 127)
        self.assertEqual(missing.stderr, "segalloc run: no-such-program-anywhere: no such program\n")
        self.assertEqual(self.run_it("/etc/passwd").returncode, 126)
        self.assertEqual(self.run_it("/").returncode, 126)

    def test_output_is_the_programs(self):
        result = self.run_it("sh", "-c", "printf out; printf err >&2")
        self.assertEqual((result.stdout, result.stderr), ("out", "err"))

    def test_arguments_after_the_command_are_its_own(self):
        self.assertEqual(self.run_it("echo", "--sim", "--help").stdout, "--sim --help\n")

    def test_preload(self):
        def joined(*libraries):
            return ":".join(filter(None, (SANITIZER, *libraries)))
        other = os.path.join(os.path.dirname(self.library), "other.so")
        os.path.exists(other) or os.link(self.library, other)
        self.assertEqual(self.environment()["LD_PRELOAD"], joined(self.library))
        env = {"LD_PRELOAD": " ".join((joined(other), self.library))}
        self.assertEqual(self.environment(env=env)["LD_PRELOAD"], joined(self.library, other))
        self.assertEqual(self.environment("--no-preload", env=env)["LD_PRELOAD"], joined(other))
        env = {"LD_PRELOAD": joined(self.library)}
        self.assertEqual(self.environment("--no-preload", env=env).get("LD_PRELOAD", ""), SANITIZER)

    @unittest.skipIf(SANITIZER, "a sanitizer is there already")
    def test_sanitizers_come_first(self):
        fake = os.path.join(os.path.dirname(self.library), "libasan.so.8")
        os.link(self.library, fake)
        other = os.path.join(os.path.dirname(self.library), "another.so")
        os.link(self.library, other)
        told = self.environment(env={"LD_PRELOAD": f"{other}:{fake}"})
        self.assertEqual(told["LD_PRELOAD"], f"{fake}:{self.library}:{other}")

    def test_missing_library(self):
        result = self.run_it("true", env={"SEGALLOC_LIB": "/nowhere/libsegalloc.so"})
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr, "segalloc run: SEGALLOC_LIB: /nowhere/libsegalloc.so can't be read\n")

    def test_conf(self):
        self.assertNotIn("SEGALLOC_CONF", self.environment())
        told = self.environment("--conf", "max_split_size_mb: 128", env={"SEGALLOC_CONF": "limit:0.5,live:True"})
        self.assertEqual(told["SEGALLOC_CONF"], "limit:0.5,live:True,max_split_size_mb:128")
        result = self.run_it("--conf", "max_splt_size_mb:128,live:True", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertIn("did you mean max_split_size_mb?", result.stderr)
        merged = self.environment("--conf", "reserve_slack:1.02,live:True", "--conf",
                                  "max_split_size_mb:64,reserve_slack:1.1")
        self.assertEqual(merged["SEGALLOC_CONF"].split(","), ["max_split_size_mb:64", "reserve_slack:1.1", "live:True"])
        fatal = self.run_it("--conf", "live:7", "echo", "ran")
        self.assertEqual((fatal.returncode, fatal.stdout), (125, ""))

    def test_simulator_settings(self):
        for spec, word in (("", ""), ("24Gib,cnt=2", "cnt=2"), ("lots", "lots"), ("24GiB,driver=12", "driver=12"),
                           ("1KiB", "1KiB")):
            result = self.run_it("--sim", spec, "echo", "ran")
            self.assertEqual((result.returncode, result.stdout), (125, ""), spec)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertTrue(result.stderr.startswith("segalloc run: --sim: "), result.stderr)
            self.assertIn(word, result.stderr)

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            told = self.environment("-o", "t.trace", cwd=folder)
            self.assertEqual(told["SEGALLOC_TRACE"], os.path.join(folder, "t.trace"))
            self.assertNotIn("SEGALLOC_TRACE", self.environment())
            path = os.path.join(folder, "notes.txt")
            with open(path, "w") as file:
                file.write("not a trace at all")
            result = self.run_it("-o", path, "echo", "ran")
            self.assertEqual((result.returncode, result.stdout), (125, ""))
            self.assertIn("is not a trace", result.stderr)
            self.assertTrue(os.path.exists(path))
            self.assertEqual(self.run_it("-f", "-o", path, "true").returncode, 125)
            for content, options in ((b"", ()), (b"SEGALTR1 and more", ("-f",))):
                with open(path, "wb") as file:
                    file.write(content)
                if content:  # a recording, perhaps of a night
                    result = self.run_it("-o", path, "echo", "ran")
                    self.assertEqual((result.returncode, result.stdout), (125, ""))
                    self.assertIn("-f replaces it", result.stderr)
                self.assertEqual(self.run_it(*options, "-o", path, "true").returncode, 0)
                self.assertFalse(os.path.exists(path))
            result = self.run_it("-o", "%x.trace", "echo", "ran", cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (125, ""))
            self.assertIn("r (rank)", result.stderr)
            self.assertEqual(self.run_it("-o", folder, "true").returncode, 125)
            self.assertEqual(self.run_it("-o", "", "true").returncode, 125)
            self.assertEqual(self.run_it("-o", os.path.join(folder, "x" * 600), "true").returncode, 125)
            native = self.run_it("--no-preload", "-o", "x", "true", cwd=folder)
            self.assertEqual(native.returncode, 0)
            self.assertIn("--no-preload", native.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
