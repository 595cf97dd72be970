// SPDX-License-Identifier: Apache-2.0
// What the main part shows. Each view returns nodes.
function tiles() {
  const s = dict(model.summary), cache = dict(s.cache);
  const tile = (value, name, link, kind) =>
    h(link ? "a" : "div", {class: "tile " + (kind || ""), href: link}, h("b", {}, value), h("span", {}, name));
  const out = [tile(num(s.functions), num(s.functions) === 1 ? "function" : "functions"),
    tile(num(s.compiles), num(s.compiles) === 1 ? "compile" : "compiles"), tile(time(s.compile_us), "spent compiling", "#timeline"),
    tile(num(s.recompiles), num(s.recompiles) === 1 ? "recompile" : "recompiles", "#recompiles", num(s.recompiles) ? "warn" : ""),
    tile(num(s.graph_breaks), num(s.graph_breaks) === 1 ? "graph break" : "graph breaks", "#breaks", num(s.graph_breaks) ? "warn" : "")];
  if (num(s.failed)) out.push(tile(s.failed, "failed", null, "bad"));
  if (num(s.fallbacks)) out.push(tile(s.fallbacks, s.fallbacks === 1 ? "call on the fallback" : "calls on the fallback", "#recompiles", "bad"));
  if (num(cache.hit) || num(cache.miss)) out.push(tile(num(cache.hit) + " / " + (num(cache.hit) + num(cache.miss)), "cache hits"));
  return h("div", {class: "tiles"}, out);
}

function problemsView() {
  const problems = list(model.problems);
  if (!problems.length) return null;
  return folded("Problems with the traces", plural(problems.length, "problem"), problems.length < 6, () =>
    h("ul", {class: "guards"}, problems.map(p => h("li", {}, str(p.file) + (p.line ? ":" + p.line : "") + ": " + str(p.what)))));
}

// Functions with their compiles added up.
function functionsTable() {
  const functions = new Map();
  for (const c of compiles) {
    const key = str(c.name) + "\n" + str(c.loc);
    const f = functions.get(key) || functions.set(key, {name: c.name, loc: c.loc, kind: c.kind, compiles: [], us: 0, recompiles: 0, breaks: 0}).get(key);
    f.compiles.push(c);
    f.us += num(c.us);
    f.breaks += list(c.breaks).length;
  }
  for (const e of events) {
    const f = functions.get(str(e.name) + "\n" + str(e.loc));
    if (f && e.kind === "recompile") ++f.recompiles;
  }
  const rows = [...functions.values()], most = Math.max(1, ...rows.map(f => f.us));
  return sortable([
    {name: "function", value: f => str(f.name), cell: f => h("a", {href: compileLink(f.compiles[f.compiles.length - 1])}, breakable(f.name))},
    {name: "from", value: f => str(f.loc), cell: f => h("span", {class: "mono muted"}, breakable(str(f.loc) || f.kind))},
    {name: "compiles", value: f => f.compiles.length, right: true},
    {name: "recompiles", value: f => f.recompiles, right: true},
    {name: "breaks", value: f => f.breaks, right: true},
    {name: "time", value: f => f.us, cell: f => h("span", {class: "nowrap"}, time(f.us)), right: true},
    {name: "", value: f => f.us, cell: f => h("span", {class: "bar", style: "width:" + 100 * f.us / most + "%"}), bar: true},
  ], rows, 5);
}

function slowest(what, name) {
  const sums = new Map();
  for (const c of compiles) for (const p of list(c[what])) {
    const key = what === "kernels" ? str(p.backend) + ": " + str(p.op) : str(p.name);
    const s = sums.get(key) || sums.set(key, {key, us: 0, count: 0, changed: 0}).get(key);
    s.us += num(p.us);
    ++s.count;
    s.changed += p.changed === true;
  }
  if (!sums.size) return null;
  const rows = [...sums.values()], most = Math.max(1e-9, ...rows.map(s => s.us));
  const columns = [{name: name, value: s => s.key}, {name: "runs", value: s => s.count, right: true}];
  if (what === "passes") columns.push({name: "changed the graph", value: s => s.changed, right: true});
  columns.push({name: "time", value: s => s.us, cell: s => h("span", {class: "nowrap"}, time(s.us)), right: true},
    {name: "", value: s => s.us, cell: s => h("span", {class: "bar", style: "width:" + 100 * s.us / most + "%"}), bar: true});
  return sortable(columns, rows, columns.length - 2);
}

