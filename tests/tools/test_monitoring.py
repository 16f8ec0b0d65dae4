"""The alerts and the dashboard of examples/monitoring, against what `segalloc metrics` exports: metrics and labels that they name are
there, Prometheus takes the rules, and each alert fires for what it is about and for nothing else.

Usage: test_monitoring.py SEGALLOC ACTS"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import shared

SEGALLOC, ACTS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "monitoring"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "dashboard.json"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SEGALLOC")}
if "SANITIZER" in os.environ:  # its runtime must come before all other libraries
    ENVIRONMENT["LD_PRELOAD"] = os.environ["SANITIZER"]
LABELS = 'pid="7",device="0",gpu="0",UUID="GPU-0",model="m",rank="",command="train"'


def expressions(text):
    """Of the rules, which are read without a library for YAML."""
    folded = re.sub(r">-\n((?: {10}.*\n)+)", lambda match: " ".join(match[1].split()) + "\n", text)
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", folded))


def metrics_of(text):
    return set(re.findall(r"\bsegalloc_\w+", text))


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dashboard = json.loads(DASHBOARD.read_text())
        cls.alerts = ALERTS.read_text()
        case = cls("test_metrics")
        process = shared.start(case, SEGALLOC, ACTS, "a+10", environment=ENVIRONMENT)
        text = subprocess.run([SEGALLOC, "metrics", str(process.pid)], capture_output=True, text=True, timeout=60, check=True).stdout
        case.doCleanups()
        cls.exported = set(re.findall(r"^(segalloc_\w+)[{ ]", text, re.M))
        cls.labels = set(re.findall(r'(\w+)="', text))

    def wrong(self, expression):
        """What an expression names that is not exported."""
        labels = re.findall(r"(\w+)=~?\"", expression) + [name for part in re.findall(r"\bby \(([^)]*)\)", expression)
                                                          for name in part.replace(" ", "").split(",")]
        return metrics_of(expression) - self.exported | set(labels) - self.labels

    def test_metrics(self):
        self.assertGreater(len(self.exported), 60)
        alerts = expressions(self.alerts)
        self.assertEqual(len(alerts), self.alerts.count("- alert: "))
        shown = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(shown), 15)
        for expression in [*alerts.values(), *shown]:
            with self.subTest(expression):
                self.assertEqual(self.wrong(expression), set())
                self.assertTrue(metrics_of(expression))
        for variable in self.dashboard["templating"]["list"][1:]:
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
            self.assertIn(metric, self.exported)
            self.assertIn(label, self.labels)
        # every finding of `check` but what counts the work of the check itself is in the alert
        findings = {name for name in self.exported if name.startswith("segalloc_check_")}
        self.assertEqual(findings - metrics_of(alerts["SegallocCheckFinding"]),
                         {f"segalloc_check_{name}_total" for name in ("filled_bytes", "read_bytes", "guarded", "quarantined")})

    def test_the_check_itself(self):
        self.assertEqual(self.wrong('rate(segalloc_alocs_total{host="x"}[1m]) + sum by (UUID, node) (segalloc_pages)'),
                         {"segalloc_alocs_total", "host", "node"})

    def test_texts(self):
        texts = re.findall(r"\{\{ ?\$labels\.(\w+)", self.alerts)
        shown = [target["legendFormat"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        self.assertLessEqual(set(texts) | {name for text in shown for name in re.findall(r"\{\{(\w+)\}\}", text)}, self.labels)
        page = (ROOT / "docs" / "operations.md").read_text()
        headings = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^#+ (.*)$", page, re.M)}
        sections = re.findall(r"runbook: docs/operations\.md#([\w-]+)", self.alerts)
        self.assertEqual(len(sections), self.alerts.count("- alert: "))
        self.assertLessEqual(set(sections), headings)

    def test_layout(self):
        """Panels stand side by side, and each has a number of its own."""
        panels = self.dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells


@unittest.skipUnless(shutil.which("promtool"), "no promtool")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120)

    def test_check(self):
        checked = self.promtool("check", "rules", str(ALERTS))
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def fires(self, alert, series):
        """Whether the alert fires after 30 minutes of `series`, name: values in promtool's notation."""
        with tempfile.TemporaryDirectory() as folder:
            rows = "\n".join(f"    - {{series: '{name}{{{LABELS}}}', values: '{values}'}}" for name, values in series.items())
            path = pathlib.Path(folder) / "test.yml"
            path.write_text(f"rule_files: ['{ALERTS}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{rows}\n"
                            f"    alert_rule_test:\n    - {{eval_time: 30m, alertname: {alert}, exp_alerts: []}}\n")
            tested = self.promtool("test", "rules", str(path))
        text = tested.stdout + tested.stderr
        if tested.returncode == 0:
            return False
        self.assertIn(f'alertname="{alert}"', text)
        return True

    def test_alerts_fire(self):
        grows, stands = "0+120x40", "5+0x40"
        gib = 1 << 30
        cases = {
            "SegallocOutOfMemory": ({"segalloc_ooms_total": grows}, {"segalloc_ooms_total": stands}),
            "SegallocNearlyFull": ({"segalloc_allocated_bytes": f"{23 * gib}+0x40", "segalloc_limit_bytes": "0+0x40", "segalloc_device_bytes": f"{24 * gib}+0x40"},
                                   {"segalloc_allocated_bytes": f"{22 * gib}+0x40", "segalloc_limit_bytes": "0+0x40", "segalloc_device_bytes": f"{24 * gib}+0x40"}),
            "SegallocShortOfMemory": ({"segalloc_retries_total": grows}, {"segalloc_retries_total": stands}),
            "SegallocStranded": ({"segalloc_stranded_bytes": f"{8 * gib}+0x40", "segalloc_reserved_bytes": f"{20 * gib}+0x40", "segalloc_device_bytes": f"{24 * gib}+0x40"},
                                 {"segalloc_stranded_bytes": f"{8 * gib}+0x40", "segalloc_reserved_bytes": f"{18 * gib}+0x40", "segalloc_device_bytes": f"{24 * gib}+0x40"}),
            "SegallocPassedOn": ({"segalloc_passed_on_total": grows}, {"segalloc_passed_on_total": stands}),
            "SegallocDriverErrors": ({"segalloc_vmm_errors_total": grows}, {"segalloc_vmm_errors_total": stands}),
            "SegallocWaitsGivenUp": ({"segalloc_waits_given_up_total": grows}, {"segalloc_waits_given_up_total": stands}),
            "SegallocDoubleFree": ({"segalloc_double_frees_total": grows}, {"segalloc_double_frees_total": stands}),
        }
        findings = metrics_of(expressions(ALERTS.read_text())["SegallocCheckFinding"])
        cases["SegallocCheckFinding"] = ({name: grows if "overrun" in name else stands for name in findings}, dict.fromkeys(findings, stands))
        self.assertEqual(set(cases), set(expressions(ALERTS.read_text())))
        for alert, (fires, quiet) in cases.items():
            with self.subTest(alert):
                self.assertTrue(self.fires(alert, fires))
                self.assertFalse(self.fires(alert, quiet))

    def test_a_limit_counts_in_place_of_the_card(self):
        gib = 1 << 30
        for limit, full in (12, True), (16, False):
            self.assertEqual(self.fires("SegallocNearlyFull", {
                "segalloc_allocated_bytes": f"{int(11.9 * gib)}+0x40", "segalloc_limit_bytes": f"{limit * gib}+0x40",
                "segalloc_device_bytes": f"{24 * gib}+0x40"}), full)


if __name__ == "__main__":
    unittest.main(verbosity=2)
