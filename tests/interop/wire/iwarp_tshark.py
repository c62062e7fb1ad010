#!/usr/bin/python3
"""Has tshark read what our iWARP encoders wrote: every field that iwarp_capture names must be there with its value,
every CRC must be good and nothing malformed.

  iwarp_tshark.py CAPTURE-PROGRAM

Exit 77: tshark is not installed.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

if not shutil.which("tshark"):
    print("skipped: tshark is not installed")
    sys.exit(77)


def number(text):
    text = {"true": "1", "false": "0"}.get(text.lower(), text)
    return int(text, 0) if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", text) else text


def same(shown, wanted, field):
    if field.endswith(("privatedata", "data.data", "pad", "term_ddp_seg_len", "term_ddp_h", "term_rdma_h")) or ".key." in field:
        return [s.replace(":", "").lower() for s in shown] == wanted
    return [number(s) for s in shown] == [number(w) for w in wanted]


def main():
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "iwarp.pcap"
        told = subprocess.run([sys.argv[1], capture], check=True, stdout=subprocess.PIPE, text=True).stdout
        # RPC over RDMA takes any Send for its own, even an empty one.
        tshark = ["tshark", "-n", "-r", str(capture), "--enable-heuristic", "iwarp_mpa_tcp",
                  "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct",
                  "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
        wanted = defaultdict(lambda: defaultdict(list))
        for line in told.splitlines():
            frame, field, value = line.split("\t")
            wanted[int(frame)][field].append(value)
        fields = sorted({f for frame in wanted.values() for f in frame if "." in f})
        columns = ["frame.number", "tcp.checksum.status", "_ws.malformed"] + fields
        args = [a for c in columns for a in ("-e", c)]
        shown = subprocess.run(tshark + ["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;"] + args,
                               check=True, stdout=subprocess.PIPE, text=True).stdout
        words = subprocess.run(tshark + ["-V"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return judge(wanted, columns, shown, words)


def judge(wanted, columns, shown, words):
    problems = []
    checked = 0
    rows = {}
    for line in shown.splitlines():
        row = dict(zip(columns, line.split("\t")))
        rows[int(row["frame.number"])] = row
        if row["tcp.checksum.status"] != "1":
            problems.append(f"frame {row['frame.number']}: bad TCP checksum")
        if row["_ws.malformed"]:
            problems.append(f"frame {row['frame.number']}: malformed")
    verbose = {int(re.match(r"\d+", part).group()): part for part in re.split(r"^Frame ", words, flags=re.M)[1:]}
    for frame, fields in wanted.items():
        for field, values in fields.items():
            checked += 1
            if field.startswith("crc "):
                good = "(Good CRC32)" in verbose[frame]
                if (field == "crc good") != good:
                    problems.append(f"frame {frame}: no {field}")
                continue
            got = [v for v in rows[frame][field].split(";") if v] if frame in rows else []
            if not same(got, values, field):
                problems.append(f"frame {frame}: {field} is {got}, not {values}")
    for bad in ("Malformed", "Bad CRC", "Dissector bug", "does not contain the expected length"):
        if bad in words:
            problems.append(f"tshark says: {bad}")
    for problem in problems[:40]:
        print(problem)
    print(f"{len(rows)} frames, {checked} fields checked, {len(problems)} problems")
    return 1 if problems or checked < 1000 else 0


sys.exit(main())
