#!/usr/bin/python3
"""Captures of the same-host path: is what was recorded what was done, as valid RoCEv2?

  captures.py FOLDER operations PROGRAM   every operation, by PROGRAM, which says what it did; and damage to the capture is noticed
  captures.py FOLDER wire PROGRAM         the same over a wire
  captures.py FOLDER loss PROGRAM         the same over a wire that loses packets: what is repeated says so
  captures.py FOLDER conform PROGRAM PORT [FILTER]  what the conformance suite does, errors, retries and lost memory included
  captures.py FOLDER pingpong             the examples of libibverbs
  captures.py FOLDER perftest             perftest, by each kind of copy
  captures.py FOLDER rdmacm               rping, whose messages are known
  captures.py FOLDER file                 what may be named as FILE, and who shares it

What a capture must be is judged by capture.py. FOLDER as in ../compat/programs.py. A missing program is a skip (exit 77) that says so."""
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat"))
import programs
from capture import RD, Bad, check, need, read, sort, tshark, wr_id
from programs import expect

TYPES = {"RC": 0x00, "UC": 0x20, "UD": 0x60, "XRC": 0xA0}


def pattern(length, number):
    return bytes((number * 31 + i * 7 + i // 256) & 0xFF for i in range(length))


def parts(length, mtu):
    """Lengths of the packets of a message."""
    return [min(mtu, length - at) for at in range(0, length, mtu)] or [0]


def segments(kind, count, suffix=""):
    if count == 1:
        return [f"{kind} only{suffix}"]
    return [f"{kind} first", *[f"{kind} middle"] * (count - 2), f"{kind} last{suffix}"]


def check_request(row, packets):
    """The packets of one request, in order, are those that @row tells of."""
    number, kind, operation, length, mtu, answer, value = row
    cut = parts(length, mtu)
    suffix = {"imm": " imm", "inv": " inv"}.get(operation.split("-")[-1], "")
    if operation in ("compare-swap", "fetch-add"):
        names = [operation.replace("-", " "), "atomic ack"]
    elif operation == "read":
        names = ["read request", *segments("response", len(cut))]
    else:
        request = segments(operation.split("-")[0], len(cut), suffix)
        names = {"ack": [*request, "ack"], "access": [*request, "ack"], "rnr": [*request, "ack", *request, "ack"]}.get(answer, request)
    while answer == "rnr" and len(packets) > len(names):
        names = names[:len(request) + 1] + names  # refused more than once
    need([packet.name for packet in packets] == names, f"{row}: {[packet.name for packet in packets]}, not {names}")
    need(all(packet.transport == TYPES[kind] for packet in packets), f"{row}: transport")
    check_payload(row, [packet for packet in packets if packet.name.startswith(("send", "write", "response"))], cut)
    check_headers(row, packets)


def check_payload(row, packets, cut):
    """The packets that carry the message, once or more often, carry its bytes."""
    number, _, _, length, _, answer, _ = row
    if answer == "gone":  # but for the first page
        need([packet.whole for packet in packets] == [True] * 4 + [False] * (len(cut) - 4), f"{row}: which packets are whole")
        packets, cut, length = packets[:4], cut[:4], 4096
    for at in range(0, len(packets), len(cut)):
        message = packets[at:at + len(cut)]
        need([len(packet.payload) for packet in message] == cut, f"{row}: lengths of packets")
        need(b"".join(packet.payload for packet in message) == pattern(length, number), f"{row}: payload")


def check_headers(row, packets):
    _, kind, operation, length, _, answer, value = row
    for packet in packets:
        if "i" in packet.headers or "k" in packet.headers:
            need(int.from_bytes(packet.headers.get("i", packet.headers.get("k")), "big") == value, f"{row}: immediate data or key")
        if "v" in packet.headers:
            need(int.from_bytes(packet.headers["v"], "big") == value, f"{row}: value of an atomic")
        if "r" in packet.headers:
            need(packet.dma_length == length and packet.rkey != 0 and packet.addr != 0, f"{row}: RETH")
        if "t" in packet.headers:
            swap_add, compare = int.from_bytes(packet.headers["t"][12:20], "big"), int.from_bytes(packet.headers["t"][20:], "big")
            need((swap_add, compare) == ((77, 5) if operation == "compare-swap" else (5, 0)), f"{row}: AtomicETH")
        if kind == "UD":
            need(packet.qkey == 0x1234 and packet.ip[7] == 9 and packet.ip[:4] == bytes.fromhex("60412345"), f"{row}: DETH or address handle")
    answers = [packet for packet in packets if "a" in packet.headers]
    if answers:
        codes = [packet.syndrome for packet in answers]
        last = {"access": 0x62}.get(answer, 0x1F)
        need(codes[-1] == last and all(code == (0x20 | 20 if answer == "rnr" else 0x1F) for code in codes[:-1]), f"{row}: syndromes {codes}")


def numbers(packets):
    """Are the MSNs of answers those of the messages?"""
    count = {}
    for packet in packets:
        if packet.transport in (0x00, 0xA0) and packet.is_ack() and "a" in packet.headers:
            flow = packet.dest_qp, packet.transport
            need(packet.msn in (count.get(flow, 0), count.get(flow, 0) + 1), f"{packet.comment}: MSN {packet.msn} after {count.get(flow, 0)}")
            count[flow] = packet.msn


def operations(folder, program):
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "operations.pcapng")
        done = subprocess.run([program, file], capture_output=True, text=True, timeout=120)
        expect("the operations succeed", done.returncode == 0, done.stdout, done.stderr)
        rows = [tuple(int(word) if word.isdigit() else word for word in line.split()) for line in done.stdout.splitlines()]
        interfaces, packets, statistics = check(file, repeats=True)
        need(len(interfaces) == 2, f"{len(interfaces)} interfaces")
        need(sorted(statistics) == [(0, len(packets), 0), (1, 0, 0)], f"statistics {statistics}")
        by_request = {row[0]: [] for row in rows}
        for packet in packets:
            by_request[wr_id(packet)].append(packet)
        for row in rows:
            check_request(row, by_request[row[0]])
        numbers(packets)
        expect(f"{len(rows)} requests are {len(packets)} packets", len(rows) > 150)
        damage(file)


def wire(folder, program):
    """Both ends of a wire record every packet: what goes out at the one comes in at the other."""
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "wire.pcapng")
        done = subprocess.run([program, file, "wire"], capture_output=True, text=True, timeout=120)
        expect("the operations succeed", done.returncode == 0, done.stdout, done.stderr)
        interfaces, packets, _ = read(file)
        tshark(file, packets)
        sort(file, packets)
        need(len(interfaces) == 2, f"{len(interfaces)} interfaces")
        need((2, False) in marks(packets), "an RNR NAK makes us send again")
        for sent, taken in ((0, 1), (1, 0)):
            out = [packet.raw for packet in packets if packet.interface == sent and packet.direction == 2]
            need(out == [packet.raw for packet in packets if packet.interface == taken and packet.direction == 1], "what went out did not come in")
            need(len(out) > 150, f"{len(out)} packets")
        of_request = {}
        for packet in packets:
            if packet.interface == 0:
                if packet.comment.startswith("wr_id"):
                    of_request.setdefault(wr_id(packet), []).append(packet)
        for line in done.stdout.splitlines():
            number, kind, operation, length, mtu, answer, _ = (int(word) if word.isdigit() else word for word in line.split())
            data = [packet for packet in of_request[number] if packet.name.startswith(("send", "write", "response"))]
            if operation not in ("compare-swap", "fetch-add"):
                cut = len(parts(length, mtu))
                need(len(data) > cut if answer == "rnr" else len(data) == cut, f"{line}: {len(data)} packets with data")
                need(b"".join(packet.payload for packet in data[-cut:]) == pattern(length, number), f"{line}: payload")
            need(all(packet.transport == TYPES[kind] for packet in of_request[number]), f"{line}: transport")
        expect(f"{len(packets)} packets of a wire", True)


