"""Pages of `segalloc report --html` in headless Chromium, without a network.

Usage: test_browser.py CHROMIUM BUILD"""
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from playwright.sync_api import sync_playwright

import loads

BROWSER, BUILD = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = loads.ROOT
HOSTILE = '</script><script>window.harmed=1</script><img src=x onerror=window.harmed=2>\n\u2028"\\\'<!--'


def hostile_trace():
    """The hostile names of tests/tools/test_html.py."""
    path = ROOT / "tests/tools/test_html.py"
    source = path.read_text().replace("unittest.main()", "")
    told, kept = {"__name__": "names"}, sys.argv
    sys.path.insert(0, str(path.parent))
    sys.argv = ["", str(BUILD / "tools/segalloc/segalloc"), str(BUILD / "tests/tools/acts"), str(ROOT / "tests/data")]
    try:
        exec(compile(source, path, "exec"), told)
    finally:
        sys.argv = kept
    told["HOSTILE"] = HOSTILE
    case = told["Names"]()
    case.setUp()
    return case, case.hostile()


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        loads.record(BUILD, cls.folder / "one", "8GiB", 6)
        loads.page(BUILD, cls.folder / "one.html", cls.folder / "one")
        loads.record(BUILD, cls.folder / "failed", "2200MiB", 6)
        loads.page(BUILD, cls.folder / "failed.html", cls.folder / "failed")
        for rank in range(4):
            loads.record(BUILD, cls.folder / "ranks.%r", "8GiB", 4, rank)
        loads.page(BUILD, cls.folder / "ranks.html", *(cls.folder / f"ranks.{rank}" for rank in range(4)))

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()
        cls.temporary.cleanup()

    def hear(self, message):
        if "getImageData" not in message.text:  # what this test does itself
            self.said.append(message.text)

    def open(self, path, scheme="light", width=1280):
        context = self.browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True)
        self.addCleanup(context.close)
        page = context.new_page()
        self.said, self.asked = [], []
        page.on("console", self.hear)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        self.data = json.loads(page.locator("#data").text_content())
        return page

    def tearDown(self):
        self.assertEqual(self.said, [])
        self.assertTrue(all(url.startswith("file:") for url in self.asked), self.asked)

    def go_through(self, page):
        for tab in "live", "map", "lifetimes", "ranks", "advice":
            if page.locator(f"#tab-{tab}").is_visible():
                page.click(f"#tab-{tab}")
                self.assertEqual([name for name in ("live", "map", "lifetimes", "ranks", "advice") if page.locator(f"#panel-{name}").is_visible()], [tab])
                self.assertEqual(page.locator("[role=tab][aria-selected=true]").get_attribute("id"), "tab-" + tab)

    def pixel(self, page, x, y):
        """Whether the line of `requested` is within 4 points of a place on the chart."""
        return page.evaluate("""([x, y]) => {
            const plot = chart, left = plot.valToPos(x, "x", true), top = plot.valToPos(y, "y", true), at = 4 * devicePixelRatio;
            const seen = plot.ctx.getImageData(left - at, top - at, 2 * at, 2 * at).data, wanted = plot.series[1].stroke(plot, 1);
            const probe = document.createElement("canvas").getContext("2d");
            probe.fillStyle = wanted; probe.fillRect(0, 0, 1, 1);
            const colour = probe.getImageData(0, 0, 1, 1).data;
            for (let i = 0; i < seen.length; i += 4)
                if ([0, 1, 2].every(k => Math.abs(seen[i + k] - colour[k]) < 40)) return true;
            return false; }""", [x, y])

    def near(self, page, seconds, n):
        """Where an event is on the axis of time: by the clock, or within its tick where several events have the same time."""
        x = page.evaluate("n => place({ n, us: 0 })", n)
        self.assertGreaterEqual(x, seconds - 1e-9)
        later = [us / 1e6 for us in self.data["runs"][0]["devices"][0]["us"] if us / 1e6 > seconds + 1e-9]
        self.assertTrue(not later or x <= later[0] + 1e-9, (x, seconds))
        return x

    def test_times_of_a_coarse_clock(self):
        """All events at one time, the peak among the last: it is in the picture all the same."""
        rows = ["Thread,Time,Action,Pointer,Size,Stream"]
        for i in range(40):
            rows.append(f"0,00:00:{0 if i < 20 else 1:02}:000000,allocate,{(i + 1) << 20:#x},{1 << 20 if i != 38 else 1 << 29},0")
        path = self.folder / "coarse.csv"
        path.write_text("\n".join(rows) + "\n")
        loads.page(BUILD, self.folder / "coarse.html", path)
        page = self.open(self.folder / "coarse.html")
        page.select_option("#axis", "time")
        page.wait_for_function("chart.status === 1 && byTime()")
        peak = self.data["runs"][0]["devices"][0]["peak_requested"]
        self.assertGreater(page.evaluate("chart.scales.y.max"), peak)
        self.assertTrue(self.pixel(page, page.evaluate("n => place({ n, us: 0 })", 39), peak - (1 << 20)))

    def test_the_peak_is_drawn_where_it_is(self):
        page = self.open(self.folder / "one.html")
        run, = self.data["runs"]
        device, = run["devices"]
        peak = max(device["requested"])
        at = device["n"][device["requested"].index(peak)]
        page.select_option("#axis", "events")
        page.evaluate("for (const kind of ['allocated', 'reserved']) chart.series.forEach((one, i) => one.label === kind && chart.setSeries(i, { show: false }))")
        self.assertTrue(self.pixel(page, at, peak))
        self.assertFalse(self.pixel(page, at, peak * 1.12))
        self.assertFalse(self.pixel(page, run["requests"] / 100, peak))
        page.select_option("#axis", "time")
        page.wait_for_function("chart.status === 1 && byTime()")
        self.assertTrue(self.pixel(page, self.near(page, device["us"][device["requested"].index(peak)] / 1e6, at), peak))
        self.assertIn(f"{peak / 2 ** 30:.2f} GiB", page.locator("#facts").text_content())

    def test_moments(self):
        page = self.open(self.folder / "one.html")
        run, = self.data["runs"]
        slider = page.locator("#chart")
        self.assertIn("peak of requested", slider.get_attribute("aria-valuetext"))
        slider.focus()
        page.keyboard.press("Home")
        self.assertEqual(slider.get_attribute("aria-valuenow"), "0")
        page.keyboard.press("ArrowRight")
        self.assertEqual(slider.get_attribute("aria-valuenow"), "1")
        page.keyboard.press("End")
        self.assertEqual(slider.get_attribute("aria-valuenow"), str(len(run["frames"]) - 1))
        self.assertIn("end", page.locator("#moment").text_content())
        before = page.evaluate("[chart.scales.x.min, chart.scales.x.max]")
        page.keyboard.press("+")
        low, high = page.evaluate("[chart.scales.x.min, chart.scales.x.max]")
        self.assertLess(high - low, 0.6 * (before[1] - before[0]))
        page.keyboard.press("0")
        self.assertEqual(page.evaluate("[chart.scales.x.min, chart.scales.x.max]"), before)
        box = page.locator("#overview .u-over").bounding_box()  # the brush
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 10)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10, steps=5)
        page.mouse.up()
        low, high = page.evaluate("[chart.scales.x.min, chart.scales.x.max]")
        self.assertAlmostEqual((high - low) / (before[1] - before[0]), 0.25, delta=0.03)
        page.click("#marks .reserved")
        self.assertIn("peak of reserved", page.locator("#moment").text_content())
        box = page.locator("#chart .u-over").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.assertNotIn("peak of reserved", page.locator("#moment").text_content())

    def test_tabs_and_filters(self):
        page = self.open(self.folder / "one.html")
        self.go_through(page)
        page.click("#tab-live")
        frame = page.evaluate("frame()")
        everything = sum(row[1] for row in frame["live"])
        self.assertIn(f"in {everything:,} blocks", page.locator("#live-sum").text_content())
        page.fill("#filter", "LOGITS")
        self.assertIn("by the filters", page.locator("#live-sum").text_content())
        rows = page.locator("#live-table tbody tr")
        self.assertEqual(rows.count(), 1)
        self.assertIn("900.00 MiB", rows.first.text_content())
        page.fill("#filter", "no such name")
        self.assertEqual(rows.count(), 0)
        page.fill("#filter", "")
        page.select_option("#filter-size", label="64.00 MiB")
        self.assertEqual(rows.count(), 1)
        page.select_option("#filter-size", label="any size")
        page.select_option("#by", "size")
        by_size = rows.count()
        page.select_option("#by", "phase")
        self.assertNotEqual(rows.count(), by_size)
        self.assertIn("backward" if "backward" in page.locator("#live-table").text_content() else "forward", page.locator("#live-table").text_content())
        page.select_option("#as", "flame")
        parts = page.locator(".flame g")
        self.assertGreater(parts.count(), 3)
        self.assertTrue(any("logits" in parts.nth(i).get_attribute("aria-label") for i in range(parts.count())))
        before = parts.count()
        parts.nth(1).press("Enter")
        self.assertLessEqual(page.locator(".flame g").count(), before)
        page.click("#tab-lifetimes")
        before = page.locator("#life-bars").text_content()
        page.select_option("#life-count", "bytes")
        self.assertNotEqual(page.locator("#life-bars").text_content(), before)

    def test_advice(self):
        page = self.open(self.folder / "one.html")
        page.click("#tab-advice")
        tune = self.data["tune"]
        rows = page.locator("#trials table:not(.u-legend) tbody tr")
        shown = rows.count()
        self.assertGreater(shown, 1)
        self.assertEqual(page.locator("#trials canvas").count(), 1)
        self.assertIn(f"{tune['recommended']['peak_reserved_bytes'] / 2 ** 30:.2f} GiB", page.locator("#trials tr.chosen").text_content())
        self.assertIn("recommended", page.locator("#trials tr.chosen").text_content())
        page.click("#trials button.all")
        self.assertEqual(rows.count(), len(tune["candidates"]))
        self.assertIn("makes it fit", self.open(self.folder / "failed.html").locator("#answers").text_content())

    def test_the_head_answers(self):
        """What held the memory, when, and what is to be done, in the first 900 lines of the page and the picture of it."""
        page = self.open(self.folder / "one.html")
        for part in "#verdict", "#answers", "#held-table", "#facts", "#chart-legend", "#chart canvas":
            box = page.locator(part).bounding_box()
            self.assertLessEqual(box["y"] + box["height"], 900, part)
        answers, rows = page.locator("#answers").text_content(), page.locator("#held-table tbody tr")
        device, = self.data["runs"][0]["devices"]
        self.assertRegex(answers, rf"The peak, {device['peak_requested'] / 2 ** 30:.2f} GiB, was after [\d.]+ m?s \(event [\d,]+\), in step 4, forward")
        self.assertIn("What to do", answers)
        self.assertEqual(page.title(), page.locator("#title").text_content())
        self.assertGreaterEqual(page.locator("#answers li").count(), 1)
        named = {rows.nth(i).locator("b").text_content(): rows.nth(i).text_content() for i in range(rows.count())}
        self.assertEqual(set(list(named)[:5]), {"attention", "mlp", "load_weights", "optimizer_state", "logits"})
        self.assertIn("900.00 MiB", named["logits"])
        self.assertIn("loads.py:", named["logits"])
        legend = page.locator("#chart-legend").text_content()
        for word in "requested", "allocated", "reserved", "card 8.00 GiB", "the moment shown below", "a phase":
            self.assertIn(word, legend)
        self.assertTrue(page.evaluate("""() => {
            const y = Math.round(chart.valToPos(device().total, "y", true)), line = chart.ctx.getImageData(chart.bbox.left, y, chart.bbox.width, 1).data;
            let red = 0;
            for (let i = 0; i < line.length; i += 4) if (line[i] - line[i + 1] > 80) red++;
            return red > chart.bbox.width / 2; }"""))  # the line at the size of the card
        failed = self.open(self.folder / "failed.html")
        self.assertRegex(failed.locator("#answers").text_content(), r"What failed(mlp|attention|logits), loads\.py:\d+ asked for [\d.]+ MiB after")

    def test_who_asked_without_functions(self):
        """Of a trace without sites the holders are sizes, and the page says how to have the lines."""
        path = self.folder / "plain.csv"
        path.write_text("Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00:000000,allocate,0x1000,1048576,0\n0,00:00:00:000001,allocate,0x200000,100,0\n")
        loads.page(BUILD, self.folder / "plain.html", path)
        held = self.open(self.folder / "plain.html").locator("#held").text_content()
        self.assertIn("blocks of 1.00 MiB to 2.00 MiB", held)
        self.assertIn("--sites", held)

    def test_functions_of_frames(self):
        page = self.open(self.folder / "one.html")
        for frame, name in (("a.py:1 in train.<locals>.load.<locals>.<listcomp>", "load"), ("a.py:1 in Net.forward", "Net.forward"), ("a.py:3 in <module>", "a.py:3"),
                            ("libx.so+0x12", "libx.so+0x12"), ("a in b.py:2 in f", "b.py:2 in f"), ("", "")):
            self.assertEqual(page.evaluate("functionOf", frame), name)

    def test_the_page_of_tune(self):
        path = self.folder / "<img src=x onerror=window.harmed=1>.csv"
        rows = ["Thread,Time,Action,Pointer,Size,Stream"]
        for i in range(400):  # each larger than the one before, so that fixed segments can't serve it again
            rows += [f"0,00:00:00:{2 * i:06},allocate,{(i + 1) << 12:#x},{(100 + i % 40) << 20},0", f"0,00:00:00:{2 * i + 1:06},free,{(i + 1) << 12:#x},{(100 + i % 40) << 20},0"]
        path.write_text("\n".join(rows) + "\n")
        out = self.folder / "tune.html"
        subprocess.run([BUILD / "tools/segalloc/segalloc", "tune", "--for", "pytorch", "--html", out, path, path], check=True, stdout=subprocess.DEVNULL)
        for scheme in "light", "dark":
            page = self.open(out, scheme)
            tune = self.data["tune"]
            self.assertIn(tune["recommended"]["conf"], page.locator("#verdict").text_content())
            self.assertIn(tune["recommended"]["reason"], page.locator("#front").text_content())
            self.assertEqual(page.locator("#front canvas").count(), 1)
            tables = page.locator("#front table:not(.u-legend)")
            self.assertEqual(tables.count(), 2)
            self.assertEqual(tables.nth(1).locator("tbody tr").count(), 2)
            self.assertIn("<img", tables.nth(1).text_content())
            self.assertEqual(page.locator("main img").count(), 0)
            page.click("#theme")
            self.assertEqual(page.locator("#front canvas").count(), 1)

    def test_the_tabs_by_keyboard(self):
        page = self.open(self.folder / "one.html")
        page.locator("#tab-live").focus()
        page.keyboard.press("ArrowRight")
        self.assertEqual(page.evaluate("document.activeElement.id"), "tab-map")
        self.assertTrue(page.locator("#panel-map").is_visible())
        page.keyboard.press("End")
        self.assertTrue(page.locator("#panel-advice").is_visible())
        page.click("#tab-map")
        page.locator("#map-picture").focus()
        page.keyboard.press("ArrowRight")
        self.assertRegex(page.locator("#map-tip").text_content(), r"Piece 1 of \d+: .* page 0, of 2.00 MiB")

    def test_the_map(self):
        page = self.open(self.folder / "failed.html")
        page.click("#tab-map")
        frame = page.evaluate("frame()")
        held, = frame["map"]
        self.assertIn(f"{held['reserved'] / 2 ** 30:.2f} GiB reserved in {len(held['segments'])} segments", page.locator("#map-sum").text_content())
        self.assertGreater(page.locator("#map-picture canvas").bounding_box()["height"], 20)
        self.assertIn("load_weights: ", page.locator("#map-legend").text_content())
        page.select_option("#colour", "size")
        self.assertIn("32.00 MiB to 64.00 MiB: ", page.locator("#map-legend").text_content())

    def test_marks_of_pages(self):
        """What may not move, and what has a second address, are drawn over their pieces."""
        page = self.open(self.folder / "one.html")
        page.click("#tab-map")
        self.assertNotIn("pinned: may not", page.locator("#map-legend").text_content())
        page.evaluate("""() => { const map = mapOfDevice(); map.segments[0][4] = [0, 1, 1, 1, 2, 3, 0]; showMap(); }""")
        size = page.evaluate("mapOfDevice().segments[0][0]") / 2 ** 20
        self.assertIn(f"pinned: may not move: {3 * size:.2f} MiB", page.locator("#map-legend").text_content())
        self.assertIn(f"at a second address too: {2 * size:.2f} MiB", page.locator("#map-legend").text_content())
        page.locator("#map-picture").focus()
        page.keyboard.press("ArrowRight")
        self.assertIn("pinned: may not move", page.locator("#map-tip").text_content())
        self.assertTrue(page.evaluate("""() => {
            const canvas = document.querySelector("#map-picture canvas"), pixel = canvas.getContext("2d").getImageData(1, 2, 1, 1).data;
            return pixel[0] < 60 && pixel[1] < 60 && pixel[2] < 60; }"""))  # the black of a pin

    def test_a_failure(self):
        page = self.open(self.folder / "failed.html")
        self.assertIn("Out of memory", page.locator("#verdict").text_content())
        self.assertIn("(failure", page.locator("#moment").text_content())
        self.assertGreater(page.locator("#marks .failure").count(), 0)
        page.locator("#chart").focus()
        first = page.locator("#moment").text_content()
        page.keyboard.press("f")
        self.assertIn("failure", page.locator("#moment").text_content())
        self.assertTrue(page.locator("#marks .failure").count() == 1 or page.locator("#moment").text_content() != first)

    def test_ranks(self):
        page = self.open(self.folder / "ranks.html")
        self.go_through(page)
        page.click("#tab-ranks")
        self.assertEqual(page.locator("#rank-table tbody tr").count(), 4)
        self.assertEqual(page.locator("#rank-chart canvas").count(), 1)
        page.click("#rank-table tbody tr:nth-child(3) button")
        self.assertEqual(page.locator("#run").input_value(), "2")
        self.assertIn("rank 2", page.locator("#rank-table tr.chosen").text_content())

    def test_light_and_dark(self):
        colours = {}
        for scheme in "light", "dark":
            page = self.open(self.folder / "one.html", scheme)
            colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            self.go_through(page)
            self.assertEqual(self.said, [])
        self.assertNotEqual(*colours.values())
        page.click("#theme")
        self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), colours["light"])
        self.assertEqual(page.evaluate("chart.series[1].stroke(chart, 1)"), "#0072b2")

    def test_a_narrow_window(self):
        page = self.open(self.folder / "one.html", width=420)
        self.go_through(page)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 900)

    def test_hostile_names(self):
        case, path = hostile_trace()
        self.addCleanup(case.doCleanups)
        loads.page(BUILD, self.folder / "hostile.html", path)
        page = self.open(self.folder / "hostile.html")
        self.go_through(page)
        page.click("#tab-live")
        page.select_option("#as", "flame")
        self.assertGreater(page.locator(".flame g").count(), 3)
        self.assertIsNone(page.evaluate("window.harmed || null"))
        self.assertEqual(page.locator("main img").count(), 0)
        self.assertIn("<script>", page.locator(".flame").text_content() + page.locator("#title").text_content())

    def test_a_long_trace(self):
        loads.page(BUILD, self.folder / "long.html", ROOT / "tests/data/qwen25-7b-lora.csv.zst")
        page = self.open(self.folder / "long.html")
        self.go_through(page)
        self.assertRegex(page.locator("#shown").text_content(), r"Showing [\d,]+ of 646,270 events")


if __name__ == "__main__":
    unittest.main()
