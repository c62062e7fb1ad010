#!/usr/bin/python3
"""iWARP in captures: reads the TCP segments, MPA frames, FPDUs, DDP and RDMAP headers and every checksum without help from
Heddle, counts what the program did, and asks tshark.

  streams.py tcp PROGRAM     over TCP connections, by PROGRAM, which says what it did
  streams.py lanes PROGRAM   reconstructed from what it did over the same-host path
  streams.py rping FOLDER    the same by rping on heddle_iw0, whose messages are known

Exit 77: tshark is not installed; then everything else has been checked."""
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat"))
import programs
from capture import PACKET, SKIP, Bad, blocks, need
from captures import pattern

OPCODES = {0: "RDMA-Write", 1: "Read-Request", 2: "Read-Response", 3: "Send", 4: "Send", 5: "Send", 6: "Send", 7: "Terminate",
           8: "Immediate", 9: "Immediate", 10: "Atomic-Request", 11: "Atomic-Response"}
FIN, SYN, RST, ACK = 1, 2, 4, 16
KEYS = (b"MPA ID Req Frame", b"MPA ID Rep Frame")
NO_CRC, MARKERS = 1, 2  # of hdl_conn_flag
EVERY = 512  # octets between markers
CLASS = 0xB8  # that streams.c gives the connections of some

