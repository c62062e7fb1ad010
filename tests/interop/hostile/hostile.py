#!/usr/bin/python3
"""Attacks on connections over UDP: none of them succeeds, and none costs more than its budget.

  hostile.py FOLDER users      another user forges SEND, REJ, DREQ and REQ on the loopback, knowing every number
  hostile.py FOLDER taken      another user holds the address of a node
  hostile.py FOLDER offpath    a third machine with spoofed addresses tries the numbers that used to be likely
  hostile.py FOLDER secrets    a hundred fresh processes: no two have the same numbers
  hostile.py FOLDER flood      what a management datagram costs, and how much a forged request makes us send
  hostile.py FOLDER source     a source address that the program chose stays as it is

FOLDER is the build's. What needs root, and is not, is skipped (exit 77)."""
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SKIP = 77
PORT = "7471"
STRANGER = 65534
WAIT = 30
# What rand() gives a program that does not seed it: the first PSNs as they used to be.
LIKELY_PSNS = [str(n & 0xFFFFFF) for n in (1804289383, 846930886, 1681692777, 1714636915)]
# Microseconds of processor that a management datagram may cost the program that it is passed to; it took 60 to 80 when all places for
# connections were walked, and takes about 5.
CPU_BUDGET = 30
# Bytes that we may send for one byte of a forged request: a REP, its three repetitions, a REJ.
ANSWER_BUDGET = 5.05
# Refusals of a burst of requests: of two seconds that it may touch, and the few that are kept for a listener first.
REFUSED_BUDGET = 2 * 1024 + 64
PROCESSES = 100

BUILD = Path(sys.argv[1]).resolve()
TOOLS = BUILD / "tests/interop/hostile"
folder = Path(tempfile.mkdtemp(prefix="hostile-"))
started = []


class Failed(Exception):
    pass


def check(holds, what):
    if not holds:
        raise Failed(what)


class Talk:
    """A program whose lines are read as they come."""

    def __init__(self, command, env=None, inside=None):
        command = [str(word) for word in command]
        if inside is not None:
            command = ["ip", "netns", "exec", inside] + command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.queue, self.lines, self.errors = queue.Queue(), [], []
        for pipe, to in ((self.process.stdout, self.queue.put), (self.process.stderr, self.errors.append)):
            threading.Thread(target=self.read, args=(pipe, to), daemon=True).start()
        started.append(self)

    @staticmethod
    def read(pipe, to):
        for line in pipe:
            to(line.rstrip("\n"))

    def drain(self):
        while not self.queue.empty():
            self.lines.append(self.queue.get())

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, pattern, seconds=WAIT):
        """The next line that matches."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self.queue.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise Failed(f"no {pattern!r}; lines {self.lines[-6:]}, errors {self.errors[-3:]}") from None
            self.lines.append(line)
            match = re.match(pattern, line)
            if match:
                return match

    def never(self, pattern, what):
        self.drain()
        check(not any(re.match(pattern, line) for line in self.lines), f"{what}: {self.lines[-6:]}")

    def end(self):
        self.process.kill()
        self.process.wait()


def env_of(name, **more):
    """Each with an agent's folder and a node of its own."""
    path = folder / more.pop("dir", "one")
    path.mkdir(mode=0o700, exist_ok=True)
    return {"LD_LIBRARY_PATH": str(BUILD), "HEDDLE_AGENT": str(BUILD / "heddled"), "HEDDLE_DIR": str(path), "HEDDLE_LOCAL": "off", "HEDDLE_NODE": name, **more}


def victim(env, *arguments, inside=None):
    return Talk([TOOLS / "interop-hostile-victim", *arguments], env, inside)


def forge(*arguments, inside=None):
    return Talk([TOOLS / "interop-hostile-forge", *arguments], inside=inside)


def forged(*arguments, inside=None):
    """Let it come to its end: packets and bytes that it sent, and heard."""
    attacker = forge(*arguments, inside=inside)
    sent = attacker.wait_for(r"sent (\d+) (\d+)", 60)
    heard = attacker.wait_for(r"heard (\d+) (\d+)")
    return int(sent[1]), int(sent[2]), int(heard[1]), int(heard[2])