def in_order(packets):
    """Marks packets of reliable connections, by a set of what was recorded: (packet, was it, or one behind it, recorded before?)"""
    highest, mtus = {}, mtus_of(packets)
    for packet in packets:
        if packet.transport not in (TYPES["RC"], TYPES["XRC"]) or packet.answer and "a" in packet.headers and not packet.is_ack():
            continue
        qpn = int(packet.comment.split("queue pair ")[1].split(",")[0], 0)
        flow = packet.interface, qpn, packet.direction, packet.answer
        psns = -(-packet.dma_length // mtus.get(qpn, 1 << 31)) or 1 if packet.name == "read request" else 1
        before = flow in highest and (packet.psn - highest[flow]) % (1 << 24) >= 1 << 23
        if not before:
            highest[flow] = (packet.psn + psns) % (1 << 24)
        yield packet, before


def mtus_of(packets):
    """Path MTUs, from the first packet of the first answer to a read that takes several, by the queue pairs at both ends."""
    mtus, peers = {}, {}
    for packet in packets:
        qpn = int(packet.comment.split("queue pair ")[1].split(",")[0], 0)
        peers.setdefault(qpn, set()).add(packet.dest_qp)
        if packet.name == "response first":
            mtus[qpn] = mtus[packet.dest_qp] = len(packet.payload)
    return mtus


def marks(packets):
    """Every packet names our queue pair; one that repeats another says so, and no other does."""
    for number, packet in enumerate(packets):
        need("queue pair 0x" in packet.comment, f"packet {number} ({packet.name}): comment {packet.comment!r}")
        need((packet.direction == 1) == packet.answer or packet.comment.startswith("queue pair"), f"{packet.name}: whose work request? {packet.comment}")
    found = set()
    for packet, before in in_order(packets):
        again = packet.comment.endswith(", again")
        need(again == before, f"{packet.name} {packet.psn:#x}, direction {packet.direction}: {packet.comment!r}, was it there before: {before}")
        if again:
            found.add((packet.direction, packet.answer))
    need(not any("again" in packet.comment for packet in packets if packet.transport in (TYPES["UC"], TYPES["UD"])), "nobody repeats these")
    return found


def loss(folder, program):
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "loss.pcapng")
        done = subprocess.run([program, file, "loss"], capture_output=True, text=True, timeout=120)
        expect("the operations succeed", done.returncode == 0, done.stdout, done.stderr)
        _, packets, _ = read(file)
        tshark(file, packets)
        found = marks(packets)
        need(len(found) == 4, f"what was repeated: {found}")
        expect(f"{sum('again' in packet.comment for packet in packets)} of {len(packets)} packets are repeated, and say so", True)