CRC32C = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC32C.append(byte)


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ CRC32C[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def ones(data):
    """The sum of RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Segment:
    def __init__(self, interface, direction, packet, comment):
        self.interface, self.direction, self.comment = interface, direction, comment
        if packet[0] >> 4 == 4:
            need(packet[9] == 6 and ones(packet[:20]) == 0xFFFF, "IPv4 header")
            need(int.from_bytes(packet[2:4], "big") == len(packet), "length of IPv4")
            source, target, tcp, self.traffic_class = packet[12:16], packet[16:20], packet[20:], packet[1]
        else:
            need(packet[6] == 6 and int.from_bytes(packet[4:6], "big") == len(packet) - 40, "IPv6 header")
            source, target, tcp = packet[8:24], packet[24:40], packet[40:]
            self.traffic_class = int.from_bytes(packet[:2], "big") >> 4 & 255
        need(ones(source + target + struct.pack(">HH", 6, len(tcp)) + tcp) == 0xFFFF, "TCP checksum")
        ports = struct.unpack(">HH", tcp[:4])
        self.seq, self.ack = struct.unpack(">II", tcp[4:12])
        self.flags, self.data = tcp[13], tcp[20:]
        self.ends = (source, ports[0]), (target, ports[1])


def options_of(rest):
    """Code and value of each option of a block."""
    while len(rest) >= 4:
        code, length = struct.unpack_from("=HH", rest)
        yield code, rest[4:4 + length]
        rest = rest[4 + (length + 3 & ~3):]


def segments(path):
    found = []
    for kind, body in blocks(path.read_bytes()):
        if kind == PACKET:
            interface, _, _, captured, length = struct.unpack_from("=IIIII", body)
            need(captured == length, "a segment is cut")
            options = dict(options_of(body[20 + (captured + 3 & ~3):]))
            direction = struct.unpack("=I", options[2])[0] & 3
            found.append(Segment(interface, direction, body[20:20 + captured], options.get(1, b"").decode()))
    return found


class Direction:
    """What one end says to the other: its frames and FPDUs, one a segment."""

    def __init__(self):
        self.next = None
        self.frame = None
        self.place = 0  # octets since the frame
        self.ended = False
        self.found = defaultdict(lambda: [0, 0])
        self.frames = 0

    def take(self, segment, back, crc):
        if segment.flags & SYN:
            need(self.next is None, "a second handshake")
            self.next = segment.seq + 1
            return
        need(segment.seq == self.next, f"sequence number {segment.seq}, not {self.next}")
        need(segment.ack == (back.next or 0), "acknowledgement number")
        self.next += len(segment.data) + (segment.flags & FIN)
        if segment.data:
            need(not self.ended, "data after FIN")
            self.fpdu(segment.data, back, crc) if self.frame else self.first(segment.data)
        self.ended = self.ended or bool(segment.flags & (FIN | RST))

    def first(self, data):
        need(data[:16] in KEYS and len(data) == 20 + int.from_bytes(data[18:20], "big"), "MPA frame")
        self.frame, self.frames = data, 1

    def fpdu(self, data, back, crc):
        """Markers are where the receiver has asked for them."""
        plain, covered = data, data[:-4]
        marked = back.frame[16] & 0x80
        if marked:  # a marker that follows the CRC belongs to the next FPDU; one may stand within the last four octets
            plain = bytes(octet for at, octet in enumerate(data) if (self.place + at) % EVERY >= 4)
            covered = self.covered(data)
        self.place += len(data)
        length = int.from_bytes(plain[:2], "big")
        need(len(plain) == length + 2 + (-(length + 2) % 4) + 4, f"an FPDU of {len(plain)} octets with length {length}")
        if crc:
            need(plain[-4:] == struct.pack("<I", crc32c(covered)), "CRC")
        if length:
            self.message(plain[2:2 + length])

    def covered(self, data):
        """All but the CRC: the last four octets that are no marker's."""
        keep, left = list(data), 4
        for at in range(len(data) - 1, -1, -1):
            if (self.place + at) % EVERY >= 4 and left:
                del keep[at]
                left -= 1
        return bytes(keep)

    def message(self, ulpdu):
        opcode = ulpdu[1] & 15
        need(ulpdu[1] >> 6 == 1 and ulpdu[0] & 3 == 1, "versions")
        header = 14 if ulpdu[0] & 0x80 else 18
        self.found[OPCODES[opcode]][0] += bool(ulpdu[0] & 0x40)
        if opcode in (0, 2, 3, 4, 5, 6):
            self.found[OPCODES[opcode]][1] += len(ulpdu) - header


def judge(path, wanted, crc, ends):
    count = defaultdict(lambda: [0, 0])
    flows, frames = {}, 0
    for segment in segments(path):
        key = segment.interface, segment.ends
        back = segment.interface, segment.ends[::-1]
        for name in (key, back):
            flows.setdefault(name, Direction())
        flows[key].take(segment, flows[back], crc)
    for flow in flows.values():
        frames += flow.frames
        need(flow.frames == 1, "a direction without MPA frame")
        for name, (number, size) in flow.found.items():
            count[name][0] += number
            count[name][1] += size
    need(frames == ends * wanted.pop("frames")[0], f"{frames} frames")
    for name, numbers in wanted.items():
        need(count[name] == [ends * number for number in numbers], f"{name}: {count[name]}, not {ends} times {numbers}")
    need(set(count) == set(wanted), f"{set(count) ^ set(wanted)}")
    return sum(number for number, _ in count.values())


def tshark(path, crc):
    """Every FPDU is found; its CRC is good; nothing is malformed."""
    words = subprocess.run(["tshark", "-n", "-r", str(path), "-V", "--enable-heuristic", "iwarp_mpa_tcp", "--disable-protocol",
                            "rpcordma", "--disable-protocol", "smb_direct", "-o", "tcp.check_checksum:TRUE", "-o",
                            "ip.check_checksum:TRUE"], check=True, capture_output=True, text=True).stdout
    for bad in ("Malformed", "Bad CRC", "Dissector bug", "incorrect", "does not contain the expected length", "bogus"):
        need(bad not in words, f"tshark says: {bad}")
    fpdus, good = len(re.findall("ULPDU length", words)), words.count("(Good CRC32)")
    need(fpdus > 0 and (good == fpdus or not crc), f"tshark finds {good} good CRCs in {fpdus} FPDUs")
    return fpdus


def look(path, what, wanted, crc=True, ends=1):
    """Judge the capture at @path by @wanted, and let tshark judge it if it is there."""
    messages = judge(path, wanted, crc, ends)
    seen = tshark(path, crc) if shutil.which("tshark") else "-"
    print(f"{what}: {messages} messages; FPDUs in tshark: {seen}")


def tcp(place, program):
    for way in ("one", "both", "class", "answer", str(NO_CRC), str(MARKERS), str(MARKERS | NO_CRC), "4", "8"):
        path = Path(place, f"{way}.pcapng")
        flags = int(way) if way.isdigit() else 0
        done = subprocess.run([program, path, way], stdout=subprocess.PIPE, text=True, timeout=100)
        need(done.returncode == 0, f"{way}: the program failed")
        wanted = {name: [int(word) for word in numbers] for name, *numbers in map(str.split, done.stdout.splitlines())}
        look(path, way, wanted, not flags & NO_CRC, 2 if way == "both" else 1)
        classes = {segment.traffic_class for segment in segments(path)}
        need(classes == {CLASS if way in ("class", "answer") else 0}, f"{way}: traffic classes {classes}")


def wanted_of(rows):
    """The messages of each kind, and their octets, that the requests of @rows are."""
    wanted = defaultdict(lambda: [0, 0])
    for _, _, operation, length, _, answer, _ in rows:
        kinds = {"read": ["Read-Request", "Read-Response"], "compare-swap": ["Atomic-Request", "Atomic-Response"],
                 "fetch-add": ["Atomic-Request", "Atomic-Response"]}.get(operation, ["RDMA-Write" if "write" in operation else "Send"])
        kinds += ["Immediate"] * operation.endswith("-imm") + ["Terminate"] * (answer == "access")
        for kind in kinds:
            wanted[kind][0] += 1
            wanted[kind][1] += int(length) if kind in ("Send", "RDMA-Write", "Read-Response") else 0
    return dict(wanted)


def lanes(place, program):
    """Each request is there once, whatever was repeated, with its octets and its name; the two connections end."""
    path = Path(place, "lanes.pcapng")
    done = subprocess.run([program, path, "iwarp"], stdout=subprocess.PIPE, text=True, timeout=100)
    need(done.returncode == 0, "the program failed")
    rows = [line.split() for line in done.stdout.splitlines()]
    named = defaultdict(list)
    for segment in segments(path):
        need(bool(segment.comment) == bool(segment.data and segment.data[:16] not in KEYS), "which segments have a comment")
        if segment.comment:
            named[int(re.match(r"wr_id (0x[0-9a-f]+),", segment.comment)[1], 16)].append(segment)
    for number, _, operation, length, *_ in rows:
        name = {"read": 2, "write": 0, "send": 3}.get(operation.split("-")[0])
        bodies = [s.data for s in named[int(number)] if s.data[3] & 15 == name or (name == 3 and s.data[3] & 15 == 4)]
        header = 2 + (14 if name in (0, 2) else 18)
        if name is not None:
            need(len(bodies) == 1, f"{number} {operation}: {len(bodies)} messages")
            data = bodies[0][header:2 + int.from_bytes(bodies[0][:2], "big")]
            need(data == pattern(int(length), int(number)), f"{number} {operation}: octets")
    ends = [segment for segment in segments(path) if segment.flags & FIN]
    need(len(ends) == 4, f"{len(ends)} directions end")
    look(path, "lanes", {"frames": [4], **wanted_of(rows)})


def rping(place, folder):
    """A ping is: an address, a read of it, a word, an address, a write to it, a word."""
    path, rounds = Path(place, "rping.pcapng"), 4
    server, client = ["rping", "-C", str(rounds), "-s"], ["rping", "-C", str(rounds), "-v", "-c", "-a", "127.0.0.1"]
    programs.connect_pair(folder, "rping on heddle_iw0", server, client, "--device", "heddle_iw0", "--capture", str(path))
    bodies, wanted = defaultdict(list), {"frames": [4]}
    for segment in segments(path):
        if segment.data and segment.data[:16] not in KEYS:
            end = 2 + int.from_bytes(segment.data[:2], "big")
            bodies[OPCODES[segment.data[3] & 15]].append(segment.data[2 + (14 if segment.data[2] & 0x80 else 18):end])
    for kind in ("RDMA-Write", "Read-Response"):
        words = [body.split(b"\0")[0] for body in bodies[kind]]
        need([word[:13] for word in words] == [b"rdma-ping-%d: " % i for i in range(rounds)], f"{kind} carries {words}")
        wanted[kind] = [rounds, sum(map(len, bodies[kind]))]
    need(len(bodies["Send"]) in (4 * rounds, 4 * rounds + 1), f"{len(bodies['Send'])} sends")  # perhaps the last go-ahead, too
    wanted |= {"Send": [len(bodies["Send"]), sum(map(len, bodies["Send"]))], "Read-Request": [rounds, 0]}
    look(path, "rping", wanted)


def main():
    mode, what = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        {"tcp": tcp, "lanes": lanes, "rping": rping}[mode](place, what)
    if not shutil.which("tshark"):
        print("skipped: tshark is not installed")
        return SKIP
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Bad as problem:
        print(f"FAILED: {problem}")
        sys.exit(1)
