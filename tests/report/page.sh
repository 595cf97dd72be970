#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The page's scripts, where Node.js is installed: they parse, and differences between texts are right on random texts.
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
