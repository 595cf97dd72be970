// SPDX-License-Identifier: Apache-2.0
// Compiles over time: one lane per thread, nested spans below each other, idle time squeezed. Wheel zooms, dragging moves.
const kCategories = {compile: "--c0", phase: "--c6", pass: "--c1", kernel: "--c2"};

function spans(which) {
  const out = [];
  for (const c of which) {
    const end = c.us === null ? num((processes[c.process] || {}).offset) + num((processes[c.process] || {}).us) : num(c.t) + num(c.us);
    const lane = c.process + "/" + c.thread;
    const put = (category, name, t, us) => out.push({category, name, t: num(t), us: num(us), lane, compile: c});
    put("compile", title(c), c.t, Math.max(0, end - num(c.t)));
    for (const p of list(c.phases)) put("phase", str(p.name), p.t, p.us);
    for (const p of list(c.passes)) put("pass", str(p.name), p.t, p.us);
    for (const k of list(c.kernels)) put("kernel", str(k.op), k.t, k.us);
  }
  out.sort((a, b) => a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : a.t - b.t || b.us - a.us);
  // Nesting within a lane: a span lies below those that have not ended where it begins.
  let open = [], lane = null;
  for (const s of out) {
    if (s.lane !== lane) { open = []; lane = s.lane; }
    while (open.length && open[open.length - 1].t + open[open.length - 1].us <= s.t + 1e-3) open.pop();
    s.depth = open.length;
    open.push(s);
  }
  return out;
}

// Time as it is drawn: gaps in which nothing compiles are squeezed to a fiftieth of the busy time. Piecewise linear, both ways.
function squeezed(all) {
  const busy = [];
  for (const s of [...all].filter(s => s.depth === 0).sort((a, b) => a.t - b.t)) {
    const last = busy[busy.length - 1];
    if (last && s.t <= last[1]) last[1] = Math.max(last[1], s.t + s.us); else busy.push([s.t, s.t + s.us]);
  }
  const total = busy.reduce((sum, [a, b]) => sum + b - a, 0) || 1, wide = total / 50;
  const knots = [];  // [real, drawn]
  let drawn = 0, previous = null;
  for (const [a, b] of busy) {
    if (previous !== null) drawn += Math.min(a - previous, wide);
    knots.push([a, drawn]);
    drawn += b - a;
    knots.push([b, drawn]);
    previous = b;
  }
  const map = (value, from, to) => {
    if (!knots.length) return value;
    let low = 0, high = knots.length - 1;
    if (value <= knots[0][from]) return knots[0][to] + value - knots[0][from];
    if (value >= knots[high][from]) return knots[high][to] + value - knots[high][from];
    while (high - low > 1) { const mid = (low + high) >> 1; if (knots[mid][from] <= value) low = mid; else high = mid; }
    const span = knots[high][from] - knots[low][from];
    return knots[low][to] + (span ? (value - knots[low][from]) / span * (knots[high][to] - knots[low][to]) : 0);
  };
  return {to: v => map(v, 0, 1), from: v => map(v, 1, 0), total: drawn || 1};
}

