// SPDX-License-Identifier: Apache-2.0
// The frame: header, navigation, the tree of compiles, and which view is shown (the part of the address behind '#').
function treeNode(c) {
  const link = h("a", {href: compileLink(c), "data-key": compileKey(c)}, statusDot(c), h("span", {class: "name", title: title(c)}, title(c)), h("span", {class: "time"}, time(c.us)));
  const children = childrenOf.get(c);
  return h("li", {}, link, children ? h("ul", {class: "tree"}, children.map(treeNode)) : null);
}

// Compiles of one function stand together, in the order of their first.
function tree(filter) {
  const groups = new Map(), wanted = filter.toLowerCase();
  const matches = c => [c.name, c.loc, c.entry, c.kind].some(v => str(v).toLowerCase().includes(wanted)) ||
    list(c.graphs).some(g => str(dict(g).text).toLowerCase().includes(wanted)) || (childrenOf.get(c) || []).some(matches);
  for (const c of roots) {
    if (wanted && !matches(c)) continue;
    const key = [c.process, c.name, c.loc].join("\n");
    (groups.get(key) || groups.set(key, []).get(key)).push(c);
  }
  const out = h("ul", {class: "tree"});
  let process = -1;
  for (const group of groups.values()) {
    if (processes.length > 1 && group[0].process !== process) {
      process = group[0].process;
      out.append(h("li", {class: "side-title"}, "Process " + str((processes[process] || {}).pid)));
    }
    if (group.length === 1) out.append(treeNode(group[0]));
    else out.append(h("li", {}, h("details", {open: group.length < 12 || wanted}, h("summary", {}, h("span", {class: "name", title: str(group[0].loc)}, str(group[0].name)), h("span", {class: "time"}, group.length + " \u00d7")),
      h("ul", {class: "tree"}, group.map(treeNode)))));
  }
  if (!groups.size) out.append(h("li", {class: "empty", style: "padding:4px 8px"}, wanted ? "No compile matches." : "No compiles."));
  return out;
}

const pages = {
  overview: ["Overview", null, overview], timeline: ["Timeline", null, timelineView],
  recompiles: ["Recompiles", num(dict(model.summary).recompiles), recompilesView],
  breaks: ["Graph breaks", num(dict(model.summary).graph_breaks), breaksView], processes: ["Processes", processes.length, processesView],
};

function show() {
  const place = decodeURIComponent(location.hash.slice(1)) || "overview", main = document.getElementById("main");
  const c = place.startsWith("compile/") ? byKey.get(place.slice(8)) : null;
  const page = pages[place] || pages.overview;
  const nodes = (c ? compileView(c) : page[2]()).flat(Infinity).filter(x => x);
  main.replaceChildren(...nodes);
  document.title = (c ? title(c) : page[0]) + " \u2013 Tessera report";
  for (const a of document.querySelectorAll("#side a")) {
    const here = c ? a.dataset.key === compileKey(c) : a.dataset.page && pages[a.dataset.page] === page;
    if (here) { a.setAttribute("aria-current", "page"); if (c) a.scrollIntoView({block: "nearest"}); } else a.removeAttribute("aria-current");
  }
  document.getElementById("side").classList.remove("open");
  window.scrollTo(0, 0);
}

(() => {
  const first = processes[0] || {}, when = new Date(num(first.unix_us) / 1000);
  document.getElementById("top").append(...[h("span", {class: "mark", "aria-hidden": "true"}), h("h1", {}, "Tessera report"),
    h("code", {class: "command muted", title: processes.map(p => str(p.command)).join("\n")}, str(first.command)),
    processes.length > 1 ? h("span", {class: "muted nowrap"}, "and " + plural(processes.length - 1, "more process", "more processes")) : null,
    h("span", {class: "muted nowrap"}, processes.length && !isNaN(when) ? when.toISOString().slice(0, 16).replace("T", " ") + " UTC" : "")].filter(node => node));
  const compileTree = h("div", {}, tree(""));
  const search = h("input", {class: "search", type: "search", placeholder: "Search functions and graphs", "aria-label": "Search functions and graphs"});
  let wait = 0;
  search.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => { compileTree.replaceChildren(tree(search.value)); }, 120); });
  document.addEventListener("keydown", e => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)) return;
    e.preventDefault();
    search.focus();
  });
  const side = document.getElementById("side");
  side.append(h("button", {class: "menu", onclick: () => side.classList.toggle("open")}, "\u2630 Contents"), h("div", {class: "collapse"},
    h("div", {class: "nav"}, Object.entries(pages).map(([name, page]) => h("a", {href: "#" + name, "data-page": name}, page[0], page[1] === null ? null : h("span", {class: "count"}, page[1])))),
    search, h("div", {class: "side-title"}, "Compiles"), compileTree));
  window.addEventListener("hashchange", show);
  show();
})();
