/* The pages at the moment, in the order of their addresses. */
const PART = ["free", "in use", "freed, but still in use by queued work", "small pieces"];
let drawnPieces = [];

function mapOfDevice() {
  return frame() && frame().map ? frame().map.find(map => map.device === device().ordinal) || null : null;
}

/* Of pages: what is drawn over their pieces. */
const MARKS = [{ bit: 1, style: "--pinned", top: 0, name: "pinned: may not move" }, { bit: 2, style: "--shared", top: 0.72, name: "at a second address too" }];

/* [[page bytes, first page, small, [bytes, part, group or bytes in use, …, 0], [first page of the segment, pages, marks, …, 0]], …]
   as objects. */
function segments(map) {
  const triples = flat => Array.from({ length: Math.floor(flat.length / 3) }, (_, i) => flat.slice(3 * i, 3 * i + 3));
  return map.segments.map(([pageBytes, first, small, flat, flatMarks]) => {
    const pieces = triples(flat).map(([size, part, value]) => ({ bytes: size, part, value }));
    const marks = triples(flatMarks).map(([page, pages, bits]) => ({ from: page * pageBytes, to: (page + pages) * pageBytes, bits }));
    return { pageBytes, first, small: Boolean(small), pieces, marks, bytes: pieces.reduce((all, piece) => all + piece.bytes, 0) };
  });
}

function colourOf(piece) {
  if (piece.part === 0) return style("--free");
  if (piece.part === 2) return style("--pending");
  if (piece.part === 3) return `color-mix(in srgb, ${style("--soft")} ${Math.round(30 + 60 * piece.value / piece.bytes)}%, ${style("--free")})`;
  const of = group(run(), piece.value);
  if (of.others) return style("--soft");
  return byId("colour").value === "size" ? sizeColour(of.size) : of.place ? holderColour(functionOf(of.place)) : sizeColour(of.size);
}

function pieceText(piece) {
  if (piece.part === 3) return `${bytes(piece.bytes)} of small pieces, ${bytes(piece.value)} of it in use`;
  if (piece.part === 1 && !piece.value) return `${bytes(piece.bytes)} of small blocks in use`;
  const of = piece.part === 1 ? group(run(), piece.value) : null;
  return `${bytes(piece.bytes)} ${PART[piece.part]}` + (of ? `, a block of ${sizeName(of.size)}${of.place ? ", asked for by " + placeName(of.place) : ""}` : "");
}

function drawMap(list) {
  const box = byId("map-picture"), width = Math.max(300, box.clientWidth || 900), ratio = window.devicePixelRatio || 1;
  const all = list.reduce((sum, segment) => sum + segment.bytes, 0), gap = 2, high = 18;
  const rows = Math.max(4, Math.min(40, Math.ceil(all / (256 * MIB))));
  const usable = Math.max(rows * width - gap * list.length, rows * width / 2), scale = usable / all;
  const canvas = element("canvas", { class: "map" }), context = canvas.getContext("2d");
  drawnPieces = [];
  let x = 0, y = 0;
  for (const segment of list) {
    let at = 0;
    for (const piece of segment.pieces)
      for (let left = piece.bytes * scale, begun = false; left > 0.01 || !begun; begun = true) {
        const part = Math.min(left, width - x);
        drawnPieces.push({ x, y, wide: part, at, piece, segment, page: segment.first + Math.floor(at / segment.pageBytes) });
        x += part;
        left -= part;
        at += part / scale;
        if (x >= width - 0.5) { x = 0; y += high + 3; }
      }
    x += gap;
    if (x >= width - 1) { x = 0; y += high + 3; }
  }
  canvas.width = width * ratio;
  canvas.height = (y + high) * ratio;
  canvas.style.height = y + high + "px";
  context.scale(ratio, ratio);
  for (const spot of drawnPieces) {
    context.fillStyle = colourOf(spot.piece);
    context.fillRect(spot.x, spot.y, Math.max(0.6, spot.wide - (spot.wide > 3 ? 0.5 : 0)), high);
  }
  for (const spot of drawnPieces)
    for (const { from, to, bits } of spot.segment.marks) {
      const left = Math.max(0, (from - spot.at) * scale), right = Math.min(spot.wide, (to - spot.at) * scale);
      if (right <= left) continue;
      for (const mark of MARKS.filter(({ bit }) => bits & bit)) {
        context.fillStyle = style(mark.style);
        context.fillRect(spot.x + left, spot.y + mark.top * high, Math.max(0.6, right - left), 0.28 * high);
      }
    }
  const say = event => {
    const from = canvas.getBoundingClientRect(), left = event.clientX - from.left, top = event.clientY - from.top;
    const spot = drawnPieces.find(one => left >= one.x && left < one.x + Math.max(one.wide, 1) && top >= one.y && top < one.y + high + 3);
    byId("map-tip").textContent = spot ? `${pieceText(spot.piece)}; page ${count(spot.page)}, of ${bytes(spot.segment.pageBytes)}${marksAt(spot)}` : "";
  };
  canvas.addEventListener("mousemove", say);
  canvas.addEventListener("click", say);
  box.replaceChildren(canvas);
  spotShown = -1;
}

