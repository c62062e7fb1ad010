#!/usr/bin/python3
"""The examples of IBC on the network of examples/two-switches.conf: a chat between two nodes over two switches, a manager
that reads the ports of a switch, and a key-value service. As an ordinary user, in a directory of its own.

  examples.py BUILD SOURCE
"""
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

build, source = Path(sys.argv[1]), Path(sys.argv[2])
conf = source / "examples/two-switches.conf"
directory = tempfile.mkdtemp()
env = dict(os.environ, HEDDLE_DIR=directory, HEDDLE_AGENT=str(build / "heddled"))
running = []


def start(node, *args, **more):
    process = subprocess.Popen([str(a) for a in args], env=dict(env, HEDDLE_NODE=node), text=True, **more)
    running.append(process)
    return process


def example(name):
    return build / "examples" / ("example-" + name)


def run(node, *args):
    """What the example prints; it is repeated until it succeeds, since links need a moment to come up."""
    for _ in range(100):
        done = subprocess.run([str(a) for a in args], env=dict(env, HEDDLE_NODE=node), text=True, capture_output=True, timeout=30)
        if done.returncode == 0:
            return done.stdout
        time.sleep(0.1)
    sys.exit(f"{args} on {node}: {done.stdout}{done.stderr}")


def expect(what, got, wanted):
    if wanted not in got:
        sys.exit(f"{what}: expected {wanted!r}, got {got!r}")
    print("ok", what)


try:
    # In the background, as a user starts it.
    for node in ("n102", "n104", "s106", "s108"):
        subprocess.run([build / "heddle-vport", "--node", node, conf], env=env, check=True, timeout=60)
    key = re.search(r"^key ([0-9a-f]{32})", conf.read_text(), re.M).group(1)
    ports = run("n102", example("ibc_manager"), key, 1, 1)
    expect("manager: the first switch", ports, "port 2: up")
    while "port 1: up" not in run("n102", example("ibc_manager"), key, 1, 1, 3) or \
            "port 2: up" not in run("n102", example("ibc_manager"), key, 1, 1, 3):
        time.sleep(0.05)
    denied = subprocess.run([example("ibc_manager"), "0" * 32, "1", "1"], env=dict(env, HEDDLE_NODE="n102"), text=True, capture_output=True)
    expect("manager: without the key", denied.stderr, "not allowed")

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1}
    there = start("n104", example("ibc_chat"), 2, 0, 1, 2, **pipes)
    here = start("n102", example("ibc_chat"), 1, 1, 3, 2, **pipes)
    # Either may come first: then the switch of the other node says that nobody is there.
    here.stdin.write("hello over there\n")
    heard = ""
    while "hello over there" not in heard:
        if select.select([there.stdout, here.stdout], [], [], 10)[0] == [here.stdout]:
            expect("chat: nobody there yet", here.stdout.readline(), "no such application")
            here.stdin.write("hello over there\n")
        else:
            heard = there.stdout.readline()
    expect("chat there", heard, "> hello over there")
    there.stdin.write("hello yourself\n")
    expect("chat back", here.stdout.readline(), "> hello yourself")

    start("n104", example("ibc_store"))
    for _ in range(100):
        done = subprocess.run([example("ibc_lookup"), "colour=blue"], env=dict(env, HEDDLE_NODE="n104"), text=True, capture_output=True)
        if done.returncode == 0:
            break
        time.sleep(0.05)
    expect("store: set", done.stdout, "blue")
    expect("store: get", run("n104", example("ibc_lookup"), "colour"), "blue")
    # As the tutorial says to compile a program.
    lookup = Path(directory) / "lookup"
    subprocess.run(["cc", f"-I{source}/include", source / "examples/ibc_lookup.c", f"-L{build}", "-libc", f"-Wl,-rpath,{build}", "-o", lookup],
                   check=True, timeout=60)
    expect("store: a program of one's own", run("n104", lookup, "colour"), "blue")
    os.unlink(lookup)
    missing = subprocess.run([example("ibc_lookup"), "shape"], env=dict(env, HEDDLE_NODE="n104"), text=True, capture_output=True)
    expect("store: nothing there", missing.stdout, "not allowed")
finally:
    for process in running:
        process.kill()
        process.wait()
    for entry in Path("/proc").glob("[0-9]*/environ"):  # what we started in the background
        try:
            ours = f"HEDDLE_DIR={directory}".encode() in entry.read_bytes().split(b"\0")
            if ours and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGTERM)
        except (OSError, ValueError):
            pass

for _ in range(200):
    if not os.listdir(directory):
        break
    time.sleep(0.05)
left = os.listdir(directory)
if left:
    sys.exit(f"left behind: {left}")
os.rmdir(directory)
