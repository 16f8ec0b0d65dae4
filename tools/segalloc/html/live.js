/* What was held at the moment: as a table and as a flame graph. */
const AGES = [["any", 0], ["1/100 of the run", 0.01], ["1/10 of the run", 0.1], ["half of the run", 0.5]];
const sorting = { column: "bytes", up: false };

const liveRow = (at, [number, blocks, held, birth, born]) => ({ ...group(run(), number), blocks, bytes: held,
  age: Math.max(0, at.n - birth), ageSeconds: Math.max(0, at.us / 1000 - born) / 1000 });

function liveRows() {
  return rowsAt(frame());
}

function isWanted(row) {
  const wanted = byId("filter").value.trim().toLowerCase(), size = Number(byId("filter-size").value), age = Number(byId("filter-age").value);
  const names = [row.site, row.phase, sizeName(row.size), ...row.frames].join("\n").toLowerCase();
  return (!wanted || names.includes(wanted)) && (row.others ? !size : classFrom(row.size) >= size) && row.age >= age * run().requests;
}

const keyOf = { site: row => row.place + "\n" + row.size, place: row => row.place, size: row => String(row.size), phase: row => row.phase };

function merged(rows, by) {
  const groups = new Map();
  for (const row of rows) {
    const key = (row.others ? "others\n" : "") + keyOf[by](row), into = groups.get(key);
    if (!into) {
      groups.set(key, { ...row });
      continue;
    }
    into.age = (into.age * into.blocks + row.age * row.blocks) / (into.blocks + row.blocks);
    into.ageSeconds = (into.ageSeconds * into.blocks + row.ageSeconds * row.blocks) / (into.blocks + row.blocks);
    into.blocks += row.blocks;
    into.bytes += row.bytes;
    if (into.phase !== row.phase) into.phase = "several";
    if (into.size !== row.size) into.size = null;
    if (into.place !== row.place) into.place = "several";
  }
  return [...groups.values()];
}

function sortBy(column) {
  sorting.up = sorting.column === column ? !sorting.up : column === "place" || column === "phase";
  sorting.column = column;
  showLive();
}

function cells(row, all) {
  const age = hasTimes() ? seconds(row.ageSeconds) : count(Math.round(row.age)) + " events";
  return element("tr", {}, element("td", { class: "number" }, bytes(row.bytes)), element("td", { class: "share" }, bar(row.bytes / all)),
    element("td", { class: "number" }, count(row.blocks)), element("td", {}, row.others ? "–" : row.size === null ? "several" : sizeName(row.size)),
    element("td", { title: row.frames.slice().reverse().join("\n") }, row.place ? placeName(row.place) : "unknown"), element("td", {}, row.phase || "–"), element("td", { class: "number" }, age));
}

function showTable(rows, all) {
  const order = merged(rows, byId("by").value).sort((a, b) => {
    const [one, other] = [a, b].map(row => row[sorting.column]);
    const way = typeof one === "string" || typeof other === "string" ? String(one).localeCompare(String(other)) : one - other;
    return (sorting.up ? way : -way) || b.bytes - a.bytes;
  });
  const columns = [["bytes", "Held", true], [null, "Share"], ["blocks", "Blocks", true], ["size", "Size of a block"], ["place", "Asked for at"],
    ["phase", "Phase"], ["age", "Mean age", true]].map(([key, name, number]) => ({ name, number, sort: key && (() => sortBy(key)) }));
  byId("live-table").replaceChildren(table(columns, order.slice(0, 500).map(row => cells(row, all)),
    order.length > 500 ? `The first 500 of ${count(order.length)} rows.` : ""));
}

/* The callers of what is held, the outermost first; without stacks: phase, place and size. */
function tree(rows) {
  const root = { name: "device " + device().ordinal, bytes: 0, children: new Map() };
  for (const row of rows) {
    const path = row.others ? ["(others)"] : [...(row.phase ? [row.phase] : []), ...(row.frames.length ? row.frames : row.site ? [row.site] : []), sizeName(row.size)];
    let at = root;
    root.bytes += row.bytes;
    for (const name of path) {
      if (!at.children.has(name)) at.children.set(name, { name, bytes: 0, children: new Map(), around: at });
      at = at.children.get(name);
      at.bytes += row.bytes;
    }
  }
  return root;
}

function fit(name, width) {
  const most = Math.floor((width - 6) / 6.8);
  return most < 3 ? "" : name.length <= most ? name : name.slice(0, most - 1) + "…";
}

function showFlame(root, from) {
  const width = byId("live-flame").clientWidth || 900, high = 21, groups = [];
  let deepest = 0;
  const put = (node, left, depth) => {
    const wide = width * node.bytes / from.bytes;
    if (wide < 1.5) return;
    deepest = Math.max(deepest, depth);
    const said = `${node.name}: ${bytes(node.bytes)}, ${percent(node.bytes / root.bytes)}`;
    const open = () => showFlame(root, node === from && node.around ? node.around : node);
    groups.push(drawn("g", { tabindex: "0", role: "button", "aria-label": said, onclick: open,
      onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } },
      drawn("title", {}, said), drawn("rect", { x: left, y: depth * high, width: wide, height: high - 1, fill: holderColour(functionOf(node.name)) }),
      drawn("text", { x: left + 4, y: depth * high + 14, fill: isDark() ? "#000" : "#fff" }, fit(placeName(node.name), wide))));
    let at = left;
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      put(child, at, depth + 1);
      at += width * child.bytes / from.bytes;
    }
  };
  if (from.bytes) put(from, 0, 0);
  byId("live-flame").replaceChildren(element("p", { class: "note" }, from === root ? "The outermost caller on top; a click goes into a part." :
    "A click on the uppermost part goes back out."), drawn("svg", { class: "flame", width, height: (deepest + 1) * high, role: "group",
    "aria-label": "Flame graph of what is held" }, ...groups));
}

function showLive() {
  if (!frame()) {
    byId("live-sum").textContent = "This file does not say what was held when.";
    byId("live-table").replaceChildren();
    byId("live-flame").replaceChildren();
    return;
  }
  const rows = liveRows(), wanted = rows.filter(isWanted), sum = list => list.reduce((all, row) => all + row.bytes, 0);
  const blocks = wanted.reduce((all, row) => all + row.blocks, 0);
  byId("live-sum").textContent = `${bytes(sum(wanted))} in ${count(blocks)} blocks` +
    (wanted.length < rows.length ? `, of ${bytes(sum(rows))} by the filters.` : ", all that was held.");
  const flame = byId("as").value === "flame";
  byId("live-table").hidden = flame;
  byId("live-flame").hidden = !flame;
  if (flame) {
    const root = tree(wanted);
    showFlame(root, root);
  } else {
    showTable(wanted, sum(rows) || 1);
  }
}