let spotShown = -1;
function stepMap(by) {
  if (!drawnPieces.length) return;
  spotShown = Math.max(0, Math.min(drawnPieces.length - 1, spotShown + by));
  const spot = drawnPieces[spotShown];
  byId("map-tip").textContent = `Piece ${count(spotShown + 1)} of ${count(drawnPieces.length)}: ${pieceText(spot.piece)}; page ${count(spot.page)}, of ${bytes(spot.segment.pageBytes)}${marksAt(spot)}`;
}

/* Of the page in which a piece begins. */
function marksAt(spot) {
  const over = spot.segment.marks.find(({ from, to }) => from <= spot.at && spot.at < to);
  return over ? "; " + MARKS.filter(({ bit }) => over.bits & bit).map(({ name }) => name).join("; ") : "";
}

function showLegend(list) {
  const seen = new Map();
  for (const segment of list)
    for (const piece of segment.pieces) {
      const of = piece.part === 1 ? group(run(), piece.value) : null;
      const name = !of ? PART[piece.part] : of.others ? "small blocks in use" : byId("colour").value === "size" ? sizeName(of.size) : of.place ? functionOf(of.place) : sizeName(of.size);
      const entry = seen.get(name) || { name, bytes: 0, colour: colourOf(piece), kind: piece.part };
      entry.bytes += piece.bytes;
      seen.set(name, entry);
    }
  const order = [...seen.values()].sort((a, b) => b.bytes - a.bytes);
  byId("map-legend").replaceChildren(...order.slice(0, 24).map(entry => element("span", {}, element("span", { class: "swatch", colour: entry.colour }),
    `${entry.name}: ${bytes(entry.bytes)}`)));
  for (const { bit, style: colour, name } of MARKS) {
    const marked = list.reduce((all, segment) => all + segment.marks.reduce((sum, { from, to, bits }) => sum + (bits & bit ? to - from : 0), 0), 0);
    if (marked) byId("map-legend").append(element("span", {}, element("span", { class: "stroke", line: `5px solid var(${colour})` }), `${name}: ${bytes(marked)}`));
  }
}

function showSegments(list) {
  const kinds = new Map();
  for (const segment of list) {
    const name = (segment.small ? "small blocks" : "other blocks") + ", pages of " + bytes(segment.pageBytes);
    const row = kinds.get(name) || { name, segments: 0, pages: 0, bytes: 0, free: 0, largest: 0 };
    row.segments++;
    row.pages += segment.bytes / segment.pageBytes;
    row.bytes += segment.bytes;
    for (const piece of segment.pieces) {
      row.free += piece.part === 0 ? piece.bytes : piece.part === 3 ? piece.bytes - piece.value : 0;
      if (piece.part === 0) row.largest = Math.max(row.largest, piece.bytes);
    }
    kinds.set(name, row);
  }
  const number = value => element("td", { class: "number" }, value);
  byId("map-table").replaceChildren(table([{ name: "Of" }, { name: "Segments", number: true }, { name: "Pages", number: true }, { name: "Held", number: true },
    { name: "Free in them", number: true }, { name: "Largest free range", number: true }], [...kinds.values()].map(row => element("tr", {},
    element("td", {}, row.name), number(count(row.segments)), number(count(Math.round(row.pages))), number(bytes(row.bytes)), number(bytes(row.free)), number(bytes(row.largest)))),
  "Segments are pages next to each other."));
}

function showMap() {
  const map = mapOfDevice(), parts = ["map-picture", "map-tip", "map-legend", "map-table"].map(byId);
  for (const part of parts) part.replaceChildren();
  byId("map-picture").hidden = !map;
  drawnPieces = [];
  if (!map) {
    byId("map-sum").textContent = !frame() ? "This file does not say where blocks lay." : run().source !== "replay" ?
      "Where pages lay is known of traces that segalloc recorded, up to 20 million events: it takes a replay." :
      frame().map ? "Nothing was held." : "The map of this moment was left out for the size of the page; the peaks, failures and the end have theirs first.";
    return;
  }
  const list = segments(map);
  byId("map-sum").textContent = `${bytes(map.reserved)} reserved in ${count(list.length)} segments; ${bytes(map.pinned)} pinned, ${bytes(map.aliased)} at a second address` +
    (run().diverged ? `. From event ${count(run().diverged)} on the replay is not the recorded run.` : ". By a replay of the recorded run.");
  byId("map-picture").setAttribute("aria-label", "Segment map. " + byId("map-sum").textContent + " Left and right go through its pieces.");
  if (list.length) drawMap(list);
  showLegend(list);
  showSegments(list);
}
