"""Reads captures without help from Heddle: pcapng blocks, IP, UDP and InfiniBand headers, all checksums with Python's own CRC, and the order
in which requests and answers may follow each other. tshark is asked for its opinion besides, and reordercap to sort them."""
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

SKIP = 77
SECTION, INTERFACE, STATISTICS, PACKET, RESERVE = 0x0A0D0D0A, 1, 5, 6, 0x80484C44
INTERFACE_MOST = 400  # bytes that an interface and its statistics take of the reserve
RC, UC, RD, UD, XRC = 0x00, 0x20, 0x40, 0x60, 0xA0
# The lower five bits of an opcode: name, headers behind BTH (and XRCETH, DETH), may it carry a payload.
OPERATIONS = {
    0x00: ("send first", "", True), 0x01: ("send middle", "", True), 0x02: ("send last", "", True),
    0x03: ("send last imm", "i", True), 0x04: ("send only", "", True), 0x05: ("send only imm", "i", True),
    0x06: ("write first", "r", True), 0x07: ("write middle", "", True), 0x08: ("write last", "", True),
    0x09: ("write last imm", "i", True), 0x0A: ("write only", "r", True), 0x0B: ("write only imm", "ri", True),
    0x0C: ("read request", "r", False), 0x0D: ("response first", "a", True), 0x0E: ("response middle", "", True),
    0x0F: ("response last", "a", True), 0x10: ("response only", "a", True), 0x11: ("ack", "a", False),
    0x12: ("atomic ack", "av", False), 0x13: ("compare swap", "t", False), 0x14: ("fetch add", "t", False),
    0x15: ("resync", "", False), 0x16: ("send last inv", "k", True), 0x17: ("send only inv", "k", True),
}
HEADER_BYTES = {"r": 16, "t": 28, "a": 4, "v": 8, "i": 4, "k": 4}
ANSWERS = {"response first", "response middle", "response last", "response only", "ack", "atomic ack"}


# tshark's guesses at what a payload is. Ours are anything at all, and some of these take any payload for their own.
GUESSES = ["mellanox_eoib", "eth_over_ib", "fc_infiniband", "sdp_infiniband", "iser_infiniband", "lnet_ib", "rpcrdma_infiniband", "smb_direct_infiniband",
           "smcr_infiniband"]


# Bits of MPA's frames (RFC 5044 section 7.1, RFC 6581), and what Requests and Replies look like with what HEDDLE_MPA asks for.
MPA_FRAME = re.compile(rb"MPA ID (?:Req|Rep) Frame(.)(.)..(.?)", re.DOTALL)
MARKERS, CRC, ENHANCED = 0x80, 0x40, 0x10
PEER_TO_PEER = 0x80  # of IRD
NEGOTIATED = {
    "no-crc": lambda frames: not any(flags & CRC for flags, _, _ in frames),
    "revision-1": lambda frames: all(revision == 1 and not flags & ENHANCED for flags, revision, _ in frames),
    "client-server": lambda frames: all(flags & ENHANCED and not ird & PEER_TO_PEER for flags, _, ird in frames),
    "markers": lambda frames: any(flags & MARKERS for flags, _, _ in frames),
}


def negotiated(path, word):
    """Do the frames that set up connections of MPA in the capture at @path have what HEDDLE_MPA=@word asks for?"""
    frames = [tuple(int.from_bytes(part, "big") for part in found) for found in MPA_FRAME.findall(path.read_bytes())]
    return bool(frames) and NEGOTIATED[word](frames)


