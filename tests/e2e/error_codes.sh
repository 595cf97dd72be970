#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every error code that the sources can print is explained in docs/errors.md, once, and what is explained can be printed.
# A list such as "F001..F042" in the page covers its range. Codes of graph breaks may stand in docs/graph_breaks.md instead.
# usage: error_codes.sh SOURCE_DIR
set -euo pipefail
cd "$1"
pages=(docs/errors.md)
[ ! -f docs/graph_breaks.md ] || pages+=(docs/graph_breaks.md)

python3 - "${pages[@]}" <<'PY'
import pathlib, re, sys
text = "\n".join(pathlib.Path(p).read_text() for p in sys.argv[1:])
known = set(re.findall(r"\b([A-Z]\d{3})\b", text))
for letter, first, last in re.findall(r"\b([A-Z])(\d{3})\.\.[A-Z](\d{3})\b", text):
    known |= {"%s%03d" % (letter, n) for n in range(int(first), int(last) + 1)}
used = {}
for top in ("core", "sdk", "plugins", "frontends", "backends", "tools"):
    for path in sorted(pathlib.Path(top).rglob("*")):
        if path.suffix not in (".cpp", ".hpp", ".h", ".tops") or "tests" in path.parts or "templates" in path.parts:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            line = line.split("//")[0]
            for code in re.findall(r"\"TSR-([A-Z]\d{3})", line):
                used.setdefault(code, "%s:%d" % (path, number))
missing = sorted(set(used) - known)
for code in missing:
    print("FAIL TSR-%s (%s) is not explained in %s" % (code, used[code], ", ".join(sys.argv[1:])))
rows = re.findall(r"^\| `TSR-([A-Z]\d{3})`", text, re.M)
table = set(rows)
twice = sorted(code for code in table if rows.count(code) > 1)
for code in twice:
    print("FAIL TSR-%s has two rows: a code has one meaning" % code)
stale = sorted(table - set(used))
for code in stale:
    print("FAIL TSR-%s has a row but no source prints it" % code)
print("%d codes in the sources, %d rows in the tables" % (len(used), len(table)))
sys.exit(1 if missing or stale or twice or not used else 0)
PY
