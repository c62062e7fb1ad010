#!/usr/bin/python3
"""Whose MAC addresses a unit lets through: what guests of a host can invent, and what a host can that breaks the rules.

  addresses.py FOLDER     FOLDER has the programs"""
import json
import subprocess
import sys

sys.dont_write_bytecode = True
from rig import FOLDER, PYTHON, Base, main  # noqa: E402

BROADCAST = "ff:ff:ff:ff:ff:ff"
# INTERFACE: print the source and the number of each frame for experiments.
LISTEN = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
s.bind((sys.argv[1], 0x88b5))
print("ready", flush=True)
while True:
    data, address = s.recvfrom(70000)
    if address[2] != 4:
        print(data[6:12].hex(":"), flush=True)
"""
# INTERFACE SOURCE...: send such a frame from each.
SEND = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind((sys.argv[1], 0))
for mac in sys.argv[2:]:
    s.send(b"\\xff" * 6 + bytes.fromhex(mac.replace(":", "")) + b"\\x88\\xb5" + bytes(46))
"""


class Addresses(Base):
    def listen(self, space, device="lan0"):
        process = space.start(PYTHON, "-c", LISTEN, device, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.started.append(process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process.stdout

    def send(self, space, *macs, device="eth0"):
        space.run(PYTHON, "-c", SEND, device, *macs)

    def address(self, space, device):
        return json.loads(space.run("ip", "-j", "link", "show", device))[0]["address"]

    def row(self, name):
        return next(row for row in self.stat("unit")["hosts"] if row["name"] == name)

    def station(self, name="station"):
        """A host whose every step the test decides."""
        process = subprocess.Popen([FOLDER / "tests/interop/tap/interop-tap-station", "u", name], env=dict(self.env, HEDDLE_NODE=name),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "open\n")

        def say(*words):
            process.stdin.write(" ".join(map(str, words)) + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()
        return say

    def test_a_guest_invents_sources(self):
        self.unit()
        gateway = self.address(self.lan, "lan0")
        one, two = self.host(2), self.host(3)
        own, other = self.row("eth2")["mac"], self.row("eth3")["mac"]
        heard = self.listen(self.lan)
        self.send(one, gateway, other, "00:00:00:00:00:00", *(f"02:00:00:00:01:{i:02x}" for i in range(50)), own)
        self.assertEqual(heard.readline().strip(), own)  # the last one is the first that arrives
        self.assertEqual(self.stat("eth2")["refused_frames"], 53)
        self.assertIn("53 frames with another source than the address of the interface", self.heddle("tap", "stat", "eth2"))
        self.assertEqual({name: self.row(name)["mac"] for name in ("eth2", "eth3")}, {"eth2": own, "eth3": other})
        self.ping(one)
        self.ping(two)
        self.ping(one, "10.9.0.3")

    def test_a_host_forges(self):
        """The unit itself checks: its counters, and what reaches the LAN and other hosts."""
        self.unit()
        gateway = self.address(self.lan, "lan0")
        space = self.host(2)
        own, other = "02:00:00:00:00:77", self.row("eth2")["mac"]
        say, heard = self.station(), self.listen(self.lan)
        self.assertEqual(say("frame", own, BROADCAST, 3), "sent")  # before it has an address
        for taken in (gateway, other, "01:00:00:00:00:01"):
            self.assertEqual(say("init", taken), "refused")
        self.assertEqual(say("init", own), "ok")
        for forged in (gateway, other, "02:00:00:00:00:78", "00:00:00:00:00:00", BROADCAST):
            self.assertEqual(say("frame", forged, BROADCAST, 5), "sent")
            self.assertEqual(say("more", forged), "refused")
        self.assertEqual(say("mac", gateway), "refused")
        self.assertEqual(say("mac", other), "refused")
        self.assertEqual(say("frame", own, BROADCAST, 1), "sent")
        self.assertEqual(heard.readline().strip(), own)
        self.assertEqual(say("stat").split()[::3], ["1", "28"])
        row = self.row("station")
        self.assertEqual((row["forged"], row["mac"], row["refused_macs"]), (28, own, 10))
        text = self.heddle("tap", "stat", "unit")
        self.assertIn("28 frames with a forged source", text)
        self.assertIn("10 MAC addresses refused", text)
        # Changes of the one address have a limit, too: the LAN need not learn a thousand of them.
        changes = [say("mac", f"02:00:00:00:02:{i:02x}") for i in range(40)]
        allowed = changes.count("ok")
        self.assertIn(allowed, range(16, 20))
        self.assertEqual(changes[:16], ["ok"] * 16)
        self.assertEqual(changes.count("refused"), 40 - allowed)
        self.ping(space)

    def test_the_user_of_the_unit_decides(self):
        fixed, free, reserved = "02:00:00:00:00:21", "02:00:00:00:00:22", "02:00:00:00:00:23"
        self.unit("--host-mac", "station=" + fixed, "--reserve", reserved)
        say, other = self.station(), self.station("other")
        self.assertEqual(other("init", fixed), "refused")
        self.assertEqual(other("init", reserved), "refused")
        self.assertEqual(other("init", free), "ok")
        self.assertEqual(other("mac", fixed), "refused")
        self.assertEqual(say("init", "02:00:00:00:00:24"), "refused")
        self.assertEqual(say("init", fixed), "ok")
        self.assertEqual(say("mac", "02:00:00:00:00:24"), "refused")
        self.assertEqual(say("mac", fixed), "ok")
        for words in (["--host-mac", "station"], ["--host-mac", "station=01:00:00:00:00:00"], ["--host-mac", "=" + free], ["--reserve", "x"],
                      ["--macs", "0"], ["--macs", "17"]):
            self.heddle("tap", "unit", "--lan", "tap:lan1", "--name", "b", *words, status=64)

    def test_items_that_make_no_sense(self):
        self.unit()
        say = self.station()
        self.assertEqual(say("init", "02:00:00:00:00:31"), "ok")
        for words, status in ((("get", 99), "unknown"), (("set", 99), "unknown"), (("set", 2), "malformed"), (("set", 5), "malformed"),
                              (("set", 7), "malformed"), (("get", 8), "malformed"), (("get", 3), "ok"), (("get", 2), "ok")):
            self.assertEqual(say(*words), status, words)

    def test_several_addresses(self):
        self.unit("--macs", "3")
        say, other, heard = self.station(), self.station("other"), self.listen(self.lan)
        first, second, third, fourth = (f"02:00:00:00:00:3{i}" for i in range(4))
        self.assertEqual(say("init", first), "ok")
        self.assertEqual(other("init", second), "ok")
        self.assertEqual(say("more", second), "refused")
        self.assertEqual(say("frame", third, BROADCAST, 1), "sent")  # not yet
        self.assertEqual(say("more", third), "ok")
        self.assertEqual(say("more", third), "ok")
        self.assertEqual(other("mac", third), "refused")
        self.assertEqual(say("more", fourth), "ok")
        self.assertEqual(say("more", "02:00:00:00:00:35"), "refused")
        for mac in (first, third, fourth):
            self.assertEqual(say("frame", mac, BROADCAST, 1), "sent")
            self.assertEqual(heard.readline().strip(), mac)
        self.assertEqual(say("stat").split()[3], "1")
        macs = self.row("station")["macs"]
        self.assertEqual((macs[0], sorted(macs)), (first, [first, third, fourth]))

    def bridge(self, *more):
        """A namespace behind a bridge behind the card of a host."""
        space = self.space()
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--netns", space.pid, *more, node="h2")
        inner = self.space(beside=space)
        space.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", inner.pid)
        space.run("ip", "link", "add", "br0", "type", "bridge")
        for device in ("eth0", "v0"):
            space.run("ip", "link", "set", device, "master", "br0")
        for device in ("eth0", "v0", "br0"):
            space.run("ip", "link", "set", device, "up")
        inner.run("ip", "addr", "add", "10.9.0.22/24", "dev", "v1")
        inner.run("ip", "link", "set", "v1", "up")
        self.until("the carrier", lambda: self.carrier(space))
        return space, inner

    def test_a_bridge_behind_the_card(self):
        self.unit("--macs", "8")
        try:
            space, inner = self.bridge("--bridge")
        except AssertionError as error:
            if "Unknown device" in str(error) or "not supported" in str(error):
                self.skipTest("this kernel has no bridges")
            raise
        self.ping(inner)
        self.ping(self.lan, "10.9.0.22")
        inside = self.address(inner, "v1")
        self.assertIn(inside, self.row("eth2")["macs"])
        # Eight is the limit, for whoever is behind it; the bridge itself may have one.
        heard = self.listen(self.lan)
        invented = [f"02:00:00:00:03:{i:02x}" for i in range(20)]
        self.send(inner, *invented, inside, device="v1")
        arrived = [line.strip() for line in iter(heard.readline, inside + "\n")]
        self.assertEqual(arrived, invented[:len(arrived)])
        self.assertLess(len(arrived), 8)
        self.assertEqual(len(self.row("eth2")["macs"]), 8)
        self.assertGreaterEqual(self.stat("eth2")["refused_frames"], 20 - len(arrived))
        self.ping(inner)

    def test_no_bridge_unless_both_allow_it(self):
        for unit, host in (((), ("--bridge",)), (("--macs", "8"), ())):
            with self.subTest(unit=unit, host=host):
                self.unit(*unit)
                space, inner = self.bridge(*host)
                heard = self.listen(self.lan)
                self.send(inner, self.address(inner, "v1"), device="v1")
                self.send(space, self.address(space, "eth0"))
                self.assertEqual(heard.readline().strip(), self.address(space, "eth0"))
                self.assertGreater(self.stat("eth2")["refused_frames"], 0)
                self.tearDown()
                self.setUp()

    def test_a_change_needs_no_frame(self):
        """`ip link set address' alone: the unit learns it, and so does who connects again."""
        self.unit()
        one = self.space()
        one.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", check=False)
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--netns", one.pid, node="h2")
        one.run("ip", "link", "set", "eth0", "arp", "off")
        self.until("the carrier", lambda: self.carrier(one))
        frames = self.row("eth2")["rx_frames"]
        new, other = "02:00:00:00:00:51", "02:00:00:00:00:52"
        one.run("ip", "link", "set", "eth0", "address", new)
        self.until("the unit knows", lambda: self.row("eth2")["mac"] == new)
        self.assertEqual(self.row("eth2")["rx_frames"], frames)
        self.assertEqual(self.heddle("tap", "mac", "eth2").strip(), new)
        # One that it may not have: the reason is told, and when the other one goes, it gets it.
        say = self.station()
        self.assertEqual(say("init", other), "ok")
        one.run("ip", "link", "set", "eth0", "address", other)
        self.until("a reason", lambda: "another host has it" in self.stat("eth2").get("why", ""))
        self.assertEqual(self.row("eth2")["mac"], new)
        self.assertEqual(say("mac", "02:00:00:00:00:53"), "ok")
        self.until("the unit knows", lambda: self.row("eth2")["mac"] == other)
        self.assertNotIn("why", self.stat("eth2"))
        # The unit starts again: it hears the address that the interface has.
        self.heddle("tap", "down", "unit")
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, node="u")
        self.until("the carrier", lambda: self.carrier(one))
        self.assertEqual(self.row("eth2")["mac"], other)


if __name__ == "__main__":
    main()
