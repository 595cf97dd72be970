#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: gpu_check.sh PART OUT    checks the CUDA backend on a machine with an NVIDIA GPU, from what scripts/gpu_pack.sh packed
# (source/scripts/gpu_check.sh in it) and without a network.
# PART: device, ops, kernels, models, lengths, training, examples, pytorch, opinfo, model_table, conformance, sanitizer, or
# several: A,B.
# Each step has a log in OUT and a time of its own; one that fails stops no other. The last lines are a table of all steps.
set -uo pipefail
parts=$1 out=$(mkdir -p "$2" && readlink -f "$2")
packed=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
export TESSERA_SOURCE_DIR=$packed/source TESSERA_BUILD_DIR=$packed TESSERA_CACHE_DIR= TESSERA_TRACE= OMP_WAIT_POLICY=passive
export PYTHONPATH=$packed/python${PYTHONPATH:+:$PYTHONPATH}
export LD_LIBRARY_PATH=$packed/lib:$packed/lib/system${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PATH=$packed/bin:$PATH
cd "$packed/source"
table=()
failed=0

# step NAME SECONDS COMMAND...: the whole output goes to OUT/NAME.log, its end to the terminal.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  echo "== $name"
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  local word=ok
  [ $status -eq 0 ] || { word="FAILED ($status)" && failed=1; }
  tail -n "${LINES_OF_STEP:-12}" "$out/$name.log" | cut -c1-220
  table+=("$(printf '%-28s %-14s %4d s' "$name" "$word" $((SECONDS - begin)))")
}
has() { [[ ",$parts," == *",$1,"* ]]; }
has_jax() { python3 -c 'import jax' 2>/dev/null; }

# profile NAME COMMAND...: kernels of what COMMAND runs between the driver's marks, by their share of the time.
profile() {
  local name=$1
  shift
  step "profile-$name" 100 ncu --clock-control none --profile-from-start off --metrics gpu__time_duration.sum,dram__bytes.sum \
    --csv "$@"
  LINES_OF_STEP=60 step "kernels-$name" 10 python3 benchmarks/cuda/kernel_times.py "$out/profile-$name.log" 50
}

device_part() {
  step machine 20 bash -c 'nvidia-smi -L; nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem,memory.used --format=csv; uname -r
    ldd --version | head -1; g++ --version | head -1; nvcc --version | tail -2; ls -d /usr/local/cuda*
    python3 -c "import torch, sys; print(sys.executable, torch.__version__)"
    find / -name "libnvrtc.so*" -o -name "libcublasLt.so*" -o -name "libcudnn.so*" 2>/dev/null | grep -v /proc/ | head -20'
  step plugin-check 30 tessera plugin check "$packed/lib/tessera/plugins/tessera.backend.cuda.so"
  step declarations 60 g++ -std=c++20 -fsyntax-only -Ibackends/cuda -Isdk/include -I/usr/local/cuda/include tests/cuda/declarations.cpp
  # Of cuDNN, whose header comes with its package.
  local cudnn
  cudnn=$(python3 -c 'import nvidia.cudnn as p; print(list(p.__path__)[0] + "/include")' 2>/dev/null) && [ -e "$cudnn/cudnn_graph.h" ] &&
    step declarations-dnn 60 g++ -std=c++20 -fsyntax-only -Ibackends/cuda -Isdk/include -I/usr/local/cuda/include -I"$cudnn" \
      tests/cuda/declarations_dnn.cpp
  for test in graph_test device_test conv_test cudagraphs_test; do
    LINES_OF_STEP=40 step "$test" 90 env TESSERA_TEST_CUDA=hardware "$packed/tests/cuda_tests" "-#" "[#$test]"
  done
  step run-graphs 30 tessera run tests/cuda/models/mlp.tsr --config configs/cudagraphs.toml --dim s0=1000 --memory
  for model in softmax mlp; do
    step "run-$model" 30 tessera run tests/cuda/models/$model.tsr --config configs/cuda.toml --dim s0=1000 --memory
    step "compare-$model" 60 tessera compare configs/reference.toml configs/cuda.toml tests/cuda/models/$model.tsr \
      --reference configs/reference.toml \
      --dim s0=200 --no-time --max-abs 1e-3
  done
}

