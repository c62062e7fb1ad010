#!/usr/bin/python3
"""heddle tap on a LAN that exists (packet:INTERFACE), and what changes at run time: MTU, tags, filters.

  lans.py FOLDER     FOLDER has the programs

The LAN is a veth pair: one end is the unit's, the other one that of a plain namespace with the kernel's own network."""
import json
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from rig import PYTHON, Base, main  # noqa: E402

TYPE = 0x88b5  # IEEE 802: for experiments
# Print source, destination, tag and payload of each frame of our type that arrives.
LISTEN = f"""
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 3))
s.setsockopt(263, 8, 1)  # PACKET_AUXDATA
print("ready", flush=True)
while True:
    data, told, _, address = s.recvmsg(70000, 256)
    tag = 0
    for level, kind, value in told:
        status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", value)
        tag = tci if status & 16 else 0
    if data[12:14] == b"\\x81\\0":
        tag, data = int.from_bytes(data[14:16], "big"), data[:12] + data[16:]
    if data[12:14] == {TYPE.to_bytes(2, 'big')!r} and address[2] != 4:
        print(data[:6].hex(":"), tag, len(data), data[14:].rstrip(b"\\0").decode(), flush=True)
"""
# INTERFACE DESTINATION TAG BYTES PAYLOAD
SEND = f"""
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind((sys.argv[1], 0))
tag = int(sys.argv[3])
head = bytes.fromhex(sys.argv[2].replace(":", "")) + s.getsockname()[4]
head += (b"\\x81\\0" + tag.to_bytes(2, "big") if tag else b"") + {TYPE.to_bytes(2, 'big')!r}
s.send(head + sys.argv[5].encode().ljust(int(sys.argv[4]), b"\\0"))
"""


