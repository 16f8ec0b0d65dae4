/* The timeline, the strip below it, and the moment that is chosen. */
const view = { run: 0, device: 0, axis: null, frame: 0 }; /* axis: as the user chose it */
let chart = null, overview = null;

const run = () => runs[view.run];
const device = () => run().devices[view.device];
const frames = () => run().frames || [];
const frame = () => frames()[view.frame];
const hasTimes = () => run().duration_us > 0;
/* Times are those of a coarse clock: of a short run many events have the same. */
const hasFineTimes = () => device() && device().n && new Set(device().us).size * 4 >= device().n.length;
const byTime = () => hasTimes() && (view.axis || (hasFineTimes() ? "time" : "events")) === "time";
const markName = { requested: "peak of requested", allocated: "peak of allocated", reserved: "peak of reserved", failure: "failure", end: "end" };

/* Samples of one place on the axis, as a coarse clock makes them, evenly between it and the next: what is drawn needs places that
   rise, or the levels of the last ones would be missing. */
function spread(values) {
  const out = new Array(values.length);
  for (let i = 0, wide = 1e-6; i < values.length;) {
    let end = i + 1;
    while (end < values.length && values[end] === values[i]) end++;
    wide = end < values.length ? values[end] - values[i] : wide;
    for (let k = i; k < end; k++) out[k] = values[i] + wide * (k - i) / (end - i);
    i = end;
  }
  return out;
}

const spreads = { time: new WeakMap(), events: new WeakMap() };
function places() {
  const at = device(), kept = spreads[byTime() ? "time" : "events"];
  if (!kept.has(at)) kept.set(at, spread(byTime() ? at.us.map(us => us / 1e6) : at.n));
  return kept.get(at);
}

/* Index of the last sample up to an event. */
function sampleAt(n) {
  const at = device().n;
  let low = 0, high = at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at[middle] <= n) low = middle; else high = middle - 1;
  }
  return low;
}

/* Where a moment is on the axis. */
function place(moment) {
  const at = device().n;
  if (!at) return byTime() ? moment.us / 1e6 : moment.n;
  const x = places(), i = sampleAt(moment.n), after = i + 1 < x.length ? i + 1 : i;
  if (at[i] >= moment.n || after === i) return x[i];
  return x[i] + (x[after] - x[i]) * (moment.n - at[i]) / (at[after] - at[i]);
}

function columns() {
  const at = device();
  return [places(), at.requested, at.allocated, at.reserved].filter(Boolean);
}

function marksOfDevice() {
  return (run().marks || []).map(([kind, ordinal, n, us]) => ({ kind, ordinal, n, us })).filter(mark =>
    mark.kind === "end" || mark.ordinal === device().ordinal);
}

const nameAt = value => byTime() ? seconds(value) : count(Math.round(value));

function line(context, plot, x, colour, dash, width) {
  const at = Math.round(plot.valToPos(x, "x", true));
  if (at < plot.bbox.left - 1 || at > plot.bbox.left + plot.bbox.width + 1) return null;
  context.save();
  context.strokeStyle = colour;
  context.lineWidth = width * devicePixelRatio;
  context.setLineDash(dash.map(part => part * devicePixelRatio));
  context.beginPath();
  context.moveTo(at, plot.bbox.top);
  context.lineTo(at, plot.bbox.top + plot.bbox.height);
  context.stroke();
  context.restore();
  return at;
}

function drawPhases(plot) {
  const context = plot.ctx, phases = (run().phases || []).map(([n, us, name]) => ({ n, us, name: text(name) }));
  const high = 16 * devicePixelRatio;
  context.save();
  context.font = 11 * devicePixelRatio + "px system-ui";
  context.textBaseline = "middle";
  context.textAlign = "left";
  phases.forEach((phase, at) => {
    const from = Math.max(plot.bbox.left, plot.valToPos(place(phase), "x", true));
    const next = phases[at + 1];
    const to = Math.min(plot.bbox.left + plot.bbox.width, next ? plot.valToPos(place(next), "x", true) : Infinity);
    if (!phase.name || to <= from) return;
    context.fillStyle = style("--band");
    context.fillRect(from, plot.bbox.top, Math.max(1, to - from - 1), high);
    if (to - from < 40 * devicePixelRatio) return;
    context.fillStyle = style("--text");
    context.beginPath();
    context.save();
    context.rect(from, plot.bbox.top, to - from - 3, high);
    context.clip();
    context.fillText(phase.name, from + 4 * devicePixelRatio, plot.bbox.top + high / 2);
    context.restore();
  });
  context.restore();
}

