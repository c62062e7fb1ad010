#!/usr/bin/python3
"""SN2, SAN figure 4: with reliable datagrams M processes on each of N nodes reach each other by M queue pairs and N - 1 contexts per node,
where connections take M x M x (N - 1) queue pairs; and an endnode keeps least for unreliable datagrams.

  rd_scaling.py BENCH_RD_SCALING"""
import re
import subprocess
import sys

done = subprocess.run([sys.argv[1], "--all"], stdout=subprocess.PIPE, text=True, timeout=250)
print(done.stdout)
assert done.returncode == 0


def row(name):
    return [int(n) for n in re.search(rf"^{name} +(\d+) +(\d+)$", done.stdout, re.M).groups()]


assert row("queue pairs") == [64, 64 * 64 * 15]
assert row("end-to-end contexts") == [15, 0]
datagrams, connections = row("memory, KiB")
assert datagrams * 100 < connections
assert "983040 messages in 64 rounds, 983040 received" in done.stdout
ud, rd, rc = map(int, re.search(r"KiB: (\d+) unreliable datagrams, (\d+) reliable datagrams, (\d+) reliable connections", done.stdout).groups())
assert ud * 10 < rd < rc, (ud, rd, rc)