def damage(file):
    """A capture with a wrong byte is not taken for a good one."""
    good = Path(file).read_bytes()
    copy = file + ".damaged"
    places = [good.index(b"\x1f\0\0\1"), good.index(bytes.fromhex("12b7"), 400), len(good) - 8]
    packets = read(file)[1]
    for packet in (packets[len(packets) // 3], packets[len(packets) // 2]):  # in the ICRC, and in what it covers
        places += [good.index(packet.raw) + len(packet.raw) - back for back in (1, 6)]
    for place in places:
        for bit in (0x01, 0x80):
            bad = bytearray(good)
            bad[place] ^= bit
            Path(copy).write_bytes(bad)
            try:
                check(copy, repeats=True)
            except (Bad, ValueError, UnicodeDecodeError, subprocess.CalledProcessError):
                continue
            expect(f"damage at {place} is noticed", False)
    expect("damage is noticed", True)


def conform(folder, program, port, *only):
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "conform.pcapng")
        done = subprocess.run([program, port, *only], env=dict(os.environ, HEDDLE_CAPTURE=file), capture_output=True, text=True, timeout=250)
        expect(f"{port} passes while it is recorded", done.returncode == 0, done.stdout[-4000:], done.stderr[-4000:])
        interfaces, packets, _ = check(file, repeats="anew")
        kinds = {(packet.transport, packet.name) for packet in packets}
        refusals = {packet.syndrome for packet in packets if packet.name == "ack"}
        every = len(kinds) > 40 and {0x1F, 0x61, 0x62, 0x63} <= refusals and any(0x20 <= code < 0x40 for code in refusals)
        expect("reliable datagrams are recorded", {"send only imm", "write first", "atomic ack", "resync"} <= {name for kind, name in kinds if kind == RD})
        expect(f"{len(packets)} packets of {len(interfaces)} adapters, {len(kinds)} kinds, {len(refusals)} syndromes", every or only)


def captured(folder, what, start, names, repeats=False, least=1):
    """Run a pair of programs with @start and look at what both recorded to one file. @names: what must be there. Returns the packets."""
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "pair.pcapng")
        start("--capture", file)
        interfaces, packets, statistics = check(file, repeats)
        seen = {packet.name for packet in packets}
        need(len(interfaces) == 2 and set(names) <= seen, f"{what}: {len(interfaces)} interfaces, {sorted(seen)}")
        need(len(packets) >= least, f"{what}: {len(packets)} packets")
        need(sum(row[1] for row in statistics) == len(packets) and not any(row[2] for row in statistics), f"{what}: statistics {statistics}")
        print(f"ok: {what}: {len(packets)} packets")
        return packets


PINGPONG = """
ibv_rc_pingpong -g 0 -n 50 -s 3000 -m 1024 -p PORT | send first,send middle,send last,ack | 400
ibv_uc_pingpong -g 0 -n 50 -s 3000 -m 1024 -p PORT | send first,send middle,send last | 300
ibv_ud_pingpong -g 0 -n 50 -s 1000 -p PORT | send only | 100
ibv_srq_pingpong -g 0 -n 50 -p PORT | send first,send last,ack | 100
"""
PERFTEST = """
ib_send_lat -n 20 -s 2000 -p PORT | send only,ack | 40
ib_send_bw -n 50 -s 20000 -p PORT | send first,send middle,send last,ack | 250
ib_write_bw -n 50 -s 65536 -p PORT | write first,write middle,write last,ack | 800
ib_write_lat -n 20 -p PORT | write only,ack | 80
ib_read_lat -n 20 -s 20000 -p PORT | read request,response first,response middle,response last | 120
ib_atomic_lat -n 20 -p PORT | fetch add,atomic ack | 40
ib_send_lat -c UD -n 20 -p PORT | send only | 40
"""


