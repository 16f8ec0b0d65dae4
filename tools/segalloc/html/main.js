/* Puts the parts together. */
const tabs = ["live", "map", "lifetimes", "ranks", "advice"];
const shows = { live: showLive, map: showMap, lifetimes: showLifetimes, ranks: showRanks, advice: showAdvice };
let tab = "live";

let front = null;

function showAdvice() {
  const lines = run().advice;
  if (front) front.destroy();
  front = null;
  byId("advice").replaceChildren(lines.length ? element("ul", {}, ...lines.map(line => element("li", {}, line))) : element("p", {}, "Nothing to change was found in the figures of the run itself."));
  if (byId("panel-advice").hidden) return;
  if (data.tune) front = showFront(byId("trials"), data.tune);
  else byId("trials").replaceChildren(element("p", { class: "note" }, data.untried));
}

function openTab(name, focus) {
  tab = name;
  for (const one of tabs) {
    byId("tab-" + one).setAttribute("aria-selected", String(one === name));
    byId("tab-" + one).tabIndex = one === name ? 0 : -1;
    byId("panel-" + one).hidden = one !== name;
  }
  if (focus) byId("tab-" + name).focus();
  shows[name]();
}

function showMoment() {
  const at = frame(), slider = byId("chart");
  byId("moment").textContent = at ? momentText(at) : "This file has no events to look at: it says what there was in the end.";
  if (at) {
    slider.setAttribute("aria-valuemax", String(frames().length - 1));
    slider.setAttribute("aria-valuenow", String(view.frame));
    slider.setAttribute("aria-valuetext", momentText(at));
  }
  showChartLegend();
  for (const button of byId("marks").children) button.setAttribute("aria-pressed", String(Boolean(at) && Number(button.dataset.n) === at.n));
  shows[tab]();
}

function showMarks() {
  const seen = {};
  byId("marks").replaceChildren(...marksOfDevice().map(mark => {
    seen[mark.kind] = (seen[mark.kind] || 0) + 1;
    const name = mark.kind === "failure" ? "Failure " + seen.failure : markName[mark.kind][0].toUpperCase() + markName[mark.kind].slice(1);
    return element("button", { type: "button", class: mark.kind, "data-n": mark.n, onclick: () => choose(frameOf(mark)) }, name);
  }));
  const failures = device() ? device().failures || 0 : 0;
  if (failures > (seen.failure || 0) && seen.failure) byId("marks").append(element("span", { class: "note" }, `The first ${seen.failure} of ${count(failures)} failures can be looked into.`));
}

