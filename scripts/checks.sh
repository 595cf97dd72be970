# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# `./dev test --full`: the acceptance checks, one per line of what this stage promises. A check is a function check_NAME; its
# row says its class:
#   fast   seconds to a few minutes            slow    another build, or minutes of work
#   time   prints a figure, met or not met; decides nothing, but failing to produce the figure is a failure
#   root, hours, peers: named and skipped without --all
# A check that has a figure to report leaves it in `figure`.

checks='
boundary|fast|one exported symbol per plugin; no LLVM, CUDA or HIP under core and SDK; no plugin includes a core header
abi-header|fast|the ABI header compiles as strict C11 and C++20
abi-versions|fast|older descriptor loads, newer major is refused, broken plugins give their golden messages
round-trip|fast|parse(print(g)) == g over 10,000 random graphs
verifier|fast|each invariant of the verifier has an example that fails it
ops|fast|every standard op: eager against reference, both against golden values
conformance|fast|the conformance kit finds thirty deliberate faults, and the backends of the tree conform on a sample of the cases
conformance-whole|slow|every backend of the tree conforms, all levels and cases
scaffolds|fast|tessera new op, pass, backend: builds, passes its tests, touches at most 3, 3, 5 files
out-of-tree|fast|packages install; foreign projects build plugins against them, load and run them
bad-input|fast|malformed files and wrong arguments: coded message, exit status 2
device-programs|fast|10,000 random programs over one and two simulated devices and four threads: reference bits; any wait of the runtime, removed, is found
json|fast|bench dispatch --json writes one JSON document with the documented keys
pass-scaling|time|canonicalize + CSE + DCE, 10,000 against 5,000 nodes: at most 2.4 times
dispatch|time|ns per public call of a no-op executable
cache-kills|slow|a thousand processes killed while they write to one cache: no damaged entry is served
recompile|time|us per compile of a one-op function on null, at most 1,000
dispatch-fuzz|slow|100,000 random calls over random dynamic policies equal the reference exactly
build-time|time|full release build without a compiler cache, under 12 min on 2 cores
asan|slow|the suite under address and undefined-behaviour sanitizers
tsan|slow|the suite under the thread sanitizer
coverage|slow|line coverage of core/
clean-demo|root|clean Debian 12: git clone, ./dev demo
clean-test|root|clean Debian 12: git clone, ./dev test
simt-random|slow|5,000 random graphs as programs of the SIMT family by the interpreter, 300 as text on sim: the same bits every way
cuda-text|peers|the text for CUDA of every kernel of the op and model suites compiles with NVRTC to four architectures, without spills
onnx-suite|peers|the ONNX backend test suite on eager and reference, and on ONNX Runtime by the same reasons
onnx-command|peers|the ONNX backend test suite through the command, outputs by name, no input fixed, on eager, cpu and reference
onnx-microsoft|peers|com.microsoft against ONNX Runtime: 40 random cases per family of operators on eager, cpu and reference
onnx-standard|peers|Einsum, Slice, Resize, ConvTranspose and Shrink against the ONNX reference: 150 random cases each on eager, cpu and reference
onnx-random|peers|300 random models, half of them symbolic, against the ONNX reference, outputs by name, on eager and cpu
onnx-converted|peers|what the tools of ONNX Runtime write (f16, dynamic, static and 4-bit quantisation, fusions), against ONNX Runtime
onnx-packages|peers|the ONNX files inside five Python packages through the command, at two sizes each, against reference
onnx-models|peers|real models exported by PyTorch, against its own outputs: max|a-b| <= 1e-4 max|b|, static and dynamic
onnx-to-jax|peers|the translation by which XLA takes part in bench cpu-models, op by op on the ONNX backend test suite
torch|peers|torch.compile(backend="tessera"): its own tests and a tenth of the operator tests of PyTorch
torch-models|peers|models of Transformers, torchvision and timm through torch.compile, four sizes each, within torch._dynamo.utils.same of f64
torch-opinfo|hours|all operator tests of PyTorch on the CPU, static, dynamic and with gradients: no wrong result
training|peers|a training step of a GPT beside PyTorch: the losses of 50 steps from the same weights within 1e-4, and tokens per second
wheel|peers|the wheel of the Python package, at most 60 MB, passes its tests in fresh environments
fuzz|hours|every parser fuzzed for at least ten minutes, an hour in total, nothing found
'