class Bad(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Bad(what)


def blocks(data):
    at = 0
    while at < len(data):
        need(len(data) - at >= 12, f"{len(data) - at} bytes are left at {at}")
        kind, length = struct.unpack_from("=II", data, at)
        need(length % 4 == 0 and 12 <= length <= len(data) - at, f"block {kind:#x} at {at} has length {length}")
        need(struct.unpack_from("=I", data, at + length - 4)[0] == length, f"block {kind:#x} at {at} ends with another length")
        yield kind, data[at + 8:at + length - 4]
        at += length


def options(body):
    found, at = {}, 0
    while at < len(body):
        code, length = struct.unpack_from("=HH", body, at)
        if code == 0:
            need(at + 4 == len(body) and length == 0, "something follows the last option")
            return found
        need(at + 4 + length <= len(body), f"option {code} is too long")
        found[code] = body[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    need(not body, "options without an end")
    return found


def internet_sum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Packet:
    """A packet, taken apart. @raw may be shorter than @length: then only its headers are known."""

    def __init__(self, raw, length, interface, time, comment, direction):
        self.interface, self.time, self.comment, self.direction = interface, time, comment, direction
        self.whole, self.raw = len(raw) == length, raw
        need(raw[0] >> 4 in (4, 6), "neither IPv4 nor IPv6")
        if raw[0] >> 4 == 4:
            need(raw[0] == 0x45 and struct.unpack_from(">H", raw, 2)[0] == length, "IPv4 length")
            need(internet_sum(raw[:20]) == 0xFFFF, "IPv4 checksum")
            need(raw[6:8] == b"\x40\0" and raw[9] == 17, "IPv4 fragment or not UDP")
            self.ip, self.src, self.dst = raw[:20], raw[12:16], raw[16:20]
            masked = raw[:1] + b"\xff" + raw[2:8] + b"\xff" + raw[9:10] + b"\xff\xff" + raw[12:20]
        else:
            need(struct.unpack_from(">H", raw, 4)[0] == length - 40 and raw[6] == 17, "IPv6 length or not UDP")
            self.ip, self.src, self.dst = raw[:40], raw[8:24], raw[24:40]
            masked = bytes([raw[0] | 0x0F]) + b"\xff\xff\xff" + raw[4:7] + b"\xff" + raw[8:40]
        udp = raw[len(self.ip):]
        source, port, udp_bytes, udp_sum = struct.unpack_from(">HHHH", udp)
        need(port == 4791 and source >= 0xC000 and udp_bytes == length - len(self.ip), "UDP header")
        if self.whole:
            need(udp_sum != 0 and internet_sum(self.src + self.dst + struct.pack(">HH", 17, len(udp)) + udp) == 0xFFFF, "UDP checksum")
        bth = udp[8:20]
        if self.whole:
            covered = b"\xff" * 8 + masked + udp[:6] + b"\xff\xff" + bth[:4] + b"\xff" + bth[5:] + udp[20:-4]
            need(struct.unpack("<I", udp[-4:])[0] == zlib.crc32(covered), "ICRC")
        self.take_transport(bth, udp[20:-4] if self.whole else udp[20:])

    def take_transport(self, bth, rest):
        self.transport, self.opcode = bth[0] & 0xE0, bth[0] & 0x1F
        need(self.transport in (RC, UC, RD, UD, XRC) and self.opcode in OPERATIONS, f"opcode {bth[0]:#x}")
        self.name, headers, payload = OPERATIONS[self.opcode]
        self.answer = self.name in ANSWERS
        self.solicited, pad = bool(bth[1] & 0x80), bth[1] >> 4 & 3
        need(bth[1] & 0x40 and not bth[1] & 0x0F and bth[2:4] == b"\xff\xff", "BTH flags or P_Key")
        self.dest_qp = int.from_bytes(bth[5:8], "big")
        self.ack_request, self.psn = bool(bth[8] & 0x80), int.from_bytes(bth[9:12], "big")
        at = 0
        if self.transport == UD:
            self.qkey, self.src_qp = struct.unpack_from(">II", rest)
            at = 8
        if self.transport == XRC and not self.answer:
            self.srq = struct.unpack_from(">I", rest)[0]
            at = 4
        if self.transport == RD:  # the context, and who asks through it
            self.context = struct.unpack_from(">I", rest)[0] & 0xFFFFFF
            at = 4 if self.answer else 12
        self.headers = {}
        for header in headers:
            self.headers[header] = rest[at:at + HEADER_BYTES[header]]
            at += HEADER_BYTES[header]
        if "r" in headers:
            self.addr, self.rkey, self.dma_length = struct.unpack(">QII", self.headers["r"])
        if "a" in headers:
            self.syndrome, self.msn = self.headers["a"][0], int.from_bytes(self.headers["a"][1:], "big")
        need(len(rest) >= at and (not self.whole or (len(rest) - at) % 4 == 0), "transport length")
        need(payload or len(rest) == at, f"{self.name} with a payload")
        need(pad <= len(rest) - at or not self.whole, "pad count")
        self.payload = rest[at:len(rest) - pad] if self.whole else None

    def is_ack(self):
        return self.answer and ("a" not in self.headers or self.syndrome >> 5 == 0)


def read(path):
    """(interfaces, packets, statistics) of a file of one section."""
    data = open(path, "rb").read()
    interfaces, packets, statistics, reserve = [], [], [], 0
    for index, (kind, body) in enumerate(blocks(data)):
        try:
            need((kind == SECTION) == (index == 0), "one section header, at the beginning")
            if kind == SECTION:
                need(struct.unpack_from("=IHHq", body) == (0x1A2B3C4D, 1, 0, -1), "section header")
                options(body[16:])
            elif kind == RESERVE:
                need(not packets, "the reserve comes before the first packet")
                reserve = len(body)
            elif kind == INTERFACE:
                need(not packets or reserve < INTERFACE_MOST, f"an interface after the first packet, with {reserve} bytes of reserve")
                link, _, snap = struct.unpack_from("=HHI", body)
                found = options(body[8:])
                need(link == 101 and snap == 0 and found[9] == b"\x09", "interface")
                interfaces.append(found[2].decode())
            elif kind == STATISTICS:
                found = options(body[12:])
                statistics.append((struct.unpack_from("=I", body)[0], *(struct.unpack("=Q", found[code])[0] for code in (4, 5))))
            else:
                need(kind == PACKET, f"block {kind:#x}")
                interface, high, low, captured, length = struct.unpack_from("=IIIII", body)
                need(interface < len(interfaces) and captured <= length, "packet block")
                end = 20 + (captured + 3) // 4 * 4
                found = options(body[end:])
                packets.append(Packet(body[20:20 + captured], length, interface, high << 32 | low, found.get(1, b"").decode(),
                                      struct.unpack("=I", found[2])[0]))
        except (Bad, struct.error, IndexError, KeyError) as error:
            raise Bad(f"{path}: block {index}: {error}") from error
    return interfaces, packets, statistics


def wr_id(packet):
    words = packet.comment.split()
    need(len(words) > 1 and words[0] == "wr_id", f"no wr_id in the comment {packet.comment!r}")
    return int(words[1].rstrip(","), 0)


def check_order(packets, repeats=False):
    """Packet numbers: requests of a flow are numbered without a gap, a read taking one a packet of its answer, and an answer is to what was
    asked before. @repeats: a message may go out again, with the numbers that it had; "anew": connections may begin anew besides."""
    flows = defaultdict(dict)  # by (interface, transport, requester's queue pair): state
    mtus = mtus_of(packets)
    for number, packet in enumerate(packets):
        where = f"packet {number} ({packet.name}, {packet.comment})"
        qpn = int(packet.comment.split("queue pair ")[1].split(",")[0], 0)
        flow = flows[packet.interface, packet.transport, qpn]
        need(packet.direction == (1 if packet.answer else 2), f"{where}: direction")
        if packet.answer:
            need(packet.dest_qp == qpn, f"{where}: an answer to another queue pair")
            need(packet.psn in flow.get("asked", {}), f"{where}: PSN {packet.psn} was not asked")
            need(flow["asked"][packet.psn] == wr_id(packet), f"{where}: PSN {packet.psn} is of another request")
            if packet.name.startswith("response") or packet.name == "atomic ack":
                need(flow["reads"].get(packet.psn) == packet.name.split()[0], f"{where}: an answer that was not asked for")
            else:
                need(packet.syndrome >> 5 in (0, 1, 3), f"{where}: syndrome {packet.syndrome:#x}")
                need(not packet.is_ack() or packet.psn in flow["ends"], f"{where}: an ACK of what is not the end of a message, or of a read")
            continue
        due = flow.get("next")
        if due is not None and packet.psn != due:
            again = flow["asked"].get(packet.psn) == wr_id(packet)
            need(repeats == "anew" or repeats and again, f"{where}: PSN {packet.psn} where {due} is due")
        takes = 1
        if packet.name == "read request":
            if "mtu" not in flow:
                flow["mtu"] = mtus.get((packet.interface, qpn), 1 << 31)
            takes = max(1, -(-packet.dma_length // flow["mtu"]))
            for i in range(takes):
                flow.setdefault("reads", {})[(packet.psn + i) % (1 << 24)] = "response"
        elif packet.opcode in (0x13, 0x14):
            flow.setdefault("reads", {})[packet.psn] = "atomic"
        else:
            flow.setdefault("reads", {})
        for i in range(takes):
            flow.setdefault("asked", {})[(packet.psn + i) % (1 << 24)] = wr_id(packet)
            if packet.name != "read request" and packet.opcode not in (0x13, 0x14):
                flow["reads"].pop(packet.psn, None)
        ends = flow.setdefault("ends", set())
        ends.difference_update(range(packet.psn, packet.psn + takes))
        if "last" in packet.name or "only" in packet.name:
            ends.add(packet.psn)
        flow["next"] = (packet.psn + takes) % (1 << 24)


def mtus_of(packets):
    """Path MTUs by interface and queue pair, from the first packet of the first answer to a read that takes several."""
    mtus = {}
    for packet in packets:
        if packet.name == "response first" and packet.whole:
            mtus.setdefault((packet.interface, packet.dest_qp), len(packet.payload))
    return mtus


def tshark(path, packets):
    """What tshark says: everything dissected as InfiniBand, nothing malformed, no error, the comments there."""
    if shutil.which("tshark") is None:
        print("tshark is not installed: its opinion is not asked")
        return
    columns = ["frame.number", "frame.protocols", "_ws.malformed", "_ws.expert.severity", "infiniband.bth.psn", "infiniband.bth.destqp", "frame.comment",
               "ip.checksum.status", "udp.checksum.status", "infiniband.bth.opcode"]
    command = ["tshark", "-n", "-r", path, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=|"]
    for guess in GUESSES:
        command += ["--disable-heuristic", guess]
    shown = subprocess.run([*command, *(word for column in columns for word in ("-e", column))], check=True, capture_output=True, text=True)
    lines = shown.stdout.splitlines()
    need(len(lines) == len(packets), f"tshark shows {len(lines)} packets of {len(packets)}: {shown.stderr}")
    for line, packet in zip(lines, packets):
        row = dict(zip(columns, line.split("|")))
        protocols = row["frame.protocols"].split(":")
        need(protocols[0] == "raw" and protocols[2:4] == ["udp", "infiniband"], f"tshark: {line}")
        if packet.transport == RD:
            continue  # Wireshark looks for the immediate data and the RETH in the wrong place
        need(not row["_ws.malformed"], f"tshark: malformed: {line}")
        worst = max((int(word) for word in row["_ws.expert.severity"].split(",") if word), default=0)
        need(worst < 0x600000, f"tshark: an expert's warning: {line}")
        need(row["infiniband.bth.psn"] == str(packet.psn) and int(row["infiniband.bth.destqp"], 0) == packet.dest_qp
             and int(row["infiniband.bth.opcode"], 0) == packet.transport | packet.opcode, f"tshark: {line}")
        need(row["frame.comment"] == packet.comment, f"tshark: comment: {line}")
        if packet.whole:
            need(row["udp.checksum.status"] == "1" and row["ip.checksum.status"] in ("", "1"), f"tshark: checksum: {line}")


def sort(path, packets):
    """What reordercap says: it takes the file, and every packet comes out, by time, as it went in. (It wants all interfaces before the first packet;
    with hundreds of writers the reserve for them is used up.)"""
    kinds = [kind for kind, _ in blocks(Path(path).read_bytes())]
    if PACKET in kinds and INTERFACE in kinds[kinds.index(PACKET):]:
        print("more interfaces than the reserve has room for: not sorted")
        return
    if shutil.which("reordercap") is None:
        print("reordercap is not installed: captures are not sorted")
        return
    with tempfile.NamedTemporaryFile(suffix=".pcapng") as out:
        done = subprocess.run(["reordercap", path, out.name], capture_output=True, text=True)
        need(done.returncode == 0 and not done.stderr, f"reordercap: {done.stderr}")
        found = []
        for kind, body in blocks(Path(out.name).read_bytes()):
            if kind == PACKET:
                interface, high, low, captured, _ = struct.unpack_from("=IIIII", body)
                found.append((high << 32 | low, interface, body[20:20 + captured]))
    need([row[0] for row in found] == sorted(packet.time for packet in packets), "reordercap: times")
    need(sorted(found) == sorted((packet.time, packet.interface, packet.raw) for packet in packets), "reordercap: packets")


def check(path, repeats=False):
    """All of the above; @repeats as for check_order(). Returns (interfaces, packets, statistics)."""
    interfaces, packets, statistics = read(path)
    # Reliable datagrams are packets in lanes, too, which both ends record; they are numbered by context.
    asked = [packet for packet in packets if packet.transport != RD]
    for packet in asked:
        wr_id(packet)
    check_order(asked, repeats)
    tshark(path, packets)
    sort(path, packets)
    return interfaces, packets, statistics


if __name__ == "__main__":
    try:
        names, found, told = check(sys.argv[1], "anew" if "--anew" in sys.argv else "--repeats" in sys.argv)
        print(f"{len(found)} packets, {len(names)} interfaces, {sum(row[2] for row in told)} left out")
    except Bad as error:
        sys.exit(f"FAILED: {error}")