function showFacts() {
  const at = device(), facts = [];
  const fact = (name, value) => facts.push(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  if (at) {
    fact("Requested, peak", bytes(at.peak_requested));
    if (at.peak_allocated !== null) fact("Allocated, peak", bytes(at.peak_allocated));
    if (at.peak_reserved !== null) fact("Reserved, peak", bytes(at.peak_reserved));
    if (at.smallest_card) fact("Smallest card", bytes(at.smallest_card));
    if (at.total) fact(at.limit ? "Limit" : "Card", bytes(at.limit || at.total));
    fact("Failures", count(at.failures));
    fact("Allocations", count(at.allocs));
  }
  byId("facts").replaceChildren(...facts);
  byId("verdict").textContent = (runs.length > 1 ? runName(run(), view.run) + ": " : "") + run().verdict;
  byId("verdict").className = run().ooms ? "failed" : "";
  byId("title").textContent = runs.length > 1 ? "Device memory of " + runs.length + " runs" : "Device memory" + (run().command ? " of " + run().command.split(" ").map(word => word.split("/").pop()).join(" ") : "");
  document.title = byId("title").textContent;
  const cause = run().source === "replay" ? "" : run().source === "statistics" ? " Allocated and reserved are what the allocator said now and then." :
    run().source === "events" ? " What was allocated and reserved is not in this trace." : "";
  const diverged = run().diverged ? ` From event ${count(run().diverged)} on, allocated and reserved are those of a replay that is not the recorded run.` : "";
  byId("shown").textContent = at && at.n ? `Showing ${count(at.n.length)} of ${count(run().walked)} events, no peak left out.` + diverged : "";
  byId("drawn").textContent = "Of each stretch the lowest, the highest and the last event are drawn." + cause +
    ` ${count(frames().length)} moments are kept to look into: all that are marked, and the peak of each stretch.` + (run().phase_depth === 0 ? " Phases change too often to be drawn." : "");
  byId("about").textContent = `segalloc ${data.version}` + (data.redacted ? "; names are left out" : run().file ? `; ${run().file}` : "") + (run().command && !data.redacted ? `; ${run().command}` : "") + (run().conf ? `; ${run().conf}` : "");
}

function options(select, entries) {
  select.replaceChildren(...entries.map(([value, name]) => element("option", { value }, name)));
}

function chooseDevice(index) {
  view.device = index;
  byId("device").value = String(index);
  options(byId("colour"), hasPlaces() ? [["place", "who asked"], ["size", "size"]] : [["size", "size"]]);
  byId("axis").value = byTime() ? "time" : "events";
  byId("axis").disabled = !hasTimes();
  showFacts();
  showAnswers();
  showMarks();
  drawTimeline();
  const failures = marksOfDevice().filter(mark => mark.kind === "failure"), peaks = marksOfDevice().filter(mark => mark.kind === "requested");
  choose(failures.length ? frameOf(failures[0]) : peaks.length ? frameOf(peaks[0]) : 0);
  if (!frames().length) showMoment();
}

function chooseRun(index) {
  view.run = index;
  byId("run").value = String(index);
  options(byId("device"), run().devices.map((at, i) => [i, String(at.ordinal)]));
  byId("device-label").hidden = run().devices.length < 2;
  const most = run().devices.map((at, i) => [at.peak_requested || 0, i]).sort((a, b) => b[0] - a[0])[0];
  chooseDevice(most ? most[1] : 0);
}

function redraw() {
  drawTimeline();
  if (chart) chart.redraw(false);
  shows[tab]();
}

function start() {
  const sizes = [["0", "any size"], ...[16, 20, 24, 26, 28, 30].map(digits => [2 ** digits, bytes(2 ** digits)])];
  options(byId("filter-size"), sizes);
  options(byId("life-size"), sizes);
  options(byId("filter-age"), AGES.map(([name, share]) => [share, name]));
  options(byId("run"), runs.map((which, index) => [index, runName(which, index)]));
  byId("run-label").hidden = runs.length < 2;
  byId("tab-ranks").hidden = runs.length < 2;
  for (const one of tabs) byId("tab-" + one).addEventListener("click", () => openTab(one));
  byId("tabs").addEventListener("keydown", event => {
    const shown = tabs.filter(one => !byId("tab-" + one).hidden), at = shown.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + shown.length, Home: 0, End: shown.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); openTab(shown[to % shown.length], true); }
  });
  for (const id of ["filter", "filter-size", "filter-age", "by", "as"]) byId(id).addEventListener("input", showLive);
  for (const id of ["life-size", "life-count"]) byId(id).addEventListener("input", showLifetimes);
  byId("colour").addEventListener("input", showMap);
  byId("rank-level").addEventListener("input", showRanks);
  byId("run").addEventListener("input", () => chooseRun(Number(byId("run").value)));
  byId("device").addEventListener("input", () => chooseDevice(Number(byId("device").value)));
  byId("axis").addEventListener("input", () => { view.axis = byId("axis").value; drawTimeline(); if (chart) chart.redraw(false); shows[tab](); });
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    byId("theme").setAttribute("aria-pressed", String(isDark()));
    redraw();
  });
  byId("theme").setAttribute("aria-pressed", String(isDark()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  byId("chart").addEventListener("keydown", event => {
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  });
  byId("map-picture").addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) { event.preventDefault(); stepMap(by); }
  });
  let width = document.body.clientWidth;
  addEventListener("resize", () => { if (document.body.clientWidth !== width) { width = document.body.clientWidth; redraw(); } });
  openTab("live");
  chooseRun(mostOf(runs.map(which => (which.ooms ? 2 ** 60 : 0) + peakOf(which, "requested"))));
}

start();