/* Words beside a place, on the side that has room, on a ground of their own. */
function label(plot, x, y, words, colour) {
  const context = plot.ctx, gap = 8 * devicePixelRatio;
  context.save();
  context.font = "bold " + 12 * devicePixelRatio + "px system-ui";
  context.textBaseline = "middle";
  context.textAlign = "left";
  const wide = context.measureText(words).width, left = x - gap - wide > plot.bbox.left ? x - gap - wide : x + gap;
  context.fillStyle = style("--back");
  context.globalAlpha = 0.8;
  context.fillRect(left - 3, y - 8 * devicePixelRatio, wide + 6, 16 * devicePixelRatio);
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.fillText(words, left, y);
  context.restore();
}

/* What the device has, or may be held of it. */
const cardOf = at => at.limit || at.total || 0;
const cardName = at => `${at.limit ? "limit" : "card"} ${bytes(cardOf(at))}`;

/* A card is in the picture unless what was held would be a strip at its foot. */
const CARD_SEEN = 2.2;
const isCardSeen = high => cardOf(device()) > 0 && cardOf(device()) <= CARD_SEEN * high;

function drawCard(plot) {
  const context = plot.ctx, at = device();
  if (!isCardSeen(mostHeld())) return;
  const y = Math.round(plot.valToPos(cardOf(at), "y", true));
  if (y < plot.bbox.top) return;
  context.save();
  context.strokeStyle = style("--failure");
  context.lineWidth = 2 * devicePixelRatio;
  context.setLineDash([8, 4].map(part => part * devicePixelRatio));
  context.beginPath();
  context.moveTo(plot.bbox.left, y);
  context.lineTo(plot.bbox.left + plot.bbox.width, y);
  context.stroke();
  context.restore();
  label(plot, plot.bbox.left, y + 11 * devicePixelRatio, cardName(at), style("--failure"));
}

function mostHeld() {
  return ["requested", "allocated", "reserved"].filter(level => device()[level]).reduce((most, level) => device()[level].reduce((one, other) => Math.max(one, other), most), 1);
}

/* Room at the top is for the names of phases. */
const HEADROOM = 1.2;
const chartRange = (plot, low, high) => [0, (isCardSeen(mostHeld()) ? Math.max(high, cardOf(device())) : Math.max(high, 1)) * HEADROOM];

function showChartLegend() {
  const at = device(), box = byId("chart-legend");
  for (const old of box.querySelectorAll(".beside")) old.remove();
  if (!at || !at.n) return;
  const stroke = (look, words) => element("span", { class: "beside" }, element("span", { class: "stroke", line: look }), words);
  const failed = (run().failures || []).some(([ordinal]) => ordinal === at.ordinal);
  if (cardOf(at)) box.append(isCardSeen(mostHeld()) ? stroke("2px dashed var(--failure)", cardName(at)) : element("span", { class: "beside" }, `(${cardName(at)}: above the picture)`));
  if (failed) box.append(stroke("2px solid var(--failure)", "a failure"));
  if (frame()) box.append(stroke("2px dashed var(--text)", "the moment shown below"));
  if ((run().phases || []).length) box.append(element("span", { class: "beside" }, element("span", { class: "swatch", colour: "var(--band)" }), "a phase"));
}

