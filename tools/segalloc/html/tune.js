/* The page of `segalloc tune --html`. */
let front = null;

function draw() {
  if (front) front.destroy();
  front = showFront(byId("front"), data.tune);
}

byId("verdict").textContent = data.tune.recommended.conf && data.tune.recommended.line ? "Recommended: " + data.tune.recommended.conf : data.tune.recommended.conf ? "Keep what you have: " + data.tune.recommended.conf : "Keep to the defaults.";
byId("about").textContent = `segalloc ${data.version}; ${count(data.tune.traces.length)} trace${data.tune.traces.length === 1 ? "" : "s"}, ${count(data.tune.traces.reduce((sum, trace) => sum + trace.events, 0))} events: ` +
  data.tune.traces.map(trace => trace.path).join(", ");
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  byId("theme").setAttribute("aria-pressed", String(isDark()));
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = document.body.clientWidth;
addEventListener("resize", () => { if (document.body.clientWidth !== width) { width = document.body.clientWidth; draw(); } });
draw();
