/* The data as the page uses it, and how figures are written. */
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const KIB = 1024, MIB = KIB * KIB, GIB = KIB * MIB;

const byId = id => document.getElementById(id);

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "width") made.style.width = value;
    else if (key === "colour") made.style.background = value;
    else if (key === "line") made.style.borderTop = value;
    else made.setAttribute(key, value);
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= GIB) return (value / GIB).toFixed(2) + " GiB";
  if (size >= MIB) return (value / MIB).toFixed(2) + " MiB";
  if (size >= KIB) return (value / KIB).toFixed(1) + " KiB";
  return value + " B";
}

const count = value => value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US");
const percent = share => (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";

function seconds(value) {
  if (value >= 3600) return Math.floor(value / 3600) + " h " + Math.floor(value % 3600 / 60) + " min";
  if (value >= 60) return Math.floor(value / 60) + " min " + (value % 60).toFixed(value < 600 ? 1 : 0) + " s";
  return value >= 1 || value === 0 ? value.toFixed(2) + " s" : (value * 1000).toFixed(value < 0.01 ? 2 : 0) + " ms";
}

const text = number => number ? data.texts[number - 1] : "";
const classFrom = size => size ? 2 ** (size - 1) : 0;
const sizeName = size => size ? bytes(classFrom(size)) + " to " + bytes(2 * classFrom(size)) : "0 B";

/* A group of blocks; number 0 is what the page has no row for. */
function group(run, number) {
  if (!number) return { others: true, device: null, size: 0, site: "(others)", place: "(others)", phase: "", stream: "", frames: [] };
  const [device, size, site, phase, stream, torch, frames] = run.groups[number - 1];
  const of = { device, size, site: text(site), phase: text(phase), stream, torch: Boolean(torch), frames: frames.map(text) };
  return { ...of, place: placeOf(run, of) };
}

/* The function that a frame names: "loads.py:31 in train.<locals>.load.<locals>.<listcomp>" is in load. A frame without one names itself. */
function functionOf(frame) {
  const [where, name] = frame.split(/ in (.*)/s);
  return (name || "").split(".<locals>.").filter(part => part && !part.startsWith("<")).pop() || where;
}

const whereOf = frame => frame.split(" in ")[0];

/* How many functions above its place every block of a run has in common, as where all go through one helper. Below those a place
   says nothing. 0 where the callers don't differ either. */
const helpers = new WeakMap();
function helpersOf(run) {
  if (!helpers.has(run)) {
    const stacks = run.groups.map(([, , site, , , , frames]) => frames.slice(0, frames.lastIndexOf(site) + 1).map(text)).filter(frames => frames.length);
    let depth = 0;
    const isCommon = () => new Set(stacks.map(frames => functionOf(frames[frames.length - 1 - depth] || ""))).size === 1;
    const most = Math.min(...stacks.map(frames => frames.length));
    while (depth < most && isCommon()) depth++;
    helpers.set(run, stacks.length && depth < most ? depth : 0);
  }
  return helpers.get(run);
}

/* The frame that tells who asked for the blocks of a group; "" where that is not known. */
function placeOf(run, { site, frames }) {
  const at = frames.lastIndexOf(site) - helpersOf(run);
  return at >= 0 ? frames[at] : site;
}

/* "logits, loads.py:40" */
const placeName = place => functionOf(place) === whereOf(place) ? place : `${functionOf(place)}, ${whereOf(place)}`;

const hasPlaces = () => (run().groups || []).some(([, , site]) => site);

function runName(run, index) {
  if (run.rank !== null) return "rank " + run.rank;
  return run.file || "run " + (index + 1);
}

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function table(columns, rows, caption) {
  const head = element("tr", {}, ...columns.map(column => element("th", { scope: "col", class: column.number ? "number" : "" },
    column.sort ? element("button", { type: "button", onclick: column.sort }, column.name) : column.name)));
  return element("table", {}, caption ? element("caption", { class: "note" }, caption) : null, element("thead", {}, head), element("tbody", {}, ...rows));
}

function bar(share, colour) {
  return element("span", { class: "bar", width: Math.max(0, Math.min(1, share)) * 100 + "%", colour: colour || "var(--requested)" });
}

function hue(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return hash % 360;
}

const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const sizeColour = size => `hsl(${(size * 47) % 360} 55% ${isDark() ? 55 : 50}%)`;
const nameColour = name => `hsl(${hue(name)} 50% ${isDark() ? 55 : 52}%)`;
const axisColours = () => ({ stroke: () => style("--soft"), grid: { stroke: () => style("--line"), width: 1 }, ticks: { stroke: () => style("--line"), width: 1 } });