def lines(text):
    for line in text.strip().splitlines():
        command, names, least = (part.strip() for part in line.split("|"))
        yield command, names.split(","), int(least)


def pairs(folder, text):
    for command, names, least in lines(text):
        words = command.split()
        captured(folder, command, lambda *options: programs.pair(folder, command, words, [*words, "localhost"], *options), names,
                 repeats="send" in command or "pingpong" in command, least=least)


def pingpong(folder):
    pairs(folder, PINGPONG)


def perftest(folder):
    pairs(folder, PERFTEST)
    os.environ["HEDDLE_COPY"] = "lane"
    pairs(folder, PERFTEST)


def rdmacm(folder):
    rounds = 4
    server, client = ["rping", "-C", str(rounds), "-s"], ["rping", "-C", str(rounds), "-v", "-c", "-a", "127.0.0.1"]
    packets = captured(folder, "rping", lambda *options: programs.connect_pair(folder, "rping", server, client, *options),
                       ["send only", "read request", "response only", "write only", "ack"], repeats=True)
    for name in ("response only", "write only"):
        texts = [packet.payload.split(b"\0")[0] for packet in packets if packet.name == name]
        need([text[:13] for text in texts] == [b"rdma-ping-%d: " % i for i in range(rounds)], f"rping: {name} carries {texts}")
        need(all(re.fullmatch(rb"rdma-ping-\d: [A-z]+", text) for text in texts), f"rping: {texts}")
    print("ok: rping's messages are there as they were sent")


def run(folder, *words, **options):
    return subprocess.run([os.path.join(folder, "heddle"), "run", *words], capture_output=True, text=True, timeout=60, **options)


def refused(folder, place):
    notes = os.path.join(place, "notes.txt")
    Path(notes).write_text("not a capture, and dear to somebody")
    for name, word in ((os.path.join(place, "no", "such"), "No such file"), (place, "directory"), (notes, "no capture")):
        done = run(folder, "--capture", name, "--", "sh", "-c", "echo it ran")
        expect(f"{name} is refused before the program starts", done.returncode == 1 and done.stdout == "" and word in done.stderr, done.stdout, done.stderr)
    expect("what is no capture is left alone", Path(notes).read_text().startswith("not a capture"))
    done = subprocess.run(["ibv_devinfo"], env=dict(os.environ, LD_LIBRARY_PATH=folder, HEDDLE_CAPTURE=notes), capture_output=True, text=True, timeout=60)
    expect("HEDDLE_CAPTURE is judged too", "no capture" in done.stderr and Path(notes).read_text().startswith("not a capture"), done.stdout, done.stderr)


def shared(folder, place):
    file = os.path.join(place, "shared.pcapng")
    for turn, devices in enumerate((2, 2)):
        run(folder, "--capture", file, "--", "sh", "-c", "ibv_devinfo; ibv_devinfo")
        interfaces, _, _ = read(file)
        expect(f"the programs of run {turn} share the file, and the run begins it anew", len(interfaces) == devices, str(interfaces))
    expect("it is private", os.stat(file).st_mode & 0o777 == 0o600)
    done = run(folder, "--capture", "relative.pcapng", "--", "sh", "-c", "cd / && ibv_devinfo", cwd=place)
    expect("a relative name is meant from where the command was", len(read(os.path.join(place, "relative.pcapng"))[0]) == 1, done.stderr)


def piped(folder, place):
    fifo = os.path.join(place, "fifo")
    os.mkfifo(fifo)
    got = []
    reader = threading.Thread(target=lambda: got.append(Path(fifo).read_bytes()))
    reader.start()
    keep = os.open(fifo, os.O_WRONLY)  # until the program has opened it
    run(folder, "--capture", fifo, "--", "ibv_devinfo")
    os.close(keep)
    reader.join(20)
    expect("a pipe is written to", len(got) == 1 and got[0][:4] == bytes.fromhex("0a0d0d0a"))
    done = run(folder, "--capture", fifo, "--", "ibv_devinfo")
    expect("a pipe that nobody reads is refused", done.returncode == 1 and done.stdout == "", done.stdout, done.stderr)


def file(folder):
    with tempfile.TemporaryDirectory() as place:
        refused(folder, place)
        shared(folder, place)
        piped(folder, place)


def main():
    folder, what, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    try:
        {"operations": operations, "wire": wire, "loss": loss, "conform": conform, "pingpong": pingpong, "perftest": perftest, "rdmacm": rdmacm, "file": file}[what](folder, *rest)
    except Bad as error:
        sys.exit(f"FAILED: {error}")


if __name__ == "__main__":
    main()
