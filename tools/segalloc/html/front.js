/* What settings do to a trace, by replay: a plot of reserved memory against driver calls, and the figures. */
const settingName = setting => setting.conf || "(the defaults)";
const sameSetting = (one, other) => Boolean(one) && Boolean(other) && one.conf === other.conf;

/* What other settings are compared with: the one in use, or the defaults. */
const inUse = tune => tune.current || tune.default;

function difference(value, from) {
  if (value === from) return "–";
  return (value < from ? "−" : "+") + bytes(Math.abs(value - from)) + (from ? ` (${(100 * Math.abs(value - from) / from).toFixed(1)} %)` : "");
}

/* The rows of the table: those worth a look first, then what is left of all that was tried. */
function settingsShown(tune, all) {
  const marked = [tune.default, tune.current, tune.recommended].filter(Boolean);
  const wanted = tune.candidates.filter(one => all || marked.some(other => sameSetting(one, other)) || tune.pareto.some(other => sameSetting(one, other)));
  return wanted.sort((a, b) => a.ooms - b.ooms || a.peak_reserved_bytes - b.peak_reserved_bytes || a.driver_calls - b.driver_calls);
}

function roleOf(tune, setting) {
  const roles = [];
  if (sameSetting(setting, tune.recommended)) roles.push("recommended");
  if (sameSetting(setting, tune.current)) roles.push("in use");
  if (sameSetting(setting, tune.default)) roles.push("the defaults");
  if (tune.pareto.some(other => sameSetting(setting, other))) roles.push("front");
  return roles.join(", ");
}

function settingRow(tune, setting) {
  const number = value => element("td", { class: "number" }, value), base = inUse(tune);
  return element("tr", { class: sameSetting(setting, tune.recommended) ? "chosen" : "" }, element("td", {}, settingName(setting)), element("td", {}, roleOf(tune, setting)),
    number(bytes(setting.peak_reserved_bytes)), number(difference(setting.peak_reserved_bytes, base.peak_reserved_bytes)),
    number(setting.rest && base.rest ? difference(setting.rest.peak_reserved_bytes, base.rest.peak_reserved_bytes) : "–"),
    number(count(setting.driver_calls)), number(count(setting.pages_moved)), number(count(setting.ooms)));
}

function settingsTable(tune, all) {
  const shown = settingsShown(tune, all), than = tune.current ? "than in use" : "than the defaults";
  return table([{ name: "Setting" }, { name: "" }, { name: "Reserved, peak", number: true }, { name: "More or less " + than, number: true },
    { name: "On the rest", number: true }, { name: "Driver calls", number: true }, { name: "Pages moved", number: true }, { name: "Failures", number: true }],
  shown.map(setting => settingRow(tune, setting)), `${count(shown.length)} of ${count(tune.candidates.length)} settings tried` + (tune.complete ? "." : "; the search was cut short."));
}

/* Of each trace: what it holds under the defaults and under what is recommended. */
function tracesTable(tune) {
  const number = value => element("td", { class: "number" }, value), base = inUse(tune);
  return table([{ name: "Trace" }, { name: "Events", number: true }, { name: "Requested, peak", number: true }, { name: tune.current ? "Reserved in use" : "Reserved by default", number: true },
    { name: "Recommended", number: true }, { name: "More or less", number: true }, { name: "On the rest", number: true }], tune.traces.map((trace, i) => {
    const before = base.traces[i], after = tune.recommended.traces[i];
    return element("tr", {}, element("td", {}, trace.path), number(count(trace.events)), number(bytes(trace.peak_requested_bytes)), number(bytes(before.peak_reserved_bytes)),
      number(bytes(after.peak_reserved_bytes)), number(difference(after.peak_reserved_bytes, before.peak_reserved_bytes)),
      number(after.rest && before.rest ? difference(after.rest.peak_reserved_bytes, before.rest.peak_reserved_bytes) : "–"));
  }), "Sums of these are what is compared.");
}

const dotted = (label, variable, size) => ({ label, stroke: () => style(variable), fill: () => style(variable), width: 0, paths: () => null, points: { show: true, size, fill: style(variable) },
  value: (plot, value) => bytes(value) });

/* Reserved memory over driver calls. Settings under which as few allocations fail as possible are in it. */
function drawFront(box, tune) {
  const fewest = Math.min(...tune.candidates.map(one => one.ooms));
  const shown = tune.candidates.filter(one => one.ooms === fewest).sort((a, b) => a.driver_calls - b.driver_calls || a.peak_reserved_bytes - b.peak_reserved_bytes);
  const of = wanted => shown.map(one => wanted(one) ? one.peak_reserved_bytes : null);
  const values = shown.map(one => one.peak_reserved_bytes), low = Math.min(...values), high = Math.max(...values), room = Math.max((high - low) * 0.12, high * 0.01, 1);
  const x = shown.map(one => Math.max(1, one.driver_calls));
  const plot = new uPlot({ width: box.clientWidth || 900, height: 300, padding: [12, 24, 0, 0],
    scales: { x: { time: false, distr: 3, range: (self, from, to) => [from / 1.3, to * 1.3] }, y: { range: () => [Math.max(0, low - room), high + room] } },
    series: [{ label: "driver calls", value: (self, value) => value === null ? "–" : count(value) },
      dotted("tried", "--soft", 5),
      { ...dotted("front", "--requested", 8), width: 1.5, paths: uPlot.paths.stepped({ align: 1 }), fill: undefined, spanGaps: true },
      dotted("the defaults", "--reserved", 11), dotted("in use", "--allocated", 11), dotted("recommended", "--failure", 8)].filter(one => tune.current || one.label !== "in use"),
    axes: [{ ...axisColours(), label: "driver calls", labelSize: 18, values: (self, ticks) => ticks.map(tick => tick && Math.log10(tick) % 1 === 0 ? count(tick) : "") },
      { ...axisColours(), size: 92, values: (self, ticks) => ticks.map(bytes) }],
    cursor: { drag: { x: false, y: false } } },
  [x, values, of(one => tune.pareto.some(other => sameSetting(one, other))), of(one => sameSetting(one, tune.default)), of(one => sameSetting(one, tune.current)),
    of(one => sameSetting(one, tune.recommended))].filter((column, i) => tune.current || i !== 4), box);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", `Reserved memory over driver calls of ${count(shown.length)} settings; the table below has the figures.`);
  return plot;
}

const chosenOn = { first_parts: "Settings are chosen on the first part of each trace, and judged by the rest.",
  undivided: "Settings are chosen on the whole trace: it is short, or comes near its peak only late.",
  runs_out: "Settings are chosen on the whole trace: memory runs out in the later part." };

/* Puts all of it into `box`; returns the plot, for the caller to destroy. */
function showFront(box, tune) {
  const all = element("button", { type: "button", class: "all" }, "Show all that was tried"), rows = element("div", {}, settingsTable(tune, false));
  all.addEventListener("click", () => { rows.replaceChildren(settingsTable(tune, true)); all.hidden = true; });
  all.hidden = settingsShown(tune, false).length === tune.candidates.length;
  const picture = element("div", { class: "front" });
  box.replaceChildren(...[element("p", { class: "recommended" }, tune.recommended.reason), tune.recommended.line ? element("pre", {}, tune.recommended.line) : null, picture, rows, all,
    tune.traces.length > 1 ? tracesTable(tune) : null, element("p", { class: "note" }, chosenOn[tune.chosen_on])].filter(Boolean));
  return drawFront(picture, tune);
}
