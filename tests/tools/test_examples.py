"""The files of examples/, as far as they can be judged without Docker, Kubernetes and Slurm (`packaging/test examples` has these): they
are well formed, name files that are there, and use verbs and options that the program has.

Usage: test_examples.py SEGALLOC"""
import fnmatch
import importlib.util
import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

SEGALLOC = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# https://docs.docker.com/reference/dockerfile/
INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN", "SHELL",
                "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
# https://slurm.schedmd.com/sbatch.html, those that training asks for
SBATCH = {"account", "array", "chdir", "constraint", "cpus-per-gpu", "cpus-per-task", "dependency", "error", "exclusive", "export", "gpus",
          "gpus-per-node", "gpus-per-task", "gres", "job-name", "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "nodes",
          "ntasks", "ntasks-per-node", "open-mode", "output", "partition", "qos", "requeue", "signal", "time"}


def mistakes_of_command(words, helps={}):
    """What `segalloc WORDS…` has wrong: verbs and options that are not there. The options of another program come after --."""
    verb, *rest = words
    if verb not in helps:
        done = subprocess.run([SEGALLOC, verb, "--help"], capture_output=True, text=True, timeout=60)
        helps[verb] = done.stdout if done.returncode == 0 else None
    if helps[verb] is None:
        return [verb]
    options = set(re.findall(r"(?:^|\s)(--?[a-z][a-z-]*)(?=[ ,\n])", helps[verb]))
    rest = rest[:rest.index("--")] if "--" in rest else rest
    return [word for word in rest if word.startswith("-") and word != "-" and word.split("=")[0] not in options]


def commands(text):
    """The words after each `segalloc` of a text, to the end of its line or of the command. Of comments, of what is indented there."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if re.match(r"\s*# ?\S", line):
            continue
        line = line.split("  # ")[0].lstrip("# ")
        for match in re.finditer(r"(?:^|[\s'\"\[/])segalloc,? ([a-z]+.*)", line):
            try:
                words = shlex.split(re.split(r"[;|\]]| \|\| | && |  +", match[1])[0].replace(",", " ").rstrip("'\""))
            except ValueError:
                words = match[1].split()
            if words and re.fullmatch(r"[a-z]+", words[0]):
                yield words


class Dockerfile(unittest.TestCase):
    def instructions(self):
        text = re.sub(r"^\s*#.*\n", "", (EXAMPLES / "docker" / "Dockerfile").read_text(), flags=re.M)
        return [line.split(None, 1) for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]

    def test_form(self):
        found = self.instructions()
        self.assertEqual([name for name, _ in found if name not in INSTRUCTIONS], [])
        self.assertEqual([name for name, _ in found][:2], ["ARG", "FROM"])
        for name, rest in found:
            if name in ("CMD", "ENTRYPOINT"):
                self.assertTrue(all(isinstance(word, str) for word in json.loads(rest)))

    def test_it_takes_the_wheel_that_is_built(self):
        version = re.search(r"^ *version: '(.*)',$", (ROOT / "meson.build").read_text(), re.M)[1]
        source, = (rest.split()[0] for name, rest in self.instructions() if name == "COPY")
        self.assertTrue(fnmatch.fnmatch(f"dist/segalloc-{version}-py3-none-manylinux_2_34_x86_64.whl", source), source)
        self.assertFalse(fnmatch.fnmatch(f"dist/segalloc-{version}-py3-none-manylinux_2_34_aarch64.whl", source), source)


@unittest.skipUnless(importlib.util.find_spec("yaml"), "no PyYAML")
class Pod(unittest.TestCase):
    def test_form(self):
        import yaml
        claim, pod = yaml.safe_load_all((EXAMPLES / "kubernetes" / "pod.yaml").read_text())
        self.assertEqual([each["kind"] for each in (claim, pod)], ["PersistentVolumeClaim", "Pod"])
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
        self.assertEqual(claims, [claim["metadata"]["name"]])
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        containers = pod["spec"]["containers"] + pod["spec"]["initContainers"]
        self.assertEqual({mount["name"] for each in containers for mount in each["volumeMounts"]}, volumes)
        for each in containers:
            if "command" in each:
                self.assertEqual(mistakes_of_command(each["command"][1:]), [])
            for variable in each.get("env", []):
                subprocess.run([SEGALLOC, "conf", variable["value"]], check=True, stdout=subprocess.DEVNULL, timeout=60)


class Batch(unittest.TestCase):
    FILE = EXAMPLES / "slurm" / "train.sbatch"

    def test_form(self):
        self.assertEqual(subprocess.run(["bash", "-n", self.FILE], capture_output=True, text=True, timeout=60).stderr, "")
        text = self.FILE.read_text()
        self.assertTrue(text.startswith("#!/bin/bash\n"))
        options = re.findall(r"^#SBATCH --([a-z-]+)", text, re.M)
        self.assertGreater(len(options), 5)
        self.assertEqual(set(options) - SBATCH, set())
        self.assertLess(max(text.index(f"#SBATCH --{option}") for option in options), text.index("\nset "), "Slurm reads none after a command")


class Commands(unittest.TestCase):
    def test_verbs_and_options(self):
        seen = 0
        for path in [*EXAMPLES.rglob("*"), ROOT / "README.md", ROOT / "docs" / "recipes.md", ROOT / "docs" / "tuning.md", ROOT / "docs" / "python.md"]:
            if path.is_dir() or "__pycache__" in path.parts:
                continue
            text = path.read_text()
            if path.suffix == ".md":
                text = "\n".join(re.findall(r"^ {4}(.*)$", text, re.M))
            for words in commands(text):
                seen += 1
                with self.subTest(file=path.name, words=words):
                    self.assertEqual(mistakes_of_command(words), [])
        self.assertGreater(seen, 40)

    def test_packages(self):
        """Each that the README has is one that packaging/build makes, and packaging/test installs by the README's command."""
        rows = re.findall(r"^\| .* \| `packaging/build ([a-z0-9-]+)` \| `(.+)` \|$", (ROOT / "README.md").read_text(), re.M)
        self.assertEqual({kind for kind, _ in rows}, {"wheel", "deb", "rpm", "tarball"})
        for program in "build", "test":
            cases = re.findall(r"^([a-z0-9-]+)\)$", (ROOT / "packaging" / program).read_text(), re.M)
            self.assertLessEqual({kind for kind, _ in rows} | {"wheel-arm64"}, set(cases))
        for file in (ROOT / "packaging").iterdir():
            if file.is_file() and file.read_text().startswith("#!/bin/sh"):
                self.assertEqual(subprocess.run(["sh", "-n", file], capture_output=True, text=True, timeout=60).stderr, "")

    def test_the_check_itself(self):
        self.assertEqual(mistakes_of_command(["run", "--sites", "--site", "-o", "x", "--", "a", "--unknown"]), ["--site"])
        self.assertEqual(mistakes_of_command(["rum"]), ["rum"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
