#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/gpu_pack.sh OUT.tar.xz [BUILD]
# Packs what scripts/gpu_check.sh runs on a machine with a GPU and nothing else of this project: the command, the plugins that
# the checks load, the tests, and the system's libraries that they need. BUILD is build/release unless it is given, and is built
# already.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
. "$root/scripts/common.sh"
out=$(readlink -f "$(dirname "$1")")/$(basename "$1") build=$(readlink -f "${2:-$root/build/release}")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
packed=$tree/tessera-gpu
mkdir -p "$packed"/{bin,tests/cuda,lib/tessera/plugins,lib/system,source/tests/differential}
cp "$build"/bin/{tessera,bench-cuda,bench-cuda-models,bench-cuda-training,bench-cuda-lengths,llama,sentences} "$packed/bin"
for test in cuda_tests differential_tests; do # a part whose program is not built is none of this archive's
  [ ! -e "$build/tests/$test" ] || cp "$build/tests/$test" "$packed/tests"
done
cp "$build"/tests/cuda/libfake_cuda.so "$packed/tests/cuda"
cp "$build"/lib/libtessera.so "$packed/lib"
for id in opset.standard frontend.{text,cpp,onnx} backend.{cuda,eager,reference,null} store.disk executor.cudagraphs \
  partitioner.remat pass.{canonicalize,constant_fold,cse,recognise,dce,decompose,fuse,widen}; do
  cp "$build"/lib/tessera/plugins/tessera.$id.{so,toml} "$packed/lib/tessera/plugins"
done
cd "$root"
cp -r configs scripts "$packed/source"
cp -r tests/cuda "$packed/source/tests"
mkdir -p "$packed/source/examples/sentences"
cp -r examples/sentences/tests "$packed/source/examples/sentences"
mkdir -p "$packed/source/backends" "$packed/source/sdk/conformance" "$packed/source/benchmarks"
cp -r sdk/conformance/cases "$packed/source/sdk/conformance"
mkdir -p "$packed/share/tessera/conformance" # where the command looks for them
cp -r sdk/conformance/cases "$packed/share/tessera/conformance"
cp -r configs "$packed/share/tessera"
# The Python package, its tests on a GPU, and what they share with others.
if [ -e "$build/python/tessera/_core.abi3.so" ]; then
  mkdir -p "$packed/python" "$packed/source/tests/python"
  cp -rL "$build/python/tessera" "$packed/python"
  cp -r tests/python/torch "$packed/source/tests/python"
  strip --strip-unneeded "$packed/python/tessera/_core.abi3.so"
fi
cp -r backends/cuda "$packed/source/backends"
cp -r sdk/include "$packed/source/sdk"
cp -r benchmarks/cuda benchmarks/cuda-kernels benchmarks/cpu-models "$packed/source/benchmarks"
# What `benchmarks/cuda/models.py strip` left of the models, where somebody ran it.
[ ! -d build/models-stripped ] || cp -r build/models-stripped "$packed/source/models"
# Libraries that are no part of every Linux. libstdc++ and libgcc: the machine's own, which must be as new as this one's.
find "$packed" -type f \( -name '*.so' -o -path '*/bin/*' -o -path '*/tests/*_tests' \) -exec ldd {} + 2>/dev/null |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[^/]*|libtessera)\.so' |
  while read -r library; do cp -L "$library" "$packed/lib/system"; done
# Manifests hold the hash of their library: plugins stay as they are.
shopt -s nullglob
strip --strip-unneeded "$packed"/bin/* "$packed"/tests/*_tests "$packed"/lib/libtessera.so "$packed"/lib/system/*
tar -C "$tree" -c tessera-gpu | xz -T0 -2 >"$out"
size=$(stat -c %s "$out")
say "$out, $((size / 1000000)) MB" >&2
[ "$size" -le 60000000 ] || die "the archive is larger than 60 MB"
