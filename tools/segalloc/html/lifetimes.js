/* How long blocks lived. */
const lifeName = digits => digits <= 1 ? String(digits) : count(2 ** (digits - 1)) + " to " + count(2 ** digits - 1);

function showLifetimes() {
  const size = Number(byId("life-size").value), inBytes = byId("life-count").value === "bytes";
  if (!run().lifetimes) {
    byId("life-bars").textContent = "This file does not say how long blocks lived.";
    return;
  }
  const bars = [];
  for (const [life, of, blocks, held] of run().lifetimes)
    if (classFrom(of) >= size) bars[life] = (bars[life] || 0) + (inBytes ? held : blocks);
  let alive = 0;
  for (const [of, blocks, held] of run().alive)
    if (classFrom(of) >= size) alive += inBytes ? held : blocks;
  const first = bars.findIndex(Boolean), rows = [];
  for (let life = Math.max(0, first); life < bars.length; life++) rows.push([lifeName(life), bars[life] || 0]);
  rows.push(["alive at the end", alive]);
  const most = Math.max(1, ...rows.map(([, value]) => value)), all = rows.reduce((sum, [, value]) => sum + value, 0) || 1;
  const written = value => inBytes ? bytes(value) : count(value);
  byId("life-bars").replaceChildren(table([{ name: "Events lived" }, { name: inBytes ? "Bytes" : "Blocks", number: true }, { name: "Share", number: true }, { name: "" }],
    rows.map(([name, value]) => element("tr", {}, element("td", {}, name), element("td", { class: "number" }, written(value)),
      element("td", { class: "number" }, percent(value / all)), element("td", { class: "share" }, bar(value / most)))), ""));
}
