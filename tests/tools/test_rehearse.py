"""segalloc rehearse: one run answers for all cards.

Usage: test_rehearse.py SEGALLOC LOOP ACTS"""
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import rehearsal
import shared
from rehearsal import ACTS, ENVIRONMENT, HAS_GPU, LOOP, MIB, PLAIN_SEGV, SEGALLOC, rehearse


class Rehearse(rehearsal.Case):
    def test_cards(self):
        verdict = self.verdict(3, "--card", "1GiB,16MiB,128MiB,1024MiB", "--margin", "0", "--", LOOP, "5000",
                               "return")
        self.assertEqual(verdict["outcome"], "completed")
        self.assertEqual([c["bytes"] for c in verdict["cards"]], [16 * MIB, 128 * MIB, 1024 * MIB])
        self.assertEqual(verdict["served_share"], 1)
        smallest = verdict["smallest_card_bytes"]
        self.assertGreaterEqual(smallest, verdict["peak_requested_bytes"])
        self.assertGreaterEqual(verdict["peak_reserved_bytes"], verdict["peak_requested_bytes"])
        for card in verdict["cards"]:
            self.assertEqual(card["headroom_bytes"], card["bytes"] - smallest)
            self.assertEqual(card["fits"], card["bytes"] >= smallest)
            self.assertEqual(card["ends_at_event"] is None, card["fits"])
            self.assertEqual(card["verdict"], "fits" if card["fits"] else "does_not_fit")
            self.assertEqual([bool(card[key]) for key in ("site", "live_then")], [not card["fits"]] * 2)
            self.assertEqual(sum(group["bytes"] for group in card["live_then"]), card["live_bytes"] or 0)  # one site
        self.assertEqual(sum(group["bytes"] for group in verdict["live_at_peak"]), verdict["peak_requested_bytes"])
        self.assertTrue(verdict["assumptions"])
        text = rehearse("--card", "16MiB", "--margin", "1MiB", "--", LOOP, "5000", "return").stdout
        self.assertRegex(text, "\\n16.00 MiB: does not fit: the smallest card that does has .* more.\n  First failure: .* asked for ")
        self.assertRegex(text, "\nLargest in use at the peak of the run, .*:\n +[0-9.]+ MiB in [0-9]+ blocks, ")
        self.assertIn("Context and libraries take some 1.00 MiB more (--margin)", text)
        text = rehearse("--card", "16GiB", "--margin", "1GiB", "--", LOOP, "5000", "return").stdout
        self.assertRegex(text, "16.00 GiB: fits, 15.[0-9]+ GiB to spare, 14.[0-9]+ GiB of them after context")
        self.assertNotIn("Largest in use", text)

    @shared.of_answers
    def test_the_smallest_card_is_one(self):
        """What is said of another card is what happens on it."""
        command = ["--", LOOP, "5000", "return"]
        smallest = self.verdict(0, "--card", "1GiB", *command)["smallest_card_bytes"] // MIB
        self.assertEqual(self.verdict(0, "--card", f"{smallest + 2}MiB", *command)["outcome"], "completed")
        full = self.verdict(3, "--card", f"{smallest // 2}MiB,{smallest * 3 // 4}MiB", *command)
        self.assertEqual(full["outcome"], "out_of_memory", full)
        self.assertEqual([c["fits"] for c in full["cards"]], [False, False])
        self.assertTrue(all(c["ends_at_event"] for c in full["cards"]))
        # known although no card that was named is large enough
        self.assertEqual((full["smallest_card_bytes"], full["short_by_bytes"]),
                         (smallest * MIB, (smallest - smallest * 3 // 4 // 2 * 2) * MIB))
        self.assertEqual((full["alone"]["segalloc"], full["alone"]["pytorch"]), (smallest * MIB, None))

    def test_stopped(self):
        verdict = self.verdict(1, "--", "sh", "-c", f"'{LOOP}' 200 return; echo a reason >&2; exit 3")
        self.assertEqual((verdict["outcome"], verdict["status"], verdict["cards"]), ("stopped", 3, []))
        self.assertIn("a reason", verdict["reason"])
        self.assertIn("compute nothing", verdict["reason"])
        verdict = self.verdict(1, "--", "true")
        self.assertIn("no device memory", verdict["reason"])

    def test_other_calls_count_as_in_use_where_it_fails(self):
        for ours, words in ((0, []), (64 * MIB, ["m+64"])):
            command = ["--margin", "0", "--card", f"{(ours + 438 * MIB) // MIB}MiB", "--", ACTS, *words, "a!350", "b!90"]
            card, = self.verdict(3, *command)["cards"]
            self.assertEqual((card["asked_bytes"], card["live_bytes"], card["live_by_other_calls_bytes"]), (90 * MIB, ours, 350 * MIB))
            text = rehearse(*command).stdout
            self.assertIn(f" with {ours // MIB + 350}.00 MiB in use (350.00 MiB by other calls)" + (",\n  at event 1 of 1 " if ours else "\n"),
                          text)

    def test_ends_without_a_verdict(self):
        """Whatever becomes of the program, one object says it."""
        keys = {"schema", "outcome", "reason", "status", "peak_requested_bytes", "peak_reserved_bytes", "cards",
                "served_share", "assumptions"}
        for command, status, reason in ((["/nowhere/program"], 127, "/nowhere/program: no such program"),
                                        (["/"], 126, "/: "), (["sh", "-c", "nothing-of-this-name"], 127,
                                                              "nothing-of-this-name"),
                                        (["env", *PLAIN_SEGV, "sh", "-c", "kill -SEGV $$"], 139, "signal 11 ended it"),
                                        (["sh", "-c", f"'{LOOP}' 200 return; kill -KILL $$"], 137, "signal 9 ended it"),
                                        (["sh", "-c", "kill -INT $$"], 130, "signal 2 ended it")):
            verdict = self.verdict(1, "--", *command)
            self.assertEqual((verdict["outcome"], verdict["status"], verdict["cards"]), ("stopped", status, []),
                             command)
            self.assertIn(reason, verdict["reason"])
            if status == 130:  # the user's doing, not the program's
                self.assertNotIn("compute", verdict["reason"])
            self.assertLessEqual(keys, set(verdict))
            said = rehearse("--", *command)
            self.assertEqual(said.returncode, 1)
            self.assertIn("It stopped: ", said.stdout)
            self.assertNotIn("Assumed", said.stdout)

    def adapts(self, status, cards, *acts):
        """The verdict, and how often the program was run."""
        with tempfile.TemporaryDirectory() as folder:
            runs = os.path.join(folder, "runs")
            command = f"echo run >>{runs}; exec {shlex.join([ACTS, *acts])}"
            verdict = self.verdict(status, "--overwrite", "--card", cards, "--margin", "0", "--", "sh", "-c", command)
            with open(runs, encoding="ascii") as file:
                return verdict, len(file.readlines())

    def test_programs_that_adapt(self):
        """Each card that the program does not fit as it ran first is tried at its size, and the verdict is that run's. On the
        others it takes what it took first."""
        ways = {  # acts, cards: (verdicts, MiB that each took, refusals, runs)
            ("a+300", "b+300", "c=600"): ("1GiB,2GiB", "fits fits", (600, 1200), (1, None), 2),      # a cache above
            ("a+100", "b^50"): ("1GiB,2GiB", "fits fits", (900, 1700), (1, 1), 3),                   # doubles until it is refused
            ("a%90",): ("1GiB,2GiB,4GiB", "fits fits fits", (None, None, None), (0, 0, None), 3),    # a share of all memory
            ("a+100", "b?1500", "c+20"): ("1GiB,2GiB", "fits fits", (120, 1620), (1, None), 2),      # does without
            ("a+100", "b/1500", "c+20"): ("1GiB,2GiB", "fits fits", (120, None), (1, None), 2),      # takes the host's in its place
            ("a+100", "b&1500"): ("1GiB,2GiB", "fits fits", (100, 1600), (1, None), 2),              # … or its own
            ("a+100", "b/1500"): ("1GiB,2GiB", "fits fits", (100, None), (1, None), 2),              # … at its end, too
            ("a+100", "b?1500"): ("1GiB,2GiB", "does_not_fit fits", (None, None), (None, None), 2),  # comes to nothing
            ("a+100", "b#1500"): ("1GiB,2GiB", "does_not_fit fits", (None, None), (None, None), 2),  # … by another call
            ("a+100", "b#1500", "c+20"): ("1GiB,2GiB", "fits fits", (120, None), (1, None), 2),      # does without
            ("a+100", "b#1500", "c#700"): ("1GiB", "fits", (800,), (1,), 2),
            ("a+100", "b,1600"): ("500MiB,1GiB,2GiB", "fits fits fits", (500, 900, None), (2, 1, None), 3),  # asks for less by it
            ("a:1600", "b+100"): ("200MiB,300MiB,400MiB,2GiB", "does_not_fit fits does_not_fit fits", (None, 300, None, None),
                                  (None, 3, None, None), 4),                                         # a smaller one may fit
            ("a+100", "b~50"): ("1GiB,2GiB", "fits fits", (900, 1700), (1, 1), 3),                   # looks how much there is
            ("a+100", "b~50", "c+1500"): ("1GiB,2GiB", "does_not_fit fits", (None, 1700), (None, 1), 3),
            ("a+100", "b~50", "c?1500"): ("1GiB,2GiB", "does_not_fit fits", (None, 1700), (None, 1), 3),
            ("a+100", "b?200", "c?1500"): ("1GiB,2GiB", "does_not_fit fits", (None, None), (None, None), 2),
            ("a+100", "b$400", "c$700"): ("512MiB,800MiB", "does_not_fit does_not_fit", (None, None), (None, None), 2),  # faults beyond it
            ("b$400", "c$700"): ("2GiB", "fits", (None,), (None,), 1),
            ("a+100", "b+1500"): ("512MiB,1GiB,2GiB", "does_not_fit does_not_fit fits", (None,) * 3, (None,) * 3, 2),
            ("a+100", "b+1500", "c-"): ("2GiB,4GiB", "fits fits", (None, None), (None, None), 1),
        }
        for acts, (cards, verdicts, took, refused, runs) in ways.items():
            with self.subTest(acts):
                fits = "does_not_fit" not in verdicts
                verdict, ran = self.adapts(0 if fits else 3, cards, *acts)
                self.assertEqual(([card["verdict"] for card in verdict["cards"]], ran), (verdicts.split(), runs))
                self.assertEqual([card["refused"] for card in verdict["cards"]], list(refused))
                for card, mib in zip(verdict["cards"], took):
                    if mib:
                        self.assertEqual(card["bytes"] - card["headroom_bytes"], mib * MIB)
                adapts = any(count is not None for count in refused)
                self.assertEqual((verdict["adapts"], verdict["smallest_card_bytes"] is None), (adapts, adapts))
        text = rehearse("--card", "1GiB", "--", ACTS, "a+100", "b^50").stdout
        self.assertRegex(text, "1.00 GiB: (fits|too close)[^\n]*\n  It was run on a card of this size too, and makes do with less there: 900.00 MiB "
                               "were needed, 1 call for memory was refused and made good.\nSmallest card: not known, ")
        self.assertNotIn("for a limit that is set", text)

    @shared.of_answers
    def test_hidden_ends(self):
        """A call that stays refused is a failure also where a shell hides the program's end."""
        for acts in ("a+100 b!1500", "a+100 b+1500"), ("a+100 b#1500",):
            for act in acts:
                verdict = self.verdict(3, "--card", "1GiB,2GiB", "--", "sh", "-c", f"'{ACTS}' {act} | cat; true")
                self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True], act)
        # a message from a few more blocks, and an end with an error, are no life after the refusal
        for hidden in ("| cat", "; true", "|| true"):
            bad = f"'{ACTS}' a+100 b?1500 c+1 d+1 or=fail {hidden}"
            verdict = self.verdict(3, "--card", "1GiB,2GiB", "--", "sh", "-c", bad)
            self.assertEqual([card["fits"] for card in verdict["cards"]], [False, True], hidden)
            good = bad.replace(" or=fail", "")
            self.assertTrue(self.verdict(0, "--card", "1GiB", "--", "sh", "-c", good)["cards"][0]["fits"], hidden)
        # a search is one where its process says itself that it ended well
        self.assertEqual(self.verdict(0, "--card", "1GiB", "--", "sh", "-c", f"'{ACTS}' a+100 b~50; true")["adapts"], True)
        self.assertEqual(self.verdict(3, "--card", "1GiB", "--", "sh", "-c", f"'{ACTS}' a+100 b~50 fail; true")["adapts"], False)

    @shared.of_answers
    def test_sizes_that_round_alike(self):
        """A card that is too small is told apart from the one that is not."""
        said = rehearse("--card", "1GiB", "--margin", "0", "--", ACTS, "a+1025").stdout
        self.assertIn("1.00 GiB: does not fit: the smallest card that does has 1026 MiB, 2.00 MiB more", said)
        self.assertIn("or a card of 1026 MiB", said)

    @shared.of_answers
    def test_a_fault_beyond_the_card(self):
        """A run that faults where it got more than any card has says no more of the smallest card than that these are none."""
        verdict = self.verdict(3, "--card", "512MiB,800MiB", "--margin", "0", "--", ACTS, "a+100", "b$400", "c$700")
        self.assertEqual((verdict["smallest_card_bytes"], verdict["at_least"]), (802 * MIB, True))
        hidden = self.verdict(3, "--card", "512MiB,800MiB", "--margin", "0", "--", "sh", "-c", f"'{ACTS}' a+100 b'$400' c'$700'; true")
        self.assertEqual((hidden["smallest_card_bytes"], hidden["at_least"]), (802 * MIB, True))

    def test_a_fault_that_stays(self):
        """A program that faults on each card has stopped, and its reason is said."""
        verdict = self.verdict(1, "--card", "1GiB", "--", "env", *PLAIN_SEGV, ACTS, "a+100", "abort")
        self.assertEqual((verdict["outcome"], verdict["status"]), ("stopped", 134))

    def test_tensors_that_are_sent_are_named(self):
        """They have copies, which PyTorch alone would not have."""
        command = ("sh", "-c", f"printf 'sent 1048576\\nsent 2097152\\n' >> \"$SEGALLOC_REHEARSAL_NEEDS\"; '{ACTS}' a+100")
        verdict = self.verdict(0, "--card", "1GiB", "--margin", "0", "--", *command)
        self.assertEqual((verdict["sent_bytes"], verdict["alone"]["pytorch"]), (3 * MIB, None))

    def test_programs_that_ask(self):
        """One that asks for the card's size, in any way and by any process, is run on each named card that the first run was not told of."""
        for way, runs in shared.sampled({way: 3 if "n" in way.lower() or "." in way else 2
                          for letter in "itpn" for way in (letter, letter.upper(), letter.upper() + ".")}.items(), 5):
            with self.subTest(way):
                more, ran = self.adapts(3, "600MiB,8GiB", f"less={way},4096,a+700,a+300")
                self.assertEqual(([card["verdict"] for card in more["cards"]], ran), (["does_not_fit", "fits"], runs))
                self.assertEqual([card["ran"] for card in more["cards"]], [True, runs > 2])
                self.assertEqual((more["asks"], more["adapts"], more["smallest_card_bytes"], more["cards"][0]["headroom_bytes"]),
                                 (True, True, None, None))
                self.assertFalse([line for line in more["assumptions"] if "asks for the same" in line])
                less, ran = self.adapts(0, "600MiB,8GiB", f"less={way},4096,a+100,a+300")
                self.assertEqual(([card["headroom_bytes"] // MIB for card in less["cards"]], ran), ([500, 7892], runs))
                alone = self.adapts(3, "600MiB", f"less={way},4096,a+700,a+300")[0]
                self.assertEqual(alone["cards"][0]["verdict"], "does_not_fit")
                one, ran = self.adapts(0, "8GiB", f"less={way},4096,a+700,a+300")
                self.assertEqual((ran, one["smallest_card_bytes"]), (runs - 1, 300 * MIB))

    @shared.of_answers
    def test_programs_that_ask_and_are_alike(self):
        """Where the answer changes nothing the figures of the first run stay. Each run on a card is said."""
        verdict, ran = self.adapts(0, "600MiB,1GiB,8GiB", "less=t,4096,a+300,a+300")
        self.assertEqual((ran, verdict["adapts"], verdict["smallest_card_bytes"]), (3, False, 300 * MIB))
        self.assertEqual([card["headroom_bytes"] // MIB for card in verdict["cards"]], [300, 724, 7892])
        self.assertEqual(self.adapts(0, "600MiB,1GiB,8GiB", "a+300")[1], 1)
        result = rehearse("--margin", "0", "--card", "600MiB,8GiB", "--", ACTS, "less=t,4096,a+700,a+300")
        self.assertIn("600.00 MiB has room for what it took, but it asks how much memory there is. Running it once more", result.stderr)
        self.assertRegex(result.stdout, "600.00 MiB: does not fit.\n  It was run on a card of this size too, for it asks how much memory "
                                        "there is, and came to no good end there: acts: .*out of memory")
        self.assertNotIn("asks for the same on every card", result.stdout)

    def test_a_question_is_said(self):
        self.assertFalse([line for line in self.verdict(0, "--", LOOP, "100", "return")["assumptions"] if "asks how much" in line or "ran with the answer" in line])

    def test_beneath_is_said(self):
        command = ["--", LOOP, "500", "return"]
        self.assertFalse(any("PyTorch's cache" in text for text in self.verdict(0, *command)["assumptions"]))
        verdict = self.verdict(0, "--conf", "pytorch:beneath", *command)
        self.assertTrue(any("PyTorch's cache" in text for text in verdict["assumptions"]))

    def test_devices(self):
        for devices in ("0", "17", "x", "", "1x", "-1"):
            result = rehearse("--devices", devices, "--", "true")
            self.assertEqual((result.returncode, result.stdout), (2, ""), devices)
            self.assertIn("--devices takes a number from 1 to 16", result.stderr)

    def test_output_is_the_programs(self):
        result = rehearse("--json", "--", "sh", "-c", f"'{LOOP}' 200 return; echo out; echo err >&2")
        self.assertEqual(len(result.stdout.splitlines()), 1)
        self.assertIn("out\n", result.stderr)
        self.assertIn("err\n", result.stderr)
        text = rehearse("--card", "1GiB", "--", LOOP, "200", "return")
        self.assertTrue(text.stdout.splitlines()[0].startswith("1.00 GiB: fits, "), text)
        self.assertRegex(text.stdout, f"Next: segalloc run{HAS_GPU or ' --sim 1GiB,drop_mb=1'} -- ")

    @shared.of_answers
    def test_margin(self):
        """What a context would not leave is too close to call, which fails nobody's script."""
        command = ["--", LOOP, "5000", "return"]
        smallest = self.verdict(0, *command)["smallest_card_bytes"] // MIB
        for margin, verdict in (("10MiB", "fits"), ("11MiB", "too_close")):
            card, = self.verdict(0, "--card", f"{smallest + 10}MiB", "--margin", margin, *command)["cards"]
            self.assertEqual((card["verdict"], card["fits"], card["headroom_bytes"]), (verdict, True, 10 * MIB))
        self.assertIn("too close to call", rehearse("--card", f"{smallest}MiB", *command).stdout)
        for spare, left in ((8, None), (10, "0 B"), (12, "2.00 MiB")):
            said = rehearse("--card", f"{smallest + spare}MiB", "--margin", "10MiB", *command).stdout
            line = f"  {smallest + spare}.00 MiB = {smallest}.00 MiB smallest card + 10.00 MiB margin + {left} left\n"
            self.assertEqual(line in said, left is not None, said)
            self.assertEqual(" margin + " in said, left is not None, said)

    @shared.of_answers
    def test_cards_by_name(self):
        verdict = self.verdict(0, "--card", "h100,4090,24GiB", "--", LOOP, "200", "return")
        cards = verdict["cards"]
        self.assertEqual([card["bytes"] // MIB for card in cards], [24084, 24576, 81008])
        self.assertEqual([card["name"] for card in cards], ["4090", None, "h100"])
        # the one nothing was measured on gets the most that was measured on any
        self.assertEqual(max(card["margin_bytes"] for card in cards), cards[1]["margin_bytes"])
        self.assertLess(cards[0]["margin_bytes"], cards[1]["margin_bytes"])
        self.assertIn("4090", rehearse("--help").stdout)

    @shared.of_answers
    def test_an_estimated_margin_says_so(self):
        """Of a B300 no process by itself was measured: the most of the other cards is its margin, and the answer says so."""
        command = "--card", "h200,b300", "--", LOOP, "200", "return"
        cards = {card["name"]: card for card in self.verdict(0, *command)["cards"]}
        self.assertEqual([(name, card["bytes"] // MIB) for name, card in cards.items()], [("h200", 143154), ("b300", 274112)])
        self.assertEqual([card["margin_estimated"] for card in cards.values()], [False, True])
        self.assertGreater(cards["b300"]["margin_bytes"], cards["h200"]["margin_bytes"])
        said = rehearse(*command).stdout
        self.assertIn("The margin of b300 is estimated", said)
        self.assertNotIn("The margin of h200", said)
        said = self.verdict(0, "--margin", "600MiB", *command)["cards"]
        self.assertEqual([card["margin_estimated"] for card in said], [False, False])

    @shared.of_answers
    def test_the_model_is_the_cards(self):
        """A program sees the name and the compute capability of the largest card that was named, also in what is to be
        run next; where only sizes are given, it is said that the model is made up."""
        asks = ("import ctypes as c; d = c.CDLL('libcuda.so.1'); n = c.create_string_buffer(64); d.cuInit(0); "
                "d.cuDeviceGetName(n, 64, 0); v = [c.c_int() for _ in range(2)]; "
                "[d.cuDeviceGetAttribute(c.byref(x), 75 + i, 0) for i, x in enumerate(v)]; "
                "print(n.value.decode(), v[0].value, v[1].value, sep='|')")
        made_up = "The GPU's model is made up"
        for cards, name, capability in (("h100", "NVIDIA H100 80GB HBM3", "9|0"), ("t4,4090", "NVIDIA GeForce RTX 4090", "8|9"),
                                        ("T4", "Tesla T4", "7|5"), ("24GiB", "segalloc simulated GPU", "8|0")):
            said = rehearse("--card", cards, "--", "sh", "-c", f'python3 -c "{asks}"; {LOOP} 20 return').stdout
            self.assertIn(f"{name}|{capability}\n", said)
            self.assertEqual(made_up in said, cards == "24GiB", said)
            next_line = said.splitlines()[-1]
            if not HAS_GPU and cards != "t4,4090":
                run = shlex.split(next_line.removeprefix("Next: segalloc "))
                ran = subprocess.run([SEGALLOC, *run], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
                self.assertIn(f"{name}|{capability}\n", ran.stdout)

    def test_try(self):
        """One value after the other, in place of {} or of an option's value, until one fits."""
        def tried(status, name, *command):
            result = rehearse("--json", "--card", "24MiB", "--margin", "0", "--try", name, "--", *command)
            self.assertEqual(result.returncode, status, result)
            return json.loads(result.stdout)

        def shell(word):
            return ["sh", "-c", f"'{LOOP}' {word} return", "sh"]

        asked = tried(0, "blocks=2000,20,10", *shell("{}"))
        self.assertEqual([one["value"] for one in asked["tried"]], ["2000", "20"])
        self.assertEqual((asked["name"], asked["fits"]), ("blocks", "20"))
        self.assertEqual([one["result"]["cards"][0]["fits"] for one in asked["tried"]], [False, True])
        said = rehearse("--card", "24MiB", "--margin", "0", "--try", "blocks=20,10,5", "--", *shell("{}")).stdout
        self.assertIn("Not tried after the first that fits: blocks 10, 5.\n", said)
        for word, option in (("$2", ["--some-blocks", "7"]), ("${1#*=}", ["--some_blocks=7"]),
                             ("${1#*=}", ["some_blocks=7"])):
            asked = tried(3, "some-blocks=2000,1000", *shell(word), *option)
            self.assertEqual((asked["fits"], len(asked["tried"])), (None, 2))
            self.assertEqual([one["result"]["allocations"] for one in asked["tried"]], [2000, 1000])
        self.assertEqual(tried(1, "x=1", "sh", "-c", "exit {}")["fits"], None)
        # what is nearer than the margin counts where nothing else does
        smallest = self.verdict(0, "--", *shell("20"))["smallest_card_bytes"]
        for values, fits, count in (("20,2000", "20", 2), ("20,1", "1", 2)):
            result = rehearse("--json", "--card", f"{smallest}B", "--margin", "1MiB", "--try", f"n={values}", "--",
                              *shell("{}"))
            asked = json.loads(result.stdout)
            self.assertEqual((result.returncode, asked["fits"], len(asked["tried"])), (0, fits, count), asked)
        for wrong in (["--try", "batch", "--", "true", "{}"], ["--try", "batch=", "--", "true", "{}"],
                      ["--try", "=1", "--", "true", "{}"], ["--try", "batch=1", "--", "true", "batch"]):
            self.assertEqual(rehearse(*wrong).returncode, 2, wrong)

    def test_the_largest_that_fits(self):
        """A range is halved, and the value found fits where the next one does not; of a list, what was not tried is named."""
        command = ["--", "sh", "-c", f"'{ACTS}' a+$2", "sh", "--batch", "40"]
        for card, values, fits in ((24, "1..39", "24"), (38, "1..39", "38"), (4, "7..39", None), (64, "1..39", "39"), (30, "7..7", "7"),
                                   (8, "8..9", "8")):
            result = rehearse("--json", "--card", f"{card}MiB", "--margin", "0", "--try", f"batch={values}", *command)
            told = json.loads(result.stdout)
            self.assertEqual((result.returncode, told["fits"]), (0 if fits else 3, fits), result)
            self.assertLessEqual(len(told["tried"]), 6)
        said = rehearse("--card", "24MiB", "--margin", "0", "--try", "batch=1..39", *command).stdout.splitlines()
        self.assertEqual(said[-2], "batch 24 is the largest that fits.", said)
        self.assertTrue(said[-1].endswith(" -- sh -c '" + f"'\\''{ACTS}'\\'' a+$2' sh --batch 24"), said)
        for values, between in (("20,10", "21..39"), ("30,20,10", "21..29"), ("39", None), ("25,24", None)):
            said = rehearse("--card", "24MiB" if between or values == "25,24" else "64MiB", "--margin", "0", "--try",
                            f"batch={values}", *command).stdout
            self.assertEqual("Larger ones were not tried" in said, between is not None, said)
            self.assertIn(f"--try batch={between} finds" if between else "Next: ", said)
        for wrong in ("4..3", "1..9999999"):
            self.assertEqual(rehearse("--try", f"batch={wrong}", *command).returncode, 2)

    @shared.needs_terminal
    def test_progress(self):
        """On a terminal a count that only rises is shown, and taken away."""
        ours, theirs = os.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            subprocess.run([SEGALLOC, "rehearse", "--", LOOP, "200", "return"], env=ENVIRONMENT, stderr=theirs,
                           stdout=subprocess.DEVNULL, timeout=120)
            os.close(theirs)
            said = terminal.read(65536).decode()
        counts = [int(part) for part in re.findall(r"other cards: (\d+)", said)]
        self.assertEqual(counts, list(range(1, len(counts) + 1)))
        self.assertGreater(len(counts), 3)
        self.assertTrue(said.endswith("\r\x1b[K"), said)

    @shared.of_answers
    def test_next(self):
        """What to run next can be pasted, and is right."""
        said = rehearse("--card", "24MiB", "--margin", "0", "--", "sh", "-c", f"'{LOOP}' $2 return", "it's", "--batch",
                        "200")
        lines = said.stdout.splitlines()
        expected = "Next: segalloc rehearse --card 24MiB --try batch=1..199 -- "
        self.assertTrue(lines[-1].startswith(expected), lines)
        command = shlex.split(lines[-1].removeprefix("Next: segalloc "))
        result = subprocess.run([SEGALLOC, *command], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result)
        last = result.stdout.splitlines()[-1]
        self.assertRegex(last, f"^Next: segalloc run{HAS_GPU or ' --sim 24MiB,drop_mb=1'} -- sh -c ")
        run = ["run", "--sim", "24MiB", *shlex.split(last.removeprefix("Next: segalloc "))[3 if not HAS_GPU else 1:]]
        result = subprocess.run([SEGALLOC, *run], env=ENVIRONMENT, capture_output=True, timeout=120)
        self.assertEqual(result.returncode, 0, result)

    @shared.of_answers
    def test_next_without_a_batch(self):
        """Where nothing in the command can be made smaller, the card that is enough is named."""
        said = rehearse("--card", "24MiB", "--margin", "6MiB", "--", LOOP, "200", "return").stdout
        smallest = float(re.search(r"Smallest card: (\S+) MiB", said)[1])
        self.assertTrue(said.splitlines()[-1].endswith(f"--try NAME=VALUE,…, or a card of {smallest + 6:.2f} MiB"), said)

    @shared.of_answers
    def test_next_names_the_devices(self):
        said = rehearse("--card", "1GiB", "--devices", "2", "--", LOOP, "20", "return").stdout.splitlines()
        self.assertIn(f"segalloc run{HAS_GPU or ' --sim 1GiB,count=2,drop_mb=1'} -- ", said[-1])
        said = rehearse("--card", "16MiB", "--devices", "2", "--", "sh", "-c", f"'{LOOP}' $2 return", "sh", "--batch",
                        "200").stdout.splitlines()
        self.assertIn(" --card 16MiB --devices 2 --try ", said[-1])

    @shared.of_answers
    def test_a_smaller_batch_is_another_run(self):
        """What keeps the samples of an optimizer step stands before what to run next."""
        command = ["--card", "24MiB", "--margin", "0", "--try", "batch=20", "--", "sh", "-c", f"'{LOOP}' $2 return",
                   "sh"]
        lines = rehearse(*command, "--batch", "200").stdout.splitlines()
        self.assertTrue(lines[-2].startswith("A batch 10 times smaller: 10 times the steps of gradient acc"), lines)
        for own in ("20", "30", "x"):  # as it was, or by no whole number
            self.assertNotIn("gradient", rehearse(*command, "--batch", own).stdout)

    def test_what_the_first_failure_lacks(self):
        """It is less than what the whole run lacks, and both are said."""
        card = self.verdict(3, "--card", "12MiB", "--margin", "0", "--", LOOP, "200", "return")["cards"][0]
        self.assertTrue(0 < card["asked_short_by_bytes"] < -card["headroom_bytes"], card)
        text = rehearse("--card", "12MiB", "--", LOOP, "200", "return").stdout
        self.assertIn("  That allocation alone lacks ", text)

    def test_the_trace_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "T")
            command = ["-o", trace, "--", "sh", "-c", f"'{LOOP}' 200 return; '{LOOP}' 100 return"]
            self.verdict(0, *command)
            self.assertEqual(len(os.listdir(folder)), 2)
            report = subprocess.run([SEGALLOC, "report", "--json", trace], capture_output=True, text=True, timeout=60)
            self.assertEqual(json.loads(report.stdout)["allocs"], 200)
            self.assertIn("-f replaces it", rehearse(*command).stderr)
            os.unlink(os.path.join(folder, next(name for name in os.listdir(folder) if name != "T")))
            self.verdict(0, "-f", *command)

    def test_wrong_conf_is_fatal(self):
        result = rehearse("--conf", "reserve_slac:1", "--", "sh", "-c", "echo ran")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("did you mean reserve_slack", result.stderr)

    def test_usage(self):
        for arguments in (["--card", "big", "--", "true"], ["--card", "24", "--", "true"],
                          ["--margin", "x", "--", "true"], ["--card", "1KiB", "--", "true"], [], ["--card"]):
            result = rehearse(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result)
        self.assertEqual(rehearse("--", "/nonexistent/program").returncode, 1)

    def test_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            ENVIRONMENT["TMPDIR"] = folder
            self.addCleanup(ENVIRONMENT.pop, "TMPDIR")
            self.verdict(0, "--", LOOP, "200", "return")
            self.assertEqual(os.listdir(folder), [])

    def test_signals(self):
        """Told to end, it says what was found up to then; the command has ended, and what it had begun."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with tempfile.TemporaryDirectory() as folder, self.subTest(signal=number):
                environment = dict(ENVIRONMENT, TMPDIR=folder)
                script = f"sleep 1000 & echo $! >&2; '{LOOP}' 2000 return; exec sleep 1000"
                process = subprocess.Popen([SEGALLOC, "rehearse", "--json", "--", "sh", "-c", script], env=environment,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                           # what was begun by nohup ignores HUP
                                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                self.addCleanup(process.stdout.close)
                self.addCleanup(process.stderr.close)
                self.assertIn("what CMD writes is not real", process.stderr.readline())
                left = int(process.stderr.readline())
                while process.stderr.readline() != "1000\n":  # the program is at work
                    pass
                while not self.command_of(self.child_of(process.pid)).startswith("sleep"):  # the shell's own has it too
                    time.sleep(0.01)
                process.send_signal(number)
                verdict = json.loads(process.communicate(timeout=60)[0])
                self.assertEqual((process.returncode, verdict["outcome"], len(verdict["cards"])), (1, "stopped", 1))
                self.assertEqual((verdict["at_least"], verdict["allocations"]), (True, 2000))
                self.assertFalse(os.path.exists(f"/proc/{left}"))
                self.assertEqual(os.listdir(folder), [])

    def test_a_signal_while_it_is_played(self):
        """The program has ended: what it had in use is said, and of cards and sizes no more than was found."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([SEGALLOC, "rehearse", "--json", "--card", "16MiB,1GiB",
                                        "--", LOOP, "600000", "return"], env=dict(ENVIRONMENT, TMPDIR=folder),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not self.runs(process.pid, LOOP):
                time.sleep(0.01)
            while self.runs(process.pid, LOOP):
                time.sleep(0.01)
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
                while children.read():  # a signal before its end is known goes to the program
                    time.sleep(0.001)
                    children.seek(0)
            process.send_signal(signal.SIGINT)
            verdict = json.loads(process.communicate(timeout=60)[0])
            self.assertEqual((process.returncode, verdict["outcome"]), (1, "stopped"))
            self.assertEqual((verdict["at_least"], verdict["allocations"]), (True, 600000))
            self.assertGreater(verdict["peak_requested_bytes"], 16 * MIB)
            self.assertIn("signal 2 (Interrupt)", verdict["reason"])
            for card in verdict["cards"]:
                self.assertEqual(card["fits"], card["bytes"] > 16 * MIB)
            smallest = verdict["smallest_card_bytes"]
            self.assertTrue(smallest is None or smallest >= verdict["peak_requested_bytes"])
            self.assertEqual(os.listdir(folder), [])

    @unittest.skipIf("SANITIZER" in os.environ, "Python has no runtime of a sanitizer in it")
    def test_ends_after_steps(self):
        """Of the optimizer: what would be allocated later is not in the verdict, which says so."""
        optimizer = ("before, after = [], []\nregister_optimizer_step_pre_hook = before.append\n"
                     "register_optimizer_step_post_hook = after.append\n"
                     "class Optimizer:\n    def step(self):\n        [hook(self) for hook in before]\n        [hook(self) for hook in after]\n")
        script = ("import ctypes as c, torch.optim.optimizer as o\nd = c.CDLL('libcuda.so.1'); x = c.c_void_p()\n"
                  "d.cuInit(0); d.cuDevicePrimaryCtxRetain(c.byref(x), 0); d.cuCtxSetCurrent(x)\nopt = o.Optimizer()\n"
                  "import sys\nkept = int(sys.argv[1])\nfor step in range(int(sys.argv[2])):\n    block = c.c_uint64()\n"
                  "    d.cuMemAlloc_v2(c.byref(block), c.c_size_t(10 << 20)); opt.step()\n    step < kept or d.cuMemFree_v2(block)\n")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("torch/__init__.py", ""), ("torch/optim/__init__.py", ""), ("torch/optim/optimizer.py", optimizer),
                               ("train.py", script)):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            environment = dict(ENVIRONMENT, PYTHONPATH=folder)
            for options, kept, peak, ends in (((), 10, 100, ""), (("--steps", "3"), 10, 30, "3 steps are done, as asked for: the program ends"),
                                              (("--steps", "1"), 10, 10, "1 steps are done"), (("--steps", "50"), 10, 100, ""),
                                              (("--steps", "steady"), 10, 100, ""),
                                              (("--steps", "steady"), 3, 40, "steady since step 4: the program ends after step 8")):
                result = subprocess.run([SEGALLOC, "rehearse", "--json", *options, "--", sys.executable, os.path.join(folder, "train.py"),
                                         str(kept), "10"], env=environment, capture_output=True, text=True, timeout=60)
                told = json.loads(result.stdout)
                self.assertEqual((result.returncode, told["peak_requested_bytes"] // MIB, told["at_least"]), (0, peak, bool(options)), result)
                self.assertIn(ends, result.stderr)
                self.assertEqual("the program ends" in result.stderr, bool(ends))
        for wrong in ("0", "steadily", "x", "-1", "9999999"):
            self.assertEqual(rehearse("--steps", wrong, "--", LOOP).returncode, 2)

    @shared.of_answers
    def test_the_report_speaks_of_the_cards(self):
        """Of those that were asked about, with the figure of the rehearsal; never of the card without end."""
        with tempfile.TemporaryDirectory() as folder:
            trace, page = os.path.join(folder, "run.trace"), os.path.join(folder, "run.html")
            result = rehearse("--json", "--card", "16MiB,48MiB,1GiB", "--margin", "20MiB", "-o", trace, "--", LOOP, "5000", "return")
            rehearsed = json.loads(result.stdout.splitlines()[-1])
            said = subprocess.run([SEGALLOC, "report", trace], env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
            told = json.loads(subprocess.run([SEGALLOC, "report", "--json", trace], env=ENVIRONMENT, capture_output=True, check=True).stdout)
            self.assertEqual(told["smallest_card_bytes"], rehearsed["smallest_card_bytes"])
            self.assertEqual(told["rehearsed_cards"], [{"bytes": size * MIB, "margin_bytes": 20 * MIB} for size in (16, 48, 1024)])
            self.assertEqual(told["devices"][0]["total_bytes"], 1024 * MIB)
            verdict = said.splitlines()[0]
            for card, word in (("16.00 MiB", "does not fit"), ("48.00 MiB", "too close to call"), ("1.00 GiB", "fits")):
                self.assertIn(f"{card} {word}, ", verdict)
            self.assertNotIn("TiB", said)
            subprocess.run([SEGALLOC, "report", "--html", page, "--no-advice", trace], env=ENVIRONMENT, check=True)
            with open(page) as file:
                text = file.read()
            self.assertIn('"rehearsed":true', text)
            self.assertNotIn(str(1 << 40), text)

    @shared.of_answers
    def test_a_card_without_end_is_no_card_to_tune_for(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, table = os.path.join(folder, "run.trace"), os.path.join(folder, "run.csv")
            self.assertEqual(rehearse("-o", trace, "--", LOOP, "200", "return").returncode, 0)
            with open(table, "w") as file:
                subprocess.run([SEGALLOC, "trace", "cat", trace], stdout=file, check=True)
            defaults = []
            for path in (trace, table):  # the table names no device
                done = subprocess.run([SEGALLOC, "tune", "--json", "--budget", "4", path], env=ENVIRONMENT,
                                      capture_output=True, text=True, check=True)
                tuned = json.loads(done.stdout)
                self.assertFalse(tuned["traces"][0]["card_known"])
                defaults.append(tuned["candidates"][0]["peak_reserved_bytes"])
            self.assertEqual(*defaults)
            text = subprocess.run([SEGALLOC, "tune", trace], env=ENVIRONMENT, capture_output=True, text=True).stdout
            self.assertIn("names no card", text)

    @staticmethod
    def command_of(pid):
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()

    @staticmethod
    def runs(pid, program):
        """Whether a child of the process runs the program. Other children are there for a moment before and after."""
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = file.read().split()
        for child in children:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{child}/cmdline") as file:
                if file.read().split("\0")[0] == program:
                    return True
        return False

    @staticmethod
    def child_of(pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return int(file.read().split()[0])


unittest.main()
