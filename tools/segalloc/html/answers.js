/* The questions of a reader with little time: what held the memory, when, and what is to be done? */
const mostOf = values => values.reduce((best, value, i) => value > values[best] ? i : best, 0);
const lowered = words => words[0].toLowerCase() + words.slice(1);

function phaseAt(n) {
  const before = (run().phases || []).filter(([begin]) => begin <= n).pop();
  return before ? text(before[2]) : "";
}

/* "loads.py:22 in train.<locals>.take" is take. */
const functionOf = frame => frame.replace(/^.* in /, "").replace(/^.*\./, "");

/* The calls between which what is held divides: the common outermost callers are passed over, and of each the first that has
   nearly all of it is named with what it calls. */
function holders(rows) {
  const root = { bytes: 0, children: new Map() };
  for (const row of rows) {
    let at = root;
    root.bytes += row.bytes;
    for (const name of row.others ? ["other places"] : row.frames.length ? row.frames : [row.site || "blocks of " + sizeName(row.size)]) {
      if (!at.children.has(name)) at.children.set(name, { name, bytes: 0, children: new Map() });
      at = at.children.get(name);
      at.bytes += row.bytes;
    }
  }
  const children = node => [...node.children.values()].sort((one, other) => other.bytes - one.bytes);
  let at = root, first = null;
  while ((first = children(at)[0]) && first.bytes >= 0.9 * at.bytes && first.children.size) at = first;
  return children(at).slice(0, 3).map(node => {
    let inner = children(node)[0];
    while (inner && inner.bytes >= 0.9 * node.bytes && functionOf(inner.name).startsWith("<")) inner = children(inner)[0];
    return { name: node.name + (inner && inner.bytes >= 0.9 * node.bytes ? " → " + functionOf(inner.name) : ""), bytes: node.bytes };
  });
}

function sayHeld(at, failed) {
  const rows = at.live.map(row => liveRow(at, row)).filter(row => row.blocks && (row.device === null || row.device === device().ordinal));
  const all = rows.reduce((sum, row) => sum + row.bytes, 0), phase = phaseAt(at.n);
  const when = `${failed ? "At the failure" : "At the peak"}${hasTimes() ? ", after " + seconds(at.us / 1e6) : ", event " + count(at.n)}${phase ? `, in ${phase}` : ""}`;
  return all ? [when, holders(rows).map(holder => `${holder.name} held ${bytes(holder.bytes)} (${percent(holder.bytes / all)})`).join("; ") + "."] : null;
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
  if (base.ooms > best.ooms) return `${best.line} makes it fit, in ${bytes(best.peak_reserved_bytes)}: found by replay.`;
  const rest = tune.chosen_on === "first_parts" && best.rest && base.rest ? `; on the part of the trace that it was not chosen on, ${bytes(best.rest.peak_reserved_bytes)} and not ${bytes(base.rest.peak_reserved_bytes)}` : "";
  return `${best.line} reserves ${bytes(best.peak_reserved_bytes)} at the peak, ${bytes(base.peak_reserved_bytes - best.peak_reserved_bytes)} less than ${whose}${rest}: found by replay.`;
}

function sayFailure() {
  const at = device(), failure = (run().failures || []).find(([ordinal]) => ordinal === at.ordinal), card = at.smallest_card;
  const less = failure && failure[4] ? `hold ${bytes(failure[4])} less at that moment (a smaller batch or sequence, activation checkpointing, offloading)` : "hold less at that moment (a smaller batch or sequence)";
  return `No setting ${data.tune ? "that was tried by replay " : ""}makes it fit: ${less}, or take a card of ${card ? bytes(card) : "more than " + bytes(at.limit || at.total)} or more.`;
}

/* A gain below this share of what is held is not worth a line. */
const WORTH = 0.01;

function sayWhatToDo() {
  const tune = data.tune, base = tune && inUse(tune), at = device();
  const worth = tune && tune.recommended.line && (base.ooms > tune.recommended.ooms || base.peak_reserved_bytes - tune.recommended.peak_reserved_bytes > WORTH * base.peak_reserved_bytes);
  if (worth) return sayEffect(tune);
  if (run().ooms) return sayFailure();
  const has = at && (at.limit || at.total), needs = at && (at.smallest_card || at.peak_reserved);
  const fits = has && needs && has > needs ? ` It fits its card of ${bytes(has)}, with ${bytes(has - needs)} to spare.` : "";
  return (run().advice[0] || (tune ? "Nothing: no setting that was tried by replay gains as much as 1 %." : "Nothing was found to change.")) + fits;
}

function showAnswers() {
  const failure = marksOfDevice().find(mark => mark.kind === "failure"), peak = marksOfDevice().find(mark => mark.kind === "requested");
  const at = failure || peak ? frames()[frameOf(failure || peak)] : null;
  const answers = [runs.length > 1 ? [`${count(runs.length)} runs`, sayRanks()] : null, at ? sayHeld(at, Boolean(failure)) : null, ["What to do", sayWhatToDo()]];
  byId("answers").replaceChildren(...answers.filter(Boolean).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}
