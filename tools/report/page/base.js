// SPDX-License-Identifier: Apache-2.0
// The model, and small functions over it and the document. Text only ever enters the document as text nodes.
"use strict";
const model = JSON.parse(document.getElementById("data").textContent);
const list = v => Array.isArray(v) ? v : [];
const dict = v => v && typeof v === "object" && !Array.isArray(v) ? v : {};
const str = v => typeof v === "string" ? v : v === null || v === undefined ? "" : String(v);
const num = v => typeof v === "number" && isFinite(v) ? v : 0;

// h("a", {href: "#x", class: "y", onclick: f}, child, ...): children are nodes, texts, lists of them, or nothing.
function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  const add = child => {
    if (Array.isArray(child)) child.forEach(add);
    else if (child instanceof Node) node.append(child);
    else if (child !== undefined && child !== null && child !== false) node.append(String(child));
  };
  add(children);
  return node;
}

function time(us) {
  if (us === null || us === undefined) return "?";
  us = num(us);
  const digits = v => v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
  if (us < 1000) return digits(us) + " \u00b5s";
  if (us < 1e6) return digits(us / 1e3) + " ms";
  return digits(us / 1e6) + " s";
}
function bytes(n) {
  if (typeof n !== "number") return "varies";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return (n < 10 && unit !== "B" ? n.toFixed(1) : n.toFixed(0)) + " " + unit;
    n /= 1024;
  }
}
// A long name or path that may break behind its separators.
const breakable = text => str(text).split(/(?<=[/_.:])/).flatMap((part, i) => i ? [document.createElement("wbr"), part] : [part]);
const plural = (n, one, many) => n.toLocaleString("en") + " " + (n === 1 ? one : many || one + "s");

const processes = list(model.processes), compiles = list(model.compiles), events = list(model.events);
const compileKey = c => c.process + "/" + c.id;
const byKey = new Map(compiles.map(c => [compileKey(c), c]));
const compileLink = c => "#compile/" + compileKey(c);
const title = c => str(c.name) + (c.entry ? " " + c.entry : "");
// The compile that an event of dispatch led to.
const answers = new Map(compiles.filter(c => c.entry).map(c => [[c.process, c.name, c.loc, c.entry].join("\n"), c]));
const answerTo = e => answers.get([e.process, e.name, e.loc, e.entry].join("\n"));
const childrenOf = new Map();
for (const c of compiles) {
  const parent = c.parent === null ? undefined : byKey.get(c.process + "/" + c.parent);
  if (parent) (childrenOf.get(parent) || childrenOf.set(parent, []).get(parent)).push(c);
}
const roots = compiles.filter(c => c.parent === null || !byKey.has(c.process + "/" + c.parent));

function statusChip(c) {
  if (c.ok === true) return h("span", {class: "chip good"}, "compiled");
  if (c.ok === false) return h("span", {class: "chip bad"}, "failed");
  return h("span", {class: "chip warn"}, "did not end");
}
const statusDot = c => h("span", {class: "dot" + (c.ok === false ? " bad" : c.ok === null ? " open" : c.recompile ? " re" : ""),
  title: c.ok === false ? "failed" : c.ok === null ? "did not end" : c.recompile ? "recompile" : "compiled"});

// columns: {name, value: row => sort key, cell: row => content, right, mono, bar}
function sortable(columns, rows, start) {
  const body = h("tbody");
  const heads = columns.map((column, i) => h("th", {class: (column.right ? "r " : "") + (column.bar ? "barcell" : "")},
    column.value ? h("button", {onclick: () => sort(i)}, column.name) : column.name));
  let by = -1, down = false;
  function fill(ordered) {
    body.replaceChildren(...ordered.map(row => h("tr", {}, columns.map(column => h("td", {class: (column.right ? "r " : "") +
      (column.mono ? "mono " : "") + (column.bar ? "barcell" : "")}, column.cell ? column.cell(row) : str(column.value(row)))))));
  }
  function sort(i, descending) {
    down = descending === undefined ? (by === i ? !down : typeof columns[i].value(rows[0] || {}) === "number") : descending;
    by = i;
    heads.forEach((head, k) => k === i ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : str(a).localeCompare(str(b), "en", {numeric: true});
    fill([...rows].sort((a, b) => compare(columns[i].value(a), columns[i].value(b)) * (down ? -1 : 1)));
  }
  if (start === undefined) fill(rows); else sort(start, true);
  return h("div", {class: "scroll"}, h("table", {}, h("thead", {}, h("tr", {}, heads)), body));
}
const section = (name, ...body) => h("section", {}, h("h3", {}, name), h("div", {class: "body"}, body));
// Filled when it is first opened.
function folded(name, about, open, make) {
  const body = h("div", {class: "body"});
  let made = false;
  const fill = () => { if (!made) { made = true; body.append(...[make()].flat(Infinity).filter(x => x)); } };
  const node = h("details", {class: "section", open: open}, h("summary", {}, name, about ? h("span", {class: "muted"}, about) : null), body);
  if (open) fill();
  node.addEventListener("toggle", fill);
  return node;
}
