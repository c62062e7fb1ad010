#!/usr/bin/python3
"""tar c . | heddle pipe between two network namespaces on a line that loses 1 % of the packets: what comes out equals its source (AP8).
And between two programs of one of them.

  pipe_loss.py HEDDLE HEDDLED SOURCE

Frames between the two pass through this process, which loses some: no module of the kernel is needed, and the same seed loses packets at the
same places. What the kernel or this machine does not offer is a skip (exit 77) that says so."""
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SKIP = 77
HEDDLE, HEDDLED, SOURCE = sys.argv[1:4]
ADDRESSES = ("10.78.0.1", "10.78.0.2")
PORT = 7000
CI_PORT = 18490
LOSS = 0.01


def outside():
    """Run this script again in a network namespace of its own."""
    how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*how, "ip", "link"], capture_output=True).returncode != 0:
        print("no network namespaces here")
        return SKIP
    return subprocess.run([*how, sys.executable, __file__, *sys.argv[1:4], "inside"], timeout=150).returncode


class Line:
    """The cable between the two: frames from one end go to the other, or get lost."""

    def __init__(self):
        self.chance, self.passed, self.lost = random.Random(17), 0, 0
        self.ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in ADDRESSES]
        for i, end in enumerate(self.ends):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            end.bind((f"relay{i}", 0))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            for end in select.select(self.ends, [], [])[0]:
                frame, (_, _, kind, *_) = end.recvfrom(65536)
                if kind == socket.PACKET_OUTGOING:
                    continue
                if frame[12:14] == b"\x08\x00" and frame[23] == 17:
                    if frame[36:38] == CI_PORT.to_bytes(2, "big"):
                        self.passed += 1
                        if self.chance.random() < LOSS:
                            self.lost += 1
                            continue
                    frame = frame[:40] + bytes(2) + frame[42:]  # the card would compute the checksum; 0: none
                try:
                    self.ends[end is self.ends[0]].send(frame)
                except OSError:
                    self.lost += 1


def make_hosts():
    hosts = []
    for i, address in enumerate(ADDRESSES):
        host = subprocess.Popen(["unshare", "-n", "sleep", "140"])
        hosts.append(host)
        for _ in range(500):
            if os.readlink(f"/proc/{host.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                break
            time.sleep(0.01)
        enter = f"nsenter -t {host.pid} -n"
        for command in (f"ip link add relay{i} type veth peer name line netns {host.pid}", f"ip link set relay{i} up",
                        f"{enter} ip link set lo up", f"{enter} ip addr add {address}/24 dev line", f"{enter} ip link set line up"):
            subprocess.run(command.split(), check=True)
    return hosts


def start(host, which, folder, command, **more):
    directory = Path(folder) / str(which)
    directory.mkdir(mode=0o700, exist_ok=True)
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")}, "HEDDLE_DIR": str(directory),
                   "HEDDLE_ADDR": ADDRESSES[which], "HEDDLE_AGENT": HEDDLED}
    return subprocess.Popen(["nsenter", "-t", str(host.pid), "-n", "bash", "-o", "pipefail", "-c", command], env=environment, **more)


def carry(hosts, line, folder):
    there, sent = Path(folder) / "there", Path(folder) / "sent"
    server = start(hosts[0], 0, folder, f"exec {HEDDLE} pipe --listen {PORT} </dev/null >{there}")
    for _ in range(100):  # the other end may not listen yet
        client = start(hosts[1], 1, folder, f"tar c -C {SOURCE} . | tee {sent} | {HEDDLE} pipe {ADDRESSES[0]}:{PORT}", stderr=subprocess.PIPE)
        error = client.communicate(timeout=100)[1]
        if client.returncode == 0 or server.poll() is not None:
            break
        time.sleep(0.05)
    if client.returncode != 0 or server.wait(timeout=60) != 0:
        print(f"client {client.returncode}, server {server.poll()}: {error.decode()}")
        return 1
    same = there.read_bytes() == sent.read_bytes()
    print(f"{sent.stat().st_size} bytes, {line.lost} of {line.passed} packets lost, {'equal' if same else 'NOT equal'}")
    return 0 if same and sent.stat().st_size > 1 << 20 and line.lost > line.passed / 400 > 1 else 1


def own_node(hosts, folder):
    """127.0.0.1 names the own node over the wire, too, also if its address is none of the loopback interface."""
    there = Path(folder) / "own"
    pipe = f"env HEDDLE_LOCAL=off {HEDDLE} pipe"
    server = start(hosts[0], 0, folder, f"exec {pipe} --listen {PORT + 1} </dev/null >{there}")
    for _ in range(100):
        client = start(hosts[0], 0, folder, f"echo hello | {pipe} 127.0.0.1:{PORT + 1}", stderr=subprocess.PIPE)
        error = client.communicate(timeout=100)[1]
        if client.returncode == 0 or server.poll() is not None:
            break
        time.sleep(0.05)
    if client.returncode != 0 or server.wait(timeout=60) != 0 or there.read_bytes() != b"hello\n":
        print(f"own node: client {client.returncode}, server {server.poll()}: {error.decode()}")
        return 1
    return 0


def main():
    if len(sys.argv) < 5:
        return outside()
    for program in ("nsenter", "tar", "ip"):
        if not shutil.which(program):
            print(f"{program} is not installed")
            return SKIP
    with tempfile.TemporaryDirectory() as folder:
        hosts = []
        try:
            hosts = make_hosts()
            return carry(hosts, Line(), folder) or own_node(hosts, folder)
        finally:
            for host in hosts:
                host.kill()
                host.wait()


sys.exit(main())