tests_named() { run_tests release -R "$1"; }
tests_labelled() { run_tests release -L "$1"; }
json_of() { python3 -c "import json,sys; d=json.load(sys.stdin); $1"; }

check_boundary() { tests_named '^e2e\.(boundary|plugin_directory)'; }
check_abi_header() { tests_named '^e2e\.abi_header$'; }
check_abi_versions() { tests_named '^unit\.(plugin_host|manifest)_test$'; }
check_round_trip() { tests_named '^unit\.random_graph_test$'; }
check_verifier() { tests_named '^unit\.verifier_test$'; }
check_ops() { tests_named '^(differential|opset)\.'; }
check_conformance() { tests_labelled '^conformance$'; }
check_conformance_whole() { scripts/conformance.sh; }
check_scaffolds() { tests_named '^scaffold\.'; }
check_out_of_tree() { tests_named '^e2e\.(install|consumer)$|^out_of_tree\.'; }
check_bad_input() { tests_named '^cli\.|^unit\.(config|manifest|npz|text|records|buffer|dlpack)_test$'; }

check_device_programs() {
  TESSERA_DEVICE_SESSIONS=2500 tests_named '^device\.(random|waits|lost)_test$' &&
    figure=$(TESSERA_SOURCE_DIR=$PWD build/release/tests/device_tests -w NoTests '[#waits_test]' '-#' |
      grep -A99 '^removed wait' | sed '/^=/,$d')
}

check_json() {
  ./dev bench dispatch --json | json_of 'assert set(d["tensors"]) == {"1", "8", "64"}, d
assert set(d["entries"]) == {"1", "8", "64", "1000"}, d
assert all(v > 0 for k in ("tensors", "entries") for v in d[k].values()), d'
}

check_pass_scaling() {
  figure=$(./dev bench passes --json | json_of 'r = d["seconds"]["10000"] / d["seconds"]["5000"]
print("%.3f s at 5,000 nodes, %.3f s at 10,000: %.2f times; limit 2.4: %s"
      % (d["seconds"]["5000"], d["seconds"]["10000"], r, "met" if r <= 2.4 else "not met"))')
}

check_dispatch() {
  figure=$(./dev bench dispatch --json | json_of 'print("; ".join(
    k + " " + ", ".join("%s: %.0f ns" % (n, v) for n, v in d[k].items()) for k in ("tensors", "entries")))')
}

check_recompile() {
  figure=$(./dev bench recompile --json | json_of 'print("; ".join("%s: %.0f us" % (k, d[k]) for k in ("first", "recompile", "first_dynamic"))
    + ": " + ("met" if d["recompile"] <= 1000 else "not met"))')
}

check_dispatch_fuzz() { TESSERA_FUZZ_CALLS=100000 tests_named '^dispatch_fuzz$'; }

check_build_time() {
  local tree=build/timing start seconds
  rm -rf "$tree"
  cmake --preset release -B "$tree" || return
  start=$SECONDS
  CCACHE_DISABLE=1 ninja -C "$tree" -j "$(jobs)" || return
  seconds=$((SECONDS - start))
  rm -rf "$tree"
  figure="$(duration "$seconds") with $(jobs) jobs; limit 12 min on 2 cores: $([ "$seconds" -lt 720 ] && echo met || echo not met)"
}

check_asan() { build_for_testing asan && run_tests asan; }
check_tsan() { build_for_testing tsan && run_tests tsan; }

check_coverage() {
  setup coverage
  scripts/coverage.sh && figure=$(grep -m1 '^lines:' build/coverage/summary.txt)
}

check_cache_kills() {
  TESSERA_BUILD_DIR=$PWD/build/release tests/cache/killed.sh "$PWD/build/release/tests/cache_stress" "$PWD/build/checks/cache" 1000
}

check_simt_random() {
  local log=build/checks/simt_random.txt
  {
    TESSERA_SEEDS=0..5000 build/release/tests/random_simt_test 'random graphs as programs*'
    TESSERA_SEEDS=0..300 build/release/tests/random_simt_test 'random graphs as text*'
  } | tee "$log"
  figure=$(grep '^seeds' "$log")
}