class Pair:
    """A server and a client that are connected."""

    def __init__(self, server_env, client_env, server_at=None, source="127.0.0.1", insides=(None, None)):
        self.server = victim(server_env, "-s", server_at or "127.0.0.1", PORT, inside=insides[0])
        self.server_address = self.server.wait_for(r"address (\S+)")[1]
        self.client = victim(client_env, "-s", source, PORT, self.server_address, inside=insides[1])
        self.client_address = self.client.wait_for(r"address (\S+)")[1]
        self.server_qp = self.server.wait_for(r"connected (\S+) (\S+)")
        self.client_qp = self.client.wait_for(r"connected (\S+) (\S+)")
        self.said = 0

    def say(self):
        """Both ways, and nobody has heard anything else."""
        self.said += 1
        for one, other in ((self.client, self.server), (self.server, self.client)):
            one.tell(f"say word {self.said}")
            other.wait_for(rf"got word {self.said}$")
            one.wait_for(r"sent success")

    def is_unharmed(self):
        time.sleep(0.3)
        self.say()
        for one in (self.server, self.client):
            one.never(r"got forged", "a forged message was taken")
            one.never(r"event RDMA_CM_EVENT_(DISCONNECTED|REJECTED)", "the connection was ended")


def needs_root():
    if os.geteuid() != 0:
        print("skipped: not root, so there is no other user to be")
        sys.exit(SKIP)


def users():
    needs_root()
    pair = Pair(env_of("hs"), env_of("hc"))
    pair.say()
    qpn, psn = pair.server_qp[1], hex((int(pair.server_qp[2], 0) + pair.said) & 0xFFFFFF)
    ways = ((pair.client_address, pair.server_address), (pair.server_address, pair.client_address))
    # Their sockets are still there when we ask for them; owner.h says what is taken of those that are not.
    stay = ("holds", "0.5")
    forged("-u", STRANGER, *ways[0], "send", qpn, psn, "forged", *stay)
    forged("-u", STRANGER, *ways[1], "send", pair.client_qp[1], hex((int(pair.client_qp[2], 0) + pair.said) & 0xFFFFFF), "forged", *stay)
    for way in ways:
        forged("-u", STRANGER, *way, "rejs", "dreqs", "reqs", PORT, "5", *stay)
    pair.is_unharmed()
    check(sum("CONNECT_REQUEST" in line for line in pair.server.lines) == 1, "a request of another user was heard")
    # What keeps them out is who they are: the same packets of ours are taken.
    forge(*ways[0], "reqs", PORT, "1", "holds", "2").wait_for("ready")
    pair.server.wait_for(r"event RDMA_CM_EVENT_CONNECT_REQUEST")
    # But not that they come from the host itself, where they say so.
    pair.server.wait_for(rf"peer {re.escape(pair.client_address)}$")
    pair.server.never(r"peer 127\.0\.0\.1$", "a request from elsewhere has the address of the host itself")
    psn = hex((int(pair.server_qp[2], 0) + pair.said) & 0xFFFFFF)
    forge(*ways[0], "send", qpn, psn, "forged", "holds", "2").wait_for("ready")
    pair.server.wait_for(r"got forged")


def taken():
    needs_root()
    env = env_of("ht")
    first = victim(env, PORT)
    address = first.wait_for(r"address (\S+)")[1]
    first.end()
    stop_agents()
    thief = forge("-u", STRANGER, "-p", "4791", address, address, "holds", "60")
    thief.wait_for("ready")
    server = victim(env, PORT)
    other = server.wait_for(r"address (\S+)")[1]
    check(other != address, "two are on one address")
    time.sleep(0.2)
    told = " ".join(server.errors)
    check(address in told and f"held by user {STRANGER}" in told, f"nothing was said: {told}")
    status = subprocess.run([BUILD / "heddle", "status"], env={**os.environ, **env}, text=True, capture_output=True, check=True).stdout
    check(address in status and f"user {STRANGER} holds" in status, f"heddle status: {status}")
    client = victim(env_of("hu"), PORT, address)
    client.wait_for(r"refused Permission denied")
    client = victim(env_of("hu"), PORT, other)
    client.wait_for(r"connected")


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


