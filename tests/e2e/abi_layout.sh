#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The structs of abi.h are those that tests/golden/abi records for its version: a change of layout comes with one of
# TSR_ABI_MINOR. A new version's file is written by ./dev bless (TESSERA_BLESS=1); that of a version which is there is never
# rewritten.
# usage: abi_layout.sh SOURCE_DIR
set -euo pipefail
cd "$1"
python3 - <<'PY'
import os, pathlib, re, sys
text = pathlib.Path("sdk/include/tessera/abi.h").read_text()
version = ".".join(re.search(r"#define TSR_ABI_%s (\d+)" % part, text)[1] for part in ("MAJOR", "MINOR"))
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.S | re.M)
found = ""
for kind, name, body in re.findall(r"typedef (struct|enum) (\w+) \{(.*?)\} \w+;|\Z", text, flags=re.S):
    if name:
        fields = [" ".join(f.split()) for f in body.split("," if kind == "enum" else ";") if f.strip()]
        found += "%s %s\n" % (kind, name) + "".join("  %s\n" % f for f in fields)
path = pathlib.Path("tests/golden/abi/%s.txt" % version)
if not path.exists() and os.environ.get("TESSERA_BLESS"):
    path.write_text(found)
    print("wrote %s" % path)
if not path.exists():
    sys.exit("FAIL %s is missing: run ./dev bless" % path)
old = path.read_text()
if old != found:
    import difflib
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), found.splitlines(True), str(path), "abi.h"))
    sys.exit("FAIL abi.h no longer has the layout of version %s: raise TSR_ABI_MINOR, then run ./dev bless" % version)
print("%d structs and enums of version %s" % (found.count("struct ") + found.count("enum "), version))
PY