check_cuda_text() {
  local folder=build/checks/cuda_text python log=build/checks/cuda_text.txt
  rm -rf "$folder"
  python=$(TESSERA_PEERS=${TESSERA_NVRTC_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera/nvrtc} scripts/peers.sh)
  "$python" -m pip install --quiet --disable-pip-version-check nvidia-cuda-nvrtc
  export TESSERA_BUILD_DIR=$PWD/build/release TESSERA_SOURCE_DIR=$PWD PROGRAMS_TEXT=$PWD/$folder
  build/release/tests/differential_tests 'programs of every case agree with the reference,models run as programs for GPUs'
  build/release/tests/random_simt_test 'random graphs as programs*,what training is made of*'
  "$python" tests/random_simt/nvrtc.py "$folder" | tee "$log"
  figure=$(grep compile "$log")
}

check_clean_demo() { scripts/clean_debian.sh demo; }
check_clean_test() { scripts/clean_debian.sh test; }
check_onnx_suite() {
  local suite python config
  for config in eager reference; do
    TESSERA_SOURCE_DIR=$PWD tests/onnx/suite.sh "$(binary onnx_suite)" "$config" --json "build/checks/onnx_$config.json" | tee "build/checks/onnx_$config.txt"
  done
  suite=$(TESSERA_SOURCE_DIR=$PWD tests/onnx/suite.sh --path)
  python=$(scripts/peers.sh onnx onnxruntime)
  "$python" -W ignore tests/onnx/peers.py "$suite" build/checks/onnx_eager.json | tee build/checks/onnx_peers.txt
  figure=$(sed 's/^/eager /' build/checks/onnx_eager.txt; sed 's/^/reference /' build/checks/onnx_reference.txt; cat build/checks/onnx_peers.txt)
}
check_onnx_command() {
  local suite python status=0
  suite=$(TESSERA_SOURCE_DIR=$PWD tests/onnx/suite.sh --path)
  python=$(scripts/peers.sh onnx)
  "$python" -W ignore tests/onnx/command_suite.py "$(binary tessera)" "$suite" --json build/checks/onnx_command.json | tee build/checks/onnx_command.txt || status=$?
  figure=$(grep -v '^ ' build/checks/onnx_command.txt)
  return "$status"
}
check_onnx_microsoft() {
  local python config
  python=$(scripts/peers.sh onnx onnxruntime)
  for config in eager cpu reference; do
    "$python" -W ignore tests/onnx/microsoft_peers.py "$(binary tessera)" --config "$config" || true
  done | tee build/checks/onnx_microsoft.txt
  figure=$(grep agree build/checks/onnx_microsoft.txt)
  ! grep -q FAIL build/checks/onnx_microsoft.txt
}
check_onnx_standard() {
  local python config
  python=$(scripts/peers.sh onnx onnxruntime)
  for config in eager cpu reference; do
    "$python" -W ignore tests/onnx/standard_peers.py "$(binary tessera)" --config "$config" || true
  done | tee build/checks/onnx_standard.txt
  figure=$(grep agree build/checks/onnx_standard.txt)
  ! grep -q FAIL build/checks/onnx_standard.txt
}
check_onnx_random() {
  local python status=0
  python=$(scripts/peers.sh onnx)
  "$python" -W ignore tests/onnx/random_models.py "$(binary tessera)" --keep build/checks/onnx_random | tee build/checks/onnx_random.txt || status=$?
  figure=$(grep agree build/checks/onnx_random.txt)
  return "$status"
}
check_onnx_converted() {
  local python status=0
  python=$(scripts/peers.sh onnx onnxruntime onnx_ir sympy)
  "$python" -W ignore tests/onnx/converted_models.py "$(binary tessera)" | tee build/checks/onnx_converted.txt || status=$?
  figure=$(grep agree build/checks/onnx_converted.txt)
  return "$status"
}
check_onnx_packages() {
  local python status=0
  python=$(scripts/peers.sh onnx)
  "$python" -W ignore tests/onnx/package_models.py "$(binary tessera)" | tee build/checks/onnx_packages.txt || status=$?
  figure=$(grep agree build/checks/onnx_packages.txt)
  return "$status"
}
check_onnx_models() {
  local log=build/checks/onnx_models.txt status=0
  tests/onnx/real/run.sh "$(binary tessera)" | tee "$log" || status=$?
  figure=$(tail -n 2 "$log" | paste -sd ';')
  return "$status"
}
check_onnx_to_jax() {
  local suite python
  suite=$(TESSERA_SOURCE_DIR=$PWD tests/onnx/suite.sh --path)
  python=$(scripts/peers.sh onnx jax)
  figure=$("$python" -W ignore tests/onnx/onnx_to_jax.py "$suite" | tee /dev/stderr | tail -n 1)
}
torch_python() { TESSERA_PEERS=${TESSERA_TORCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera/torch} scripts/peers.sh torch numpy expecttest "$@"; }
check_torch() {
  torch_python >/dev/null
  tests_labelled '^torch$'
}
check_torch_models() {
  local python
  python=$(torch_python transformers torchvision timm)
  PYTHONPATH=build/release/python "$python" tests/python/torch/models.py | tee build/checks/torch_models.txt
  figure=$(tail -n 1 build/checks/torch_models.txt)
}
check_torch_opinfo() {
  local python kind
  python=$(torch_python)
  for kind in "" --dynamic --backward; do
    PYTHONPATH=build/release/python "$python" tests/python/torch/opinfo.py $kind --out "build/checks/opinfo$kind.jsonl" |
      tee "build/checks/opinfo$kind.txt"
  done
  figure=$(head -qn 1 build/checks/opinfo*.txt)
}
check_training() {
  local python
  python=$(torch_python)
  "$python" benchmarks/training/peers.py "$(binary bench-training)" | tee build/checks/training.txt
  figure=$(tail -n 1 build/checks/training.txt)
}
check_wheel() {
  local wheel python folder ran=
  wheel=$(scripts/wheel.sh)
  for python in python3 python3.10 python3.13; do
    "$python" -c "" 2>/dev/null || continue  # a version manager may have a name on PATH and nothing behind it
    ran+=" $("$python" -c "import sys; print('.'.join(map(str, sys.version_info[:2])))")"
    folder=$(mktemp -d)
    "$python" -m venv "$folder" && "$folder/bin/pip" install --quiet --no-index "$wheel" &&
      (cd / && env -i HOME="$HOME" PATH=/usr/bin:/bin "$folder/bin/python" "$OLDPWD/tests/python/package.py") || return 1
    rm -rf "$folder"
  done
  figure="passes under Python$ran; $(du -m "$wheel" | cut -f1) MB"
}
check_fuzz() { setup fuzz && scripts/fuzz.sh 3600 600; }

