#!/usr/bin/python3
"""IBC packets in tshark, by the project's own dissector (docs/wireshark/heddle-ibc.lua): every packet has its name, every field is there, nothing is
malformed; damage to a packet is reported.

  ibc.py PROGRAM SCRIPT    PROGRAM writes the captures (ibc_packets.c)

A missing tshark is a skip (exit 77) that says so."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capture import SKIP, Bad, need

NAMES = {"damaged": None, "keep-alive": "Keep-alive"}


def tshark(script, capture, *options):
    run = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-n", "-r", capture, *options], capture_output=True, text=True, timeout=100)
    errors = [line for line in run.stderr.splitlines() if "Running as user" not in line]
    need(run.returncode == 0 and not errors, f"tshark: {run.returncode} {errors}")
    return run.stdout


def leaves(tree, found):
    """Every field name in the JSON of a packet."""
    for name, value in tree.items() if isinstance(tree, dict) else []:
        found.add(name)
        for item in value if isinstance(value, list) else [value]:
            leaves(item, found)


def check(program, script, folder, damaged):
    capture = str(Path(folder) / "ibc.pcapng")
    Path(capture).unlink(missing_ok=True)
    expected = subprocess.run([program, capture, *["damaged"] * damaged], capture_output=True, text=True, check=True).stdout.splitlines()
    info = tshark(script, capture, "-T", "fields", "-e", "_ws.col.Info", "-e", "_ws.expert.message", "-e", "_ws.malformed").splitlines()
    need(len(info) == len(expected), f"{len(info)} packets, not {len(expected)}")
    for line, what in zip(info, expected):
        text, expert, malformed = (line.split("\t") + ["", ""])[:3]
        if what == "damaged":
            need("Wrong checksum" in expert, f"damage was not reported: {line!r}")
            continue
        name = NAMES.get(what, what)
        shown = re.sub(r"^\d+ -> \d+ ", "", text)
        need(shown == name or shown.startswith((name + ",", name)), f"{what!r} is shown as {text!r}")
        need(not expert and not malformed, f"{what!r}: {expert} {malformed}")
    return capture


def check_fields(script, capture):
    """Every field that the dissector knows is in some packet of the capture."""
    text = Path(script).read_text()
    known = set(re.findall(r'ProtoField\.\w+\("([\w.]+)"', text))
    found = set()
    for packet in json.loads(tshark(script, capture, "-T", "json")):
        leaves(packet["_source"]["layers"], found)
    need(known and known <= found, f"fields that no packet has: {sorted(known - found)}")
    print(f"{len(known)} fields")


def check_example(script, capture):
    """The packet of heddle-ibc(7), field by field."""
    values = tshark(script, capture, "-Y", "heddle_ibc.type == 2", "-T", "fields", *[x for name in (
        "version", "type", "reverse", "pointer", "hops", "reason", "source", "destination", "length", "node", "guid", "transaction", "route",
        "payload") for x in ("-e", f"heddle_ibc.{name}")]).splitlines()[0].split("\t")
    expected = ["1", "2", "0", "1", "2", "0", "33", "40", "5", "104", "0x0000000000000001", "7", "3-2-63 [Fwd;1]", "68656c6c6f"]
    need(values == expected, f"{values}, not {expected}")


def main():
    program, script = sys.argv[1:]
    if not shutil.which("tshark"):
        print("tshark is not installed")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        try:
            capture = check(program, script, folder, False)
            check_fields(script, capture)
            check_example(script, capture)
            check(program, script, folder, True)
        except Bad as bad:
            print(bad)
            return 1
    return 0


sys.exit(main())
