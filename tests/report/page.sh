#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The page's scripts, where Node.js is installed: they parse, differences between texts are right on random texts, and what is
# alive at a step of a random plan is what a search through all steps finds.
# usage: page.sh NODE
set -euo pipefail
node=$1
scripts=$TESSERA_SOURCE_DIR/tools/report/page
for script in "$scripts"/*.js; do "$node" --check "$script"; done
"$node" - "$scripts/text.js" <<'JS'
const fs = require("fs"), vm = require("vm");
const context = vm.createContext({});
vm.runInContext(fs.readFileSync(process.argv[2], "utf8") + "\nthis.differences = differences;", context);
let seed = 1;
const random = n => (seed = (seed * 48271) % 2147483647) % n;
for (let i = 0; i < 2000; ++i) {
  const text = () => Array.from({length: random(12)}, () => "line" + random(4));
  const a = text(), b = random(4) ? a.filter(() => random(4)).concat(random(3) ? [] : text()) : text();
  const edits = context.differences(a, b);
  const old = edits.filter(e => e[0] !== "+").map(e => a[e[1]]), fresh = edits.filter(e => e[0] !== "-").map(e => b[e[2]]);
  const equal = edits.filter(e => e[0] === " ");
  if (JSON.stringify(old) !== JSON.stringify(a) || JSON.stringify(fresh) !== JSON.stringify(b) || equal.some(e => a[e[1]] !== b[e[2]]))
    throw new Error("the script from " + JSON.stringify(a) + " to " + JSON.stringify(b) + " is wrong: " + JSON.stringify(edits));
  // As short as the longest common subsequence allows.
  const lcs = a.map(() => 0).concat(0).map(() => new Array(b.length + 1).fill(0));
  for (let x = a.length - 1; x >= 0; --x) for (let y = b.length - 1; y >= 0; --y)
    lcs[x][y] = a[x] === b[y] ? lcs[x + 1][y + 1] + 1 : Math.max(lcs[x + 1][y], lcs[x][y + 1]);
  if (equal.length !== lcs[0][0]) throw new Error(equal.length + " equal lines, the longest common subsequence has " + lcs[0][0]);
}
console.log("2000 differences are right and shortest");
JS
"$node" - "$scripts/base.js" "$scripts/memory.js" <<'JS'
const fs = require("fs"), vm = require("vm");
const context = vm.createContext({document: {getElementById: () => ({textContent: "{}"})}});
const text = process.argv.slice(2).map(f => fs.readFileSync(f, "utf8")).join("\n");
vm.runInContext(text + "\nthis.valueBlocks = valueBlocks; this.bytesByStep = bytesByStep;", context);
let seed = 7;
const random = n => (seed = (seed * 48271) % 2147483647) % n;
for (let round = 0; round < 500; ++round) {
  const names = ["%x"], steps = [], n = 1 + random(12);
  for (let k = 0; k < n; ++k) {
    const operands = Array.from({length: 1 + random(2)}, () => names[random(names.length)]), view = random(4) === 0;
    const results = view || random(3) ? ["%v" + k] : ["%v" + k, "%w" + k];
    steps.push({kind: view ? "view" : "kernel", op: "op", operands: view ? operands.slice(0, 1) : operands, results,
      bytes: 8 * (1 + random(9)),
      workspace_bytes: view ? 0 : random(2) * 16});
    names.push(...results);
  }
  const outputs = [{name: names[names.length - 1]}], live = context.bytesByStep(context.valueBlocks({steps, outputs}), n);
  // By definition: a block is alive from the step that writes it to the last that reads it, or a view of it, or beyond.
  const maker = name => {
    const at = steps.findIndex(s => s.results.includes(name));
    return at >= 0 && steps[at].kind === "view" ? maker(steps[at].operands[0]) : at;
  };
  for (let t = 0; t < n; ++t) {
    let expected = steps[t].workspace_bytes;
    for (let k = 0; k <= t; ++k) {
      if (steps[k].kind === "view") continue;
      const read = steps.some((s, u) => u >= t && s.operands.some(o => maker(o) === k));
      if (k === t || read || maker(outputs[0].name) === k) expected += steps[k].bytes;
    }
    if (live[t] !== expected) throw new Error("round " + round + ", step " + t + ": " + live[t] + " bytes, expected " + expected);
  }
}
console.log("500 timelines of memory are right");
JS
