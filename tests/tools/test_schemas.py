"""What tune, doctor, trim, rehearse and the trainer print with --json, by the schemas that are installed: of runs that went well and of
those that did not, of one device and of several. Fields that a schema lacks are found too. Other verbs: test_see.py.

Usage: test_schemas.py SEGALLOC ACTS SCHEMAS [SEGALLOC_TRAIN]"""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import shared

SEGALLOC, ACTS, SCHEMAS, *TRAIN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:] if os.path.exists(argument))
sys.argv[1:] = [case for case in sys.argv[1:] if not os.path.exists(case)]
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if key not in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
try:
    import jsonschema
except ImportError:
    jsonschema = None


def closed(schema):
    """A schema under which an object has no other fields than those that are described."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
    elif isinstance(schema, list):
        schema = [closed(each) for each in schema]
    return schema


def mistakes(told, name):
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    if name == "rehearse.try":  # its results have a schema of their own
        return [error.message for each in told["tried"] for error in
                jsonschema.Draft202012Validator(closed(json.loads((SCHEMAS / "rehearse.json").read_text()))).iter_errors(each["result"])] \
            + [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(told)]
    return [error.message for error in jsonschema.Draft202012Validator(closed(schema)).iter_errors(told)]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def told(self, name, status, *arguments, environment=ENVIRONMENT):
        result = subprocess.run([SEGALLOC, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((result.returncode, result.stdout.count("\n")), (status, 1), result)
        told = json.loads(result.stdout)
        if jsonschema:
            self.assertEqual(mistakes(told, name), [])
        return told

    def record(self, name, *acts, sim="1GiB"):
        path = self.folder / name
        subprocess.run([SEGALLOC, "run", "--sim", sim, "-o", path, "--conf", "oom_report:never", "--", ACTS, *acts], env=ENVIRONMENT,
                       check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        return path


class Tune(Case):
    def test_kinds(self):
        traces = [self.record("one", "a+100", "b+50", "b-", "c+70"), self.record("failed", "a+100", "b?2000", "c+3"),
                  self.record("two", "a+100", "device=1", "b+50", "kill", sim="1GiB,count=2")]
        told = self.told("tune", 0, "tune", "--json", "--budget", "1", *traces)
        self.assertEqual([trace["failures"] for trace in told["traces"]], [0, 1, 0])
        self.assertFalse(told["traces"][2]["complete"])
        self.told("tune", 0, "tune", "--json", "--budget", "1", "--for", "pytorch", traces[0])
        self.told("tune", 0, "tune", "--json", "--budget", "1", "--limit", "24GiB", traces[0])
        rows = self.folder / "rows.csv"
        rows.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000000,allocate,0x200,1000,0\n")
        self.told("tune", 0, "tune", "--json", "--budget", "1", rows)


class Doctor(Case):
    def test_kinds(self):
        self.assertEqual(self.told("doctor", 0, "doctor", "--json", "--sim", "1GiB,count=2")["answer"], "ready")
        served = self.told("doctor", 0, "doctor", "--json", "--sim", "1GiB", "--", ACTS, "a+100")
        self.assertEqual((served["answer"], served["status"]), ("served", 0))
        self.assertEqual(self.told("doctor", 1, "doctor", "--json", "--sim", "1GiB", "--", "true")["answer"], "no_cuda_call")
        failed = self.told("doctor", 0, "doctor", "--json", "--sim", "1GiB,count=2", "--conf", "oom_report:never", "--", ACTS, "a+100",
                           "b?2000", "device=1", "c+30")
        self.assertEqual(failed["answer"], "served")
        process = shared.start(self, SEGALLOC, ACTS, "a+100", environment=ENVIRONMENT, sim="1GiB")
        self.assertIsNone(self.told("doctor", 0, "doctor", "--json", process.pid)["status"])
        self.told("trim", 0, "trim", "--json", process.pid)


class Rehearse(Case):
    def test_kinds(self):
        """A card that is enough and one that is not, a program that failed, and the file of statistics."""
        self.told("rehearse", 3, "rehearse", "--json", "--card", "64MiB,4090", "--", ACTS, "a+100")
        self.told("rehearse", 3, "rehearse", "--json", "--card", "1GiB", "--", ACTS, "a+100", "b?200000")
        self.told("rehearse", 1, "rehearse", "--json", "--card", "1GiB", "--", "false")
        self.told("rehearse", 0, "rehearse", "--json", "--card", "1GiB", "--margin", "0", "--with", f"{ACTS} a+200", "--", ACTS, "a+100")
        self.told("rehearse", 1, "rehearse", "--json", "--card", "1GiB", "--with", "false", "--", ACTS, "a+100")
        stats = self.folder / "stats"
        subprocess.run([SEGALLOC, "run", "--sim", "1GiB,count=2", "--conf", f"stats:{stats}", "--", ACTS, "a+100", "device=1", "b+3"],
                       env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, timeout=60)
        if jsonschema:
            self.assertEqual(mistakes(json.loads(stats.read_text()), "stats"), [])


class Try(Case):
    def test_kinds(self):
        program = self.folder / "program"
        program.write_text(f"#!/bin/sh\nexec '{ACTS}' a+$2\n")
        program.chmod(0o700)
        for values, status, fits in (("2000,1500", 3, None), ("2000,100", 0, "100")):
            told = self.told("rehearse.try", status, "rehearse", "--json", "--card", "1GiB", "--try", f"--size={values}", "--", program,
                             "--size", "50")
            self.assertEqual((told["fits"], [each["value"] for each in told["tried"]]), (fits, values.split(",")))


@unittest.skipUnless(TRAIN, "the trainer is not built")
class Train(Case):
    TEXT = SCHEMAS.parents[1] / "README.md"

    def lines(self, status, *arguments, sim="24GiB"):
        """What the trainer prints: steps, and its last line."""
        run = (SEGALLOC, "run", "--sim", sim, "--") if sim else ()
        result = subprocess.run([*run, TRAIN[0], *map(str, arguments), "--json"], env=ENVIRONMENT, capture_output=True, text=True,
                                timeout=120, check=False)
        self.assertEqual(result.returncode, status, result)
        *steps, last = map(json.loads, result.stdout.splitlines())
        if jsonschema:
            for step in steps:
                self.assertEqual(mistakes(step, "train.step"), [])
            self.assertEqual(mistakes(last, last["schema"].removeprefix("segalloc.").removesuffix("/1")), [])
        return steps, last

    def test_trainings(self):
        tiny = ("--preset", "tiny", "--steps", "2")
        steps, last = self.lines(0, *tiny, "--text", self.TEXT, "--evaluate", "1")
        self.assertEqual((len(steps), "eval_loss" in steps[0], last["outcome"]), (2, True, "completed"))
        self.assertEqual(self.lines(0, *tiny, "--dry")[0][0]["loss"], None)
        self.assertIsNotNone(self.lines(0, *tiny, "--text", self.TEXT, "--alloc", "arena")[1]["arena_bytes"])
        self.assertEqual(self.lines(1, "--preset", "qwen25-7b-lora", "--dry", "--steps", "1", sim="8GiB")[1]["outcome"], "out_of_memory")
        self.assertEqual(self.lines(0, "--scenario", "fence")[1]["scenario"], "fence")
        self.lines(0, *tiny, "--text", self.TEXT, "--lr", "1e30")  # losses that are no numbers

    def test_plans(self):
        model = ("--preset", "qwen25-7b-lora")
        self.assertEqual(self.lines(0, *model, "--card", "24GiB", sim=None)[1]["fits"], True)
        self.assertEqual(self.lines(1, *model, "--card", "16GiB", sim=None)[1]["fits"], False)
        self.lines(0, *model, "--budget", sim=None)
        self.assertEqual(self.lines(0, *model, "--fit", "batch", "--card", "40GiB", sim=None)[1]["schema"], "segalloc.train.fit/1")
        self.assertEqual(self.lines(0, "--list", sim=None)[1]["schema"], "segalloc.train.presets/1")


@unittest.skipUnless(jsonschema, "no jsonschema")
class Mistakes(Case):
    def test_they_are_found(self):
        """Fields that are missing, of another kind or not described."""
        told = self.told("doctor", 0, "doctor", "--json", "--sim", "1GiB")
        for change in ({"served": "1"}, {"answer": "perhaps"}, {"new": 1}, {"devices": [{"name": "x", "bytes": 1}]}):
            self.assertNotEqual(mistakes({**copy.deepcopy(told), **change}, "doctor"), [], change)
        del told["glibc"]
        self.assertNotEqual(mistakes(told, "doctor"), [])

    def test_every_schema_that_is_printed_is_here(self):
        """But for the data of HTML pages, which only the pages' own code reads."""
        printed = set()
        for path in (SCHEMAS.parents[1] / "tools").rglob("*.c"):
            printed |= set(re.findall(r'"(?:schema\\":\\")?segalloc\.([\w.-]+)/1', path.read_text()))
        self.assertGreater(len(printed), 10)
        self.assertEqual(printed - {path.stem for path in SCHEMAS.glob("*.json")}, {"page", "tune-page"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
