#!/usr/bin/python3
"""CI packets in tshark, by the project's own dissector (docs/wireshark/heddle-ci.lua): every kind of packet has its name, every field is there,
nothing is malformed; a bit that changes is reported.

  ci.py CORPUS SCRIPT PAGE    CORPUS: frames, one per file (tests/fuzz/corpus/ci); PAGE: heddle-ci(7), which shows each of them in hex

The capture file is written here: Ethernet, IPv4, UDP. A missing tshark is a skip (exit 77) that says so."""
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capture import SKIP, Bad, need

PORT = 18490
NAMES = {"data": "DATA, 4 bytes at 48876", "plain": "DATA, 1 bytes at 48876", "event": "EVENT, 8 bytes at 64", "read": "READ, 4096 bytes",
         "response": "RESPONSE, 3 bytes", "connect": "CONNECT, port 4660", "accept": "ACCEPT, port 4661", "reject": "REJECT, a rule refuses it", "ticket": "REJECT, ticket",
         "close": "CLOSE, closed", "alive": "ALIVE", "aliveack": "ALIVEACK, 4097", "error": "ERROR, sequence, by the receiver",
         "damaged": "ERROR, damaged, by the carrier", "gave_up": "ERROR, silent, by the sender", "status": "STATUS",
         "statusack": "STATUSACK", "packed": "DATA, 4 bytes at 256; DATA, 4 bytes at 260; DATA, 2 bytes at 512; DATA, 1 bytes at 514; EVENT"}


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def datagram(payload):
    udp = struct.pack(">HHHH", PORT, PORT, 8 + len(payload), 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0x4000, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return bytes(12) + b"\x08\x00" + ip + udp + payload


def write(path, frames):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for frame in map(datagram, frames):
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def tshark(script, capture, *options):
    run = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-n", "-r", capture, *options], capture_output=True, text=True, timeout=100)
    errors = [line for line in run.stderr.splitlines() if "Running as user" not in line]
    need(run.returncode == 0 and not errors, f"tshark: {run.returncode} {errors}")
    return run.stdout


def lines(script, capture):
    fields = ("_ws.col.Info", "_ws.expert.message", "_ws.malformed")
    out = tshark(script, capture, "-T", "fields", *[x for field in fields for x in ("-e", field)])
    return [(line.split("\t") + ["", ""])[:3] for line in out.splitlines()]


def leaves(tree, found):
    for name, value in tree.items() if isinstance(tree, dict) else []:
        found.add(name)
        for item in value if isinstance(value, list) else [value]:
            leaves(item, found)


def check(corpus, script, folder):
    capture = str(Path(folder) / "ci.pcap")
    frames = {name: (Path(corpus) / name).read_bytes() for name in NAMES}
    write(capture, frames.values())
    shown = lines(script, capture)
    need(len(shown) == len(NAMES), f"{len(shown)} packets")
    for (info, expert, malformed), (name, text) in zip(shown, NAMES.items()):
        need(info == text, f"{name} is shown as {info!r}")
        need(not expert and not malformed, f"{name}: {expert} {malformed}")
    known = set(re.findall(r'ProtoField\.\w+\("([\w.]+)"', Path(script).read_text()))
    found = set()
    for packet in json.loads(tshark(script, capture, "-T", "json", "--no-duplicate-keys")):
        leaves(packet["_source"]["layers"], found)
    need(known and known <= found, f"fields that no packet has: {sorted(known - found)}")
    # A bit of each byte changes: it is reported, as a checksum or as a packet that makes no sense.
    data = frames["data"]
    write(capture, [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1:] for i in range(len(data))])
    for i, (info, expert, malformed) in enumerate(lines(script, capture)):
        need("Wrong checksum" in expert or "Not a valid packet" in expert, f"byte {i}: {info!r} {expert!r} {malformed!r}")
    print(f"{len(NAMES)} frames, {len(known)} fields, {len(data)} damaged")


def main():
    corpus, script, page = sys.argv[1:]
    text = re.sub(r"\s", "", Path(page).read_text())
    for name in NAMES:
        if (Path(corpus) / name).read_bytes().hex() not in text:
            print(f"{name} is not in {page}, byte for byte")
            return 1
    if not shutil.which("tshark"):
        print("tshark is not installed")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(corpus, script, folder)
        except Bad as bad:
            print(bad)
            return 1
    return 0


sys.exit(main())