class Raw(Base):
    """Frames that no stack sends."""

    def listen(self, space, interface="eth0"):
        process = space.start(PYTHON, "-c", LISTEN, interface, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.started.append(process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def hears(self, listener):
        """The next frame: destination, tag, length, payload."""
        return listener.stdout.readline().split()

    def say(self, space, interface, to, payload, tag=0, size=46):
        space.run(PYTHON, "-c", SEND, interface, to, tag, size, payload)

    def row(self, name):
        return next(h for h in self.stat("unit")["hosts"] if h["name"] == name)

    def mtu(self, space, device, value):
        space.run("ip", "link", "set", device, "mtu", value)

    def mtu_of(self, space, device):
        return json.loads(space.run("ip", "-j", "link", "show", device))[0]["mtu"]


class Packet(Raw):
    def setUp(self):
        super().setUp()
        self.card = self.space()
        self.lan = self.space(beside=self.card)
        self.plug()
        self.heddle("tap", "unit", "--lan", "packet:nic0", "--netns", self.card.pid, node="u")

    def plug(self):
        self.card.run("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "far0", "netns", self.lan.pid)
        self.card.run("ip", "link", "set", "nic0", "up")
        self.lan.run("ip", "link", "set", "far0", "up")
        self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "far0")
        self.lan.run("ip", "addr", "add", "fd09::1/64", "dev", "far0", "nodad")

    def test_traffic(self):
        space = self.host(2)
        self.ping(space)
        self.ping(space, "10.9.0.1", "-s", "8000")
        self.ping(space, "fd09::1")
        self.ping(self.lan, "10.9.0.2")
        self.fetch(space)
        self.iperf(space)
        # Nothing that the unit sends comes back: it would have the source address of a host.
        stat = self.stat("unit")
        self.assertEqual(stat["lan_forged"], 0)
        self.assertEqual(stat["offloads"], 31)
        self.assertGreater(stat["interface"]["tx_frames"], 100)
        # Segments of 64 KiB, with their offload headers, and both ways.
        for way in ("rx", "tx"):
            self.assertGreater(stat["interface"][way + "_bytes"] / stat["interface"][way + "_frames"], 1600, way)
        self.assertEqual(json.loads(self.card.run("ip", "-d", "-j", "link", "show", "nic0"))[0]["promiscuity"], 1)

    def test_hosts_that_cannot_offload(self):
        """The interface cannot be told to finish its frames: the unit does it."""
        for more in (["--no-offload"], ["--mode", "send"]):
            with self.subTest(more=more):
                space = self.host(2, *more)
                self.ping(space)
                self.fetch(space)
                self.heddle("tap", "down", "eth2")

    def test_two_hosts(self):
        one, two = self.host(2), self.host(3, "--no-offload")
        self.ping(one)
        self.ping(two)
        self.ping(one, "10.9.0.3")
        self.fetch(one)
        self.fetch(two)
        self.assertEqual(self.stat("unit")["lan_forged"], 0)

    def test_tags(self):
        space = self.host(2)
        mac = self.row("eth2")["mac"]
        here, there = self.listen(space), self.listen(self.lan, "far0")
        for tag in (0, 7, 0x6ffe):
            self.say(self.lan, "far0", mac, f"in{tag}", tag, 1500)
            self.assertEqual(self.hears(here), [mac, str(tag), "1514", f"in{tag}"])
            self.say(space, "eth0", "ff:ff:ff:ff:ff:ff", f"out{tag}", tag, 1500)
            self.assertEqual(self.hears(there), ["ff:ff:ff:ff:ff:ff", str(tag), "1514", f"out{tag}"])

    def test_the_interface_goes_and_returns(self):
        space = self.host(2)
        self.ping(space)
        self.card.run("ip", "link", "set", "nic0", "down")
        self.until("no carrier while it is down", lambda: not self.carrier(space))
        self.card.run("ip", "link", "set", "nic0", "up")
        self.until("the carrier returns", lambda: self.carrier(space))
        self.ping(space)
        self.lan.run("ip", "link", "set", "far0", "down")  # a cable that is pulled
        self.until("no carrier without a cable", lambda: not self.carrier(space))
        self.lan.run("ip", "link", "set", "far0", "up")
        self.until("the carrier returns", lambda: self.carrier(space))
        for _ in range(3):
            self.card.run("ip", "link", "del", "nic0")
            self.until("no carrier while it is gone", lambda: not self.carrier(space))
            self.assertFalse(self.stat("unit")["interface"]["link"])
            self.assertIn(" no link\n", self.heddle("tap", "stat", "unit"))
            self.plug()
            self.until("the carrier returns", lambda: self.carrier(space))
            self.ping(space)
            self.assertNotIn("no link", self.heddle("tap", "stat", "unit"))
        self.assertEqual(self.stat("eth2")["connections"], 1)

    def test_mtu_belongs_to_the_interface(self):
        space = self.host(2)
        self.mtu(space, "eth0", 9000)
        before = self.stat("eth2")["too_long"]
        space.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "-s", "4000", "-M", "do", "10.9.0.1", check=False)
        self.until("too long", lambda: self.stat("eth2")["too_long"] >= before + 2)
        self.assertEqual(self.stat("eth2")["lan_mtu"], 1500)
        for where, device in ((self.card, "nic0"), (self.lan, "far0")):
            self.mtu(where, device, 9000)
        self.until("the host learns of it", lambda: self.stat("eth2")["lan_mtu"] == 9000)
        self.ping(space, "10.9.0.1", "-s", "8900", "-M", "do")


class Mtu(Raw):
    def test_the_lan_follows(self):
        self.unit()
        space = self.host(2)
        for mtu in (9000, 68, 576, 9000):
            self.mtu(space, "eth0", mtu)
            self.until("the unit knows", lambda: self.row("eth2")["mtu"] == mtu)
            self.ping(space, "10.9.0.1", "-s", str(mtu - 28), "-M", "do")
            self.assertEqual(self.mtu_of(self.lan, "lan0"), 9000)  # it grows, but does not shrink: there may be others
        self.fetch(space)
        self.assertEqual(self.stat("eth2")["too_long"], 0)
        # 68 is the least that IP allows: a long datagram becomes many frames.
        for where, device in ((space, "eth0"), (self.lan, "lan0")):
            self.mtu(where, device, 68)
        self.until("the host knows", lambda: self.stat("eth2")["lan_mtu"] == 68)
        self.ping(space, "10.9.0.1", "-s", "1000", "-S", "300000")

    def test_a_fixed_lan_refuses(self):
        self.unit("--mtu", "1500")
        space = self.host(2, "--no-offload")
        self.mtu(space, "eth0", 9000)
        space.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "-s", "1473", "-M", "do", "10.9.0.1", check=False)
        self.until("both were refused", lambda: self.stat("eth2")["too_long"] >= 2)
        self.assertEqual(self.mtu_of(self.lan, "lan0"), 1500)
        self.ping(space, "10.9.0.1", "-s", "1472", "-M", "do")
        # A host that does not care is stopped by the unit.
        self.assertEqual(self.row("eth2")["too_long"], 0)
        self.assertEqual(self.stat("eth2")["lan_mtu"], 1500)

    def test_send_mode_has_shorter_frames(self):
        self.unit()
        space = self.host(2, "--mode", "send")
        self.mtu(space, "eth0", 4000)
        self.until("the unit knows", lambda: self.row("eth2")["mtu"] == 4000)
        self.ping(space, "10.9.0.1", "-s", "3972", "-M", "do")
        self.mtu(space, "eth0", 9000)
        space.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "-s", "8000", "-M", "do", "10.9.0.1", check=False)
        self.until("both were refused", lambda: self.stat("eth2")["too_long"] >= 2)

    def test_tags_do_not_count(self):
        self.unit("--mtu", "1500")
        space = self.host(2)
        there = self.listen(self.lan, "lan0")
        self.say(space, "eth0", "ff:ff:ff:ff:ff:ff", "tagged", 7, 1500)
        self.assertEqual(self.hears(there), ["ff:ff:ff:ff:ff:ff", "7", "1514", "tagged"])