function timeline(which, marks) {
  const all = spans(which);
  if (!all.length) return h("p", {class: "empty"}, "Nothing was compiled.");
  const axis = squeezed(all), kRow = 20, kAxis = 24, kLane = 20;
  const lanes = [];
  for (const s of all) {
    let lane = lanes[lanes.length - 1];
    if (!lane || lane.name !== s.lane) lanes.push(lane = {name: s.lane, rows: 0, top: 0, spans: []});
    lane.rows = Math.max(lane.rows, s.depth + 1);
    lane.spans.push(s);
  }
  let y = kAxis;
  for (const lane of lanes) { lane.top = y + kLane; y = lane.top + lane.rows * kRow + 8; }
  const height = y, canvas = h("canvas", {height, role: "img", "aria-label": "Timeline of compiles"});
  canvas.style.height = height + "px";
  const tip = h("div", {class: "tip", hidden: true});
  let left = 0, right = axis.total, width = 800;
  const x = drawn => (drawn - left) / (right - left) * width;
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw() {
    const scale = window.devicePixelRatio || 1;
    width = canvas.clientWidth || 800;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.clearRect(0, 0, width, height);
    g.font = "12px " + getComputedStyle(document.body).fontFamily;
    g.textBaseline = "middle";
    g.fillStyle = color("--muted");
    g.strokeStyle = color("--line");
    const ticks = Math.max(1, Math.floor(width / 130));
    for (let i = 0; i <= ticks; ++i) {
      const at = i * width / ticks;
      g.beginPath(); g.moveTo(at + .5, kAxis - 6); g.lineTo(at + .5, height); g.stroke();
      g.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
      g.fillText(time(axis.from(left + i / ticks * (right - left))), at, 9);
    }
    g.textAlign = "left";
    for (const lane of lanes) {
      const [p, thread] = lane.name.split("/");
      g.fillStyle = color("--muted");
      g.fillText((processes.length > 1 ? "process " + str((processes[p] || {}).pid) + ", " : "") + "thread " + thread, 2, lane.top - 10);
      for (const s of lane.spans) {
        const a = Math.max(-2, x(axis.to(s.t))), b = Math.min(width + 2, x(axis.to(s.t + s.us)));
        if (b < 0 || a > width) continue;
        const top = lane.top + s.depth * kRow, w = Math.max(.7, b - a);
        g.fillStyle = s.category === "compile" && s.compile.ok === false ? color("--bad") : color(kCategories[s.category]);
        g.fillRect(a, top, Math.max(.7, w - .6), kRow - 2);
        if (w < 26) continue;
        g.save();
        g.beginPath(); g.rect(a, top, w - 3, kRow); g.clip();
        g.fillStyle = "#fff";
        g.fillText(s.name, Math.max(a, 0) + 5, top + kRow / 2 - .5);
        g.restore();
      }
    }
    for (const m of marks) {
      const lane = lanes.find(l => l.name === m.process + "/" + m.thread);
      if (!lane) continue;
      const at = x(axis.to(num(m.t)));
      g.fillStyle = color(m.kind === "graph_break" ? "--c4" : "--c2");
      g.beginPath(); g.moveTo(at, lane.top - 2); g.lineTo(at - 4, lane.top - 9); g.lineTo(at + 4, lane.top - 9); g.fill();
    }
  }
  function hit(e) {
    const box = canvas.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
    for (const lane of lanes) {
      const depth = Math.floor((py - lane.top) / kRow);
      if (depth < 0 || depth >= lane.rows) continue;
      let best = null;
      for (const s of lane.spans) {
        if (s.depth !== depth) continue;
        const a = x(axis.to(s.t)), b = Math.max(a + 2, x(axis.to(s.t + s.us)));
        if (px >= a - 1 && px <= b + 1 && (!best || s.us < best.us)) best = s;
      }
      return best;
    }
    return null;
  }
  function zoom(factor, around) {
    const at = left + around * (right - left), span = Math.min(axis.total * 1.02, Math.max(axis.total * 1e-6, (right - left) * factor));
    left = at - around * span;
    right = left + span;
    settle();
  }
  function settle() {
    const span = right - left, slack = axis.total * .01;
    if (left < -slack) { left = -slack; right = left + span; }
    if (right > axis.total + slack) { right = axis.total + slack; left = Math.max(-slack, right - span); }
    draw();
  }
  canvas.addEventListener("wheel", e => {
    if (!e.ctrlKey && Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = e.deltaX / width * (right - left);
      left += by; right += by;
      settle();
    } else {
      zoom(Math.exp(e.deltaY * .0015), (e.clientX - canvas.getBoundingClientRect().left) / width);
    }
    e.preventDefault();
  }, {passive: false});
  let drag = null, moved = false;
  canvas.addEventListener("pointerdown", e => { drag = e.clientX; moved = false; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", e => {
    if (drag !== null) {
      const by = (drag - e.clientX) / width * (right - left);
      moved = moved || Math.abs(drag - e.clientX) > 2;
      if (!moved) return;
      left += by; right += by; drag = e.clientX;
      settle();
      return;
    }
    const s = hit(e);
    tip.hidden = !s;
    if (!s) return;
    tip.replaceChildren(h("b", {}, s.name), " ", h("span", {class: "muted"}, s.category), h("div", {}, time(s.us)),
      s.category === "compile" ? h("div", {class: "muted"}, str(s.compile.loc)) : h("div", {class: "muted"}, "in " + title(s.compile)));
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.min(e.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
  });
  canvas.addEventListener("pointerup", e => {
    drag = null;
    const s = moved ? null : hit(e);
    if (s) location.hash = compileLink(s.compile);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const button = (label, help, f) => h("button", {onclick: f, title: help, "aria-label": help}, label);
  const legend = Object.entries(kCategories).map(([name, variable]) =>
    h("span", {}, h("i", {style: "background:var(" + variable + ")"}), name));
  if (marks.length) legend.push(h("span", {}, h("i", {style: "background:var(--c2)"}), "\u25be recompile"), h("span", {}, h("i", {style: "background:var(--c4)"}), "\u25be graph break"));
  return h("div", {id: "timeline"},
    h("div", {class: "tools"}, h("div", {class: "seg"}, button("+", "Zoom in", () => zoom(.5, .5)), button("\u2212", "Zoom out", () => zoom(2, .5)),
      button("Fit", "Show everything", () => { left = 0; right = axis.total; draw(); })), h("div", {class: "legend"}, legend)),
    canvas, tip, h("p", {class: "muted"}, "Wheel zooms, dragging moves, a click opens the compile. Time in which nothing was compiled is squeezed."));
}
