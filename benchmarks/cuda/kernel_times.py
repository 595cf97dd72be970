# SPDX-License-Identifier: Apache-2.0
"""Sums up what ncu has measured, kernels by their share of the time.

    python kernel_times.py LOG    of `ncu --csv --metrics gpu__time_duration.sum`
"""
import collections
import csv
import sys

times = collections.defaultdict(list)
with open(sys.argv[1]) as log:
    rows = csv.DictReader(line for line in log if line.startswith('"'))
    for row in rows:
        scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}.get(row["Metric Unit"])
        if scale:
            times[row["Kernel Name"]].append(float(row["Metric Value"].replace(",", "")) * scale)
total = sum(map(sum, times.values()))
print(f"{sum(map(len, times.values()))} launches, {total:.1f} us")
for name, all_of in sorted(times.items(), key=lambda x: -sum(x[1]))[:36]:
    print(f"{sum(all_of):9.1f} us {100 * sum(all_of) / total:5.1f} % {len(all_of):4d} x {sum(all_of) / len(all_of):8.2f}  {name[:150]}")