class Filters(Raw):
    def setUp(self):
        super().setUp()
        self.unit()
        self.two, self.three = self.host(2), self.host(3)
        self.until("the unit knows the groups", lambda: not self.row("eth2")["all_multicast"] and not self.row("eth3")["all_multicast"])
        self.ears = {n: self.listen(space) for n, space in ((2, self.two), (3, self.three))}

    def reaches(self, to, wanted):
        """A frame to @to reaches only the hosts @wanted. A broadcast after it tells when the others can no longer get it."""
        self.count = getattr(self, "count", 0) + 1
        self.say(self.lan, "lan0", to, f"to{self.count}")
        self.say(self.lan, "lan0", "ff:ff:ff:ff:ff:ff", f"end{self.count}")
        for number, ear in self.ears.items():
            heard = [self.hears(ear)[3]]
            while heard[-1] != f"end{self.count}":
                heard.append(self.hears(ear)[3])
            self.assertEqual(f"to{self.count}" in heard, number in wanted, (to, number, heard))

    def test_promiscuous(self):
        self.reaches("02:99:99:99:99:99", [])
        self.two.run("ip", "link", "set", "eth0", "promisc", "on")
        self.until("the unit knows", lambda: self.row("eth2")["promiscuous"])
        self.reaches("02:99:99:99:99:99", [2])
        # What is for another host stays with it.
        self.reaches(self.row("eth3")["mac"], [3])
        self.two.run("ip", "link", "set", "eth0", "promisc", "off")
        self.until("the unit knows", lambda: not self.row("eth2")["promiscuous"])
        self.reaches("02:99:99:99:99:99", [])

    def test_multicast(self):
        group = "01:00:5e:11:22:33"  # 239.17.34.51
        self.reaches(group, [])
        script = ("import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                  "s.setsockopt(0,35,socket.inet_aton('239.17.34.51')+socket.inet_aton('10.9.0.3'))\nprint(flush=True)\nsys.stdin.read()\n")
        before = self.row("eth3")["groups"]
        member = self.three.start(PYTHON, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.started.append(member)
        member.stdout.readline()
        self.until("the unit knows", lambda: self.row("eth3")["groups"] == before + 1)
        self.reaches(group, [3])
        self.reaches("01:00:5e:11:22:34", [])
        member.stdin.close()
        member.wait()
        self.until("the unit knows", lambda: self.row("eth3")["groups"] == before)
        self.reaches(group, [])

    def test_more_groups_than_a_filter_has(self):
        for i in range(64):
            self.two.run("ip", "maddr", "add", f"33:33:00:77:00:{i:02x}", "dev", "eth0")
        self.until("all of them", lambda: self.row("eth2")["all_multicast"])
        self.reaches("33:33:00:88:00:01", [2])
        for i in range(64):
            self.two.run("ip", "maddr", "del", f"33:33:00:77:00:{i:02x}", "dev", "eth0")
        self.until("single ones again", lambda: not self.row("eth2")["all_multicast"])
        self.reaches("33:33:00:88:00:01", [])


if __name__ == "__main__":
    main()
