#!/usr/bin/python3
"""heddle tap over every kind of channel (SPLIT figures 6 and 7), with pools owned by either side: ping, long pings, IPv6, iperf3 with TCP and
UDP both ways, and a file with its checksum, on a network that loses nothing and on one that loses a packet in a hundred.

  channels.py FOLDER [Good|Strangers|Bad]     FOLDER has the programs; with TAP_MATRIX=1 every combination, else a few"""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tap  # noqa: E402
from rig import PATIENCE_S, Base, main  # noqa: E402

CHANNELS = ("rocev2", "cells", "iwarp")
EVERY = os.environ.get("TAP_MATRIX") == "1"
# Those of `make test': what the other suites do not have.
FEW = {("cells", "rdma", "both", "immediate"), ("cells", "send", "both", "immediate"), ("iwarp", "rdma", "both", "immediate"),
       ("iwarp", "rdma", "host", "message")}
FEW_BAD = {("cells", "rdma", "unit", "immediate"), ("iwarp", "rdma", "both", "message")}


def rows(few):
    """Channel, mode, owners of pools, indication."""
    for channel in CHANNELS:
        for mode in ("rdma", "send"):
            for pools in ("both", "host", "unit", "none"):
                for indicate in ("immediate", "message"):
                    row = (channel, mode, pools, indicate)
                    if mode == "send" and (channel == "iwarp" or pools != "both" or indicate == "message"):
                        continue  # iWARP is acknowledged; messages need no pools
                    if pools == "none" and indicate == "message":
                        continue
                    if EVERY or row in few:
                        yield row


class Row:
    """What passes over one kind of channel."""

    def options(self, row):
        channel, mode, pools, indicate = row
        return ["--channel", channel, "--mode", mode, "--pools", pools, "--indicate", indicate]

    def unit_options(self, row):
        return ["--channel", "cells"] if row[0] == "cells" else []

    def quick_ping(self, space, to, *more, lossy=False):
        # With -w, ping goes on until it has five answers; without, it would wait for the last for no longer than for those before.
        out = space.run("ping", "-c", "5", "-i", "0.02", "-w", "30", *more, to, check=False)
        answers = [int(n) for n in re.findall(r"icmp_seq=(\d+) ttl", out)]
        self.assertGreaterEqual(len(answers), 5, out)  # more, if one was late
        if not lossy:
            self.assertEqual(answers, list(range(1, len(answers) + 1)), out)

    def iperf(self, space):
        if not shutil.which("iperf3"):
            return
        for words in (["-n", "3M"], ["-n", "3M", "-R"], ["-n", "300K", "-u", "-b", "20M"], ["-n", "300K", "-u", "-b", "20M", "-R"]):
            server = self.lan.start("iperf3", "-s", "-1", "--forceflush", stdout=subprocess.PIPE, text=True)
            self.started.append(server)
            self.assertIn("-", server.stdout.readline())
            done = subprocess.run(space.command("iperf3", "-c", "10.9.0.1", "-J", *words), capture_output=True, text=True, timeout=60)
            end = json.loads(done.stdout).get("end", {})
            total = (end.get("sum_received") or end.get("sum") or {}).get("bytes", 0)
            self.assertGreater(total, 200000, f"{words}: {done.stdout[-600:]}")
            server.wait(30)

    def exercise(self, space, lossy):
        self.quick_ping(space, "10.9.0.1", lossy=lossy)
        self.quick_ping(space, "10.9.0.1", "-s", "8000", lossy=lossy)
        self.quick_ping(space, "fd09::1", lossy=lossy)
        self.quick_ping(self.lan, "10.9.0.2", lossy=lossy)
        self.iperf(space)
        self.fetch(space)

    def check(self, row, stat):
        channel, mode, pools, indicate = row
        counters = stat["counters"]
        self.assertEqual(stat["channel"], channel)
        self.assertEqual(stat["connections"], 1)
        self.assertEqual(counters["refused"], 0)
        writes = mode == "rdma" and pools in ("both", "unit")
        self.assertEqual(counters["tx_writes"] > 0, writes)
        self.assertEqual(counters["tx_sends"] > 0, not writes)
        self.assertEqual(counters["tx_indications"] > 0, writes and indicate == "message")


class Table(Row):
    def test_rows(self):
        for row in rows(self.few):
            with self.subTest(row="-".join(row)):
                self.try_row(row)
            self.tearDown()
            self.setUp()


