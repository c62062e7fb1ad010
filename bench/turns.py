"""What the benchmarks of programs share: running pairs of programs, reading their figures, printing tables.

The rows of a table are measured in turns, one after the other and then all over again, because the speed of the machine changes from
minute to minute (two virtual processors may or may not share a core). Every figure is the median of the turns, with the minimum and
the maximum. No figure passes or fails."""
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEDDLE = str(ROOT / "build" / "heddle")
last_port = 21000


def new_port():
    global last_port
    last_port += 1
    return str(last_port)


def is_over(process, seconds):
    """Does @process end within that time? It is not reaped yet."""
    for _ in range(int(seconds * 50)):
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(0.02)
    return False


def reap(process):
    """Reap a child that has ended. Returns the processor time that it used, in seconds."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def pair(command, client, env=None, wait=0.4, usage=None):
    """Run a server and a client. Returns the client's output, or None. @usage: a list to which the processor times of client and server
    are appended."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    time.sleep(wait)
    other = subprocess.Popen(client, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
    for process, seconds in ((other, 60), (server, 20)):
        if not is_over(process, seconds):
            process.kill()
    times = [reap(other), reap(server)]
    with other.stdout as out:
        text = out.read()
    if usage is not None:
        usage += times
    return text if other.returncode == 0 else None


def last_row(text, column):
    """A column of the last line of perftest's figures."""
    rows = [line.split() for line in (text or "").splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
    return float(rows[-1][column]) if rows else None


def qperf(test, seconds=1, usage=None):
    """Run qperf. Returns microseconds, or GB/s. Its server does not end by itself."""
    port = new_port()
    server = subprocess.Popen(["qperf", "-lp", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    client = subprocess.Popen(["qperf", "-lp", port, "-t", str(seconds), "localhost", test], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    if not is_over(client, 20 + seconds):
        client.kill()
    server.terminate()
    times = [reap(client), reap(server)]
    with client.stdout as out:
        m = re.search(r"=\s+([\d.]+) (\w+)", out.read())
    if usage is not None:
        usage += times
    units = {"us": 1, "ns": 1e-3, "ms": 1e3, "GB": 1, "MB": 1e-3, "KB": 1e-6}
    return float(m.group(1)) * units[m.group(2)] if m else None


def difference(value, other):
    return f"{value - other:+.2f}"


def ratio(value, other):
    return f"x{value / other:.2f}"


def turns(title, unit, rows, count, compare=ratio):
    """Measure @rows @count times and print them. A row: (name, function, name of the row that it is compared with)."""
    print(title)
    values = {what: [] for what, _, _ in rows}
    for _ in range(count):
        for what, figure, _ in rows:
            values[what].append(figure())
    for what, _, other in rows:
        good = [v for v in values[what] if v is not None]
        if not good:
            print(f"  {what:<44}     none", flush=True)
            continue
        line = f"  {what:<44}{statistics.median(good):9.3f} {unit:<5} ({min(good):.3f} to {max(good):.3f})"
        if other:
            pairs = [(v, o) for v, o in zip(values[what], values[other]) if v is not None and o]
            if pairs:
                # Compare figures of the same turn, and take the median of these comparisons.
                pairs.sort(key=lambda p: p[0] - p[1] if compare is difference else p[0] / p[1])
                line += f"   {compare(*pairs[len(pairs) // 2])} {other}"
        print(line, flush=True)


def scaled(figure, by=1.048576e-3):
    """MiB/s as GB/s."""
    def value():
        v = figure()
        return v * by if v is not None else None
    return value
