// SPDX-License-Identifier: Apache-2.0
// Texts of graphs and code: highlighting, search, differences between stages.
const kToken = /(\/\/.*$)|("(?:[^"\\]|\\.)*")|(%"(?:[^"\\]|\\.)*"|%[\w.]+|@[\w.]+)|(\b(?:f64|f32|f16|bf16|f8\w+|f4\w+|[iu](?:2|4|8|16|32|64)|bool|c64|c128)\b)|(\b-?\d[\w.]*\b)|([A-Za-z_][\w.]*)/g;
const kHighlightLimit = 20000;  // lines; beyond, plain text

function highlighted(line) {
  const out = [];
  let at = 0;
  const eq = line.indexOf(" = ");
  kToken.lastIndex = 0;
  for (let m; (m = kToken.exec(line)) && m[0];) {
    if (m.index > at) out.push(line.slice(at, m.index));
    const kind = m[1] ? "c" : m[2] ? "num" : m[3] ? "v" : m[4] ? "t" : m[5] ? "num" : m.index === eq + 3 ? "op" : "";
    out.push(kind ? h("span", {class: kind, "data-name": kind === "v" ? m[0] : null}, m[0]) : m[0]);
    at = m.index + m[0].length;
  }
  out.push(line.slice(at));
  return out;
}

// The shortest edit script from a to b, as [kind, line of a, line of b] with kind " ", "-" or "+". E. W. Myers, "An O(ND) Difference
// Algorithm and Its Variations", 1986. Null: they differ too much to be shown that way.
function differences(a, b) {
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) ++head;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) ++tail;
  const n = a.length - head - tail, m = b.length - head - tail, limit = Math.min(n + m, 4000);
  const trace = [];
  let v = new Map([[1, 0]]), found = -1;
  for (let d = 0; d <= limit && found < 0; ++d) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) ?? 0 : (v.get(k - 1) ?? -1) + 1;
      let y = x - k;
      while (x < n && y < m && a[head + x] === b[head + y]) { ++x; ++y; }
      v.set(k, x);
      if (x >= n && y >= m) { found = d; break; }
    }
    if (d * d > 4e6) break;
  }
  if (found < 0) return null;
  const middle = [];
  let x = n, y = m;
  for (let d = found; d > 0; --d) {
    const before = trace[d], k = x - y;
    const from = k === -d || (k !== d && (before.get(k - 1) ?? -1) < (before.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const px = before.get(from) ?? 0, py = px - from;
    while (x > px && y > py) { --x; --y; middle.push([" ", head + x, head + y]); }
    middle.push(x > px ? ["-", head + --x, -1] : ["+", -1, head + --y]);
  }
  while (x > 0) { --x; --y; middle.push([" ", head + x, head + y]); }
  const out = [];
  for (let i = 0; i < head; ++i) out.push([" ", i, i]);
  out.push(...middle.reverse());
  for (let i = tail; i > 0; --i) out.push([" ", a.length - i, b.length - i]);
  return out;
}

// A pane for one text at a time: show(lines) or show(lines, previous lines) for changes only. Clicking a value marks its uses.
function codePane() {
  const pane = h("div", {class: "code", tabindex: "0", role: "region", "aria-label": "Text"});
  let hits = [], current = -1, shown = [];
  pane.addEventListener("click", e => {
    const name = e.target.dataset && e.target.dataset.name;
    for (const node of pane.querySelectorAll(".same")) node.classList.remove("same");
    if (name) for (const node of pane.querySelectorAll(".v")) if (node.dataset.name === name) node.classList.add("same");
  });
  const row = (number, line, kind, plain) => {
    const node = h("div", {class: "l" + (kind === "+" ? " add" : kind === "-" ? " del" : "")},
      h("span", {class: "n"}, number), h("span", {class: "x"}, plain ? line : highlighted(line)));
    shown.push([node, line]);
    return node;
  };
  function show(lines, before) {
    shown = [];
    const plain = lines.length > kHighlightLimit, rows = [];
    const edits = before ? differences(before, lines) : null;
    if (before && !edits) rows.push(h("div", {class: "l gap"}, h("span", {class: "n"}), "(they differ almost everywhere)"));
    if (edits) {
      const near = new Array(edits.length).fill(false), kAround = 3;
      edits.forEach((e, i) => { if (e[0] !== " ") for (let k = Math.max(0, i - kAround); k <= i + kAround && k < edits.length; ++k) near[k] = true; });
      let skipped = 0;
      const gap = () => { if (skipped) rows.push(h("div", {class: "l gap"}, h("span", {class: "n"}, "\u22ef"), plural(skipped, "equal line"))); skipped = 0; };
      edits.forEach((e, i) => {
        if (!near[i]) { ++skipped; return; }
        gap();
        const line = e[0] === "-" ? before[e[1]] : lines[e[2]];
        rows.push(row(e[0] === " " ? e[2] + 1 : e[0], line, e[0], plain));
      });
      gap();
    } else {
      lines.forEach((line, i) => rows.push(row(i + 1, line, " ", plain)));
    }
    pane.replaceChildren(...rows);
    hits = [];
    current = -1;
  }
  // Marks every occurrence; returns their number.
  function search(word) {
    for (const [node, line] of shown) if (node.querySelector("mark")) node.lastChild.replaceChildren(...highlighted(line));
    hits = [];
    current = -1;
    const wanted = word.toLowerCase();
    if (!wanted) return 0;
    for (const [node, line] of shown) {
      const lower = line.toLowerCase();
      if (!lower.includes(wanted)) continue;
      const parts = [];
      let at = 0;
      for (let next; (next = lower.indexOf(wanted, at)) >= 0; at = next + wanted.length) {
        parts.push(line.slice(at, next));
        const mark = h("mark", {}, line.slice(next, next + wanted.length));
        hits.push(mark);
        parts.push(mark);
      }
      parts.push(line.slice(at));
      node.lastChild.replaceChildren(...parts);
    }
    return hits.length;
  }
  function step(by) {
    if (!hits.length) return 0;
    if (current >= 0) hits[current].classList.remove("now");
    current = (current + by + hits.length) % hits.length;
    hits[current].classList.add("now");
    const box = pane.getBoundingClientRect(), mark = hits[current].getBoundingClientRect();
    pane.scrollTop += mark.top - box.top - box.height / 2;
    if (mark.left < box.left + 60 || mark.right > box.right) pane.scrollLeft += mark.left - box.left - 80;
    return current + 1;
  }
  return {pane, show, search, step};
}

function searchBox(code, label) {
  const found = h("span", {class: "found", "aria-live": "polite"});
  const box = h("input", {class: "search", type: "search", placeholder: label, "aria-label": label});
  let total = 0;
  box.addEventListener("input", () => {
    total = code.search(box.value);
    found.textContent = box.value ? (total ? code.step(1) + " of " + total : "not found") : "";
  });
  box.addEventListener("keydown", e => {
    if (e.key !== "Enter") return;
    e.preventDefault();
    if (total) found.textContent = code.step(e.shiftKey ? -1 : 1) + " of " + total;
  });
  return {nodes: [box, found], again: () => box.dispatchEvent(new Event("input"))};
}

// The stages of a graph: one text at a time, or what changed since the stage before.
function graphView(graphs) {
  const code = codePane(), lines = graphs.map(g => str(g.text).replace(/\n$/, "").split("\n"));
  let at = graphs.length - 1, changes = false;
  const find = searchBox(code, "Search this graph");
  const name = g => g.stage === "pass" ? "after " + str(g.pass) : str(g.stage);
  const stages = graphs.map((g, i) => h("button", {onclick: () => { at = i; draw(); }}, name(g), " ", h("small", {}, str(g.nodes))));
  const whole = h("button", {onclick: () => { changes = false; draw(); }}, "Text");
  const diff = h("button", {onclick: () => { changes = true; draw(); }}, "Changes");
  function draw() {
    stages.forEach((b, i) => b.setAttribute("aria-pressed", i === at));
    const can = at > 0;
    diff.disabled = !can;
    whole.setAttribute("aria-pressed", !(changes && can));
    diff.setAttribute("aria-pressed", changes && can);
    code.show(lines[at], changes && can ? lines[at - 1] : null);
    find.again();
  }
  draw();
  return [h("div", {class: "tools"}, h("div", {class: "seg", role: "group", "aria-label": "Stage"}, stages),
    h("div", {class: "seg", role: "group", "aria-label": "What to show"}, whole, diff), find.nodes), code.pane];
}

function textView(text) {
  const code = codePane(), find = searchBox(code, "Search this text");
  code.show(str(text).replace(/\n$/, "").split("\n"));
  return [h("div", {class: "tools"}, find.nodes), code.pane];
}
