"""segalloc selftest: each fault that the simulator can play is named by its check, with the status and the default that it would change.

Usage: test_selftest.py SEGALLOC ACTS MISTAKES SCHEMA TESTS_GPU [HIDDEN_LIBCUDA]   (MISTAKES: programs with one mistake each;
HIDDEN_LIBCUDA: a driver that hides the simulator)"""
import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

from shared import of_answers, sampled

SEGALLOC, ACTS, MISTAKES, SCHEMA, TESTS_GPU, *HIDDEN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:] if os.path.exists(argument))
sys.argv[1:] = [case for case in sys.argv[1:] if not os.path.exists(case)]
CARD = "segalloc-simulated-GPU-13.0"
# A fault: what the simulator is told, the check that names it, what its text says, the setting, the status.
FAULTS = [
    ("aliases-apart", "aliases", "other bytes at each", "alias:off", 3),
    ("no-vmm", "pages", "no virtual memory management", None, 3),
    ("quota_mb=4096", "totals", "cuDeviceTotalMem says 8.00 GiB, and cuMemGetInfo 4.00 GiB", None, 3),
    ("fail=cuMemSetAccess:1+:999", "pages", "cuMemSetAccess answers 999 (CUDA_ERROR_UNKNOWN)", "expandable_segments:False", 3),
    ("fail=cuMemMap:3:600", "pages", "cuMemMap answers 600 (CUDA_ERROR_NOT_READY)", "expandable_segments:False", 3),
    ("fail=cuMemCreate:1+", "pages", "cuMemCreate answers 2", "expandable_segments:False", 3),
    ("fail=cuMemUnmap:1+:999", "pages", "cuMemUnmap answers 999", "expandable_segments:False", 3),
    ("fail=cuMemAddressReserve:5+", "addresses", "cuMemAddressReserve answers 2", "expandable_segments:False", 3),
    ("driver=12.4", "calls", "no cuCtxSynchronize_v2, cuCtxRecordEvent", None, 3),
    ("cost=cuMemSetAccess:5000+5000000", "costs", "cuMemSetAccess takes 5000 µs a page", "page_size_mb:32", 3),
    ("cost=cuMemGetInfo_v2:5000000", "costs", "cuMemGetInfo takes 5.0 ms", None, 3),
    ("no-posix-handles", "exported", "no file descriptors of pages (cuMemCreate answers 801)", None, 3),
    ("no-rdma", "exported", "GPUDirect RDMA", None, 3),
    ("fabric=refused", "exported", "fabric handles, and cuMemCreate answers 800", None, 3),
    ("no-ipc", "pointers", "legacy IPC is refused for the driver's own memory, 801", None, 3),
    ("mappings=3000:999", "mappings", "after 3000 mappings cuMemSetAccess answers 999", "mapping_limit:2250", 3),
    ("vmm_sync=always", "beside_work", "wait for the device's work", None, 3),
    ("no-p2p,count=2", "peers", "2 devices: devices can't reach each other's memory", None, 3),
    ("managed-apart", "managed", "takes nothing of the device", None, 3),
    ("fail=cuMemAllocManaged:1+:801", "managed", "cuMemAllocManaged answers 801 (CUDA_ERROR_NOT_SUPPORTED)", None, 3),
    ("fail=cuCtxEnablePeerAccess:1+:217,count=2", "peers", "can be reached by its own word, and cuCtxEnablePeerAccess answers 217", None, 3),
    ("fail=cuMemcpyPeer:1+:999,count=2", "peers", "cuMemcpyPeer to device 1 answers 999", None, 3),
    ("fail=cuMemHostAlloc:1+", "transfer", "cuMemHostAlloc answers 2 (CUDA_ERROR_OUT_OF_MEMORY)", None, 3),
    ("drop_mb=0", "transfer", "did not arrive", None, 1),
    ("fail=cuMemAlloc:1+", "plain", "cuMemAlloc_v2 answers 2", None, 3),
    ("fail=cuEventRecord:1+:999", "order", "cuEventRecord answers 999", "free_sync:strict", 1),
    ("fail=cuStreamWaitEvent:1+:1", "order", "cuStreamWaitEvent answers 1", "free_sync:strict", 1),
    ("no-vmm,fail=cuMemAlloc:1+", "plain", "cuMemAlloc_v2 answers 2", None, 1),
]


