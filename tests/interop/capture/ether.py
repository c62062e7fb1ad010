#!/usr/bin/python3
"""Cells, CI packets and management datagrams in Ethernet frames, in tshark: what two hosts (../wire/hosts.py) send each other is recorded by the
adapters (HEDDLE_CAPTURE, link type Ethernet) and on the wire between them. Every frame has its name, all checksums are right, nothing is malformed,
whatever the order in which the dissectors are loaded, and from whatever directory.

  ether.py HEDDLED SCRIPTS VI APERTURES    VI is tests/interop/vi/pair.c, APERTURES tests/interop/wire/apertures.c

A missing tshark, and namespaces that are not allowed, are a skip (exit 77) that says so."""
import collections
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wire"))
from capture import SKIP, Bad, need
from hosts import NAMES, Hosts, outside

HEDDLED, SCRIPTS, VI, APERTURES = sys.argv[1:5]
LINKTYPE_ETHERNET = 1
MOST = 1000  # frames of a capture that are looked at: Lua takes its time
NAMED = {"0x88b6": r"(send|write|read request|read response|answer) \d", "0x88b5": r"[A-Z]{4,9}\b", "0x8915": r"(CM: |UD Send Only)"}


class Wire(threading.Thread):
    """All frames at one end, as they are, until stop()."""

    def __init__(self, interface):
        super().__init__()
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE, which takes privileges outside of the namespace
        except PermissionError:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        self.sock.bind((interface, 0))
        self.sock.settimeout(0.2)
        self.frames, self.running = [], True
        self.start()

    def run(self):
        while self.running:
            try:
                self.frames.append(self.sock.recv(65536))
            except socket.timeout:
                continue

    def stop(self):
        self.running = False
        self.join()
        self.sock.close()


def write(path, frames):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, LINKTYPE_ETHERNET))
        for frame in frames:
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def tshark(capture, *scripts, where=None):
    options = [word for script in scripts for word in ("-X", f"lua_script:{script}")]
    fields = [word for field in ("eth.type", "_ws.col.Info", "_ws.expert.message", "_ws.malformed") for word in ("-e", field)]
    run = subprocess.run(["tshark", *options, "-n", "-r", capture, "-c", str(MOST + 5), "-T", "fields", *fields], capture_output=True, text=True, timeout=100, cwd=where)
    errors = [line for line in run.stderr.splitlines() if "Running as user" not in line]
    need(run.returncode == 0 and not errors, f"tshark: {run.returncode} {errors}")
    return [(line.split("\t") + ["", "", ""])[:4] for line in run.stdout.splitlines()]


def check(lines, *types):
    """Frames of these types are there, and right. Other frames are the kernel's (IPv6 looks for neighbours)."""
    count = collections.Counter()
    for kind, text, expert, malformed in lines:
        if kind not in NAMED:
            continue
        need(re.match(NAMED[kind], text), f"{kind} is not named: {text!r}")
        need(not expert and not malformed, f"{text!r}: {expert} {malformed}")
        count[kind] += 1
    need(all(count[kind] > 4 for kind in types), f"only {dict(count)}")
    print(dict(count))


def cells(world, folder):
    capture = str(Path(folder) / "cells.pcapng")
    wire = Wire("near")
    environment = {**world.environment(0, HEDDLED), "VI_CELLS": "1", "VI_SERVER_NETWORK": f"/proc/{world.far.pid}/ns/net",
                   "VI_SERVER_DIR": str(world.folders[1]), "VI_SERVER_ETHER": NAMES[1], "HEDDLE_CAPTURE": capture}
    done = subprocess.run([VI], env=environment, capture_output=True, text=True, timeout=100)
    wire.stop()
    need(done.returncode == 0, f"{VI}: {done.returncode} {done.stderr[-300:]}")
    return capture, wire.frames


def packets(world, folder):
    capture = str(Path(folder) / "ci.pcapng")
    wire = Wire("near")
    server = world.start(1, HEDDLED, APERTURES, "serve", APERTURE_LINK="1")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, APERTURES, "use", gid, port, APERTURE_LINK="1", HEDDLE_CAPTURE=capture)
    client.communicate(timeout=60)
    server.communicate(timeout=60)
    wire.stop()
    need(client.returncode == 0 and server.returncode == 0, "apertures failed")
    return capture, wire.frames


def strange(frames):
    """Padding is not part of a cell; a cell that says another address than its frame is reported; so is damage."""
    cell = next(frame for frame in frames if frame[12:14] == b"\x88\xb6" and len(frame) < 60)
    other = next(frame for frame in frames if frame[12:14] == b"\x88\xb5")
    return [cell + bytes(10), cell[:6] + b"\x02" + cell[7:], cell[:40] + bytes([cell[40] ^ 1]) + cell[41:], other + bytes(7),
            other[:14] + b"HV\x02\x00" + bytes(8)]


def check_strange(lines):
    need(not lines[0][2] and ";" not in lines[0][1], f"padding: {lines[0]}")
    need("Not an address of the frame" in lines[1][2], f"another address: {lines[1]}")
    need("Wrong checksum" in lines[2][2], f"damage: {lines[2]}")
    need(not lines[3][2] and re.match(NAMED["0x88b5"], lines[3][1]), f"padding: {lines[3]}")
    need("Keep-alive" in lines[4][1], f"a link of virtual switches: {lines[4]}")


def main():
    if not shutil.which("tshark"):
        print("tshark is not installed")
        return SKIP
    if sys.argv[-1] != "inside":
        return outside(170)
    scripts = [str(Path(SCRIPTS) / f"heddle-{name}.lua") for name in ("cell", "ci", "ibc")]
    with tempfile.TemporaryDirectory() as folder:
        world = Hosts(folder, frames=True)
        try:
            capture, frames = cells(world, folder)
            check(tshark(capture, scripts[0], where=SCRIPTS), "0x88b6")
            more, others = packets(world, folder)
            check(tshark(more, "heddle-ci.lua", where=SCRIPTS), "0x88b5")
            path = str(Path(folder) / "wire.pcap")
            few = others + [frame for frame in frames if frame[12:14] == b"\x89\x15"][:20] + frames
            write(path, few[:MOST] + strange(few))
            for order in (scripts, scripts[::-1]):
                lines = tshark(path, *order)
                check(lines[:-5], "0x88b5", "0x88b6", "0x8915")
                check_strange(lines[-5:])
        except Bad as bad:
            print(bad)
            return 1
        finally:
            world.end()
    return 0


sys.exit(main())