function drawOver(plot) {
  const context = plot.ctx, step = 18 * devicePixelRatio;
  const free = plot.bbox.top + 8 * devicePixelRatio + (isCardSeen(mostHeld()) ? plot.valToPos(cardOf(device()), "y", true) - plot.bbox.top : step);
  drawPhases(plot);
  drawCard(plot);
  for (const [ordinal, n, us, size] of run().failures || []) {
    if (ordinal !== device().ordinal) continue;
    const at = line(context, plot, place({ n, us }), style("--failure"), [], 1.5);
    if (at === null) continue;
    label(plot, at, free + 4 * devicePixelRatio, `failed: ${bytes(size)}${hasTimes() ? " after " + seconds(us / 1e6) : ""}`, style("--failure"));
    context.fillStyle = style("--failure");
    context.beginPath();
    context.moveTo(at, plot.bbox.top + 18 * devicePixelRatio);
    context.lineTo(at - 5 * devicePixelRatio, plot.bbox.top + 8 * devicePixelRatio);
    context.lineTo(at + 5 * devicePixelRatio, plot.bbox.top + 8 * devicePixelRatio);
    context.fill();
  }
  const failed = (run().failures || []).some(([ordinal]) => ordinal === device().ordinal);
  const radius = { requested: 3.5, allocated: 5, reserved: 6.5 }; /* where they are at one place, all are seen */
  for (const mark of marksOfDevice().reverse()) {
    const peak = device()["peak_" + mark.kind];
    const level = mark.kind in radius ? levelAt(mark.kind, mark.n) : null;
    if (level === null || peak === undefined) continue;
    const x = plot.valToPos(place(mark), "x", true), y = plot.valToPos(level, "y", true);
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
    context.fillStyle = style("--" + mark.kind);
    context.beginPath();
    context.arc(x, y, radius[mark.kind] * devicePixelRatio, 0, 7);
    context.fill();
    if (mark.kind === "requested") label(plot, x, failed ? Math.max(y, free + 4 * devicePixelRatio + step) : y - step > free ? y - 14 * devicePixelRatio : y + 14 * devicePixelRatio, `peak ${bytes(level)}${hasTimes() ? " after " + seconds(mark.us / 1e6) : ""}, event ${count(mark.n)}`, style("--text"));
  }
  if (frame()) line(context, plot, place(frame()), style("--text"), [4, 3], 1.5);
}

/* The most of a level that the page has at an event. */
function levelAt(level, n) {
  const at = device();
  if (!at[level] || !at.n) return null;
  const low = sampleAt(n);
  let most = at[level][low];
  for (let i = low; i >= 0 && at.n[i] === at.n[low]; i--) most = Math.max(most, at[level][i]);
  return most;
}

const stepped = () => uPlot.paths.stepped({ align: 1 });
function levels() {
  return ["requested", "allocated", "reserved"].filter(level => device()[level]).map(level => ({
    label: level, stroke: () => style("--" + level), width: level === "requested" ? 3 : 1.5, paths: stepped(), points: { show: false },
    fill: level === "requested" ? () => style("--requested") + "22" : undefined,
    value: (plot, value) => bytes(value === null && frame() ? levelAt(level, frame().n) : value) }));
}

const byteSteps = { y: { range: (plot, low, high) => [0, Math.max(high, 1) * 1.06] }, x: { time: false } };
function axes() {
  const common = axisColours();
  const whole = byTime() ? {} : { incrs: [1, 2, 5].concat(...Array.from({ length: 12 }, (_, i) => [1, 2, 5].map(n => n * 10 ** (i + 1)))) };
  return [{ ...common, ...whole, values: (plot, ticks) => ticks.map((tick, i) => (i || byTime() ? "" : "event ") + nameAt(tick)), space: 80, size: 30 },
    { ...common, size: 82, values: (plot, ticks) => ticks.map(bytes), incrs: Array.from({ length: 50 }, (_, i) => 2 ** i) }];
}

function follow(from, plot, other, part) {
  if (other && from === "chart") {
    const edge = value => Math.max(0, Math.min(other.over.clientWidth, other.valToPos(value, "x")));
    const left = edge(plot.scales.x.min), right = edge(plot.scales.x.max);
    other.setSelect({ left, width: right - left, top: 0, height: other.over.clientHeight }, false);
  } else if (other && part.width > 3) {
    other.setScale("x", { min: plot.posToVal(part.left, "x"), max: plot.posToVal(part.left + part.width, "x") });
  }
}

