#!/usr/bin/python3
"""Apertures between two hosts: two network namespaces with a veth between them, an agent in each.

  apertures.py PROGRAM HEDDLED PART

PART is one of: hosts (stores, reads, a plain store to the mapped range, with 1 % loss), killed (the survivor knows within a second), hostile
(old packets from the peer's host and from another port change nothing), socat (a stranger gets a datagram), heard
(datagrams of a stranger come to the variable queue), trust (the list of the agent). What the kernel or this machine does
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

SKIP = 77
PROGRAM, HEDDLED, PART = sys.argv[1:4]
A, B = "10.77.0.1", "10.77.0.2"
PORT = 18490


def outside():
    """Run this script again in namespaces of its own."""
    how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*how, "ip", "link"], capture_output=True).returncode != 0:
        print("no network namespaces here")
        return SKIP
    return subprocess.run([*how, sys.executable, __file__, *sys.argv[1:4], "inside"], timeout=150).returncode


class Hosts:
    def __init__(self, folder, loss):
        self.far = subprocess.Popen(["unshare", "-n", "sleep", "140"])
        for _ in range(200):
            if os.readlink(f"/proc/{self.far.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                break
            time.sleep(0.01)
        self.enter = ["nsenter", "-t", str(self.far.pid), "-n"]
        for command in ("ip link add near type veth peer name far", f"ip link set far netns {self.far.pid}", f"ip addr add {A}/24 dev near",
                        "ip link set near up", "ip link set lo up"):
            subprocess.run(command.split(), check=True)
        for command in (f"ip addr add {B}/24 dev far", "ip link set far up", "ip link set lo up"):
            subprocess.run([*self.enter, *command.split()], check=True)
        self.lossy = loss and subprocess.run("tc qdisc add dev near root netem loss 1%".split(), capture_output=True).returncode == 0
        self.folders = [Path(folder) / "a", Path(folder) / "b"]
        for at in self.folders:
            at.mkdir(mode=0o700)

    def start(self, host, *arguments):
        environment = {**os.environ, "HEDDLE_DIR": str(self.folders[host]), "HEDDLE_ADDR": (A, B)[host], "HEDDLE_AGENT": HEDDLED}
        return subprocess.Popen([*(self.enter if host else []), PROGRAM, *arguments], env=environment, stdout=subprocess.PIPE, text=True)

    def end(self):
        self.far.kill()
        self.far.wait()


def hosts(world):
    server = world.start(1, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, "use", gid, port)
    out = client.communicate(timeout=100)[0]
    rest = server.communicate(timeout=100)[0]
    print(("1 % loss: " if world.lossy else "no loss: ") + out + rest)
    return client.returncode or server.returncode


def killed(world):
    server = world.start(1, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, "stay", gid, port)
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


def hostile(world):
    """What the client sends is recorded on its own host and sent again: from the right port while the connection exists, and from another."""
    corpus = []
    recorder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    recorder.bind(("near", 0))
    server = world.start(1, "serve")
    gid, port = server.stdout.readline().split()
    client = world.start(0, "use", gid, port)
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
    client = world.start(0, "ip", f"::ffff:{B}", "4000", "4001")
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
    program = world.start(0, "hear", "4002", f"::ffff:{B}", "120")  # 10.77.0.0/24
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
        out = world.start(0, "trust").communicate(timeout=60)[0].strip()
        print(name, out)
        if out != answer:
            return 1
    return 0


def main():
    if len(sys.argv) < 5:
        return outside()
    with tempfile.TemporaryDirectory() as folder:
        world = Hosts(folder, PART == "hosts")
        try:
            return {"hosts": hosts, "killed": killed, "hostile": hostile, "socat": socat, "heard": heard, "trust": trust}[PART](world)
        finally:
            world.end()


sys.exit(main())
