"""Memory that a program takes by other calls than cudaMalloc is part of every verdict.

Usage: test_own_memory.py SEGALLOC OWN_MEMORY"""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

from shared import of_answers, sampled

SEGALLOC, OWN_MEMORY = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
OURS = ("SEGALLOC_", "PYTORCH_", "LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
if "SANITIZER" in os.environ:
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
MIB = 1 << 20
GIB_WORD = 1 << 20  # a word counts KiB


def run(*arguments):
    return subprocess.run([SEGALLOC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


class OwnMemory(unittest.TestCase):
    def rehearse(self, status, cards, *words, devices=1):
        result = run("rehearse", "--json", "--margin", "0", "--devices", str(devices), "--card", cards, "--", OWN_MEMORY, *words)
        self.assertEqual(result.returncode, status, result)
        return json.loads(result.stdout.splitlines()[-1])

    @of_answers
    def test_each_kind_counts(self):
        """1 GiB of ours and 10 GiB by another call need 11 GiB."""
        for kind in "abckhir":
            with self.subTest(kind=kind):
                verdict = self.rehearse(3, "8GiB,12GiB", f"m{GIB_WORD}", f"{kind}{10 * GIB_WORD}")
                self.assertEqual(verdict["smallest_card_bytes"], 11264 * MIB)
                self.assertEqual([card["verdict"] for card in verdict["cards"]], ["does_not_fit", "fits"])

    def smallest(self, *words):
        """MiB, of the larger of two devices."""
        result = run("rehearse", "--json", "--margin", "0", "--devices", "2", "--card", "1TiB", "--", OWN_MEMORY, *words)
        self.assertEqual(result.returncode, 0, result)
        return json.loads(result.stdout.splitlines()[-1])["smallest_card_bytes"] // MIB

    def test_each_manner_counts(self):
        """1 GiB of ours and 10 GiB by another call, kept or given back at once: on the other device, which has no context of
        its own, without a current context, in a capture, in a thread without a context, and before an end by _exit()."""
        manners = ("d1", "e", "q", "j", "d1 e", "d1 q", "d1 j", "q e", "q j", "d1 q e")
        for manner, kind, end in sampled(itertools.product(manners, "abckhgir", ("", "f1 m1024", "z")), 13):
            if kind == "g" and end == "f1 m1024":
                continue # it has no block
            with self.subTest(manner=manner, kind=kind, end=end):
                words = f"m{GIB_WORD} {manner} {kind}{10 * GIB_WORD} {end}".split()
                self.assertEqual(self.smallest(*words), 10240 if "d1" in manner else 11264)

    def test_without_memory_of_ours(self):
        """The first call for memory is another one, of a device without a context, or where none is current."""
        for manner, kind in sampled(itertools.product(("d1", "e", "d1 e", "q"), "ckir"), 5):
            with self.subTest(manner=manner, kind=kind):
                self.assertEqual(self.smallest(*f"{manner} {kind}{10 * GIB_WORD} f0".split()), 10240)

    def test_a_device_that_is_only_noted_starts_as_without_a_trace(self):
        """Where others fill it while it is noted, too: it serves regions from the first block on."""
        words = "d1 c10485760 f0 m1048576 m1048576 f1 m2097152".split()
        with tempfile.TemporaryDirectory() as folder:
            result = run("run", "--sim", "10GiB,count=2", "-o", f"{folder}/trace", "--", OWN_MEMORY, *words)
            self.assertEqual(result.returncode, 0, result)
            devices = json.loads(run("report", "--json", f"{folder}/trace").stdout)["devices"]
            self.assertEqual([(device["device"], device["granularity_bytes"]) for device in devices if device["device"] == 1],
                             [(1, 2 * MIB)])

    def test_a_trace_changes_no_run(self):
        """A program on a full card ends as it does without a trace: what is noted for the observer alone moves no block."""
        ways = (  # our blocks go to other places where it is known how much others hold
            "c270 m246 c11472 f2 c6 f3 c3537 f0 k22087 m472 k17 m3285 f8 c1355 c22",
            "m246 c26624 m472 m3285 f3 c2048 c2048 c2048",
        )
        for words, card in itertools.product(ways, (34, 36)):
            with self.subTest(card=card, words=words), tempfile.TemporaryDirectory() as folder:
                command = ("--sim", f"{card}MiB,at-once", "--", OWN_MEMORY, *words.split())
                plain, traced = run("run", *command), run("run", "-o", f"{folder}/trace", *command)
                self.assertIn(plain.returncode, (0, 3))
                self.assertEqual((traced.returncode, traced.stdout), (plain.returncode, plain.stdout))
                verdict = self.rehearse(plain.returncode, f"{card}MiB", *words.split())
                self.assertFalse(verdict["adapts"])

    @of_answers
    def test_all_but_full(self):
        """A card that the run seems to fit is tried where others hold part of it and less than four pages are left."""
        words = ("u11 h2164 u323 f0 u10284 m49 f4 g6671 m74 m172 u24576 f3 h101 s f2 m2448 h873 f5 m242 m2673 f11 g3356 h15466 h218 "
                 "f9 u9636 f10 u17902 f15 m182 g11 g12 g4186 g6325 f14 g24576").split()
        verdict = self.rehearse(3, "46MiB,48MiB,50MiB,64MiB", *words)
        fits = [card["fits"] for card in verdict["cards"]]
        for card, fit in zip((46, 48, 50), fits):
            self.assertEqual(run("run", "--sim", f"{card}MiB", "--", OWN_MEMORY, *words).returncode, 0 if fit else 3, card)
        self.assertGreater(verdict["smallest_card_bytes"], 48 * MIB)
        said = [run("rehearse", "--margin", margin, "--card", "48MiB", "--", OWN_MEMORY, *words).stderr for margin in ("0", "8MiB")]
        self.assertEqual(["all but full" in text for text in said], [True, False])

    def test_all_but_full_by_other_processes(self):
        """A program's blocks lie otherwise where others hold part of the card, so that is tried as well: it needs a page more."""
        words = "m49 m1365 m1633 m8 m1191 f2 m414 o12893 f5 m3450 m5 f3 m99 o1477 f4 m32 m22 m6678".split()
        verdict = self.rehearse(3, "30MiB,32MiB", *words)
        self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True])

    @of_answers
    def test_a_process_without_the_library_gets_no_idle_memory(self):
        """It can't ask for it: on 44 MiB 20 of 30 are idle, and 20 more have no room. On 36 MiB they were given back before."""
        words = "m20480 m10240 f0 {}20480"
        for kind, fits in (("o", [True, False, True]), ("p", [True, True, True])):
            with self.subTest(kind):
                runs = [run("run", "--sim", f"{card}MiB,card=idle-{os.getpid()}", "--", OWN_MEMORY, *words.format(kind).split())
                        .returncode == 0 for card in (36, 44, 52)]
                verdict = self.rehearse(0 if all(fits) else 3, "36MiB,44MiB,52MiB", *words.format(kind).split())
                self.assertEqual((runs, [card["fits"] for card in verdict["cards"]]), (fits, fits))

    def test_imported_memory_is_back_with_its_last_handle(self):
        """For other processes too, though the descriptor that was exported is long closed."""
        result = run("run", "--sim", f"24MiB,card=imported-{os.getpid()}", "--", OWN_MEMORY, "i10240", "f0", "o16384")
        self.assertEqual(result.returncode, 0, result)

    @of_answers
    def test_a_lucky_end_is_no_proof(self):
        """Managed memory comes to the device with the work: on 42 MiB every second run fails. The one on 40 MiB always does."""
        words = ("u3 f0 u878 u1290 f2 s u177 f1 s s u3317 m4 u89 u1088 m4787 m3739 f5 m19362 f4 m5352 f11 m126 u7254 u15301 u240 m6 "
                 "f16 m170 u443 u249 u143 u1426 u1005 f8 u1193 f18 m900 f13 f3 m4 u2 u14 f19 m16524 f6 m335 u1838 u28").split()
        for _ in range(3):
            verdict = self.rehearse(3, "42MiB,46MiB", *words)
            self.assertEqual(([card["fits"] for card in verdict["cards"]], verdict["adapts"]), ([False, True], False))

    @of_answers
    def test_graphs_are_launched_at_once(self):
        """On a card without end their memory that is freed is back at once, so that each rehearsal says the same."""
        words = ("h82 f0 s h11 h37 h43 m35 m75 m25 h711 h154 m26 s h14051 h31 m9103 f6 h67 h15622 f2 h24576 h11 m2339 h112 h276 f15 "
                 "t0 h415 f13 m190 m2494 f16 m2017 m15210 h4363 m186").split()
        for _ in range(5):
            self.assertEqual(self.rehearse(0, "1GiB", *words)["smallest_card_bytes"], 70 * MIB)

    def test_a_block_left_to_the_driver_is_no_adapting(self):
        """On 4 MiB the driver serves the last block, so less is served here than on a card without end."""
        verdict = self.rehearse(0, "4MiB,6MiB", *"s s x m16 m438 f0 s b6 m29".split())
        self.assertEqual((verdict["adapts"], verdict["smallest_card_bytes"]), (False, 4 * MIB))
        text = run("rehearse", "--margin", "0", "--card", "4MiB", "--", OWN_MEMORY, *"s s x m16 m438 f0 s b6 m29".split()).stdout
        self.assertIn("  It was run on a card of this size too, and came to its end there: 4.00 MiB were needed.\n", text)

    def test_freed_to_pools_is_waited_for(self):
        """Before any memory of ours, too: 10 MiB are on their way to the pool that 12 MiB are taken from, and 4 MiB fail."""
        for words in ("a10240 f0 a12288 c4096", "m1 a10240 f1 a12288 c4096", "a10240 f0 a12288 m4096", "b10240 f0 a12288 c4096",
                      "a10240 f0 e a12288 c4096", "a10240 f0 a12288 j c4096"): # by a thread without a context
            with self.subTest(words):
                self.rehearse(0, "24MiB", *words.split())
                result = run("run", "--sim", "24MiB", "--", OWN_MEMORY, *words.split())
                self.assertEqual(result.returncode, 0, result)

    def runs_in_each_way(self, words, setting="", devices=1):
        """It fits 24 MiB, does not adapt, and runs there however far the GPU lags."""
        self.assertFalse(self.rehearse(0, "24MiB", *words.split(), devices=devices)["adapts"])
        for lag in ("", ",run_ahead=0", ",run_ahead=1000", ",driver=12.4"): # which has no events over contexts
            result = run("run", "--sim", f"24MiB,count={devices}{lag}{setting}", "--", OWN_MEMORY, *words.split())
            self.assertEqual(result.returncode, 0, (lag, result))

    def test_idle_memory_goes_back_in_a_capture(self):
        """As natively, where freed memory is the driver's at once. Any thread's capture counts."""
        for words in ("m10240 m10240 f0 f1 q c20480 v", "m20480 f0 q a16384 v"):
            with self.subTest(words):
                self.runs_in_each_way(words)

    @of_answers
    def test_memory_on_its_way_is_waited_for_in_a_capture(self):
        """Freed in the capture before, or in the order of a stream: natively the former is free before the capture begins."""
        for words in ("m10240 m10240 q f0 f1 v q c20480 v", "m10240 m10240 q f0 f1 v q m20480 v", "q m20480 f0 v q c20480",
                      "a10240 f0 q c16384 v", "b10240 f0 q m16384 v", "h10240 f0 q m16384", "h10240 q f0 c16384",
                      "q g10240 m16384", "m1 a10240 q j f1 e m16384"):
            with self.subTest(words):
                self.runs_in_each_way(words)

    def test_that_of_default_streams_too(self):
        """Of the legacy stream (l1) and of a thread's own (l2), freed before the capture, in it, and by another thread."""
        for stream, words in sampled(itertools.product("12", (
                "a10240 f0 q c16384 v", "b10240 f0 q m16384 v", "h10240 q f0 c16384", "q a10240 f0 m16384", "q g10240 m16384",
                "j a10240 q j f0 e m16384")), 5):
            with self.subTest(stream=stream, words=words):
                self.runs_in_each_way(f"l{stream} {words}")

    def test_other_processes_give_what_they_have(self):
        """Idle in a capture, or on its way back to a pool that nobody waits for."""
        for words in ("m10240 f0 q p16384", "m1 a10240 f1 p16384", "m1 h10240 f1 q2 p16384", "m1 l1 a10240 f1 p16384"):
            with self.subTest(words):
                self.runs_in_each_way(words, f",card=give-{os.getpid()}")

    def test_a_refused_call_is_reason_enough(self):
        """No result is named as the cause of a run that stopped where no card has as much."""
        for words, named in ((("c4294967296000",), False), (("m1024", "f9"), True)): # which is a mistake of the program's
            result = run("rehearse", "--card", "1GiB", "--", OWN_MEMORY, *words)
            self.assertEqual((result.returncode, "kernels compute nothing here" in result.stdout), (1, named), result)

    @of_answers
    def test_ranks_of_a_job_count_together(self):
        """Though one ends before another begins, as short ones do by chance. A rank that comes again is of another job."""
        for ranks, mib in (((0, 1), 20), ((0, 0), 10), ((None, None), 10), ((0, 1, 0, 1), 20), ((0, 1, 2), 30), (("a/b", 1), 20)):
            with self.subTest(ranks=ranks):
                lines = (f"{'' if rank is None else f'OMPI_COMM_WORLD_RANK={rank} '}{OWN_MEMORY} m10240" for rank in ranks)
                result = run("rehearse", "--json", "--margin", "0", "--card", "1TiB", "--", "/bin/sh", "-c", "; ".join(lines))
                self.assertEqual(json.loads(result.stdout.splitlines()[-1])["smallest_card_bytes"], mib * MIB, result)

    def test_managed_memory_makes_room_in_any_process(self):
        """20 MiB of it are on the device when another process asks for 16 of 24, and this one for the rest."""
        for kind in "po":
            self.runs_in_each_way(f"u20480 {kind}16384 m8192", f",card=room-{os.getpid()}")
            verdict = self.rehearse(3, "22MiB,24MiB", *f"u20480 {kind}16384 m8192".split())
            self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True])

    def test_the_same_requests_are_no_adapting(self):
        """Threads that come in another order have less at a time by chance. 10 MiB twice, at once and then one after the other.
        A program that asks for 5 MiB in place of 10 has adapted."""
        for second, adapts in (("m10240 f0 m10240 f1", False), ("m5120 f0 m5120 f1", True)):
            with self.subTest(second), tempfile.TemporaryDirectory() as folder:
                result = run("rehearse", "--json", "--overwrite", "--margin", "0", "--card", "12MiB", "--", "/bin/sh", "-c",
                             f'[ -e {folder}/ran ] && exec {OWN_MEMORY} {second}; : > {folder}/ran; '
                             f'exec {OWN_MEMORY} m10240 m10240 f0 f1')
                self.assertEqual(result.returncode, 0, result)
                self.assertEqual(json.loads(result.stdout.splitlines()[-1])["adapts"], adapts)

    @of_answers
    def test_room_that_the_library_made_is_no_adapting(self):
        """An allocation of 26 KiB fits once what was freed in the capture is given back. Nobody told the program of that."""
        words = "q1 c1634 m904 m2300 j x f1 h332 h327 h65 j f2 j f5 v c29 m26 v t110 s j m469".split()
        for _ in range(3):
            verdict = self.rehearse(0, "10MiB,12MiB", *words)
            self.assertFalse(verdict["adapts"] or any(card["adapted"] for card in verdict["cards"]))

    @of_answers
    def test_a_stream_of_one_device_frees_memory_of_another(self):
        """What asks waits for that stream, whichever device it is of."""
        for word, then in itertools.product("bh", ("m16384", "c16384", "k16384", "q m16384 v", "q c16384 v")):
            with self.subTest(word=word, then=then):
                self.runs_in_each_way(f"m1 d1 {word}10240 f1 {then}", devices=2)

    @of_answers
    def test_memory_of_a_graph_that_is_gone_is_free_at_once(self):
        """As natively. On 74 MiB it ran or not by how soon the driver's thread had told that the graphs were gone."""
        words = ("m3420 m1177 c127 f2 e f1 e v e m10298 d1 c787 f4 m61 j c61 c328 d0 v m61 q m14 k22 m7421 v f11 d0 m1546 c15 m1410 "
                 "f0 f6 v m23742 m172 m16102 j f16 e c6754 m5 c26 m6 s e e m765 f9 e s k1741 m14 c2041 t0").split()
        for lag, _ in itertools.product(("at-once", "run_ahead=0", "run_ahead=1000"), range(3)):
            result = run("run", "--sim", f"74MiB,count=2,{lag}", "--", OWN_MEMORY, *words)
            self.assertEqual(result.returncode, 0, (lag, result))

    def test_what_a_graph_held_comes_back_in_the_order_of_its_frees(self):
        """Where later blocks stand depends on that order, and so does the card that is enough. 100 are more than go back at once."""
        sizes = [600 + i for i in range(100)]
        freed = [i * 37 % 100 for i in range(100)]
        words = ["q", *(f"m{size}" for size in sizes), *(f"f{i}" for i in freed), "v", "m64"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.trace")
            result = run("run", "--sim", "1GiB", "-o", path, "--", OWN_MEMORY, *words)
            self.assertEqual(result.returncode, 0, result)
            rows = [row.split(",") for row in run("trace", "cat", path).stdout.splitlines()]
        back = [int(row[4]) // 1024 for row in rows if row[2] == "free" and int(row[4]) >= 600 * 1024]
        self.assertEqual(back[:100], [sizes[i] for i in freed])

    def test_blocks_freed_without_a_wait_lag(self):
        """A card that is all but full is tried at each pace that a GPU may have where blocks are freed in a capture."""
        for words, runs in (("c10240 m10240 q f1 v m10240", 4), ("c10240 m10240 f1 m10240", 2)):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                result = run("rehearse", "--overwrite", "--margin", "0", "--card", "24MiB", "--", "/bin/sh", "-c",
                             f'echo >> {folder}/runs; exec "$@"', "sh", OWN_MEMORY, *words.split())
                self.assertEqual(result.returncode, 0, result)
                with open(f"{folder}/runs") as file:
                    self.assertEqual(len(file.readlines()), runs, result)

    def test_rows_name_the_call(self):
        """In the text, in JSON and in the report of the trace, with shares that count it."""
        with tempfile.TemporaryDirectory() as folder:
            trace = f"{folder}/trace"
            words = ["m1048576", "a3145728", "c2097152"]
            verdict = json.loads(run("rehearse", "--json", "-o", trace, "--card", "8GiB", "--margin", "0", "--", OWN_MEMORY,
                                     *words).stdout.splitlines()[-1])
            expected = {"pools": 3072 * MIB, "physical": 2048 * MIB}
            self.assertEqual((verdict["outside_at_peak"], verdict["peak_taken_bytes"]), (expected, 6144 * MIB))
            self.assertAlmostEqual(verdict["served_share"], 1 / 6, places=5)
            report = json.loads(run("report", "--json", trace).stdout)
            self.assertEqual(report["devices"][0]["outside_at_peak"], expected)
            self.assertAlmostEqual(report["served_share"], 1 / 6, places=5)
            page = f"{folder}/page.html"
            self.assertEqual(run("report", "--html", page, trace).returncode, 0)
            with open(page, encoding="utf-8") as file:
                self.assertIn(f'"outside":[[{3072 * MIB},"by cudaMallocAsync"],[{2048 * MIB},"by cuMemCreate"]]', file.read())
            text = run("report", trace).stdout
            self.assertIn("At the peak 6.00 GiB were taken, 5.00 GiB of them by calls that segalloc does not serve\n"
                          "      3.00 GiB by cudaMallocAsync\n      2.00 GiB by cuMemCreate\n", text)
        text = run("rehearse", "--card", "4GiB", "--", OWN_MEMORY, *words).stdout
        self.assertIn("3.00 GiB by cudaMallocAsync\n", text)
        self.assertIn("asked for by cuMemCreate", text)
        self.assertIn("At the peak 6.00 GiB were in use; 1 allocation, 16.67 % served by segalloc", text)

    def test_doctor_counts_it(self):
        for words, answer in ((["m1024", "a1024"], "partly_served"), (["c2048"], "passed_on"), (["m1024"], "served")):
            with self.subTest(words=words):
                result = json.loads(run("doctor", "--json", "--sim", "1GiB", "--", OWN_MEMORY, *words).stdout)
                self.assertEqual((result["answer"], result["outside"]), (answer, answer != "served"))

    def test_with_an_allocation_after_it_and_with_none_at_all(self):
        for words, smallest in ((["a10485760", "m1048576"], 11264), (["a10485760"], 10240), (["c3145728", "m512"], 3074)):
            with self.subTest(words=words):
                self.assertEqual(self.rehearse(3, "2GiB", *words)["smallest_card_bytes"], smallest * MIB)

    @of_answers
    def test_what_was_given_back_counts_no_more(self):
        """10 GiB that are gone before 1 GiB comes need 10 GiB."""
        for kind in "abckhir":
            with self.subTest(kind=kind):
                verdict = self.rehearse(0, "10GiB", f"{kind}{10 * GIB_WORD}", "f0", "s", f"m{GIB_WORD}")
                self.assertEqual(verdict["smallest_card_bytes"], 10240 * MIB)

    def test_what_a_pool_keeps_idle(self):
        """Up to its threshold it stays for cudaMalloc, and goes back for memory of another pool."""
        keeps = ["t4194304", "a4194304", "f0", "s"]
        self.assertEqual(self.rehearse(3, "5GiB", *keeps, "m4194304")["smallest_card_bytes"], 8192 * MIB)
        self.assertEqual(self.rehearse(0, "5GiB", *keeps, "b4194304")["smallest_card_bytes"], 4096 * MIB)

    @of_answers
    def test_what_a_pool_keeps_idle_is_no_room_for_each_call(self):
        """24 MiB are freed to a pool whose threshold is raised then. On 26 MiB they leave in time; on up to 36 they stay idle
        in it, and cudaMalloc or cuMemCreate fails. On 36 it does so for a GPU that lags."""
        words = "m14 a24576 f1 r458 t30800 m13 a642 m5861 r55".split()
        cards = (24, 26, 28, 34, 36, 38)
        runs = [all(run("run", "--sim", f"{card}MiB,{lag}", "--", OWN_MEMORY, *words).returncode == 0
                    for lag in ("at-once", "run_ahead=1000")) for card in cards]
        verdict = self.rehearse(3, ",".join(f"{card}MiB" for card in cards), *words)
        self.assertEqual([card["fits"] for card in verdict["cards"]], runs)
        self.assertEqual((runs, verdict["adapts"]), ([False, True, False, False, False, True], False))
        self.assertEqual(verdict["smallest_card_bytes"], 38 * MIB) # from which on all are enough

    def runs_at_each_pace(self, card, words):
        """An end of its own for each: processes that a failure leaves behind hold the card."""
        paces = ("at-once", "run_ahead=0", "run_ahead=1000")
        return all(run("run", "--sim", f"{card}MiB,{pace},card=pace-{os.getpid()}-{card}-{i}", "--", OWN_MEMORY, *words).returncode == 0
                   for i, pace in enumerate(paces))

    @of_answers
    def test_what_a_gpu_that_lags_holds(self):
        """More than on a card without end, where work is done at once: memory on its way back to the driver beside what another
        process asks for; and memory that was freed before a threshold was raised, and after it where the GPU is late."""
        for text, cards in (("h11540 f0 a2697 f1 a14292 o18470", range(34, 54, 2)),
                            ("a11860 a16984 f0 f1 t49152 b24576 f2 b16 b15727 m15957", range(38, 52, 2))):
            words = text.split()
            runs = [self.runs_at_each_pace(card, words) for card in cards]
            verdict = self.rehearse(3, ",".join(f"{card}MiB" for card in cards), *words)
            with self.subTest(text):
                self.assertEqual([card["bytes"] // MIB for card, ran in zip(verdict["cards"], runs) if card["fits"] and not ran], [])
                self.assertTrue(verdict["cards"][-1]["fits"])
                self.assertIn(False, runs)

    def test_managed_memory_moves_to_the_host(self):
        self.assertEqual(self.rehearse(0, "64MiB", "u131072", "m32768")["smallest_card_bytes"], 32 * MIB)

    def test_idle_memory_of_ours_makes_room(self):
        self.assertEqual(self.rehearse(0, "1GiB", "m1048576", "f0", "c1048576")["smallest_card_bytes"], 1024 * MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
