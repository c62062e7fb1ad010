#!/usr/bin/python3
"""Virtual interfaces between two hosts by cells in Ethernet frames (../wire/hosts.py): two network namespaces with a veth between them, without addresses.

  ether.py PROGRAM HEDDLED [loss]    PROGRAM is tests/interop/vi/pair.c

What the kernel or this machine does not offer is a skip (exit 77) that says so."""
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wire"))
from hosts import NAMES, Hosts, outside

PROGRAM, HEDDLED = sys.argv[1:3]


def main():
    if sys.argv[-1] != "inside":
        return outside(170)
    with tempfile.TemporaryDirectory() as folder:
        world = Hosts(folder, loss="loss" in sys.argv, frames=True)
        try:
            environment = {**world.environment(0, HEDDLED), "VI_CELLS": "1", "VI_SERVER_NETWORK": f"/proc/{world.far.pid}/ns/net",
                           "VI_SERVER_DIR": str(world.folders[1]), "VI_SERVER_ETHER": NAMES[1]}
            return subprocess.run([PROGRAM], env=environment, timeout=160).returncode
        finally:
            world.end()


sys.exit(main())
