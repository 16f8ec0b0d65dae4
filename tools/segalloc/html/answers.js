/* The questions of a reader with little time: what held the memory, when, and what is to be done? */
const mostOf = values => values.reduce((best, value, i) => value > values[best] ? i : best, 0);
const lowered = words => words[0].toLowerCase() + words.slice(1);

function phaseAt(n) {
  const before = (run().phases || []).filter(([begin]) => begin <= n).pop();
  return before ? text(before[2]) : "";
}

/* Who holds most: functions, or sizes where blocks have no place. */
const HOLDERS = 5;
function holders(rows) {
  const found = new Map();
  for (const row of rows) {
    const name = row.others ? "small groups" : row.place ? functionOf(row.place) : "blocks of " + sizeName(row.size);
    const of = found.get(name) || { name, bytes: 0, blocks: 0, places: new Set(), phases: new Set() };
    of.bytes += row.bytes;
    of.blocks += row.blocks;
    if (row.place && !row.others) of.places.add(whereOf(row.place));
    if (row.phase) of.phases.add(row.phase);
    found.set(name, of);
  }
  const order = [...found.values()].sort((one, other) => other.bytes - one.bytes);
  const rest = order.slice(HOLDERS).reduce((sum, of) => ({ bytes: sum.bytes + of.bytes, blocks: sum.blocks + of.blocks }), { bytes: 0, blocks: 0 });
  return order.slice(0, HOLDERS).concat(rest.blocks ? [{ name: `${count(order.length - HOLDERS)} more`, places: new Set(), phases: new Set(), ...rest }] : []);
}

function rowsAt(at) {
  return at.live.map(row => liveRow(at, row)).filter(row => row.blocks && (row.device === null || row.device === device().ordinal));
}

/* The colours of those who hold most at the moment that the answers are about. */
const COLOURS = ["#3b7dd8", "#d9722e", "#2f9e69", "#b04fc0", "#b59a1b", "#20a5b5"];
let holderNames = [];
function holderColour(name) {
  const at = holderNames.indexOf(name);
  return at >= 0 ? COLOURS[at] : nameColour(name);
}

const listed = (set, most) => [...set].slice(0, most).join(", ") + (set.size > most ? ", …" : "");

function showHolders(at, failed) {
  const rows = at ? rowsAt(at) : [], all = rows.reduce((sum, row) => sum + row.bytes, 0);
  byId("held").hidden = !all;
  if (!all) return;
  const number = value => element("td", { class: "number" }, value), shown = holders(rows);
  holderNames = shown.map(of => of.name);
  byId("held-heading").textContent = `What held the memory ${failed ? "when it ran out" : "at the peak"}: ${bytes(all)} requested`;
  byId("held-table").replaceChildren(table([{ name: "Who asked" }, { name: "Held", number: true }, { name: "Share", number: true }, { name: "" }, { name: "Blocks", number: true }, { name: "Line" }, { name: "Phase" }],
    shown.map(of => element("tr", {}, element("td", {}, element("span", { class: "swatch", colour: holderColour(of.name) }), element("b", {}, of.name)), number(bytes(of.bytes)), number(percent(of.bytes / all)),
      element("td", { class: "share" }, bar(of.bytes / all, holderColour(of.name))), number(count(of.blocks)), element("td", {}, listed(of.places, 1) || "–"), element("td", {}, listed(of.phases, 1) || "–"))),
    rows.some(row => row.place && !row.others) ? "" : "This file does not say which lines asked: segalloc run --sites records them."));
}

const momentName = at => `${hasTimes() ? "after " + seconds(at.us / 1e6) + " (event " + count(at.n) + ")" : "at event " + count(at.n)}${phaseAt(at.n) ? ", in " + phaseAt(at.n) : ""}`;

function sayWhen(at, failed) {
  const failure = failed && (run().failures || []).find(([ordinal, n]) => ordinal === device().ordinal && n === at.n);
  if (!failure) return `The peak, ${bytes(device().peak_requested)}, was ${momentName(at)}.`;
  const [, , , size, lacked, site, frames] = failure, place = placeOf(run(), { site: text(site), frames: frames.map(text) });
  return `${place ? placeName(place) : "The program"} asked for ${bytes(size)} ${momentName(at)}${lacked ? ": " + bytes(lacked) + " short" : ""}.`;
}

/* Memory that the program takes from the driver by other calls: the page shows what segalloc served. */
function sayOutside() {
  const at = device();
  return element("ul", {}, element("li", {}, `At the peak ${bytes(at.peak_taken)} were taken, ${bytes(at.outside_stays)} of them by calls that segalloc does not serve.`),
    ...at.outside.map(([held, call]) => element("li", {}, `${bytes(held)} ${call}`)));
}

