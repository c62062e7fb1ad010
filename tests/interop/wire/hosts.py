"""Two hosts for tests: network namespaces with a veth between them, of an ordinary user. Imported by the tests that need them."""
import os
import subprocess
import sys
import time
from pathlib import Path

SKIP = 77
A, B = "10.77.0.1", "10.77.0.2"
NAMES = ("near", "far")


def outside(timeout):
    """Run the script again in namespaces of its own; "inside" is its last argument then."""
    how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*how, "ip", "link"], capture_output=True).returncode != 0:
        print("no network namespaces here")
        return SKIP
    return subprocess.run([*how, sys.executable, *sys.argv, "inside"], timeout=timeout).returncode


class Hosts:
    """@frames: the programs use Ethernet frames, and the interfaces have no addresses."""

    def __init__(self, folder, loss=False, frames=False):
        self.frames = frames
        self.far = subprocess.Popen(["unshare", "-n", "sleep", "140"])
        for _ in range(200):
            if os.readlink(f"/proc/{self.far.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                break
            time.sleep(0.01)
        self.enter = ["nsenter", "-t", str(self.far.pid), "-n"]
        self.run(0, "ip link add near type veth peer name far")
        self.run(0, f"ip link set far netns {self.far.pid}")
        for host, address in enumerate((A, B)):
            if not frames:
                self.run(host, f"ip addr add {address}/24 dev {NAMES[host]}")
            self.run(host, f"ip link set {NAMES[host]} up")
            self.run(host, "ip link set lo up")
        self.lossy = loss and subprocess.run("tc qdisc add dev near root netem loss 1%".split(), capture_output=True).returncode == 0
        self.folders = [Path(folder) / "a", Path(folder) / "b"]
        for at in self.folders:
            at.mkdir(mode=0o700)

    def run(self, host, command):
        subprocess.run([*(self.enter if host else []), *command.split()], check=True)

    def mac(self, host):
        command = [*(self.enter if host else []), "ip", "-o", "link", "show", NAMES[host]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("link/ether ")[1].split()[0]

    def environment(self, host, agent):
        where = {"HEDDLE_ETHER": NAMES[host]} if self.frames else {"HEDDLE_ADDR": (A, B)[host]}
        return {**os.environ, "HEDDLE_DIR": str(self.folders[host]), "HEDDLE_AGENT": agent, **where}

    def start(self, host, agent, *arguments, **more):
        return subprocess.Popen([*(self.enter if host else []), *arguments], env={**self.environment(host, agent), **more}, stdout=subprocess.PIPE,
                                text=True)

    def end(self):
        self.far.kill()
        self.far.wait()