function smallCompiles() {
  const rows = [];
  for (const [kind, names] of Object.entries(dict(model.small)))
    for (const [name, s] of Object.entries(dict(names))) rows.push({kind, name, count: num(s.count), us: num(s.us)});
  if (!rows.length) return null;
  const us = rows.reduce((sum, r) => sum + r.us, 0);
  return folded("Single ops and evaluated constants", plural(rows.reduce((n, r) => n + r.count, 0), "compile") + ", " + time(us), false, () => sortable([
    {name: "op", value: r => r.name, mono: true}, {name: "kind", value: r => r.kind}, {name: "compiles", value: r => r.count, right: true},
    {name: "time", value: r => r.us, cell: r => h("span", {class: "nowrap"}, time(r.us)), right: true}], rows, 3));
}

function overview() {
  const passes = slowest("passes", "pass"), kernels = slowest("kernels", "kernel of");
  return [h("div", {class: "head"}, h("h2", {}, "Overview")), tiles(), problemsView(),
    compiles.length ? section("Functions", functionsTable()) : h("p", {class: "empty"}, "These traces hold no compiles: nothing was captured or compiled while they were recorded."),
    compiles.length ? section("When", timeline(compiles, events.filter(e => e.kind !== "fallback"))) : null,
    passes ? section("Passes", passes) : null, kernels ? folded("Kernels", "compiled by backends", false, () => kernels) : null, smallCompiles()];
}

function timelineView() {
  return [h("div", {class: "head"}, h("h2", {}, "Timeline")), h("section", {}, h("div", {class: "body", style: "padding-top:12px"}, timeline(compiles, events.filter(e => e.kind !== "fallback"))))];
}

// One line per entry that did not fit: the first guard is the reason, further ones stand below it.
function reasons(rows) {
  return list(rows).filter(r => list(dict(r).guards).length).map(r => {
    const guards = new Map();  // equal texts, of one flag that many modules share, are one line
    for (const g of r.guards) guards.set(str(g), (guards.get(str(g)) || 0) + 1);
    return h("div", {class: "reason"}, h("b", {}, str(r.entry)), h("div", {}, [...guards].map(([guard, count], i) =>
      h("div", {class: i ? "more" : ""}, guard, count > 1 ? h("span", {class: "more"}, "  \u00d7 " + count) : null))));
  });
}

function recompilesView() {
  const groups = new Map();
  for (const e of events) {
    if (e.kind === "graph_break") continue;
    const key = str(e.name) + "\n" + str(e.loc);
    (groups.get(key) || groups.set(key, []).get(key)).push(e);
  }
  const out = [h("div", {class: "head"}, h("h2", {}, "Recompiles"),
    h("div", {class: "sub"}, "Calls that no cached entry fitted. Per entry, the most recently used first, the guard that failed."))];
  if (!groups.size) out.push(h("p", {class: "empty"}, "None: every call after a function's first one found its entry."));
  for (const group of [...groups.values()].sort((a, b) => b.length - a.length)) {
    const calls = group.filter(e => e.kind === "recompile"), fallbacks = group.filter(e => e.kind === "fallback").length;
    const body = [];
    for (const e of group) if (e.kind === "limit") body.push(h("div", {class: "note bad"}, h("p", {}, h("b", {}, str(e.key) + " = " + str(e.limit) + " was hit. "),
      "Later calls that no entry fits run on the fallback backend."), h("p", {class: "mono"}, str(e.reason))));
    for (const e of calls) {
      const c = answerTo(e);
      body.push(h("div", {style: "margin:10px 0 4px"}, c ? h("a", {href: compileLink(c)}, str(e.entry)) : h("span", {class: "muted"}, "ran on the fallback"),
        c ? h("span", {class: "muted"}, " compiled in " + time(c.us)) : null), reasons(e.reasons),
        e.advice ? h("div", {class: "note info"}, str(e.advice)) : null);
    }
    out.push(folded(str(group[0].name) + " ", [str(group[0].loc) + ": " + plural(calls.length, "recompile"),
      fallbacks ? plural(fallbacks, "call") + " on the fallback" : ""].filter(x => x).join(", "), groups.size < 8, () => body));
  }
  return out;
}

function breaksView() {
  const groups = new Map();
  for (const e of events) {
    if (e.kind !== "graph_break") continue;
    const key = [e.code, e.place, e.what].join("\n");
    (groups.get(key) || groups.set(key, []).get(key)).push(e);
  }
  const out = [h("div", {class: "head"}, h("h2", {}, "Graph breaks"), h("div", {class: "sub"}, "Places where a capture ended early, the most frequent first."))];
  if (!groups.size) out.push(h("p", {class: "empty"}, "None: every function was captured whole."));
  for (const group of [...groups.values()].sort((a, b) => b.length - a.length)) {
    const e = group[0];
    out.push(h("section", {}, h("h3", {}, str(e.what) + " ", h("span", {class: "chip warn"}, str(e.code)), " ", h("span", {class: "chip"}, plural(group.length, "time"))),
      h("div", {class: "body"}, h("div", {class: "mono"}, str(e.place)), h("div", {class: "muted"}, "in " + [...new Set(group.map(g => str(g.name)))].join(", ")),
        e.why ? h("p", {}, str(e.why)) : null, e.hint ? h("div", {class: "note info"}, str(e.hint)) : null)));
  }
  return out;
}