# run_checks ALL [FILTER]    ALL: "" leaves out what needs root, hours or peers; "peers": those that need peers alone
run_checks() {
  local all=$1 filter=${2:-} name class title log start passed=0 failed=() skipped=() figure
  build_for_testing release
  say "acceptance checks; the log of each is build/checks/NAME.log"
  while IFS='|' read -r name class title; do
    [ -n "$name" ] || continue
    [[ -z $filter || $name =~ $filter ]] || continue
    [[ $all != peers || $class == peers ]] || continue
    if [ -z "$all" ] && [[ $class =~ ^(root|hours|peers)$ ]]; then
      printf '%s\n' "${yellow}skip${plain}  $name: $title ($class; use --all)"
      skipped+=("$name")
      continue
    fi
    log=build/checks/$name.log
    start=$SECONDS
    figure=
    note "$name ..."
    if run_check "$name" "$log"; then
      printf '%s\n' "${green}pass${plain}  $name: $title ($(duration $((SECONDS - start))))"
      passed=$((passed + 1))
    else
      printf '%s\n' "${red}FAIL${plain}  $name: $title ($(duration $((SECONDS - start))))"
      tail -n 15 "$log" | sed 's/^/        /'
      failed+=("$name")
    fi
    [ -z "$figure" ] || printf '        %s\n' "$figure"
  done <<<"$checks"
  printf '%s\n' "${bold}$passed passed, ${#failed[@]} failed, ${#skipped[@]} skipped${plain}"
  [ ${#failed[@]} = 0 ] || printf 'failed: %s\n' "${failed[*]}"
  [ ${#failed[@]} = 0 ]
}

# A subshell keeps `set -e` and exits inside a check from ending the run; the figure comes back through a file.
run_check() { # name, log
  local status=0
  rm -f "$2.figure"
  with_log "$2" bash -c '
    set -euo pipefail
    for part in common setup build checks; do . "scripts/$part.sh"; done
    figure=
    "check_${1//-/_}"
    printf "%s" "$figure" >"$2"' check "$1" "$2.figure" || status=$?
  figure=$(cat "$2.figure" 2>/dev/null || true)
  return "$status"
}
