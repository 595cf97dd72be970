# SPDX-License-Identifier: Apache-2.0
# Measures the kernels of step.tsr in sixteen processes: what is kept of their times only falls, and is not what it was at
# first; a process that does not measure reads what the last one kept.
export TESSERA_CACHE_DIR=$PWD/costs
predicted() { tessera memory step.tsr --json --set partitioner.name=save_all "$@" | grep -o '"predicted_ms": .*'; }
for _ in {1..16}; do predicted --set partitioner.costs=remeasured; done >times
sort -grC -k2 times && echo falls
[ "$(sort -u times | wc -l)" -gt 1 ] && echo anew
predicted | cmp - <(tail -n1 times) && echo kept