function processesView() {
  const out = [h("div", {class: "head"}, h("h2", {}, plural(processes.length, "process", "processes")))];
  processes.forEach(p => {
    const fact = (name, value) => h("tr", {}, h("th", {}, name), h("td", {class: "mono"}, value));
    const when = new Date(num(p.unix_us) / 1000);
    out.push(h("section", {}, h("h3", {}, "Process " + str(p.pid) + " ", p.ended ? h("span", {class: "chip good"}, "ended") : h("span", {class: "chip warn"}, "cut short: killed, crashed, or still running")),
      h("div", {class: "body"}, h("div", {class: "scroll"}, h("table", {}, fact("command", str(p.command)), fact("began", isNaN(when) ? "?" : when.toISOString().replace("T", " ").replace("Z", " UTC")),
        fact("recorded for", time(p.us)), fact("version", str(p.version)), fact("file", str(p.file)))),
        list(p.contexts).map(context => folded("Context ", str(context.config) + " (mode " + str(context.mode) + ")", false, () => sortable([
          {name: "plugin", value: x => str(x.id), mono: true}, {name: "version", value: x => str(x.version)}, {name: "hash", value: x => str(x.hash).slice(0, 19), mono: true},
          {name: "build", value: x => str(x.build_info), mono: true}], list(dict(context.loaded).plugins).map(dict)))))));
  });
  return out;
}

function phaseBar(c) {
  const phases = list(c.phases), total = Math.max(num(c.us), phases.reduce((sum, p) => sum + num(p.us), 0)) || 1;
  if (!phases.length) return null;
  const rest = total - phases.reduce((sum, p) => sum + num(p.us), 0);
  const parts = phases.map((p, i) => [str(p.name), num(p.us), "--c" + i % 6]);
  if (rest > total * .005) parts.push(["other, and recording", rest, "--c6"]);
  return [h("div", {class: "phases", role: "img", "aria-label": "Time by phase"}, parts.map(([name, us, color]) =>
    h("span", {style: "flex:" + us + " 0 0;background:var(" + color + ")", title: name + ": " + time(us)}))),
    h("div", {class: "legend"}, parts.map(([name, us, color]) => h("span", {}, h("i", {style: "background:var(" + color + ")"}), name + " " + time(us))))];
}

function stepRows(plan, prefix) {
  const out = [];
  for (const row of list(dict(plan).steps).map(dict)) {
    out.push({...row, number: prefix + str(row.index)});
    list(row.regions).forEach((region, i) => out.push(...stepRows(region, prefix + str(row.index) + "." + i + ".")));
  }
  return out;
}

function stepsView(executable) {
  const rows = stepRows(executable, ""), memory = dict(executable.memory);
  const names = values => list(values).map(v => v === null ? "_" : str(v)).join(" ");
  const ms = key => ({name: key.replace("_ms", ""), value: r => typeof r[key] === "number" ? r[key] : -1, cell: r => typeof r[key] === "number" ? time(r[key] * 1e3) : "", right: true});
  const columns = [{name: "#", value: r => num(r.index), cell: r => r.number}, {name: "kind", value: r => str(r.kind)}, {name: "op", value: r => str(r.op), mono: true},
    {name: "results", value: r => names(r.results), mono: true}, {name: "operands", value: r => names(r.operands), mono: true},
    {name: "backend", value: r => str(r.backend)}, {name: "kernel", value: r => str(r.kernel), mono: true},
    {name: "bytes", value: r => num(r.bytes), cell: r => bytes(r.bytes), right: true}];
  for (const key of ["predicted_ms", "measured_ms"]) if (rows.some(r => typeof r[key] === "number")) columns.push(ms(key));
  if (rows.some(r => r.loc)) columns.push({name: "from", value: r => str(r.loc), mono: true});
  const facts = ["arena", "output", "constant", "peak"].filter(k => typeof memory[k + "_bytes"] === "number").map(k => k + " " + bytes(memory[k + "_bytes"]));
  return [h("p", {class: "muted", style: "margin:0 0 6px"}, facts.join(" \u00b7 ")), sortable(columns, rows)];
}