function drawTimeline() {
  for (const old of [chart, overview]) if (old) old.destroy();
  chart = overview = null;
  byId("chart").hidden = byId("overview").hidden = byId("keys").hidden = !device() || !device().n;
  if (!device() || !device().n) return;
  const width = byId("chart").clientWidth || 900, names = { label: byTime() ? "at" : "at event", value: (plot, value) => nameAt(value === null && frame() ? place(frame()) : value || 0) };
  const padding = [8, 24, 0, 0];
  byId("chart-legend").replaceChildren();
  overview = new uPlot({ width, height: 44, padding, scales: byteSteps, legend: { show: false }, series: [names, ...levels().map(level => ({ ...level, width: 1 }))],
    axes: [{ show: false }, { ...axes()[1], size: 82, grid: { show: false }, values: (plot, ticks) => ticks.map(() => "") }],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
    hooks: { setSelect: [plot => follow("overview", plot, chart, plot.select)] } }, columns(), byId("overview"));
  chart = new uPlot({ width, height: 250, padding, scales: { ...byteSteps, y: { range: chartRange } }, axes: axes(), series: [names, ...levels()],
    legend: { live: true, mount: (plot, legend) => byId("chart-legend").prepend(legend) },
    cursor: { drag: { x: true, y: false, dist: 4 }, focus: { prox: 30 } },
    hooks: { draw: [drawOver], setScale: [(plot, key) => key === "x" && follow("chart", plot, overview)] } }, columns(), byId("chart"));
  let pressed = 0;
  chart.over.addEventListener("mousedown", event => { pressed = event.clientX; });
  chart.over.addEventListener("click", event => {
    if (Math.abs(event.clientX - pressed) < 4) choose(nearest(chart.posToVal(event.offsetX, "x")));
  });
  overview.over.addEventListener("dblclick", whole);
  chart.over.addEventListener("dblclick", whole);
  const [x] = columns();
  chart.root.dataset.points = x.length;
  whole();
}

function whole() {
  const [x] = columns(), end = x[x.length - 1] > x[0] ? x[x.length - 1] : x[0] + (byTime() ? 1e-3 : 1);
  for (const plot of [overview, chart]) if (plot) plot.setScale("x", { min: x[0], max: end });
}

function zoom(factor) {
  if (!chart || !frame()) return;
  const { min, max } = chart.scales.x, at = Math.min(max, Math.max(min, place(frame())));
  const [x] = columns(), low = Math.max(x[0], at - (at - min) * factor), high = Math.min(x[x.length - 1], at + (max - at) * factor);
  if (high > low) chart.setScale("x", { min: low, max: high });
}

/* The moment that is kept nearest to a place on the axis. */
function nearest(x) {
  let best = 0;
  frames().forEach((at, i) => { if (Math.abs(place(at) - x) < Math.abs(place(frames()[best]) - x)) best = i; });
  return best;
}

const frameOf = mark => Math.max(0, frames().findIndex(at => at.n === mark.n));

function choose(index) {
  if (!frames().length) return;
  view.frame = Math.max(0, Math.min(frames().length - 1, index));
  if (chart) chart.redraw(false);
  if (chart) chart.setLegend({ idx: null }, false);
  showMoment();
}

function chooseMark(kind, next) {
  const marks = marksOfDevice().filter(mark => mark.kind === kind);
  const later = next && marks.find(mark => mark.n > frame().n);
  if (marks.length) choose(frameOf(later || marks[0]));
}

const keys = { ArrowLeft: () => choose(view.frame - 1), ArrowRight: () => choose(view.frame + 1), PageUp: () => choose(view.frame - 10),
  PageDown: () => choose(view.frame + 10), Home: () => choose(0), End: () => choose(Infinity), "+": () => zoom(0.5), "=": () => zoom(0.5),
  "-": () => zoom(2), 0: whole, p: () => chooseMark("requested"), r: () => chooseMark("reserved"), f: () => chooseMark("failure", true) };

function momentText(at) {
  const marks = marksOfDevice().filter(mark => mark.n === at.n).map(mark => markName[mark.kind]);
  const parts = ["requested", "allocated", "reserved"].map(level => [level, levelAt(level, at.n)]).filter(([, value]) => value !== null)
    .map(([level, value]) => level + " " + bytes(value));
  return `${hasTimes() ? "At " + seconds(at.us / 1e6) + ", event " : "Event "}${count(at.n)}${marks.length ? " (" + marks.join(", ") + ")" : ""}: ${parts.join(", ")}.`;
}
