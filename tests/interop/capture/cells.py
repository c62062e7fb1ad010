#!/usr/bin/python3
"""Cells in tshark, by the project's own dissector (docs/wireshark/heddle-cell.lua): what two processes with virtual interfaces send is captured;
every cell has its name, every field is there, all checksums are right, nothing is malformed. Several cells in one datagram are told apart, and
damage is reported.

  cells.py BUILD PROGRAM SCRIPT    PROGRAM is tests/interop/vi/pair.c

A missing tshark is a skip (exit 77) that says so."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capture import SKIP, Bad, need

LINKTYPE_RAW = 101
CELL_PORT = 4793


def tshark(script, capture, *options):
    run = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-n", "-r", capture, *options], capture_output=True, text=True, timeout=200)
    errors = [line for line in run.stderr.splitlines() if "Running as user" not in line]
    need(run.returncode == 0 and not errors, f"tshark: {run.returncode} {errors}")
    return run.stdout


def leaves(tree, found):
    """Every field name in the JSON of a packet."""
    for name, value in tree.items() if isinstance(tree, dict) else []:
        found.add(name)
        for item in value if isinstance(value, list) else [value]:
            leaves(item, found)


def record(build, program, folder):
    capture = str(Path(folder) / "cells.pcapng")
    run = Path(folder) / "run"
    run.mkdir(mode=0o700)
    env = dict(os.environ, XDG_RUNTIME_DIR=str(run), HEDDLE_AGENT=str(Path(build) / "heddled"), HEDDLE_LOCAL="off", VI_CELLS="1",
               HEDDLE_CAPTURE=capture)
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=100)
    need(done.returncode == 0, f"{program}: {done.returncode} {done.stderr[-300:]}")
    return capture


def check(script, capture):
    lines = tshark(script, capture, "-Y", f"udp.port == {CELL_PORT}", "-T", "fields", "-e", "_ws.col.Info", "-e", "_ws.expert.message", "-e", "_ws.malformed").splitlines()
    names = set()
    for line in lines:
        text, expert, malformed = (line.split("\t") + ["", ""])[:3]
        need(not expert and not malformed, f"{text!r}: {expert} {malformed}")
        name = re.match(r"(send|write|read request|read response|answer) \d", text)
        need(name, f"not named: {text!r}")
        names.add(name.group(1))
    need(len(names) == 5, f"only {sorted(names)}")
    print(f"{len(lines)} cells")


def check_fields(script, capture):
    known = set(re.findall(r'ProtoField\.\w+\("([\w.]+)"', Path(script).read_text()))
    found = set()
    for packet in json.loads(tshark(script, capture, "-Y", "heddle_cell.first == 1", "-T", "json")):
        leaves(packet["_source"]["layers"], found)
    need(known and known <= found, f"fields that no cell has: {sorted(known - found)}")
    print(f"{len(known)} fields")


def datagram(payload):
    udp = struct.pack(">HHHH", 50000, CELL_PORT, 8 + len(payload), 0) + payload
    return struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 0x7f000001, 0x7f000001) + udp


def check_together(script, capture, folder):
    """A datagram with several cells; then with damage in the second, and cut short."""
    cells = [bytes.fromhex(x.replace(":", "")) for x in tshark(script, capture, "-c", "40", "-T", "fields", "-e", "udp.payload").split()][:5]
    damaged = bytearray(b"".join(cells))
    damaged[len(cells[0]) + 25] ^= 1
    path = str(Path(folder) / "together.pcap")
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHIIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, LINKTYPE_RAW))
        for payload in (b"".join(cells), bytes(damaged), b"".join(cells)[:-3]):
            packet = datagram(payload)
            file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)
    lines = [line.split("\t") for line in tshark(script, path, "-T", "fields", "-e", "_ws.col.Info", "-e", "_ws.expert.message").splitlines()]
    need(len(lines) == 3 and lines[0][0].count(";") == 4 and not lines[0][1:][0], f"several cells: {lines[0]}")
    need("Wrong checksum" in lines[1][1], f"damage was not reported: {lines[1]}")
    need("Not a valid cell" in lines[2][1], f"a cell that ends too soon was not reported: {lines[2]}")


def main():
    build, program, script = sys.argv[1:]
    if not shutil.which("tshark"):
        print("tshark is not installed")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        try:
            capture = record(build, program, folder)
            check(script, capture)
            check_fields(script, capture)
            check_together(script, capture, folder)
        except Bad as bad:
            print(bad)
            return 1
    return 0


sys.exit(main())
