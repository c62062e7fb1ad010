#!/usr/bin/python3
"""Apertures between two hosts (hosts.py): two network namespaces with a veth between them, an agent in each.

  apertures.py PROGRAM HEDDLED PART

PART is one of: address (whether link addresses can be checked), hosts (stores, reads, a plain store to the mapped range, with 1 % loss), killed (the survivor knows within a second),
unsent (a route that is missing and frames that are too large: an event at once, and nothing is lost in the end), routed (the same if a router sends them back), gave_up (a process that was stopped learns from its peer that it waits no
longer), busy (also one that has sent data which is not answered), deserted (the same when nothing is left of the other host but its kernel, and other processes share the survivor's port), hostile
(old packets from the peer's host and from another port change nothing), socat (a stranger gets a datagram), heard (datagrams of a stranger come to the variable queue), trust (the list of the
agent), cluster (the ends know each other by the numbers of a table, which are in every packet). With "ether-" before it, by Ethernet frames, and the ends check each other's MAC address; then also: forged (frames of others), link (goes down, comes back, has another MTU, is gone),
refused (what is said without the privilege, or without the interface). With "untrusted-" before it, neither agent trusts the program, whose frames take the way
through forwarders; then also: forwarder (is killed, and replaced). What the kernel or this machine does
not offer is a skip (exit 77) that says so."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hosts import A, B, NAMES, SKIP, Hosts, outside

PROGRAM, HEDDLED, PART = sys.argv[1:4]
PORT = 18490
SIX = "fd77::1", "fd77::2"
CI = b"\x88\xb5"


def hosts(world):
    link = {"APERTURE_LINK": "1"} if world.frames else {}
    server = world.start(1, HEDDLED, PROGRAM, "serve", **link)
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "use", gid, port, **link)
    out = client.communicate(timeout=100)[0]
    rest = server.communicate(timeout=100)[0]
    print(("1 % loss: " if world.lossy else "no loss: ") + out + rest)
    return client.returncode or server.returncode


def ipv6(world):
    """The programs know each other by IPv6 addresses alone; what they send is IPv6."""
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    for host, address in enumerate(SIX):
        world.run(host, f"ip addr add {address}/64 dev {NAMES[host]} nodad")
    recorder.bind(("near", 0))
    recorder.settimeout(0)
    server = world.start(1, HEDDLED, PROGRAM, "serve", HEDDLE_ADDR=SIX[1])
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "use", gid, port, HEDDLE_ADDR=SIX[0])
    out = client.communicate(timeout=100)[0]
    rest = server.communicate(timeout=100)[0]
    kinds = {6: 0, 4: 0}
    try:
        while True:
            frame = recorder.recv(65536)
            if frame[12:14] == b"\x86\xdd" and frame[20] == 17 and frame[56:58] == PORT.to_bytes(2, "big"):
                kinds[6] += 1
            elif frame[12:14] == b"\x08\x00" and frame[23] == 17:
                kinds[4] += 1
    except BlockingIOError:
        pass
    print(gid, kinds, out, rest)
    return client.returncode or server.returncode or (0 if gid == SIX[1] and kinds[6] > 20 and kinds[4] == 0 else 1)


def cluster(world):
    """Ends that connect by cluster address. Packets to an entry have that of its host, as in heddle-ci(7); a table that contradicts what is there is of no use; one that is wrong is refused."""
    tables = [world.folders[0].parent / name for name in ("cluster", "other", "wrong")]
    tables[0].write_text(f"# the same file everywhere\n17 {A}\n\n0x12 {B}\n")
    tables[1].write_text(f"17 {A}\n19 {B}\n")
    tables[2].write_text(f"17 {A}\n17 {B}\n")
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    recorder.bind(("near", 0))
    recorder.settimeout(0)
    server = world.start(1, HEDDLED, PROGRAM, "serve", HEDDLE_CLUSTER=str(tables[0]))
    _, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "use", "100::12", port, HEDDLE_CLUSTER=str(tables[0]))
    out = client.communicate(timeout=100)[0]
    rest = server.communicate(timeout=100)[0]
    said = {17: set(), 18: set()}
    entries = {17: 0, 18: 0, 0: 0}
    try:
        while True:
            frame = recorder.recv(65536)
            if frame[12:14] != b"\x08\x00" or frame[23] != 17 or int.from_bytes(frame[36:38], "big") != PORT:
                continue
            packet = frame[42:]
            own, there = (17, 18) if frame[26:30] == socket.inet_aton(A) else (18, 17)
            kind, number = packet[0], int.from_bytes(packet[2:4], "big")
            if kind in (5, 6):
                said[own].add(int.from_bytes(packet[16:20], "big"))
            entries[number if number == there else 0] += 1
    except BlockingIOError:
        pass
    print(said, entries, out, rest)
    good = client.returncode == 0 and server.returncode == 0 and said == {17: {17}, 18: {18}} and entries[17] > 5 and entries[18] > 20 and entries[0] == 0
    # Nobody has 19: the packet says so, and is dropped.
    server = world.start(1, HEDDLED, PROGRAM, "serve", HEDDLE_CLUSTER=str(tables[0]))
    _, port = server.stdout.readline().split()
    client, refused = (subprocess.run([PROGRAM, "use", to, port], env={**world.environment(0, HEDDLED), "HEDDLE_CLUSTER": str(table)}, capture_output=True, text=True, timeout=100)
                       for to, table in (("100::13", tables[1]), ("100::12", tables[2])))
    server.kill()
    server.communicate()
    words = refused.stderr
    print(client.returncode, client.stderr, refused.returncode, words)
    good = good and client.returncode != 0 and refused.returncode != 0 and "line 2 of" in words and "another host has that address" in words
    return 0 if good else 1


def address(world):
    out = world.start(0, HEDDLED, PROGRAM, "link").communicate(timeout=60)[0].splitlines()
    print(out)
    if not world.frames:
        return 0 if out == ["open: this kind of queue pair or adapter does not offer that operation"] else 1
    mac = world.mac(0)
    return 0 if out == ["connect: this kind of queue pair or adapter does not offer that operation",
                          "accept: an argument is out of range or contradicts another one", "the carrier cannot do that", mac] else 1


def record(world, recorder, running, seen):
    """What the program sends by frames, each once."""
    mac = bytes.fromhex(world.mac(0).replace(":", ""))
    while running.poll() is None:
        try:
            frame = recorder.recv(65536)
        except socket.timeout:
            continue
        if frame[12:14] == CI and frame[6:12] == mac and frame not in seen:
            seen.append(frame)
            yield frame


def forged(world):
    """Frames of the client are sent again: as they are, padded, from another address, to another, with a VLAN tag, cut short, of a link of virtual switches, from the server's own address.
    The filter lets four of them pass; the memory is right all the same."""
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    recorder.bind(("near", 0))
    recorder.settimeout(0.5)
    server = world.start(1, HEDDLED, PROGRAM, "serve", APERTURE_LINK="1")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "use", gid, port, APERTURE_LINK="1")
    seen = []
    for frame in record(world, recorder, client, seen):
        other = bytes([0x02, 0, 0, 0, 0, 0x99])
        for bad in (frame, frame + bytes(12), frame[:6] + other + frame[12:], other + frame[6:], frame[:12] + b"\x81\x00\x00\x05" + frame[12:],
                    frame[:14 + 7], frame[:14] + b"HV" + frame[16:], frame[:6] + frame[:6] + frame[12:], b"\xff" * 6 + frame[6:]):
            try:
                recorder.send(bad)
            except OSError:
                pass  # too long for the link
    out = client.stdout.read()
    rest = server.communicate(timeout=100)[0]
    print(f"{len(seen)} frames", out, rest)
    sent, counts = (dict(zip(text.split()[1::2], map(int, text.split()[2::2]))) for text in (out, rest))
    good = len(seen) > 20 and counts["frames_in"] <= sent["frames_out"] + 4 * len(seen) + 10 and counts.get("duplicates", 0) > 0 and counts.get("bad_link", 0) > 0 and counts.get("bad_frames", 0) == 0
    return client.returncode or server.returncode or (0 if good else 1)


def link(world):
    """Down for a second: nothing is lost. A smaller MTU than what is sent needs, and no interface at all: it is known at once."""
    cases = (("stay", "ip link set far down", "the peer has ended"), ("flood", "ip link set near mtu 600", "the carrier cannot do that"),
             ("stay", "ip link del near", "the carrier cannot do that"))
    for what, change, answer in cases:
        server = world.start(1, HEDDLED, PROGRAM, "serve")
        gid, port = server.stdout.readline().split()
        client = world.start(0, HEDDLED, PROGRAM, what, gid, port)
        assert client.stdout.readline() == "connected\n"
        world.run("far" in change, change)
        if "down" in change:
            time.sleep(1)
            world.run(1, "ip link set far up")
            server.kill()
        began = time.monotonic()
        why = client.stdout.readline().strip()
        took = time.monotonic() - began
        server.kill()
        server.wait()
        client.wait(timeout=60)
        print(f"{change}: {why!r} after {took:.2f} seconds")
        if why != answer or took > 3:  # 1 on a machine that is not loaded
            return 1
        if "mtu" in change:
            world.run(0, "ip link set near mtu 1500")
    return 0


def refused(world):
    """Bad input: an error that says what to do."""
    environment = {**world.environment(0, HEDDLED)}
    cases = [("near", ["setpriv", "--bounding-set", "-net_raw"], "unshare -Urn"), ("nothing", [], 'no interface \'nothing\' ("ip link" lists them)'),
             ("lo", [], "'lo' is not an Ethernet interface"), ("a-name-that-is-too-long", [], "no interface")]
    for name, before, said in cases:
        run = subprocess.run([*before, PROGRAM, "trust"], env={**environment, "HEDDLE_ETHER": name}, capture_output=True, text=True, timeout=60)
        print(name, run.returncode, run.stderr.strip())
        if run.returncode == 0 or said not in run.stderr:
            return 1
    return 0


def killed(world):
    server = world.start(1, HEDDLED, PROGRAM, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "stay", gid, port)
    assert client.stdout.readline() == "connected\n"
    time.sleep(0.6)  # ALIVE goes back and forth
    server.send_signal(signal.SIGKILL)
    began = time.monotonic()
    why = client.stdout.readline().strip()
    took = time.monotonic() - began
    server.wait()
    client.wait(timeout=60)
    print(f"{why!r} after {took:.2f} seconds")
    return 0 if why == "the peer has ended" and took < 3 else 1  # 1 on a machine that is not loaded


def busy(world):
    """The survivor has sent something to the process that was killed. Another process lives there, so that the agent has the port; it answers
    ALIVE, but data does not say who sent it."""
    other = world.start(1, HEDDLED, PROGRAM, "serve")
    assert other.stdout.readline()
    server = world.start(1, HEDDLED, PROGRAM, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "flood", gid, port)
    assert client.stdout.readline() == "connected\n"
    time.sleep(0.1)
    server.send_signal(signal.SIGKILL)
    began = time.monotonic()
    why = client.stdout.readline().strip()
    took = time.monotonic() - began
    for process in (server, other):
        process.kill()
        process.wait()
    client.wait(timeout=60)
    print(f"{why!r} after {took:.2f} seconds")
    return 0 if why == "the peer has ended" and took < 3 else 1


def watched(world, cases, address):
    """Each case: break the way to the server at @address, store something, see the error, repair the way, and everything arrives."""
    server = world.start(1, HEDDLED, PROGRAM, "serve", HEDDLE_ADDR=address)
    _, port = server.stdout.readline().split()
    client = subprocess.Popen([PROGRAM, "watch", f"::ffff:{address}", port], env=world.environment(0, HEDDLED), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "connected\n"

    def order(*lines):
        client.stdin.write("".join(line + "\n" for line in lines))
        client.stdin.flush()
        return client.stdout.readline().strip()

    for host, broken, repaired in cases:
        world.run(host, broken)
        began = time.monotonic()
        error = order("store 4000", "error")
        took = time.monotonic() - began
        world.run(host, repaired)
        arrived = order("placed")
        print(f"{broken}: {error!r} after {took:.2f} seconds; then {arrived}")
        if error != "carrier: the carrier cannot do that, checked" or took > 3 or arrived != "0":  # 1 on a machine that is not loaded
            server.kill()
            return 1
    client.stdin.close()
    server.kill()
    server.wait()
    return client.wait(timeout=60)


def unsent(world):
    """What the system does not send is an error of the carrier, at once. The connection stays: when the cause is over, everything arrives."""
    net = A.rsplit(".", 1)[0] + ".0/24"
    return watched(world, ((0, f"ip route del {net} dev near", f"ip route add {net} dev near src {A}"),
                           (0, "ip link set near mtu 600", "ip link set near mtu 1500")), B)


def routed(world):
    """The same if a router sends it back: the far host is the router to an address of its own, which it does not reach for a while."""
    world.run(0, f"ip route add 10.78.0.0/24 via {B}")
    world.run(1, "ip addr add 10.78.0.2/32 dev lo")
    world.run(1, "sysctl -qw net.ipv4.ip_forward=1")
    return watched(world, ((1, "ip route replace unreachable 10.78.0.2 table local",
                            "ip route replace local 10.78.0.2 dev lo table local proto kernel scope host src 10.78.0.2"),), "10.78.0.2")


def gave_up(world):
    """The client is stopped for longer than the server waits. When it goes on, what the server said last is there already."""
    server = world.start(1, HEDDLED, PROGRAM, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "stay", gid, port)
    assert client.stdout.readline() == "connected\n"
    time.sleep(0.5)
    client.send_signal(signal.SIGSTOP)
    time.sleep(6.5)  # 5 seconds of silence, after an ALIVE
    client.send_signal(signal.SIGCONT)
    began = time.monotonic()
    why = client.stdout.readline().strip()
    took = time.monotonic() - began
    server.kill()
    server.wait()
    client.wait(timeout=60)
    print(f"{why!r} after {took:.2f} seconds")
    return 0 if why == "the peer does not answer" and took < 3 else 1


def deserted(world):
    """The kernel gives an ICMP message to one of the sockets that share a port, by a hash of the addresses: so several addresses are tried."""
    others = [world.start(0, HEDDLED, PROGRAM, "serve") for _ in range(5)]
    for other in others:
        assert other.stdout.readline()
    others[2].kill()  # its socket stays, for the next process
    others[3].send_signal(signal.SIGSTOP)  # its socket is not read
    slowest = 0
    for last in range(2, 7):
        address = f"10.77.0.{last}"
        if address != B:
            world.run(1, f"ip addr add {address}/24 dev far")
        server = world.start(1, HEDDLED, PROGRAM, "serve", HEDDLE_ADDR=address)
        _, port = server.stdout.readline().split()
        client = world.start(0, HEDDLED, PROGRAM, "stay", f"::ffff:{address}", port)
        assert client.stdout.readline() == "connected\n"
        server.send_signal(signal.SIGSTOP)  # it would start another agent
        os.kill(int((world.folders[1] / "agent.lock").read_text().split()[0]), signal.SIGKILL)
        server.send_signal(signal.SIGKILL)
        began = time.monotonic()
        why = client.stdout.readline().strip()
        took = time.monotonic() - began
        server.wait()
        client.wait(timeout=60)
        print(f"{address}: {why!r} after {took:.2f} seconds")
        slowest = max(slowest, took if why == "the peer has ended" else 9)
    for other in others:
        other.kill()
        other.wait()
    return 0 if slowest < 3 else 1  # 1 on a machine that is not loaded


def hostile(world):
    """What the client sends is recorded on its own host and sent again: from the right port while the connection exists, and from another."""
    corpus = []
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    recorder.bind(("near", 0))
    server = world.start(1, HEDDLED, PROGRAM, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "use", gid, port)
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.bind((A, 0))
    recorder.settimeout(0.5)
    replayed = 0
    while client.poll() is None:
        try:
            frame = recorder.recv(65536)
        except socket.timeout:
            continue
        if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[26:30] != socket.inet_aton(A) or frame[34:36] != PORT.to_bytes(2, "big"):
            continue
        bare = frame[:40] + bytes(2) + frame[42:]  # the card computes the checksum; 0: none
        if bare in corpus:
            continue
        corpus.append(bare)
        for old in random.choices(corpus, k=5):
            recorder.send(old)  # as it was, with the client's own address and port
            stranger.sendto(old[42:], (B, PORT))
            replayed += 1
    out = client.stdout.read()
    rest = server.communicate(timeout=100)[0]
    print(f"{replayed} replayed", out, rest)
    return client.returncode or server.returncode or (0 if replayed > 10 and "duplicates" in rest and "bad_source" in rest else 1)


def socat(world):
    if not shutil.which("socat"):
        print("socat is not installed")
        return SKIP
    peer = subprocess.Popen([*world.enter, "socat", "-u", f"UDP4-RECVFROM:4000,bind={B}", "STDOUT"], stdout=subprocess.PIPE, text=True)
    for _ in range(100):
        if subprocess.run([*world.enter, "sh", "-c", "grep -q :0FA0 /proc/net/udp"]).returncode == 0:
            break
        time.sleep(0.05)
    client = world.start(0, HEDDLED, PROGRAM, "ip", f"::ffff:{B}", "4000", "4001")
    assert client.wait(timeout=60) == 0
    out = peer.communicate(timeout=30)[0]
    print(repr(out))
    return 0 if out == "hello, socat\n" else 1


def heard(world):
    """socat on the far host sends datagrams of any size; one from an address that does not match is counted and dropped."""
    if not shutil.which("socat"):
        print("socat is not installed")
        return SKIP
    subprocess.run([*world.enter, "ip", "addr", "add", "10.77.1.2/16", "dev", "far"], check=True)
    subprocess.run(["ip", "addr", "add", "10.77.1.1/16", "dev", "near"], check=True)
    program = world.start(0, HEDDLED, PROGRAM, "hear", "4002", f"::ffff:{B}", "120")  # 10.77.0.0/24
    assert program.stdout.readline() == "ready\n"
    chance = random.Random(4)
    datagrams = [b"hello, aperture", b"x", chance.randbytes(1400), chance.randbytes(9000), b"end"]

    def send(data, source):
        subprocess.run([*world.enter, "socat", "-u", "-b65000", "STDIN", f"UDP4-SENDTO:{A}:4002,bind={source}:4003"], input=data, check=True,
                       timeout=30)

    send(b"from elsewhere", "10.77.1.2")
    for data in datagrams:
        send(data, B)
        total = 0
        for byte in data:
            total = (total * 31 + byte) & 0xffffffff
        line = program.stdout.readline().split()
        print(line)
        if line != [f"::ffff:{B}", "4003", str(len(data)), str(total)]:
            return 1
    rest = program.stdout.read()
    print(rest)
    return program.wait(timeout=30) or (0 if "bad_source 1" in rest and f"events_in {len(datagrams)}" in rest else 1)


def trust(world):
    """The agent goes by the program that the kernel names, not by what the process says of itself."""
    listed = world.folders[0] / "untrusted"
    expected = [(None, "trusted allowed"), (Path(PROGRAM).name, "untrusted refused"), ("another", "trusted allowed"), (PROGRAM, "untrusted refused")]
    for name, answer in expected:
        listed.unlink(missing_ok=True)
        if name:
            listed.write_text(f"first\n{name}\n")
        out = world.start(0, HEDDLED, PROGRAM, "trust").communicate(timeout=60)[0].strip()
        print(name, out)
        if out != answer:
            return 1
    return 0


def forwarders(agent):
    """The forwarders of an agent, by pid."""
    return [int(pid) for pid in subprocess.run(["pgrep", "-P", agent, "-f", "forward"], capture_output=True, text=True).stdout.split()]


def forwarder(world):
    """The program knows at once when its forwarder is killed, and connects again through another, which ends with the program."""
    server = world.start(1, HEDDLED, PROGRAM, "keep")
    gid, port = server.stdout.readline().split()
    client = world.start(0, HEDDLED, PROGRAM, "again", gid, port)
    assert client.stdout.readline() == "connected\n"
    agent = (world.folders[0] / "agent.lock").read_text().split()[0]
    first = forwarders(agent)
    os.kill(first[0], signal.SIGKILL)
    began = time.monotonic()
    why = client.stdout.readline().strip()
    took = time.monotonic() - began
    again = client.stdout.readline().strip()
    second = forwarders(agent)
    for process in (server, client):
        process.kill()
        process.wait()
    for _ in range(100):
        if not forwarders(agent):
            break
        time.sleep(0.05)
    print(f"{first}: {why!r} after {took:.2f} seconds, then {again!r} by {second}, and {forwarders(agent)} are left")
    good = len(first) == 1 and len(second) == 1 and first != second and not forwarders(agent)
    return 0 if good and why == "the carrier cannot do that" and took < 1 and again == "connected" else 1


PARTS = {"forwarder": forwarder, "address": address, "hosts": hosts, "ipv6": ipv6, "killed": killed, "unsent": unsent, "routed": routed, "gave_up": gave_up, "busy": busy, "deserted": deserted, "hostile": hostile, "socat": socat, "heard": heard, "trust": trust, "forged": forged, "link": link,
         "refused": refused, "cluster": cluster}


def main():
    if len(sys.argv) < 5:
        return outside(150)
    with tempfile.TemporaryDirectory() as folder:
        part = PART.removeprefix("untrusted-")
        frames = part.startswith("ether-")
        part = part.removeprefix("ether-")
        world = Hosts(folder, part == "hosts", frames)
        if PART.startswith("untrusted-"):
            for at in world.folders:
                (at / "untrusted").write_text(Path(PROGRAM).name + "\n")
        try:
            return PARTS[part](world)
        finally:
            world.end()


sys.exit(main())