function compileView(c) {
  const parent = c.parent === null ? null : byKey.get(c.process + "/" + c.parent), children = childrenOf.get(c) || [];
  const error = dict(c.error), graphs = list(c.graphs).map(dict), logs = list(c.logs).map(dict), passes = list(c.passes).map(dict), cache = list(c.cache).map(dict);
  const out = [h("div", {class: "head"}, h("h2", {}, str(c.name) + " ", c.entry ? h("span", {class: "chip info"}, c.entry) : null, " ", statusChip(c)),
    h("div", {class: "sub"}, [c.kind === "function" ? "" : str(c.kind), str(c.loc), c.us === null ? "" : time(c.us)].filter(x => x).join(" \u00b7 ")),
    parent ? h("div", {class: "sub"}, "part of ", h("a", {href: compileLink(parent)}, title(parent))) : null)];
  if (error.code) out.push(h("div", {class: "note bad"}, h("p", {}, h("b", {class: "mono"}, str(error.code) + " "), str(error.message)), error.hint ? h("p", {}, str(error.hint)) : null));
  if (c.recompile) out.push(section("Why it was compiled again", reasons(c.recompile.reasons), c.recompile.advice ? h("div", {class: "note info"}, str(c.recompile.advice)) : null));
  for (const b of list(c.breaks).map(dict)) out.push(h("div", {class: "note warn"}, h("p", {}, h("b", {}, "Graph break "), h("span", {class: "mono"}, str(b.code) + " at " + str(b.place)), ": " + str(b.what)),
    b.why ? h("p", {}, str(b.why)) : null, b.hint ? h("p", {}, str(b.hint)) : null));
  for (const e of cache) out.push(h("div", {class: "note " + (e.what === "refused" ? "warn" : "")}, "Cache ", h("b", {}, str(e.what)), ": " + str(e.kind) + " ", h("span", {class: "mono muted"}, str(e.key).slice(0, 16)),
    typeof e.bytes === "number" ? " " + bytes(e.bytes) : "", e.why ? ", " + str(e.why) : ""));
  const bar = phaseBar(c);
  if (bar || passes.length) out.push(section("Time", bar, passes.length ? h("div", {style: "margin-top:10px"}, sortable([
    {name: "#", value: p => num(p.position)}, {name: "pass", value: p => str(p.name)},
    {name: "nodes", value: p => num(p.nodes_after), cell: p => p.nodes_before === p.nodes_after ? str(p.nodes_after) : str(p.nodes_before) + " \u2192 " + str(p.nodes_after), right: true},
    {name: "", value: p => p.changed === true ? 1 : 0, cell: p => p.changed === true ? h("span", {class: "chip info"}, "changed") : ""},
    {name: "verify", value: p => num(p.verify_us), cell: p => time(p.verify_us), right: true}, {name: "time", value: p => num(p.us), cell: p => h("span", {class: "nowrap"}, time(p.us)), right: true}], passes)) : null));
  if (graphs.length) out.push(folded("Graph", plural(graphs.length, "stage"), true, () => graphView(graphs)));
  if (list(c.guards).length) out.push(folded("Guards", plural(c.guards.length, "guard"), true, () => h("ul", {class: "guards"}, c.guards.map(g => h("li", {}, str(g))))));
  const executable = dict(c.executable);
  if (list(executable.steps).length) out.push(folded("Steps", plural(executable.steps.length, "step"), executable.steps.length < 200, () => stepsView(executable)));
  if (list(executable.steps).length > 1) out.push(folded("Memory", "by step", executable.steps.length < 200, () => memoryView(executable)));
  logs.forEach(l => out.push(folded(str(l.artifact), "", logs.length < 4, () => textView(l.text))));
  if (children.length) out.push(section("Compiled inside", h("ul", {class: "tree"}, children.map(treeNode))));
  if (list(c.kernels).length) out.push(folded("Kernels", plural(c.kernels.length, "kernel") + ", " + time(c.kernels.reduce((s, k) => s + num(dict(k).us), 0)), false, () => sortable([
    {name: "op", value: k => str(k.op), mono: true}, {name: "backend", value: k => str(k.backend)}, {name: "kernel", value: k => str(k.kernel), mono: true},
    {name: "time", value: k => num(k.us), cell: k => time(k.us), right: true}], c.kernels.map(dict), 3)));
  if (list(c.host_stack).length) out.push(folded("Called from", plural(c.host_stack.length, "frame"), false, () => h("ul", {class: "guards"}, c.host_stack.map(f => h("li", {}, str(f))))));
  return out;
}
