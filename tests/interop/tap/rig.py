"""What the tests of heddle tap share: namespaces of an ordinary user, units and hosts in them, and traffic between them."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

FOLDER = Path(sys.argv[1])
PATIENCE_S = 60  # on a busy machine
PYTHON = "/usr/bin/python3"  # the one that every user can run


def give_up_root():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.environ["HOME"] = "/tmp"


def missing():
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing or not accessible"
    if subprocess.run(["unshare", "-Urn", "true"], capture_output=True).returncode != 0:
        return "an ordinary user cannot create network namespaces here"
    for program in ("ip", "ping", "nsenter"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


class Space:
    """A user and network namespace, held by a process that sleeps."""

    def __init__(self, beside=None):
        """@beside: share its user namespace, so that a link can lead there."""
        words = beside.command("unshare", "-n") if beside else ["unshare", "-Urn"]
        self.holder = subprocess.Popen([*words, "sh", "-c", "ip link set lo up; echo; exec sleep 1000"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.pid = self.holder.pid

    def command(self, *words):
        return ["nsenter", "--preserve-credentials", "-U", "-n", "-t", str(self.pid), *map(str, words)]

    def run(self, *words, check=True, timeout=120):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *words, **options):
        return subprocess.Popen(self.command(*words), **options)

    def end(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class Base(unittest.TestCase):
    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="ht", dir="/tmp"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")}
        self.env["HEDDLE_DIR"] = str(self.place / "d")
        (self.place / "d").mkdir(mode=0o700)
        self.spaces, self.started = [], []

    def tearDown(self):
        self.heddle("tap", "down", status=None)
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        for space in self.spaces:
            space.end()
        shutil.rmtree(self.place, ignore_errors=True)

    def space(self, beside=None):
        self.spaces.append(Space(beside))
        return self.spaces[-1]

    def heddle(self, *words, status=0, node=None, **more):
        env = dict(self.env, **more)
        if node:
            env["HEDDLE_NODE"] = node
        done = subprocess.run([FOLDER / "heddle", *map(str, words)], env=env, capture_output=True, text=True, timeout=100)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        self.errors = done.stderr
        return done.stdout

    def stat(self, name):
        return json.loads(self.heddle("tap", "stat", name, "--json"))[0]

    def until(self, what, check, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while not check():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.02)

    def pids(self, word, folder="d"):
        """Processes of `heddle tap WORD' of this test."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"HEDDLE_DIR={self.place / folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    line = (entry / "cmdline").read_bytes().split(b"\0")
                    if word.encode() in line or line[0].endswith(word.encode()):
                        found.append(int(entry.name))
            except OSError:
                pass
        return found

    def unit(self, *more, **env):
        self.lan = self.space()
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, *more, node="u", **env)
        self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "lan0")
        self.lan.run("ip", "addr", "add", "fd09::1/64", "dev", "lan0", "nodad")

    def host(self, number, *more, name=None, **env):
        space = self.space()
        name = name or f"eth{number}"
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", name, "--netns", space.pid, *more, node=f"h{number}", **env)
        space.run("ip", "addr", "add", f"10.9.0.{number}/24", "dev", "eth0")
        space.run("ip", "addr", "add", f"fd09::{number}/64", "dev", "eth0", "nodad")
        self.until("the carrier", lambda: self.carrier(space))
        return space

    def carrier(self, space):
        return "LOWER_UP" in space.run("ip", "link", "show", "eth0") and "NO-CARRIER" not in space.run("ip", "link", "show", "eth0")

    def ping(self, space, to="10.9.0.1", *more):
        out = space.run("ping", "-c", "3", "-i", "0.2", "-W", "5", *more, to, check=False)
        if "3 received" not in out:
            self.fail(out + self.heddle("tap", "stat", "--json", status=None) + space.run("ip", "-s", "addr"))

    def fetch(self, space):
        if not shutil.which("curl"):
            return
        data = os.urandom(3000000)
        (self.place / "file").write_bytes(data)
        script = ("import socket,sys\ns=socket.create_server(('10.9.0.1',8000))\nprint(flush=True)\nc,_=s.accept()\nc.recv(65536)\n"
                  "d=open(sys.argv[1],'rb').read()\nc.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(d)+d)\n")
        server = self.lan.start(PYTHON, "-c", script, self.place / "file", stdout=subprocess.PIPE)
        self.started.append(server)
        server.stdout.readline()
        got = subprocess.run(space.command("curl", "-sS", "-m", "60", "http://10.9.0.1:8000/file"), capture_output=True, timeout=120)
        self.assertEqual(hashlib.sha256(got.stdout).hexdigest(), hashlib.sha256(data).hexdigest(), got.stderr)

    def iperf(self, space):
        if not shutil.which("iperf3"):
            return
        for words in ([], ["-R"], ["-u", "-b", "20M"], ["-u", "-b", "20M", "-R"]):
            server = self.lan.start("iperf3", "-s", "-1", "--forceflush", stdout=subprocess.PIPE, text=True)
            self.started.append(server)
            self.assertIn("-", server.stdout.readline())
            for _ in range(50):
                done = subprocess.run(space.command("iperf3", "-c", "10.9.0.1", "-t", "1", "-J", *words), capture_output=True, text=True,
                                      timeout=60)
                if "refused" not in done.stdout:
                    break
                time.sleep(0.1)
            end = json.loads(done.stdout)["end"]
            self.assertGreater((end.get("sum_received") or end["sum"])["bytes"], 100000, words)
            server.wait(30)


def main():
    give_up_root()
    reason = missing()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
