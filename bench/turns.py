"""What the benchmarks of programs have in common: pairs of programs, their figures, and tables of what was measured in turns.

What belongs together is measured in turns, because the machine's figures move from minute to minute (two virtual processors
are now neighbours, now not). Every figure is the median of the turns, with the least and the most. Nothing is judged."""
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
    """Within that time; it stays to be reaped."""
    for _ in range(int(seconds * 50)):
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(0.02)
    return False


def reap(process):
    """The seconds of processor time that a child took which is over."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def pair(command, client, env=None, wait=0.4, usage=None):
    """The output of the client, or None. @usage: a list that gets the processor time of client and server."""
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
    """Microseconds, or GB/s. Its server never ends by itself."""
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
    """@rows: (what, function, name of the row that it is compared with)."""
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
                # The pair in the middle of those that were measured in the same turn.
                pairs.sort(key=lambda p: p[0] - p[1] if compare is difference else p[0] / p[1])
                line += f"   {compare(*pairs[len(pairs) // 2])} {other}"
        print(line, flush=True)


def scaled(figure, by=1.048576e-3):
    """MiB/s as GB/s."""
    def value():
        v = figure()
        return v * by if v is not None else None
    return value
