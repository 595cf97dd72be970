# SPDX-License-Identifier: Apache-2.0
"""Sums up what ncu has measured, kernels by their share of the time, with the bytes that went to and from memory if they were
measured too.

    python kernel_times.py LOG [COUNT]    of `ncu --csv --metrics gpu__time_duration.sum,dram__bytes.sum`
"""
import collections
import csv
import sys

MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}
MEGABYTES = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1, "Gbyte": 1e3}

times = collections.defaultdict(list)
moved = collections.Counter()
with open(sys.argv[1]) as log:
    for row in csv.DictReader(line for line in log if line.startswith('"')):
        name, unit, value = row["Kernel Name"], row["Metric Unit"], float(row["Metric Value"].replace(",", ""))
        if unit in MICROSECONDS:
            times[name].append(value * MICROSECONDS[unit])
        elif unit in MEGABYTES:
            moved[name] += value * MEGABYTES[unit]
total = sum(map(sum, times.values()))
print(f"{sum(map(len, times.values()))} launches, {total:.1f} us")
for name, all_of in sorted(times.items(), key=lambda x: -sum(x[1]))[: int(sys.argv[2]) if len(sys.argv) > 2 else 36]:
    took = sum(all_of)
    rate = f"{moved[name] / len(all_of):8.1f} MB {moved[name] / took * 1e3:5.0f} GB/s" if moved[name] else ""
    print(f"{took:9.1f} us {100 * took / total:5.1f} % {len(all_of):4d} x {took / len(all_of):8.2f} {rate}  {name[:150]}")