class Good(Table, Base):
    """Two nodes of one machine, with HEDDLE_LOCAL=off."""
    few = FEW

    def try_row(self, row):
        self.unit(*self.unit_options(row), HEDDLE_LOCAL="off")
        space = self.host(2, *self.options(row), HEDDLE_LOCAL="off")
        self.exercise(space, False)
        self.check(row, self.stat("eth2"))

    def test_same_host_takes_lanes(self):
        """Whatever was asked for: on one machine there is no network to cross."""
        self.unit("--channel", "cells")
        for number, channel in ((2, "rocev2"), (3, "cells"), (4, "iwarp")):
            space = self.host(number, "--channel", channel)
            self.quick_ping(space, "10.9.0.1")
            self.assertEqual(self.stat(f"eth{number}")["channel"], "lanes")

    def test_one_unit_serves_all(self):
        self.unit("--channel", "cells", HEDDLE_LOCAL="off")
        spaces = {channel: self.host(number, "--channel", channel, HEDDLE_LOCAL="off") for number, channel in enumerate(CHANNELS, 2)}
        for number, channel in enumerate(CHANNELS, 2):
            self.quick_ping(spaces[channel], "10.9.0.1")
            self.quick_ping(spaces[channel], "10.9.0.4" if channel != "iwarp" else "10.9.0.2")  # another host
            self.assertEqual(self.stat(f"eth{number}")["channel"], channel)

    def test_who_does_not_fit_is_refused(self):
        self.unit(HEDDLE_LOCAL="off")
        space = self.space()
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--channel", "cells", "--netns", space.pid, node="h2",
                    HEDDLE_LOCAL="off", status=75)
        self.assertIn("does not speak cells", self.errors)
        self.assertIn("does not speak cells", self.stat("eth2")["why"])
        self.heddle("tap", "host", "u", "--tap", "eth1", "--channel", "iwarp", "--mode", "send", status=64)
        self.assertIn("not acknowledged", self.errors)


class Strangers(Row, Base):
    """The TCP port of a unit, and what becomes of its connections."""

    def setUp(self):
        super().setUp()
        self.unit(HEDDLE_LOCAL="off")
        self.two = self.host(2, "--channel", "iwarp", HEDDLE_LOCAL="off")
        self.quick_ping(self.two, "10.9.0.1")

    def listening(self):
        """Where the unit waits for channels."""
        pid = self.pids("unit")[0]
        sockets = {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if f.is_symlink()}
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, port = fields[1].split(":")
                return ".".join(str(b) for b in reversed(bytes.fromhex(address))), int(port, 16)
        self.fail("the unit does not listen")

    def test_who_knows_no_number_gets_no_channel(self):
        hello = struct.pack(">4sHBBIII", b"HDPU", 1, 6, 1, 0x12345678, 1, 2)
        request = b"MPA ID Req Frame" + struct.pack(">BBH", 0x40, 1, len(hello)) + hello
        where = self.listening()
        for data, answer in ((request, True), (request[:-4] + b"\xff" * 4, True), (request.replace(b"HDPU", b"HDPV"), True),
                             (b"MPA ID Req Frame" + struct.pack(">BBH", 0x40, 1, 0), True), (b"GET / HTTP/1.0\r\n\r\n", False)):
            with socket.create_connection(where, PATIENCE_S) as sock:
                sock.sendall(data)
                got = b""
                while len(got) < 20 and (more := self.receive(sock)):
                    got += more
                # Rejected, or not even that.
                self.assertEqual(got[:16] == b"MPA ID Rep Frame" and got[16] & 0x20 != 0, answer, got)
        self.quick_ping(self.two, "10.9.0.1")
        self.assertEqual(len(self.stat("unit")["hosts"]), 1)

    def receive(self, sock):
        try:
            return sock.recv(100)
        except ConnectionResetError:
            return b""

    def test_a_unit_that_is_killed(self):
        os.kill(self.pids("unit")[0], signal.SIGKILL)
        self.until("the carrier goes", lambda: not self.carrier(self.two))
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, node="u", HEDDLE_LOCAL="off")
        self.until("the carrier returns", lambda: self.carrier(self.two))
        self.quick_ping(self.two, "10.9.0.1")
        self.assertEqual(self.stat("eth2")["channel"], "iwarp")


class Bad(Table, tap.Loss):
    """Two agents in two namespaces, and between them a relay that loses one packet in a hundred."""
    few = FEW_BAD
    test_acknowledged_channels_lose_nothing = test_send_mode_loses_as_an_ethernet_does = None

    def try_row(self, row):
        space = self.carry(*self.options(row), unit=self.unit_options(row))
        self.lan.run("ip", "addr", "add", "fd09::1/64", "dev", "lan0", "nodad")
        space.run("ip", "addr", "add", "fd09::2/64", "dev", "eth0", "nodad")
        self.exercise(space, row[1] == "send")
        self.check(row, json.loads(self.inside(space, "tap", "stat", "--json"))[0])


if __name__ == "__main__":
    main()
