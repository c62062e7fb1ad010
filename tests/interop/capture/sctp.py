#!/usr/bin/python3
"""RDMA over SCTP in captures: reads UDP, SCTP, DDP and RDMAP headers and every checksum without help from Heddle, counts what the program
did, and asks tshark.

  sctp.py PROGRAM

Exit 77: tshark is not installed; then everything else has been checked."""
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from capture import PACKET, SKIP, Bad, blocks, need
from streams import OPCODES, crc32c, ones

DATA, INIT, INIT_ACK, SACK, SHUTDOWN = 0, 1, 2, 3, 7
ADAPTATION, ADAPTATION_TYPE = 1, 0xC006
SEGMENT, CONTROL = 16, 17
INITIATE, ACCEPT, TERMINATE = 5, 6, 4  # the enhanced ones
CLASS = 0xB8


def packets(path):
    """Every SCTP packet: (its ends, its traffic class, its octets)."""
    for kind, body in blocks(path.read_bytes()):
        if kind != PACKET:
            continue
        captured, length = struct.unpack_from("=II", body, 12)
        packet = body[20:20 + captured]
        need(captured == length, "a packet is cut")
        if packet[0] >> 4 == 4:
            need(packet[9] == 17 and ones(packet[:20]) == 0xFFFF, "IPv4 header")
            source, target, udp, tos = packet[12:16], packet[16:20], packet[20:], packet[1]
        else:
            need(packet[6] == 17 and int.from_bytes(packet[4:6], "big") == len(packet) - 40, "IPv6 header")
            source, target, udp, tos = packet[8:24], packet[24:40], packet[40:], (packet[0] << 8 | packet[1]) >> 4 & 255
        need(ones(source + target + struct.pack(">HH", 17, len(udp)) + udp) == 0xFFFF, "UDP checksum")
        ports = struct.unpack(">HH", udp[:4])
        need(9899 in ports and int.from_bytes(udp[4:6], "big") == len(udp), "UDP header")
        sctp = udp[8:]
        need(crc32c(sctp[:8] + bytes(4) + sctp[12:]) == int.from_bytes(sctp[8:12], "little"), "checksum of SCTP")
        yield (source, sctp[:2], target, sctp[2:4]), tos, sctp


def chunks(sctp):
    at = 12
    while at < len(sctp):
        kind, flags, length = struct.unpack_from(">BBH", sctp, at)
        need(length >= 4 and at + length <= len(sctp), "length of a chunk")
        yield kind, flags, sctp[at + 4:at + length]
        at += length + 3 & ~3


def adaptation(body):
    """The code that an INIT or INIT ACK announces."""
    at = 16
    while at + 4 <= len(body):
        kind, length = struct.unpack_from(">HH", body, at)
        if kind == ADAPTATION_TYPE:
            return int.from_bytes(body[at + 4:at + 8], "big")
        at += length + 3 & ~3
    return None


class Direction:
    def __init__(self):
        self.tsns, self.ssns, self.acknowledged = set(), [], set()
        self.found = defaultdict(lambda: [0, 0])
        self.codes = []

    def data(self, flags, body):
        tsn, stream, _, ppid = struct.unpack_from(">IHHI", body)
        if tsn in self.tsns:
            return  # sent again
        self.tsns.add(tsn)
        need(flags & 7 == 7 and stream == 0, "a message that is ordered, or in pieces")
        message = body[12:]
        self.ssns.append(int.from_bytes(message[:2], "big"))
        if ppid == CONTROL:
            self.codes.append(int.from_bytes(message[2:4], "big"))
            need((self.codes[-1] == TERMINATE) == (len(message) == 4), "private data")
            need(len(message) == 4 or message[8:] == b"private", "private data")
            return
        need(ppid == SEGMENT, f"payload protocol identifier {ppid}")
        ddp = message[2:]
        need(ddp[1] >> 6 == 1 and ddp[0] & 3 == 1, "versions")
        opcode = ddp[1] & 15
        self.found[OPCODES[opcode]][0] += bool(ddp[0] & 0x40)
        if opcode in (0, 2, 3, 4, 5, 6):
            self.found[OPCODES[opcode]][1] += len(ddp) - (14 if ddp[0] & 0x80 else 18)


def judge(path, wanted):
    flows, count, classes = {}, defaultdict(lambda: [0, 0]), set()
    for ends, tos, sctp in packets(path):
        flow = flows.setdefault(ends, Direction())
        classes.add(tos)
        for kind, flags, body in chunks(sctp):
            if kind in (INIT, INIT_ACK):
                need(adaptation(body) == ADAPTATION, "adaptation indication")
            elif kind == DATA:
                need(tos == CLASS, f"traffic class {tos} of data, in either direction")
                flow.data(flags, body)
            elif kind in (SACK, SHUTDOWN):  # of what comes the other way
                flow.acknowledged.add(int.from_bytes(body[:4], "big"))
    need(classes <= {0, CLASS} and CLASS in classes, f"traffic classes {classes}")
    for (source, port, target, to), flow in flows.items():
        first = min(flow.tsns)
        last = max((tsn - first) % 2**32 for tsn in flow.tsns)
        back = flows[target, to, source, port].acknowledged
        known = [offset for tsn in back if (offset := (tsn - first) % 2**32) <= last]
        need(known and max(known) >= last // 2, "data is acknowledged")  # the end may be an ABORT
        need(sorted(flow.ssns) == list(range(len(flow.ssns))), "DDP-SSNs")
        need(flow.codes[0] in (INITIATE, ACCEPT) and set(flow.codes[1:]) <= {TERMINATE}, f"control messages {flow.codes}")
        for name, (number, size) in flow.found.items():
            count[name][0] += number
            count[name][1] += size
    need(len(flows) == wanted.pop("frames")[0], f"{len(flows)} directions")
    for name, numbers in wanted.items():
        need(count[name] == numbers, f"{name}: {count[name]}, not {numbers}")
    need(set(count) == set(wanted), f"{set(count) ^ set(wanted)}")
    return sum(number for number, _ in count.values())


def tshark(path):
    """SCTP is found in every packet, with a good checksum; nothing is malformed."""
    words = subprocess.run(["tshark", "-n", "-r", str(path), "-V", "-o", "sctp.checksum:CRC32c", "-o", "udp.check_checksum:TRUE", "-o",
                            "ip.check_checksum:TRUE"], check=True, capture_output=True, text=True).stdout
    for bad in ("Malformed", "Dissector bug", "incorrect", "[Bad]", "bogus", "Bad:"):
        need(bad not in words, f"tshark says: {bad}")
    frames, good = words.count("\nFrame ") + words.startswith("Frame "), words.count("Stream Control Transmission Protocol, ")
    need(good == frames > 0, f"tshark finds SCTP in {good} of {frames} packets")
    for name in ("DDP Segment Chunk", "DDP Stream Session Control", "Adaptation Layer Indication"):
        need(name in words, f"tshark does not say {name}")
    return frames


def main():
    program, skipped = sys.argv[1], not shutil.which("tshark")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "sctp.pcapng")
        done = subprocess.run([program, path, "sctp"], stdout=subprocess.PIPE, text=True, timeout=100)
        need(done.returncode == 0, "the program failed")
        wanted = {name: [int(word) for word in numbers] for name, *numbers in map(str.split, done.stdout.splitlines())}
        messages = judge(path, wanted)
        seen = "-" if skipped else tshark(path)
        print(f"{messages} messages; packets in tshark: {seen}")
    if skipped:
        print("skipped: tshark is not installed")
    return SKIP if skipped else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Bad as problem:
        print(f"FAILED: {problem}")
        sys.exit(1)