ops_part() {  # all files at once: most of the time goes into compiling
  local files=(shape index reduce linalg nn elementwise random) pids=() file begin=$SECONDS
  for file in "${files[@]}"; do
    TESSERA_TEST_CUDA=${TESSERA_CUDA_PART:-3} timeout -k 5 "${OPS_SECONDS:-300}" "$packed/tests/differential_tests" "[.cuda]" -c "$file" \
      >"$out/ops-$file.log" 2>&1 &
    pids+=($!)
  done
  for i in "${!files[@]}"; do
    local status=0 word=ok
    wait "${pids[$i]}" || status=$?
    [ $status -eq 0 ] || { word="FAILED ($status)" && failed=1; }
    table+=("$(printf '%-28s %-14s %4d s' "ops-${files[$i]}" "$word" $((SECONDS - begin)))")
    grep -E 'cases failed' "$out/ops-${files[$i]}.log" | head -3
    [ $status -eq 0 ] || grep -E 'cases:[0-9]+ on|result|error' "$out/ops-${files[$i]}.log" | head -12 | cut -c1-260
  done
}

# PEER_ARGS=max-autotune: what Inductor's measured choices give, which takes minutes more.
# shellcheck disable=SC2086
kernels_part() {
  LINES_OF_STEP=60 step bench-cuda 150 bench-cuda
  LINES_OF_STEP=30 step peers 150 python3 benchmarks/cuda-kernels/peers.py 16384
  [ -z "${PEER_ARGS:-}" ] || LINES_OF_STEP=30 step peers-more 400 python3 benchmarks/cuda-kernels/peers.py 16384 $PEER_ARGS
  has_jax && LINES_OF_STEP=30 step peers-jax 150 python3 benchmarks/cuda-kernels/jax_peers.py 16384
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader
}

# Models that the archive has (MODELS: some of them), against the CPU and beside PyTorch.
models_part() {
  local filled=/tmp/tessera-models models=() name pids=()
  read -r -a models <<<"${MODELS:-$(ls models | tr "\n" " ")}"
  for name in "${models[@]}"; do
    python3 benchmarks/cuda/models.py fill models $filled "$name" >"$out/fill-$name.log" 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}"
  if [ "${PEERS:-1}" != 0 ]; then
    LINES_OF_STEP=20 step model-peers "${PEERS_SECONDS:-200}" python3 benchmarks/cuda/models.py peers "${models[@]}"
    has_jax && LINES_OF_STEP=8 step model-peers-jax 150 python3 benchmarks/cuda/jax_models.py "${models[@]}"
  fi
  LINES_OF_STEP=60 step models 200 bench-cuda-models ${REFERENCE:+--reference configs/$REFERENCE.toml} ${MODES:-} \
    --config configs/cuda.toml --config configs/cuda.toml:reduce-overhead "${models[@]/#/$filled/}"
  # The first call of a process where another one has compiled before.
  local cache kind
  cache=$(mktemp -d)
  for kind in cold warm; do
    LINES_OF_STEP=20 step "models-$kind" 100 env TESSERA_CACHE_DIR="$cache" bench-cuda-models --first --config configs/cuda.toml \
      "${models[@]/#/$filled/}"
  done
  for name in ${PROFILED:-}; do
    [ "$name" != training ] || continue
    profile "$name" bench-cuda-models --profile --config configs/cuda.toml $filled/"$name"
  done
}

# Calls of random lengths under device graphs: results, what they make and take once they are settled, and their time.
# shellcheck disable=SC2086
lengths_part() {
  LINES_OF_STEP=20 step lengths-tests "${LENGTHS_SECONDS:-60}" env TESSERA_TEST_CUDA=hardware "$packed/tests/cuda_tests" "-#" \
    "[#lengths_test],[#capture_test]"
  LINES_OF_STEP=1 step lengths-calls "${LENGTHS_SECONDS:-60}" env TESSERA_LOGS=cudagraphs \
    bench-cuda-lengths --config configs/cuda.toml ${LENGTHS_ARGS:-}
  awk '/is built/ { n++ } /given up/ { g++ }
    /lengths: / { print "graphs built until \"" $0 "\": " n + 0 ", given up: " g + 0 }' "$out/lengths-calls.log" | tee -a "$out/lengths-calls.log"
  LINES_OF_STEP=3 step lengths-times "${TIMES_SECONDS:-90}" bench-cuda-lengths --config configs/cuda.toml ${LENGTHS_ARGS:-} \
    --part times
}

# A training step of a Llama: with costs that are predicted and measured, and under budgets. PROFILED=training: the kernels of
# one pass instead.
training_part() {
  local seconds=${TRAINING_SECONDS:-200}
  if [[ " ${PROFILED:-} " == *" training "* ]]; then
    # shellcheck disable=SC2086
    profile training bench-cuda-training --profile --config configs/cuda.toml --rows 4096 ${TRAINING_ARGS:-}
    return
  fi
  LINES_OF_STEP=20 step training "$seconds" env TESSERA_LOGS=partition python3 benchmarks/cuda/training/run.py \
    "$packed/bin/bench-cuda-training" "$out/training.json" --seconds "$seconds" --row-seconds "${ROW_SECONDS:-60}" \
    --ours "${TRAINING_ROWS:-default,default+--set=partitioner.costs=measured,0.99,0.5}" --peers "${TRAINING_PEERS:-}"
}

