// SPDX-License-Identifier: Apache-2.0
// The memory of one run over its steps, from the step table of an executable: which values are alive when, and who holds most.
"use strict";

// Blocks of values: {name, op, bytes, first, last}, by steps of the plan. A view holds what it looks at; results of one step are
// one block, which lives as long as any of them. Outputs live to the end.
function valueBlocks(executable) {
  const rows = list(executable.steps).map(dict), blocks = [], blockOf = new Map();
  rows.forEach((row, step) => {
    const operands = list(row.operands).filter(n => n !== null), results = list(row.results).filter(n => n !== null);
    for (const name of operands) if (blockOf.has(name)) blockOf.get(name).last = step;
    if (row.kind === "view") {
      for (const name of results) if (blockOf.has(operands[0])) blockOf.set(name, blockOf.get(operands[0]));
      return;
    }
    const block = {name: results.map(str).join(" "), op: str(row.op), bytes: num(row.bytes), first: step, last: step};
    if (block.bytes > 0) blocks.push(block);
    for (const name of results) blockOf.set(name, block);
    if (num(row.workspace_bytes) > 0)
      blocks.push({name: "workspace", op: str(row.op), bytes: row.workspace_bytes, first: step, last: step});
  });
  for (const output of list(executable.outputs)) {
    const block = blockOf.get(str(dict(output).name)) || blockOf.get("%" + str(dict(output).name));
    if (block) block.last = rows.length - 1;
  }
  return blocks;
}

function bytesByStep(blocks, steps) {
  const change = new Array(steps + 1).fill(0);
  for (const b of blocks) {
    change[b.first] += b.bytes;
    change[b.last + 1] -= b.bytes;
  }
  let now = 0;
  return change.slice(0, steps).map(c => now += c);
}

function memoryView(executable) {
  const steps = list(executable.steps).length, blocks = valueBlocks(executable), live = bytesByStep(blocks, steps);
  const most = Math.max(1, ...live), peak = live.indexOf(Math.max(...live));
  const width = 900, height = 160, svg = new DOMParser().parseFromString("<svg>", "text/html").querySelector("svg");
  const draw = (tag, props) => {
    const node = document.createElementNS(svg.namespaceURI, tag);
    for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
    return node;
  };
  const x = step => step / steps * width, y = n => height - n / most * (height - 10);
  const chart = draw("svg",
    {viewBox: "0 0 " + width + " " + height, width: "100%", role: "img", "aria-label": "Memory by step"});
  const line = live.map((n, i) => "L" + x(i).toFixed(1) + " " + y(n).toFixed(1) + " H" + x(i + 1).toFixed(1)).join(" ");
  chart.append(draw("path", {d: "M0 " + height + " " + line + " V" + height + " Z", fill: "var(--c0)", "fill-opacity": ".5"}));
  const cursor = draw("line", {y1: 0, y2: height, stroke: "currentColor"});
  chart.append(cursor);
  const holders = h("div", {});
  const slider = h("input",
    {type: "range", min: 0, max: steps - 1, value: peak, style: "width:100%", "aria-label": "Step"});
  const show = step => {
    cursor.setAttribute("x1", x(step + .5));
    cursor.setAttribute("x2", x(step + .5));
    const alive = blocks.filter(b => b.first <= step && step <= b.last).sort((a, b) => b.bytes - a.bytes);
    holders.replaceChildren(
      h("p", {class: "muted"}, "Step " + step + (step === peak ? ", the peak" : "") + ": " + bytes(live[step]) + " in " +
        plural(alive.length, "value")),
      sortable([{name: "value", value: b => b.name, mono: true}, {name: "made by", value: b => b.op, mono: true},
        {name: "bytes", value: b => b.bytes, cell: b => bytes(b.bytes), right: true},
        {name: "from step", value: b => b.first, right: true},
        {name: "to step", value: b => b.last, right: true}], alive.slice(0, 40)));
  };
  slider.addEventListener("input", () => show(num(Number(slider.value))));
  chart.addEventListener("click", e => {
    const box = chart.getBoundingClientRect();
    slider.value = Math.min(steps - 1, Math.max(0, Math.floor((e.clientX - box.left) / box.width * steps)));
    show(num(Number(slider.value)));
  });
  show(peak);
  return [chart, slider, holders];
}