class Selftest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith(("SEGALLOC_", "XDG_", "CUDA_VISIBLE")) and key != "LD_LIBRARY_PATH"}
        self.environment["HOME"] = str(self.home)
        if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
            self.environment["LD_PRELOAD"] = os.environ["SANITIZER"]

    def run_tool(self, *arguments, status=0, **environment):
        done = subprocess.run([SEGALLOC, *map(str, arguments)], env={**self.environment, **environment}, text=True, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, status, done.stdout[-3000:] + done.stderr)
        return done

    def selftest(self, *arguments, status=0, **environment):
        done = self.run_tool("selftest", "--json", *arguments, status=status, **environment)
        self.assertEqual(done.stdout.count("\n"), 1)
        told = json.loads(done.stdout)
        self.validate(told, SCHEMA)
        return told, done.stderr

    def validate(self, told, schema):
        try:
            import jsonschema
        except ImportError:
            return
        jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(told)

    def test_all_as_assumed(self):
        told, errors = self.selftest("--sim", "8GiB")
        self.assertEqual((told["result"], told["settings"], told["problem"], errors), ("as_assumed", "", None, ""))
        self.assertEqual({verdict["verdict"] for verdict in told["verdicts"]}, {"as_assumed"})
        text = self.run_tool("selftest", "--sim", "8GiB").stdout
        for verdict in told["verdicts"]:
            self.assertIn(verdict["check"].replace("_", " "), text)
        self.assertIn("all as assumed", text)

    @of_answers
    def test_under_the_library(self):
        """A process under the library asks the driver and not the library, which would hide what it does."""
        told = json.loads(self.run_tool("run", "--sim", "8GiB", "--", SEGALLOC, "selftest", "--json").stdout)
        self.assertEqual(told["result"], "as_assumed")

    def selftest_of(self, spec, status):
        """Whether growing waits for work is asked while work is under way: on a busy machine that ends too soon, and a line says so."""
        for _ in range(10):
            done = subprocess.run([SEGALLOC, "selftest", "--json", "--sim", f"8GiB,{spec}"], env=self.environment, text=True, timeout=300,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if "too busy to tell" not in done.stdout or not spec.startswith("vmm_sync"):
                break
        self.assertEqual(done.returncode, status, done.stdout[-3000:] + done.stderr)
        told = json.loads(done.stdout)
        self.validate(told, SCHEMA)
        return told, done.stderr

    def test_each_fault_is_named(self):
        faults = sampled(FAULTS, 5)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = [pool.submit(self.selftest_of, spec, status) for spec, *_, status in faults]
        for run, (spec, check, text, setting, status) in zip(runs, faults):
            with self.subTest(spec):
                told, _ = run.result()
                verdicts = {verdict["check"]: verdict for verdict in told["verdicts"]}
                self.assertIn(text, verdicts[check]["text"])
                self.assertEqual(verdicts[check]["setting"], setting)
                self.assertEqual(told["result"], "unusable" if status == 1 else "differs")
                # Nothing else is blamed: kernels find what copies do.
                blamed = {name for name, verdict in verdicts.items() if verdict["verdict"] in ("differs", "unusable")}
                self.assertLessEqual(blamed, {check, *({"kernels"} if check == "aliases" else {"pages"} if "no-vmm" in spec else {})})
                self.assertEqual(told["settings"], setting or "")

    @of_answers
    def test_several_devices(self):
        """Each in turn, or one alone, with a verdict set each; facts are those of the worst, and settings of all that are alike."""
        told, _ = self.selftest("--sim", "8GiB,count=3,aliases-apart=1", "--apply", status=3)
        self.assertEqual([(each["ordinal"], each["result"], each["settings"]) for each in told["devices"]],
                         [(0, "as_assumed", ""), (1, "differs", "alias:off"), (2, "as_assumed", "")])
        self.assertEqual((told["result"], told["settings"], told["devices_left"]), ("differs", "", 0))
        self.assertIn("\nalias:off\n", (self.home / ".config/segalloc" / f"{CARD}.conf").read_text())
        facts = json.loads((self.home / ".local/state/segalloc" / CARD / "facts.json").read_text())
        self.assertEqual(facts["selftest"]["result"], "differs")
        self.assertEqual(facts["facts"]["peer.0.enable"]["value"], 0)
        self.assertGreater(facts["facts"]["peer.0.bytes_per_s"]["value"], 0)
        text = self.run_tool("selftest", "--sim", "8GiB,count=2").stdout
        self.assertEqual([line for line in text.splitlines() if line.startswith("Device")], ["Device 0", "Device 1"])
        alone, _ = self.selftest("--sim", "8GiB,count=2,aliases-apart=1", "--device", "1", status=3)
        self.assertEqual([each["ordinal"] for each in alone["devices"]], [1])
        alone, _ = self.selftest("--sim", "8GiB,count=2,aliases-apart=1", "--device", "0")
        self.assertEqual(alone["settings"], "")
        _, errors = self.selftest("--sim", "8GiB,count=2", "--device", "2", status=1)
        self.assertIn("device 2 can't be used: cuDeviceGet answers 101 (CUDA_ERROR_INVALID_DEVICE)", errors)
        self.assertIn("--device takes", self.run_tool("selftest", "--device", "one", status=2).stderr)

    @of_answers
    def test_speeds(self):
        told, _ = self.selftest("--sim", "8GiB")
        facts = json.loads(pathlib.Path(told["facts_file"]).read_text())["facts"]
        for way in ("host_to_device", "device_to_device", "device_to_host"):
            self.assertGreater(facts[f"transfer.{way}.bytes_per_s"]["value"], 0)
        self.assertGreaterEqual(facts["managed.taken"]["value"], 16 << 20)
        text = next(verdict["text"] for verdict in told["verdicts"] if verdict["check"] == "transfer")
        self.assertRegex(text, r"^[\d.]+ GB/s to the device, [\d.]+ GB/s back, [\d.]+ GB/s on it$")

    def test_own_settings_stay(self):
        """What the user wrote into the file stays there, wherever it stands, and wins over what is applied."""
        path = self.home / ".config/segalloc" / f"{CARD}.conf"
        path.parent.mkdir(parents=True)
        path.write_text("# mine\nfree_sync:strict\nalias:on\n")
        told, _ = self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
        text = path.read_text()
        self.assertTrue(text.endswith("\n# mine\nfree_sync:strict\nalias:on\n"), text)
        self.assertIn("\nalias:off\n", text)
        conf = self.run_tool("run", "--sim", "8GiB", "--conf", "confirm_conf:True", "--", ACTS, "a+10").stderr
        self.assertIn("segalloc: alias:on (the file for this card)", conf)
        self.assertIn("segalloc: free_sync:strict (the file for this card)", conf)
        path.write_text(text + "mapping_limit:3000\n")
        for _ in range(2):  # the part is replaced, and not added once more
            self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
            self.assertEqual(path.read_text(), text + "mapping_limit:3000\n")
        self.selftest("--sim", "8GiB", "--apply")
        self.assertEqual(path.read_text(), "# mine\nfree_sync:strict\nalias:on\nmapping_limit:3000\n")
        # A part whose end was edited away: nothing of it is known to be ours.
        path.write_text("# Written by segalloc selftest --apply, for it\nalias:off\nfree_sync:strict\n")
        self.selftest("--sim", "8GiB", "--apply")
        self.assertEqual(path.read_text(), "alias:off\nfree_sync:strict\n")
        path.unlink()
        path.mkdir()
        _, errors = self.selftest("--sim", "8GiB", "--apply", status=1)
        self.assertIn(str(path), errors)

    def test_facts(self):
        """tests/gpu/compare reads what is written, and finds nothing that differs from the simulator."""
        told, _ = self.selftest("--sim", "8GiB")
        path = self.home / ".local/state/segalloc" / CARD / "facts.json"
        self.assertEqual(told["facts_file"], str(path))
        facts = json.loads(path.read_text())
        self.assertEqual(facts["schema"], "segalloc.facts/1")
        self.validate(facts, SCHEMA.parent / "facts.json")
        self.assertEqual(facts["machine"], {"name": "segalloc simulated GPU", "assumed": True})
        self.assertEqual(facts["facts"]["driver"], {"value": 13000})
        self.assertEqual(facts["facts"]["cost.cuMemSetAccess.handle"], {"value": 36000, "allocator": 36000})
        self.assertIs(facts["facts"]["aliases_coherent"]["value"], True)
        self.assertEqual(facts["selftest"]["result"], "as_assumed")
        sys.path.insert(0, str(TESTS_GPU))
        sys.dont_write_bytecode = True
        import assumed
        found, machine = assumed.load(path)
        self.assertEqual(machine["name"], "segalloc simulated GPU")
        self.assertEqual(found["total_bytes"], 8 << 30)

    def test_output(self):
        path = self.home / "there" / "own.json"
        told, _ = self.selftest("--sim", "8GiB", "-o", path, HOME="")
        self.assertEqual(told["facts_file"], str(path))
        self.assertEqual(json.loads(path.read_text())["selftest"]["result"], "as_assumed")
        _, errors = self.selftest("--sim", "8GiB", HOME="")
        self.assertIn("no facts are kept", errors)
        _, errors = self.selftest("--sim", "8GiB", "-o", "/proc/none/facts.json", status=1)
        self.assertIn("/proc/none/facts.json", errors)

    def test_apply(self):
        """What is applied holds for programs under that driver, and an environment variable wins."""
        path = self.home / ".config/segalloc" / f"{CARD}.conf"
        told, _ = self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
        self.assertEqual(told["conf_file"], str(path))
        self.assertIn("\nalias:off\n", path.read_text())
        ran = self.run_tool("run", "--sim", "8GiB", "--conf", "confirm_conf:True", "--", ACTS, "a+10").stderr
        self.assertIn("segalloc: alias:off (the file for this card)", ran)
        ran = self.run_tool("run", "--sim", "8GiB", "--conf", "confirm_conf:True", "--", ACTS, "a+10", SEGALLOC_CONF="alias:on").stderr
        self.assertIn("segalloc: alias:on (SEGALLOC_CONF)", ran)
        ran = self.run_tool("run", "--sim", "8GiB,driver=12.8", "--conf", "confirm_conf:True", "--", ACTS, "a+10").stderr
        self.assertIn("segalloc: alias:auto (default)", ran)
        simulator = {"LD_LIBRARY_PATH": str(SEGALLOC.parents[2] / "src" / "sim"), "SEGALLOC_SIM": "8GiB"}
        conf = json.loads(self.run_tool("conf", "--json", **simulator).stdout)["options"]["alias"]
        self.assertEqual((conf["value"], conf["source"]), ("off", "the file for this card"))
        doctor = self.run_tool("doctor", "--sim", "8GiB").stdout
        # Kernels see the aliases too, where they can be made: not with a sanitizer's runtime.
        differs = [verdict["check"] for verdict in told["verdicts"] if verdict["verdict"] == "differs"]
        self.assertIn(differs, (["aliases"], ["aliases", "kernels"]))
        self.assertRegex(doctor, rf"selftest \d{{4}}-\d\d-\d\d: differs in {', '.join(differs)}\n")
        told_by = json.loads(self.run_tool("doctor", "--sim", "8GiB", "--json").stdout)["selftest"]
        self.assertEqual((told_by["result"], told_by["differs"]), ("differs", differs))
        self.assertIn("selftest not run", self.run_tool("doctor", "--sim", "8GiB,driver=12.8").stdout)
        path.write_text("alias:of\nfree_sync:strict\n")
        ran = self.run_tool("run", "--sim", "8GiB", "--conf", "confirm_conf:True", "--", ACTS, "a+10").stderr
        self.assertIn(f"{path}: alias:of: must be auto, on or off", ran)
        self.assertIn("segalloc: free_sync:strict (the file for this card)", ran)
        self.assertIn("free_sync:strict", path.read_text())
        path.unlink()
        self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
        self.assertTrue(path.exists())
        told, _ = self.selftest("--sim", "8GiB", "--apply")
        self.assertFalse(path.exists())
        told, _ = self.selftest("--sim", "8GiB", "--apply", XDG_CONFIG_HOME=str(self.home / "other"), status=0)
        self.assertEqual(told["conf_file"], str(self.home / "other/segalloc" / f"{CARD}.conf"))

    def test_pack(self):
        """What is sent has facts, options and a trace's head, and no name of the program, its files or its user."""
        trace, pack = self.home / "my-secret.trace", self.home / "pack.json"
        self.selftest("--sim", "8GiB,no-ipc", status=3)
        program = self.home / "my-secret-program"
        program.write_text(f"#!/bin/sh\nexec {ACTS} \"$@\"\n")
        program.chmod(0o700)
        self.run_tool("run", "--sim", "8GiB", "--sites", "-o", trace, "--", program, "a+10", "b+20")
        said = self.run_tool("doctor", "--sim", "8GiB", "--pack", pack, "--trace", trace, SEGALLOC_CONF="stats:/my-secret,free_sync:strict").stdout
        self.assertIn("versions, options, the last self-test, the head of the trace", said)
        told = json.loads(pack.read_text())
        self.validate(told, SCHEMA.parent / "pack.json")
        self.assertEqual(told["facts"]["selftest"]["result"], "differs")
        self.assertEqual(told["options"]["free_sync"], {"value": "strict", "source": "SEGALLOC_CONF"})
        self.assertEqual(told["options"]["stats"]["value"], "(a path)")
        self.assertEqual(told["trace"]["options"], "sites:True")
        self.assertEqual([row[5] for row in told["trace"]["head"] if row[0] == "allocate"], [10 << 20, 20 << 20])
        for secret in ("my-secret", str(self.home), str(ACTS), os.uname().nodename):
            self.assertNotRegex(pack.read_text(), rf"\b{re.escape(secret)}\b")
        # Options with a text of the user's have a stand-in wherever they stand, whatever their number.
        other = self.home / "texts.json"
        texts = "guard_site:my-secret.py:2,guard_rate:7,stats:/my-secret"
        self.run_tool("run", "--sim", "8GiB", "--check=guard", "--conf", texts, "-o", self.home / "texts.trace", "--", program, "a+10")
        self.run_tool("doctor", "--sim", "8GiB", "--pack", other, "--trace", self.home / "texts.trace", SEGALLOC_CONF=texts)
        told = json.loads(other.read_text())
        self.assertIn("guard_site:(a text)", told["trace"]["options"])
        self.assertIn("guard_rate:7", told["trace"]["options"])
        self.assertEqual(told["options"]["guard_site"]["value"], "(a text)")
        self.assertNotIn("my-secret", other.read_text())
        # It is there even where nothing else is, and replaces no file.
        self.assertIn("is there already", self.run_tool("doctor", "--pack", pack, status=1).stderr)
        self.run_tool("doctor", "--pack", self.home / "bare.json", LD_LIBRARY_PATH="/nonexistent", SEGALLOC_LIB="/none")
        self.validate(json.loads((self.home / "bare.json").read_text()), SCHEMA.parent / "pack.json")
        self.assertIn("--trace goes with --pack FILE", self.run_tool("doctor", "--trace", trace, status=2).stderr)
        self.assertIn("is left over", self.run_tool("doctor", "--pack", pack, "true", status=2).stderr)
        self.run_tool("doctor", "--pack", self.home / "none" / "p.json", status=1)
        self.run_tool("doctor", "--pack", self.home / "p.json", "--trace", "/none.trace", status=1)

    @of_answers
    def test_pack_has_findings(self):
        """Findings are in it wherever they stand in the trace, with numbers for the lines, and nothing that the environment says."""
        trace, pack = self.home / "run.trace", self.home / "pack.json"
        secrets = {"HF_TOKEN": "hf_abcdefsecret", "AWS_SECRET_ACCESS_KEY": "aws+secret", "NCCL_SOCKET_IFNAME": "eth-secret",
                   "CUDA_CACHE_PATH": "/home/ada/secret", "HOSTNAME": "secret-host", "USER": "ada-secret"}
        self.run_tool("run", "--sim", "8GiB", "--check", "-o", trace, "--", MISTAKES, "overrun_by_1", **secrets)
        self.run_tool("doctor", "--sim", "8GiB", "--pack", pack, "--trace", trace, **secrets)
        told = json.loads(pack.read_text())
        self.validate(told, SCHEMA.parent / "pack.json")
        self.assertEqual(told["trace"]["check"]["kinds"], {"write behind the end of a block": 1})
        [found] = told["trace"]["check"]["found"]
        self.assertEqual((found["block"]["bytes"], found["offset"]), (5000, 5000))
        self.assertNotRegex(pack.read_text(), rf"secret|first_owner|check_mistakes|{re.escape(str(self.home))}|{re.escape(os.uname().nodename)}\b")
        self.assertIn("NCCL_SOCKET_IFNAME", told["variables"])
        self.assertNotIn("HF_TOKEN", told["variables"])

    def test_memory_is_bounded(self):
        """On a shared card it takes little, and nothing where little is free."""
        peaks = self.home / "peaks"
        peaks.mkdir()
        # The device is full where all of its processes together take more.
        told, _ = self.selftest("--sim", f"768MiB,card=selftest-{os.getpid()},peaks={peaks}")
        self.assertEqual(told["result"], "as_assumed")
        held = [struct.unpack_from("<Q", file.read_bytes())[0] for file in peaks.glob("*.peaks")]
        self.assertGreater(max(held), 0)
        self.assertLessEqual(max(held), 320 << 20)
        told, errors = self.selftest("--sim", "512MiB", status=1)
        self.assertEqual((told["result"], told["verdicts"]), ("not_asked", []))
        self.assertIn("512.00 MiB are free on the device", errors)

    def test_no_driver(self):
        told, errors = self.selftest(status=1, LD_LIBRARY_PATH="/nonexistent") if not self.has_driver() else (None, "")
        if told:
            self.assertEqual(told["result"], "not_asked")
            self.assertIn("there is no CUDA driver (libcuda.so.1)", errors)
            self.assertEqual(errors.count("\n"), 1)

    @staticmethod
    def has_driver():
        asked = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], capture_output=True, check=False,
                               env={key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"})
        return asked.returncode == 0

    def test_no_device(self):
        _, errors = self.selftest("--sim", "8GiB,count=0", status=1)
        self.assertIn("no device that can be used: cuInit answers 100 (CUDA_ERROR_NO_DEVICE)", errors)
        _, errors = self.selftest("--sim", "8GiB", status=1, CUDA_VISIBLE_DEVICES="7")
        self.assertIn('CUDA_VISIBLE_DEVICES is "7"', errors)

    def test_device_that_can_not_be_opened(self):
        """The call that fails is named, and that there is a device is not denied."""
        for call in ("cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuDeviceTotalMem_v2", "cuMemGetInfo_v2"):
            with self.subTest(call):
                told, errors = self.selftest("--sim", f"8GiB,fail={call.removesuffix('_v2')}:1+:999", status=1)
                self.assertEqual(told["result"], "not_asked")
                self.assertIn(f"device 0 can't be used: {call} answers 999 (CUDA_ERROR_UNKNOWN)", errors)

    def test_worst_of_one_call(self):
        """A call that one check can do without, and another one can't, is as bad as for that one."""
        told, _ = self.selftest("--sim", "8GiB,fail=cuStreamSynchronize:1+:999", status=1)
        verdicts = {verdict["check"]: verdict["verdict"] for verdict in told["verdicts"]}
        self.assertEqual((verdicts["plain"], verdicts["transfer"], verdicts["order"]), ("differs", "unusable", "left_out"))

    @of_answers
    def test_lines_between_the_marks(self):
        """What the user has written there stays, is outside of the marks then, and wins."""
        path = self.home / ".config/segalloc" / f"{CARD}.conf"
        self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
        path.write_text(path.read_text().replace("alias:off\n#", "alias:off\n# mine\nalias:on\nmapping_limit:900\n#") + "free_sync:strict\n")
        self.selftest("--sim", "8GiB,aliases-apart", "--apply", status=3)
        first, settings, last, *others = path.read_text().splitlines()
        self.assertTrue(first.startswith("# Written by") and last.startswith("# End of"))
        self.assertEqual((settings, others), ("alias:off", ["# mine", "alias:on", "mapping_limit:900", "free_sync:strict"]))
        self.selftest("--sim", "8GiB", "--apply")
        self.assertEqual(path.read_text().splitlines(), others)
        # A mark without the settings, as of earlier versions: all between is ours.
        path.write_text(f"{first}\nalias:off\n{last.partition(':')[0]}.\nfree_sync:strict\n")
        self.selftest("--sim", "8GiB", "--apply")
        self.assertEqual(path.read_text(), "free_sync:strict\n")

    def test_home_that_can_not_be_written(self):
        """The reason is that of the write, and nobody is sent to --apply again: on a disk for reading, and on a full one."""
        self.can_not_be_written(f"mount -t tmpfs -o ro none {self.home} && exec \"$@\"", "Read-only file system")
        self.can_not_be_written(f"mount -t tmpfs -o size=4k none {self.home} && head -c 4096 /dev/zero >{self.home}/full && exec \"$@\"",
                                "No space left on device")

    def can_not_be_written(self, inside, reason):
        done = subprocess.run(["unshare", "-m", "sh", "-c", inside, "sh", SEGALLOC, "selftest",
                               "--sim", "8GiB,aliases-apart", "--apply"], text=True, env=self.environment, timeout=300, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not done.stdout:
            self.skipTest(f"no namespace for mounts can be had here: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(re.findall(f"can't be written to .*: {reason}", done.stderr)), 2, done.stderr)
        self.assertNotIn("--apply", done.stdout)
        self.assertIn("Would change: alias:off, which could not be written", done.stdout)

    def test_no_shared_memory(self):
        """As in a container without /dev/shm, or without anything in /dev: a namespace of its own, where that can be had."""
        for mount in ("-o ro none /dev/shm", "none /dev"):
            with self.subTest(mount):
                self.without_shared_memory(f"mount -t tmpfs {mount} && exec \"$@\"")

    def without_shared_memory(self, inside):
        done = subprocess.run(["unshare", "-m", "sh", "-c", inside, "sh", SEGALLOC, "selftest", "--sim", "8GiB", "--json"], text=True,
                              env=self.environment, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if not done.stdout:
            self.skipTest(f"no namespace for mounts can be had here: {done.stderr.strip()}")
        verdicts = {verdict["check"]: verdict for verdict in json.loads(done.stdout)["verdicts"]}
        self.assertIn("/dev/shm is not there", verdicts["shared_memory"]["text"])
        self.assertEqual(done.returncode, 3)

    def test_wrong_command_line(self):
        self.assertIn("left over", self.run_tool("selftest", "--sim", "8GiB", "more", status=2).stderr)
        self.assertIn("--sim", self.run_tool("selftest", "--sim", "no-such", status=2).stderr)
        self.assertIn("there is no option --aply; did you mean --apply?", self.run_tool("selftest", "--aply", status=2).stderr)

    @unittest.skipUnless(HIDDEN, "the driver that hides the simulator is of x86-64")
    def test_order_that_is_none(self):
        """A driver whose streams do not wait for events, and one that crashes."""
        found = {"LD_LIBRARY_PATH": str(HIDDEN[0].parent), "HIDDEN_SIM": "8GiB"}
        told, _ = self.selftest(status=1, HIDDEN_FAULT="unordered", **found)
        verdicts = {verdict["check"]: verdict for verdict in told["verdicts"]}
        self.assertIs(told["simulated"], False)
        self.assertIn("had the bytes of an earlier step, ordered by event, chain", verdicts["order"]["text"])
        self.assertEqual(verdicts["order"]["setting"], "free_sync:strict")
        told, errors = self.selftest(status=1, HIDDEN_FAULT="crash:--rows", **found)
        self.assertIn("the driver could not be asked: its process was ended by signal 11", errors)


if __name__ == "__main__":
    unittest.main()