examples_part() {
  local tiny=examples/sentences/tests
  LINES_OF_STEP=12 step sentences "${EXAMPLE_SECONDS:-30}" sentences --model $tiny/tiny --text $tiny/text.txt \
    --expected $tiny/expected.f32 --device cuda --config configs/eager.toml --config configs/cuda.toml --runs 3
  LINES_OF_STEP=12 step llama "${EXAMPLE_SECONDS:-30}" llama --device cuda --config configs/cuda.toml --tokens 8
}

# torch.compile(backend="tessera") of tensors on the GPU.
pytorch_part() {
  LINES_OF_STEP=${PYTORCH_LINES:-40} step pytorch "${PYTORCH_SECONDS:-240}" python3 tests/python/torch/cuda_test.py ${PYTORCH_ARGS:-}
}

# opinfo_worker I N OUT ARGUMENT...: part I of N, in a new process each time that the GPU takes no more work from the last one.
opinfo_worker() {
  local part=$1 parts=$2 out=$3 status=3
  shift 3
  while [ $status -eq 3 ]; do
    status=0
    python3 tests/python/torch/opinfo.py --device cuda --part "$part/$parts" --out "$out/opinfo/$part.jsonl" "$@" || status=$?
  done
}

# PyTorch's operator tests, by one process for each core. OPINFO_DONE: a folder with what an earlier run wrote, to go on from.
opinfo_part() {
  local workers=${OPINFO_WORKERS:-$(nproc)}
  mkdir -p "$out/opinfo"
  [ -z "${OPINFO_DONE:-}" ] || cp "$OPINFO_DONE"/*.jsonl "$out/opinfo/"
  export -f opinfo_worker
  LINES_OF_STEP=1 step opinfo-run "${OPINFO_SECONDS:-500}" bash -c '
    for ((i = 0; i < $1; ++i)); do
      opinfo_worker "$i" "$@" >"$2/opinfo/$i.log" 2>&1 &
    done
    wait' opinfo "$workers" "$out" ${OPINFO_ARGS:-}
  LINES_OF_STEP=${OPINFO_LINES:-100} step opinfo 60 python3 tests/python/torch/opinfo.py --report "$out"/opinfo/*.jsonl
}

# 60 models of Transformers, torchvision and timm, in four ways each, by one process for each core.
model_table_part() {
  local workers=${MODEL_TABLE_WORKERS:-$(nproc)}
  mkdir -p "$out/model_table"
  LINES_OF_STEP=1 step model-table-run "${MODEL_TABLE_SECONDS:-500}" bash -c '
    for ((i = 0; i < $1; ++i)); do
      python3 tests/python/torch/model_table.py --device cuda --part "$i/$1" --out "$2/model_table/$i.jsonl" "${@:3}" \
        >"$2/model_table/$i.log" 2>&1 &
    done
    wait' model_table "$workers" "$out" ${MODEL_TABLE_ARGS:-}
  LINES_OF_STEP=${MODEL_TABLE_LINES:-80} step model-table 60 python3 tests/python/torch/model_table.py \
    --report "$out"/model_table/*.jsonl
}

conformance_part() {
  LINES_OF_STEP=12 step conformance "${CONFORMANCE_SECONDS:-300}" tessera plugin test \
    "$packed/lib/tessera/plugins/tessera.backend.cuda.so" --level "${CONFORMANCE_LEVEL:-L4}" --jobs 8 ${CONFORMANCE_ARGS:-}
}

sanitizer_part() {
  # Calls that fail are the tests' own business, some of which make them fail.
  local tool options
  for tool in memcheck racecheck; do
    options=
    [ $tool = racecheck ] || options="--report-api-errors no"
    # shellcheck disable=SC2086
    LINES_OF_STEP=15 step "$tool" 90 env TESSERA_TEST_CUDA=hardware compute-sanitizer --tool $tool --error-exitcode 9 $options \
      "$packed/tests/cuda_tests" "-#" "[#device_test],[#graph_test],[#cudagraphs_test]"
  done
}

for part in device kernels ops models lengths training examples pytorch opinfo model_table conformance sanitizer; do
  has $part && ${part}_part
done
echo "== all steps"
printf '%s\n' "${table[@]}"
exit $failed