/* The roles of a PyTorch program's memory at that moment, the largest first. */
function sayRoles() {
  return element("ul", {}, ...device().roles.map(([held, role]) => element("li", {}, `${bytes(held)} ${role}`)));
}

/* What a run that checked itself found: a line for each finding, and what is known of it. */
function sayChecked() {
  return element("ul", {}, element("li", {}, run().checked + "."), ...run().found.map(([words, lines]) => element("li", {}, element("b", {}, words),
    element("ul", {}, ...lines.map(([label, line]) => element("li", {}, label ? element("b", {}, label + " ") : "", line))))));
}

function sayRanks() {
  const peaks = runs.map(which => peakOf(which, "requested")), most = mostOf(peaks), least = mostOf(peaks.map(peak => -peak));
  const failed = runs.filter(which => which.ooms).length;
  return `${runName(runs[most], most)} holds most, ${bytes(peaks[most])} at its peak; ${runName(runs[least], least)} least, ${bytes(peaks[least])}.` +
    (failed ? ` Allocations failed in ${count(failed)} of ${count(runs.length)}.` : "");
}

/* What a setting changes, as replays of the trace found it. */
function sayEffect(tune) {
  const base = inUse(tune), best = tune.recommended, whose = tune.current ? "what is in use" : "the defaults";
  if (base.ooms > best.ooms) return [`Set ${best.line}: it makes it fit, in ${bytes(best.peak_reserved_bytes)}.`, "Found by replay."];
  const rest = tune.chosen_on === "first_parts" && best.rest && base.rest ? [`On the part of the trace that it was not chosen on: ${bytes(best.rest.peak_reserved_bytes)} and not ${bytes(base.rest.peak_reserved_bytes)}.`] : [];
  return [`Set ${best.line}: it reserves ${bytes(best.peak_reserved_bytes)} at the peak, ${bytes(base.peak_reserved_bytes - best.peak_reserved_bytes)} less than ${whose}.`, ...rest, "Found by replay."];
}

function sayFailure() {
  const at = device(), failure = (run().failures || []).find(([ordinal]) => ordinal === at.ordinal), card = at.smallest_card;
  const less = failure && failure[4] ? `${bytes(failure[4])} less` : "less";
  return [
    `No setting ${data.tune ? "that was tried by replay " : ""}makes it fit.`,
    `Hold ${less} at that moment: a smaller batch or sequence, activation checkpointing, offloading.`,
    `Or take a card of at least ${card ? bytes(card) : "more than " + bytes(at.limit || at.total)}: enough up to there. What comes after the failure is not in this trace.`,
    next("What the whole program needs:", "segalloc rehearse -- "),
  ];
}

/* A gain below this share of what is held is not worth a line. */
const WORTH = 0.01;

/* A line with the command to run next. */
function next(why, verb) {
  return element("span", {}, why + " ", element("code", {}, verb + (run().command && !data.redacted ? run().command : "CMD")));
}

/* Lines of one action each. */
function sayWhatToDo() {
  const tune = data.tune, base = tune && inUse(tune), at = device();
  const worth = tune && tune.recommended.line && (base.ooms > tune.recommended.ooms || base.peak_reserved_bytes - tune.recommended.peak_reserved_bytes > WORTH * base.peak_reserved_bytes);
  if (worth) return sayEffect(tune);
  if (run().ooms) return sayFailure();
  const has = at && (at.limit || at.total), needs = at && (at.smallest_card || at.peak_reserved);
  const fits = has && needs && has > needs && !run().rehearsed ? [`It fits its card of ${bytes(has)}, with ${bytes(has - needs)} to spare.`] : [];
  const lines = run().advice.length ? run().advice : [tune ? "Nothing: no setting that was tried by replay gains as much as 1 %." : "Nothing was found to change."];
  return [...lines, ...fits, ...(run().rehearsed ? [next("Where it fits:", "segalloc run -- ")] : [])];
}

function showAnswers() {
  const failure = marksOfDevice().find(mark => mark.kind === "failure"), peak = marksOfDevice().find(mark => mark.kind === "requested");
  const at = failure || peak ? frames()[frameOf(failure || peak)] : null;
  const answers = [runs.length > 1 ? [`${count(runs.length)} runs`, sayRanks()] : null, at ? [failure ? "What failed" : "When it peaked", sayWhen(at, Boolean(failure))] : null,
    run().checked ? ["Check", sayChecked()] : null,
    device() && device().roles.length ? ["What it was for", sayRoles()] : null,
    device() && device().outside.length ? ["Held by other calls", sayOutside()] : null,
    ["What to do", element("ul", {}, ...sayWhatToDo().map(line => element("li", {}, line)))]];
  byId("answers").replaceChildren(...answers.filter(Boolean).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  showHolders(at, Boolean(failure));
}