def make_networks(count):
    """Namespaces on one bridge, which is in the last of them; their names."""
    needs_root()
    names = [f"hostile{os.getpid()}-{i}" for i in range(count)]
    try:
        for name in names:
            run("ip", "netns", "add", name)
            networks.append(name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", names[-1], "link", "add", "br0", "type", "bridge")
        for i, name in enumerate(names[:-1]):
            run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"to{i}", "netns", names[-1])
            run("ip", "-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", names[-1], "link", "set", f"to{i}", "master", "br0", "up")
        run("ip", "-n", names[-1], "addr", "add", f"10.77.0.{count}/24", "dev", "br0")
        run("ip", "-n", names[-1], "link", "set", "br0", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: no network namespaces here: {error}")
        clean_up()
        sys.exit(SKIP)
    return names


def offpath():
    names = make_networks(3)
    server_env, client_env = (env_of(f"n{i}", dir=f"dir{i}", HEDDLE_ADDR=f"10.77.0.{i}") for i in (1, 2))
    pair = Pair(server_env, client_env, "10.77.0.1", "10.77.0.2", names[:2])
    pair.say()
    packets = 0
    for way in (("10.77.0.2", "10.77.0.1"), ("10.77.0.1", "10.77.0.2")):
        packets += forged("-r", *way, "rejs", "dreqs", inside=names[2])[0]
        packets += forged("-r", *way, "sends", *LIKELY_PSNS, inside=names[2])[0]
    pair.is_unharmed()
    print(f"{packets} forged packets had no effect")


def secrets():
    collector = forge("-p", "4791", "127.72.200.9", "127.72.200.9", "hears", "60")
    collector.wait_for("ready")
    env = env_of("hx")
    keeper = victim(env, "0")  # so that the agent stays
    keeper.wait_for(r"address")
    found = {}
    for batch in range(0, PROCESSES, 10):
        askers = [victim(env, PORT, "127.72.200.9") for _ in range(10)]
        while len(found) < batch + 10:
            message = collector.wait_for(r"message 0x10 (\S+) (\S+) (\S+) (\S+)")
            found[message[2]] = [int(message[i], 0) for i in (1, 3, 4)]
        for asker in askers:
            asker.end()
    numbers, psns, qpns = zip(*found.values())
    low = {number & (1 << 22) - 1 for number in numbers}
    places = {qpn & (1 << 14) - 1 for qpn in qpns}
    check(len(found) == PROCESSES, "TransactionIDs repeat")
    check(len(set(psns)) >= PROCESSES - 1, "PSNs repeat")
    check(len(low) >= PROCESSES - 1, "communication IDs repeat")
    check(len(places) >= PROCESSES - 8 and len(set(qpns)) == PROCESSES, "queue pair numbers repeat")
    print(f"{PROCESSES} processes: {len(set(psns))} PSNs, {len(low)} communication IDs, {len(places)} places of queue pairs")


def flood():
    pair = Pair(env_of("hs", HEDDLE_CM_TIMEOUT_MS="3000"), env_of("hc"))
    slot = int(pair.server_qp[1], 0) >> 14
    count = 4000
    pair.server.tell("cpu")
    before = int(pair.server.wait_for(r"cpu (\d+)")[1])
    time.sleep(1)
    pair.server.tell("cpu")
    idle_per_s = int(pair.server.wait_for(r"cpu (\d+)")[1]) - before
    pair.server.tell("cpu")
    before = int(pair.server.wait_for(r"cpu (\d+)")[1])
    began = time.monotonic()
    forged("127.72.200.8", pair.server_address, "floods", slot, count)
    time.sleep(0.5)
    pair.server.tell("cpu")
    used = int(pair.server.wait_for(r"cpu (\d+)")[1]) - before - idle_per_s * (time.monotonic() - began)
    print(f"{used / count:.1f} us of processor per datagram")
    check(used / count < CPU_BUDGET, f"{used / count:.1f} us per datagram")
    pair.say()
    sent, sent_bytes, heard, heard_bytes = forged("-p", "4791", "127.72.200.8", pair.server_address, "reqs", PORT, 40, "hears", 6)
    print(f"{sent} requests drew {heard} messages: {heard_bytes / sent_bytes:.2f} bytes per byte")
    check(heard >= sent, "nobody answers requests")
    check(heard_bytes <= sent_bytes * ANSWER_BUDGET, "a stranger makes us send too much")
    sent, sent_bytes, heard, heard_bytes = forged("-p", "4791", "127.72.200.8", pair.server_address, "reqs", 7999, 3000, "hears", 3)
    print(f"{sent} requests for nobody drew {heard} refusals")
    check(0 < heard <= REFUSED_BUDGET, f"{heard} refusals of {sent}")
    pair.say()


def source():
    names = make_networks(2)
    env = env_of("", dir="dirs")
    pair = Pair(env, env, None, "10.77.0.1", (names[0], names[0]))
    check(pair.client_address == "10.77.0.1", f"bound to {pair.client_address}")
    check("source 10.77.0.1" in pair.client.lines, f"the source has become another: {pair.client.lines}")
    pair.say()


networks = []


def stop_agents():
    """Their processes are gone: each that we started, by the number in its lock."""
    for lock in folder.glob("*/agent.lock"):
        try:
            os.kill(int(lock.read_text().split()[0]), 15)
        except (OSError, ValueError, IndexError):
            continue
    for _ in range(300):
        if not list(folder.glob("*/agent.sock")):
            break
        time.sleep(0.02)


def clean_up():
    for one in started:
        one.end()
    stop_agents()
    for name in networks:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def main():
    tests = {"users": users, "taken": taken, "offpath": offpath, "secrets": secrets, "flood": flood, "source": source}
    try:
        tests[sys.argv[2]]()
    except Failed as why:
        print(f"FAILED: {why}")
        return 1
    finally:
        clean_up()
    return 0


sys.exit(main())
