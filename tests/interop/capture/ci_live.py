#!/usr/bin/python3
"""CI packets of two programs that talk through lanes and over UDP, in a capture (X6): every packet has its name, nothing is malformed, no
checksum is wrong, and each frame is there twice, as it left and as it came.

  ci_live.py PROGRAM HEDDLED SCRIPT    PROGRAM: tests/interop/wire/apertures.c

A missing tshark is a skip (exit 77) that says so."""
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capture import SKIP, Bad, need

PROGRAM, HEDDLED, SCRIPT = sys.argv[1:]
KINDS = ("STATUS", "STATUSACK", "CONNECT, port", "ACCEPT, port", "REJECT, nobody holds", "REJECT, ticket", "DATA, ", "READ, ", "RESPONSE, ", "ALIVEACK", "CLOSE")
FIELDS = ("_ws.col.Info", "frame.packet_flags_direction", "udp.payload", "_ws.expert.message", "_ws.malformed", "udp.dstport", "frame.protocols")


def record(folder, **more):
    capture = str(Path(folder) / "live.pcapng")
    environment = {**os.environ, "HEDDLE_DIR": folder, "HEDDLE_AGENT": HEDDLED, "HEDDLE_CAPTURE": capture, **more}
    environment.pop("HEDDLE_NODE", None)
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=100)
    need(done.returncode == 0, f"{PROGRAM}: {done.stdout} {done.stderr}")
    return capture


def check(way, capture):
    options = [x for field in FIELDS for x in ("-e", field)]
    run = subprocess.run(["tshark", "-X", f"lua_script:{SCRIPT}", "-n", "-r", capture, "-o", "ip.check_checksum:TRUE", "-o",
                          "udp.check_checksum:TRUE", "-T", "fields", *options], capture_output=True, text=True, timeout=100)
    errors = [line for line in run.stderr.splitlines() if "Running as user" not in line]
    need(run.returncode == 0 and not errors, f"tshark: {errors}")
    rows = [(line.split("\t") + [""] * 6)[:7] for line in run.stdout.splitlines()]
    sent, came, named = Counter(), Counter(), Counter()
    for info, direction, payload, expert, malformed, port, protocols in rows:
        need(not expert and not malformed, f"{way}: {info}: {expert} {malformed}")
        need(port == "18490" and protocols.endswith(":heddle_ci"), f"{way}: port {port}, {protocols}")
        (sent if int(direction, 0) & 3 == 2 else came)[payload] += 1
        for part in info.split("; "):
            need(any(part.startswith(kind) for kind in (*KINDS, "ALIVE", "ERROR", "EVENT")), f"{way}: {part!r}")
            named.update(kind for kind in KINDS if part.startswith(kind))
    # On one machine the agent knows who holds a port, and nobody has to be asked.
    missing = [kind for kind in KINDS if not named[kind] and (way, kind[:6]) != ("lanes", "REJECT")]
    need(not missing, f"{way}: no {missing}")
    for info, direction, payload, *_ in rows:
        if info.startswith("REJECT, nobody holds"):
            came.pop(payload, None)  # the agent sends these
    # On the loopback nothing gets lost; the last frames may be on their way when an end closes.
    need(not came - sent, f"{way}: {len(came - sent)} frames came that nobody sent")
    need(sum((sent - came).values()) <= 8, f"{way}: {sum((sent - came).values())} of {len(rows)} frames did not come")
    print(f"{way}: {len(rows)} frames")


def main():
    if not shutil.which("tshark"):
        print("tshark is not installed")
        return SKIP
    for way, more in (("lanes", {}), ("UDP", {"HEDDLE_LOCAL": "off"})):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(way, record(folder, **more))
            except Bad as bad:
                print(bad)
                return 1
    return 0


sys.exit(main())
