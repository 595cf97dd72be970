#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: out_of_tree.sh PREFIX EXAMPLE_DIR BUILD_DIR CXX SANITIZE
set -euo pipefail
prefix=$1 example=$2 build=$3 cxx=$4 sanitize=${5:-}
if [ "$(basename "$example")" = opencl ] && ! ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1; then
  echo "skipped: no OpenCL platform is installed; apt-get install pocl-opencl-icd"
  exit 77
fi
flags=()
[ -z "$sanitize" ] || flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
rm -rf "$build"
cmake -S "$example" -B "$build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" "${flags[@]}"
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure --no-tests=error

tessera=$prefix/bin/tessera
plugins=$build/lib/tessera/plugins
where=(--plugin-dir "$plugins")
"$tessera" plugin check "$plugins"/acme.*.so

# Without its directory the plugin is missing: the config names it, nothing is loaded by mere presence.
if message=$("$tessera" opt "$example/model.tsr" --config "$example/config.toml" --set 'plugins.path=[]' 2>&1); then
  echo "FAIL the config loads without the plugin it names"
  exit 1
fi
grep -q "TSR-P001.*acme\." <<<"$message"

case $(basename "$example") in
  pass_strength)
    # Bit for bit what eager computes from the graph as it was written.
    "$tessera" compare eager "$example/config.toml" "$example/model.tsr" "${where[@]}" --reference eager --range i=-100:100 \
      --dim s0=33 --max-abs 0 --no-time
    "$tessera" compare eager "$example/config.toml" "$example/model.tsr" "${where[@]}" --range i=-100:100 --max-rel 1e-6 --no-time
    ;;
  backend_three_ops)
    # The elementwise half is exact; the product runs on eager in both.
    "$tessera" compare eager "$example/config.toml" "$example/model.tsr" "${where[@]}" --reference eager --dim s0=65 --max-abs 0 --no-time
    "$tessera" compare eager "$example/config.toml" "$example/model.tsr" "${where[@]}" --dim s0=65 --max-abs 1e-4 --blocks 5
    # An option of its manifest: what is too large goes to the next backend; a misspelt one is refused.
    "$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --memory --set three_ops.max_elements=1 |
      grep 'eager\.mul' >/dev/null
    if message=$("$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --set three_ops.max_element=1 2>&1); then
      echo "FAIL a misspelt option is taken"
      exit 1
    fi
    grep -q "TSR-C002.*max_elements" <<<"$message"
    ;;
  backend_npu)
    # Sums in another order than the reference's; everything else to the bit.
    "$tessera" compare reference "$example/config.toml" "$example/model.tsr" "${where[@]}" \
      --dim s0=65 --no-time --max-rel 1e-5 --max-abs 1e-5
    # The executor gives the bits of the steps, and submits them together.
    sed '/^\[executor\]/,$s/"npu"/""/' "$example/config.toml" >"$build/steps.toml"
    "$tessera" compare "$build/steps.toml" "$example/config.toml" "$example/model.tsr" "${where[@]}" \
      --reference "$build/steps.toml" --dim s0=65 --max-abs 0 --no-time
    TESSERA_LOGS=perf_hints "$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --dim s0=3 2>&1 |
      grep "npu: graph 'mlp': one submission of 5 commands" >/dev/null  # reads to the end: nobody meets a closed pipe
    # What it does not take runs on the host, and what it cannot be given is refused.
    "$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --memory --dim s0=3 |
      grep 'reference\.tanh' >/dev/null
    if message=$("$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --set device=npu:1 2>&1); then
      echo "FAIL a device that is not there is taken"
      exit 1
    fi
    grep -q "TSR-R002.*npu:0" <<<"$message"
    ;;
  opencl)
    "$tessera" compare reference "$example/config.toml" "$example/model.tsr" "${where[@]}" \
      --dim s0=65 --no-time --max-rel 1e-5 --max-abs 1e-5
    # The platform's compiler and that of sim, each with an LLVM of its own, in one process. Both run the kit's programs: equal
    # bits, though one moves values between lanes and the other through shared memory.
    "$tessera" compare sim "$example/config.toml" "$example/model.tsr" "${where[@]}" \
      --reference sim --dim s0=65 --max-abs 0 --no-time
    # Nothing crosses but inputs and outputs: each of these steps is a copy of one, all others are kernels on the device.
    "$tessera" run "$example/model.tsr" --config "$example/config.toml" "${where[@]}" --memory --dim s0=5 >"$build/steps.txt"
    [ "$(grep -c ' kernel .* opencl\.' "$build/steps.txt")" -gt 0 ]
    if awk '$2 == "kernel"' "$build/steps.txt" | grep -v 'opencl\.'; then
      echo "FAIL a kernel does not run on the device"
      exit 1
    fi
    # An encoder copies nothing within the device either: products read the heads of its attention where they lie.
    "$tessera" run "$example/encoder.tsr" --config "$example/config.toml" "${where[@]}" --dim s0=2 --dim s1=5 --memory --json \
      >"$build/encoder.json"
    python3 - "$build/encoder.json" <<'PYTHON'
import json, sys
def steps(x):
    if isinstance(x, dict):
        if "steps" in x and isinstance(x["steps"], list): yield from x["steps"]
        for v in x.values(): yield from steps(v)
    elif isinstance(x, list):
        for v in x: yield from steps(v)
all = list(steps(json.load(open(sys.argv[1]))))
kernels = [s for s in all if s["kind"] == "kernel"]
within = [s for s in all if s["kind"] == "copy" and s["at_hints"] and s["op"] != "to_device" and s["device"] != "cpu"]
assert len(kernels) >= 8 and all and not [s for s in kernels if s["backend"] != "opencl"], kernels
assert not within, within
PYTHON
    "$tessera" compare sim "$example/config.toml" "$example/encoder.tsr" "${where[@]}" --reference sim --no-time \
      --dim s0=2 --dim s1=5 --max-abs 0
    ;;
  opset_relu6)
    "$tessera" ops acme.relu6 --config "$example/config.toml" "${where[@]}" | grep 'min(max(x, 0), 6)' >/dev/null
    # The op and its spelling in standard ops give the same bits, on eager and on the reference backend.
    sed 's/"tessera\.backend\.eager"/"tessera.backend.reference"/; s/order = .*/order = ["reference"]/' "$example/config.toml" >"$build/reference.toml"
    for config in "$example/config.toml" "$build/reference.toml"; do
      for model in model standard; do
        "$tessera" run "$example/$model.tsr" --config "$config" "${where[@]}" --range x=-4:4 --range h=-9:9 --dim s0=50 --print >"$build/$model.txt"
      done
      grep -q '6\.0' "$build/model.txt"
      cmp "$build/model.txt" "$build/standard.txt"
    done
    ;;
esac
