/* Several runs side by side. */
let rankChart = null;

const peakOf = (which, level) => which.devices.reduce((most, at) => Math.max(most, at["peak_" + level] || 0), 0);
const rankColour = index => `hsl(${(index * 137) % 360} 60% ${isDark() ? 60 : 42}%)`;

/* A level of the device that holds most, in a few points that keep its peaks. */
function thin(which, level) {
  const at = which.devices.filter(one => one.n && one[level]).sort((a, b) => (b["peak_" + level] || 0) - (a["peak_" + level] || 0))[0];
  if (!at) return null;
  const step = Math.ceil(at.n.length / 400), x = [], y = [];
  for (let i = 0; i < at.n.length; i += step) {
    let best = i;
    for (let k = i; k < Math.min(at.n.length, i + step); k++) if (at[level][k] > at[level][best]) best = k;
    const place = byTime() ? at.us[best] / 1e6 : at.n[best];
    if (x.length && place <= x[x.length - 1]) { y[y.length - 1] = Math.max(y[y.length - 1], at[level][best]); continue; }
    x.push(place);
    y.push(at[level][best]);
  }
  return [x, y];
}

/* Who holds most of a run's fullest device at its peak. */
function largestHolder(which) {
  const fullest = which.devices[mostOf(which.devices.map(at => at.peak_requested || 0))];
  const mark = fullest && (which.marks || []).find(([kind, ordinal]) => kind === "requested" && ordinal === fullest.ordinal);
  const at = mark && (which.frames || []).find(one => one.n === mark[2]), held = new Map();
  for (const [number, , size] of at ? at.live : []) {
    const of = group(which, number);
    if (of.device === fullest.ordinal && of.place) held.set(functionOf(of.place), (held.get(functionOf(of.place)) || 0) + size);
  }
  const first = [...held].sort((one, other) => other[1] - one[1])[0];
  return first ? `${first[0]} ${bytes(first[1])}` : "–";
}

function showRanks() {
  if (rankChart) rankChart.destroy();
  rankChart = null;
  const level = byId("rank-level").value, drawable = runs.map((which, index) => [index, thin(which, level)]).filter(([, points]) => points);
  byId("rank-chart").replaceChildren();
  if (drawable.length && !byId("panel-ranks").hidden)
    rankChart = new uPlot({ width: byId("rank-chart").clientWidth || 900, height: 200, scales: byteSteps, axes: axes(), legend: { show: drawable.length <= 16 },
      series: [{ label: byTime() ? "time" : "event", value: (plot, value) => value === null ? "–" : nameAt(value) }, ...drawable.map(([index]) => ({ label: runName(runs[index], index),
        stroke: () => rankColour(index), width: 1.5, spanGaps: true, points: { show: false }, value: (plot, value) => bytes(value) }))] },
    uPlot.join(drawable.map(([, points]) => points)), byId("rank-chart"));
  const most = Math.max(1, ...runs.map(which => Math.max(peakOf(which, "requested"), peakOf(which, "reserved"))));
  const number = value => element("td", { class: "number" }, value);
  const cards = which => which.devices.reduce((most, at) => Math.max(most, at.smallest_card || 0), 0);
  byId("rank-table").replaceChildren(table([{ name: "Run" }, { name: "Requested, peak", number: true }, { name: "" }, { name: "Largest holder" }, { name: "Reserved, peak", number: true },
    { name: "Smallest card", number: true }, { name: "Failures", number: true }, { name: "Verdict" }], runs.map((which, index) => element("tr", { class: index === view.run ? "chosen" : "" },
    element("td", { class: "run" }, element("span", { class: "swatch", colour: rankColour(index) }), element("button", { type: "button", onclick: () => chooseRun(index) }, runName(which, index))),
    number(bytes(peakOf(which, "requested"))), element("td", { class: "share" }, bar(peakOf(which, "requested") / most)), element("td", {}, largestHolder(which)),
    number(peakOf(which, "reserved") ? bytes(peakOf(which, "reserved")) : "–"),
    number(cards(which) ? bytes(cards(which)) : "–"), number(count(which.ooms)), element("td", { title: which.verdict }, which.verdict.split(/[:;]/)[0]))), ""));
}
