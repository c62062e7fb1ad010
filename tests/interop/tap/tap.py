#!/usr/bin/python3
"""heddle tap, as an ordinary user calls it: interfaces in network namespaces whose cables end at a unit.

  tap.py FOLDER     FOLDER has the programs; rig.py is what the tests share

Root is given up first. Where namespaces or /dev/net/tun are missing, the test is skipped and says so."""
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from rig import FOLDER, PATIENCE_S, PYTHON, Base, give_up_root, main, missing  # noqa: E402, F401


class Traffic(Base):
    """Frames of every kind, by every way."""

    def carry(self, *more, **env):
        self.unit(**env)
        space = self.host(2, *more, **env)
        self.ping(space)
        self.ping(space, "10.9.0.1", "-s", "8000")
        self.ping(space, "fd09::1")
        self.ping(self.lan, "10.9.0.2")
        self.fetch(space)
        return space

    def test_same_host(self):
        space = self.carry()
        self.iperf(space)
        counters = self.stat("eth2")["counters"]
        self.assertGreater(counters["tx_writes"], 0)
        self.assertEqual(counters["tx_sends"], 0)
        self.assertEqual(counters["refused"], 0)

    def test_rocev2(self):
        space = self.carry(HEDDLE_LOCAL="off")
        self.iperf(space)

    def test_send_mode(self):
        self.carry("--mode", "send")
        counters = self.stat("eth2")["counters"]
        self.assertEqual(counters["tx_writes"], 0)
        self.assertGreater(counters["tx_sends"], 0)

    def test_send_mode_rocev2(self):
        self.carry("--mode", "send", HEDDLE_LOCAL="off")

    def test_send_mode_loses_nothing_without_a_reason(self):
        """SendData has room at the receiver, or waits: TCP has next to nothing to repeat on a line that loses nothing."""
        if not shutil.which("iperf3"):
            self.skipTest("iperf3 is not installed")
        def row():
            return self.stat("unit")["hosts"][0]

        def arrived():
            host, unit = self.stat("eth2")["counters"], row()["counters"]
            return (host["tx_frames"], unit["tx_frames"]) == (unit["rx_frames"], host["rx_frames"])
        for env in ({}, {"HEDDLE_LOCAL": "off"}):
            with self.subTest(**env):
                self.unit(**env)
                space = self.host(2, "--mode", "send", **env)
                for reverse in ([], ["-R"]):
                    server = self.lan.start("iperf3", "-s", "-1", "--forceflush", stdout=subprocess.PIPE, text=True)
                    self.started.append(server)
                    self.assertIn("-", server.stdout.readline())
                    done = subprocess.run(space.command("iperf3", "-c", "10.9.0.1", "-n", "20M", "-J", *reverse), capture_output=True, text=True,
                                          timeout=100)
                    server.wait(30)
                    end = json.loads(done.stdout)["end"]
                    self.assertGreater(end["sum_received"]["bytes"], 10000000)  # the last of it is not counted
                    self.until("every frame that left arrives", arrived, 10)
                    # A unit drops frames for a host that has not run for 10 ms, before they leave.
                    # On a busy machine TCP also loses patience: 165 were seen at a load of 15. Without the credit they were thousands.
                    if row()["dropped"] == 0:
                        self.assertLess(end["sum_sent"]["retransmits"], 500, reverse)
            self.tearDown()
            self.setUp()

    def test_models(self):
        """Which end starts a transfer, and how: each model leaves its own traces at both ends."""
        traces = {"push-push": {"tx_writes"}, "push-pull": {"tx_writes", "rx_reads"}, "pull-pull": {"tx_writes", "tx_asked"}}
        unit_traces = {"push-push": {"tx_writes"}, "push-pull": {"tx_shown"}, "pull-pull": {"tx_writes", "tx_asked"}}
        for model in traces:
            with self.subTest(model=model):
                self.carry("--model", model)
                host, unit = self.stat("eth2")["counters"], self.stat("unit")["hosts"][0]["counters"]
                names = ("tx_writes", "tx_sends", "tx_shown", "tx_asked", "rx_reads")
                self.assertEqual({name for name in names if host[name] > 0}, traces[model])
                self.assertEqual({name for name in names if unit[name] > 0}, unit_traces[model])
                if model == "pull-pull":  # each frame was asked for
                    self.assertGreaterEqual(host["tx_asked"], host["tx_writes"])
                    self.assertGreaterEqual(unit["tx_asked"], unit["tx_writes"])
                self.tearDown()
                self.setUp()

    def test_owners(self):
        for pools in ("host", "unit", "none"):
            with self.subTest(pools=pools):
                self.carry("--pools", pools)
                counters = self.stat("eth2")["counters"]
                self.assertEqual(counters["tx_writes"] > 0, pools == "unit")
                self.assertEqual(counters["tx_sends"] > 0, pools != "unit")
                self.tearDown()
                self.setUp()

    def test_indication_by_message(self):
        self.carry("--indicate", "message")
        self.assertGreater(self.stat("eth2")["counters"]["tx_indications"], 0)

    def test_jumbo_frames(self):
        self.unit("--mtu", "9000")
        space = self.host(2, "--mtu", "9000", "--no-offload")
        self.ping(space, "10.9.0.1", "-s", "8900", "-M", "do")

    def test_vlan(self):
        self.unit()
        space = self.host(2)
        if "Unknown device" in subprocess.run(space.command("ip", "link", "add", "link", "eth0", "name", "v8", "type", "vlan", "id", "8"),
                                              capture_output=True, text=True).stderr:
            self.skipTest("this kernel has no VLAN interfaces")
        for where, device, address in ((self.lan, "lan0", "10.8.0.1"), (space, "eth0", "10.8.0.2")):
            where.run("ip", "link", "add", "link", device, "name", "v7", "type", "vlan", "id", "7")
            where.run("ip", "addr", "add", address + "/24", "dev", "v7")
            where.run("ip", "link", "set", "v7", "up")
        self.ping(space, "10.8.0.1")


class Configuration(Base):
    def address(self, space, device):
        return json.loads(space.run("ip", "-j", "link", "show", device))[0]["address"]

    def totals(self, space):
        row = json.loads(space.run("ip", "-s", "-j", "link", "show", "eth0"))[0]["stats64"]
        return {"rx_frames": row["tx"]["packets"], "rx_bytes": row["tx"]["bytes"],
                "tx_frames": row["rx"]["packets"], "tx_bytes": row["rx"]["bytes"]}

    def test_json_of_every_verb(self):
        space = self.space()
        unit = json.loads(self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", space.pid, "--json", node="u"))
        self.assertEqual((unit["started"], unit["role"], unit["interface"]), ("unit", "unit", "tap:lan0"))
        host = json.loads(self.heddle("tap", "host", "u", "--tap", "eth0", "--netns", space.pid, "--json", node="h"))
        self.assertEqual((host["started"], host["role"]), ("eth0", "host"))
        self.assertEqual([unit["pid"], host["pid"]], self.pids("unit") + self.pids("host"))
        self.until("the carrier", lambda: self.carrier(space))
        mac = json.loads(self.heddle("tap", "mac", "eth0", "02:00:00:00:00:07", "--json"))
        self.assertEqual(mac, {"mac": "02:00:00:00:00:07", "name": "eth0"})
        self.assertEqual({row["name"] for row in json.loads(self.heddle("tap", "stat", "-j"))}, {"unit", "eth0"})
        self.assertEqual(json.loads(self.heddle("tap", "down", "eth0", "-j")), {"ended": ["eth0"]})
        self.assertEqual(json.loads(self.heddle("tap", "down", "-j")), {"ended": ["unit"]})
        self.assertEqual(self.heddle("tap", "down", "nothing", "-j", status=1).split(), ["{", '"ended":', "[]", "}"])

    def test_counters_agree(self):
        self.unit()
        space = self.host(2)
        self.ping(space)

        def agree():
            stat = self.stat("eth2")
            mine = {k: stat["interface"][k] for k in ("rx_frames", "rx_bytes", "tx_frames", "tx_bytes")}
            units = {k: stat["unit_counters"][k] for k in mine}
            return self.totals(space) == mine == units
        self.until("ip -s link and heddle tap stat agree", agree)

    def test_mac(self):
        self.unit()
        space = self.host(2)
        self.ping(space)
        new = "02:12:34:56:78:9a"
        self.assertEqual(self.heddle("tap", "mac", "eth2", new).strip(), new)
        self.assertEqual(self.heddle("tap", "mac", "eth2").strip(), new)
        self.assertIn(new, space.run("ip", "link", "show", "eth0"))
        self.ping(space)
        self.assertIn(new, self.lan.run("ip", "neigh", "show", "10.9.0.2"))
        self.heddle("tap", "mac", "eth2", "01:00:00:00:00:01", status=1)
        # The user changes it with ip: the unit is told.
        other = "02:12:34:56:78:9b"
        space.run("ip", "link", "set", "eth0", "address", other)
        self.ping(space)
        self.assertEqual(self.stat("unit")["hosts"][0]["mac"], other)

    def test_a_refused_address_changes_nothing(self):
        """The host keeps the address that it has: frames to it still arrive, and nobody else gets it."""
        self.unit()
        one, two = self.host(2), self.host(3)
        self.ping(one)
        self.ping(two)
        rows = {row["name"]: row["mac"] for row in self.stat("unit")["hosts"]}
        for wrong in ("00:00:00:00:00:00", rows["eth3"], self.address(self.lan, "lan0")):
            self.heddle("tap", "mac", "eth2", wrong, status=1)
            self.assertIn("refuses the address", self.errors)
            self.assertEqual(self.heddle("tap", "mac", "eth2").strip(), rows["eth2"])
            self.assertEqual({row["name"]: row["mac"] for row in self.stat("unit")["hosts"]}, rows)
            self.lan.run("ip", "neigh", "replace", "10.9.0.2", "lladdr", rows["eth2"], "dev", "lan0")
            self.ping(self.lan, "10.9.0.2")
            self.heddle("tap", "mac", "eth3", rows["eth2"], status=1)

    def test_a_host_of_two_units(self):
        self.unit()
        other, space = self.space(), self.host(2)
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", other.pid, "--service", "5", "--name", "unit5", node="u")
        other.run("ip", "addr", "add", "10.10.0.1/24", "dev", "lan0")
        self.heddle("tap", "host", "u", "--service", "5", "--tap", "eth1", "--netns", space.pid, node="h2")
        space.run("ip", "addr", "add", "10.10.0.2/24", "dev", "eth1")
        self.until("the second unit", lambda: self.stat("eth1")["link"])
        self.ping(space)
        self.ping(space, "10.10.0.1")
        self.heddle("tap", "down", "unit5")
        self.until("its carrier goes", lambda: not self.stat("eth1")["link"])
        self.ping(space)

    def test_two_hosts_and_forged_addresses(self):
        self.unit()
        one, two = self.host(2), self.host(3)
        self.ping(one)
        self.ping(two)
        self.ping(one, "10.9.0.3")  # from host to host
        mac = next(h for h in self.stat("unit")["hosts"] if h["name"] == "eth2")["mac"]
        before = self.stat("eth3")["refused_frames"]
        two.run("ip", "link", "set", "eth0", "address", mac)
        two.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "10.9.0.1", check=False)
        self.assertGreater(self.stat("eth3")["refused_frames"], before)
        self.ping(one)
        self.assertNotEqual(next(h for h in self.stat("unit")["hosts"] if h["name"] == "eth3")["mac"], mac)
        # With that address from the beginning it is not let in at all.
        three, begin = self.space(), time.monotonic()
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth4", "--mac", mac, "--no-wait", "--netns", three.pid, node="h4")
        self.until("the reason", lambda: "another host has it" in self.stat("eth4").get("why", ""))
        # It asks again, less and less often; the unit shows all of that as one.
        def rows():
            return [row for row in self.stat("unit")["ended"]["last"] if row["name"] == "eth4"]
        self.until("it tries again", lambda: any(row.get("times", 1) >= 3 for row in rows()), 20)
        self.assertGreater(time.monotonic() - begin, 2.9)
        self.assertEqual(len(rows()), 1)
        self.assertIn(mac + " refused", rows()[0]["why"])
        self.ping(one)
        # With another address it is let in at once.
        times = rows()[0]["times"]
        three.run("ip", "link", "set", "eth0", "address", "02:12:34:56:78:9c")
        self.until("it is let in", lambda: self.stat("eth4")["up"])
        self.assertLessEqual(rows()[0]["times"], times + 1)


class Recovery(Base):
    """kill -9 of any process: the interface stays, and a TCP connection goes on."""

    def setUp(self):
        super().setUp()
        self.unit()
        self.two = self.host(2)
        self.ping(self.two)
        script = ("import socket,threading\ns=socket.create_server(('10.9.0.1',7000))\nprint(flush=True)\n"
                  "def echo(c):\n try:\n  while d:=c.recv(4096): c.sendall(d)\n except OSError: pass\n"
                  "while True: threading.Thread(target=echo,args=(s.accept()[0],)).start()\n")
        server = self.lan.start(PYTHON, "-c", script, stdout=subprocess.PIPE)
        self.started.append(server)
        server.stdout.readline()
        self.call()

    def call(self):
        """A TCP connection from the host to the LAN."""
        script = ("import socket,sys\nc=socket.create_connection(('10.9.0.1',7000),20)\nc.settimeout(60)\n"
                  "for line in sys.stdin:\n c.sendall(line.encode())\n d=b''\n while not d.endswith(b'\\n'): d+=c.recv(4096)\n print(d.decode(),end='',flush=True)\n")
        self.client = self.two.start(PYTHON, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(self.client)
        self.talk("first")

    def talk(self, word):
        self.client.stdin.write(word + "\n")
        self.client.stdin.flush()
        self.assertEqual(self.client.stdout.readline(), word + "\n")

    def tearDown(self):
        self.client.stdin.close()
        super().tearDown()

    def kill(self, word):
        pids = self.pids(word)
        self.assertEqual(len(pids), 1, word)
        os.kill(pids[0], signal.SIGKILL)

    def kill_space(self, space, *others):
        """All processes of a namespace at once, as the end of a container."""
        for process in (*others, space.holder):
            process.kill()
        for process in (*others, space.holder):
            process.wait()

    def test_container_is_killed(self):
        # A process of it is left: the interface is used, and stays.
        self.two.holder.kill()
        self.two.holder.wait()
        self.talk("without the first process")
        self.client.kill()
        self.until("the host ends", lambda: not self.pids("host"))
        self.until("the unit notices", lambda: self.stat("unit")["hosts"] == [])
        # The same name in a new container.
        self.two = self.host(2)
        self.client.stdin.close()
        self.call()
        # The container of the unit, with its LAN.
        self.kill_space(self.lan, self.started[0])
        start = time.monotonic()
        self.until("the carrier goes", lambda: not self.carrier(self.two))
        self.assertLess(time.monotonic() - start, 5)  # a second on an idle machine
        self.until("the unit ends", lambda: not self.pids("unit"))
        self.unit()
        self.until("the carrier returns", lambda: self.carrier(self.two))
        self.ping(self.two)

    def test_an_interface_is_removed(self):
        self.two.run("ip", "link", "del", "eth0")
        self.until("the host ends", lambda: not self.pids("host"))
        self.until("the unit notices", lambda: self.stat("unit")["hosts"] == [])

    def test_unit_is_killed(self):
        before = self.stat("eth2")["counters"]["tx_frames"]
        self.kill("unit")
        start = time.monotonic()
        self.until("the carrier goes", lambda: not self.carrier(self.two))
        self.assertLess(time.monotonic() - start, 5)  # a second on an idle machine
        ended = self.stat("eth2")["ended"]
        self.assertEqual(ended["connections"], 1)
        self.assertGreaterEqual(ended["counters"]["tx_frames"], before)
        self.assertGreater(before, 0)
        self.assertNotEqual(ended["last"][0]["why"], "")
        self.assertIn("10.9.0.2", self.two.run("ip", "addr", "show", "eth0"))
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, node="u")
        self.until("the carrier returns", lambda: self.carrier(self.two))
        self.assertIn("10.9.0.1", self.lan.run("ip", "addr", "show", "lan0"))
        self.talk("after the unit")

    def test_host_is_killed(self):
        self.kill("host")
        self.until("the carrier goes", lambda: not self.carrier(self.two))
        self.until("the unit notices", lambda: self.stat("unit")["hosts"] == [])
        self.assertIn("10.9.0.2", self.two.run("ip", "addr", "show", "eth0"))
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--netns", self.two.pid, node="h2")
        self.until("the carrier returns", lambda: self.carrier(self.two))
        self.talk("after the host")

    def test_agent_is_killed(self):
        self.kill("heddled")
        self.talk("after the agent")
        self.kill("unit")
        self.until("the carrier goes", lambda: not self.carrier(self.two))
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, node="u")
        self.until("the carrier returns", lambda: self.carrier(self.two))
        self.talk("after both")

    def test_random_kills(self):
        """TAP_ROUNDS times, from TAP_SEED: tools/soak does many."""
        chance = random.Random(int(os.environ.get("TAP_SEED", "1")))

        def host_words():
            return ["tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--netns", self.two.pid]
        commands = {"unit": (["tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid], "u"), "host": (host_words(), "h2")}

        def start(words, node):
            done = subprocess.run([FOLDER / "heddle", *map(str, words)], env=dict(self.env, HEDDLE_NODE=node), capture_output=True, text=True,
                                  timeout=100)
            return done.returncode in (0, 75)  # the agent may not have noticed yet that the old one is gone
        slow = []  # how long the carrier stayed after a unit was killed
        for number in range(int(os.environ.get("TAP_ROUNDS", "5"))):
            time.sleep(chance.random() / 5)
            victims = chance.sample(["unit", "host", "heddled", "container"], chance.choice([1, 1, 2]))
            if "container" in victims:
                self.kill_space(self.two, self.client)
                for pid in self.pids("host") if "host" in victims else []:
                    os.kill(pid, signal.SIGKILL)
                self.until(f"round {number}: the host ends", lambda: not self.pids("host"))
                self.client.stdin.close()
                self.two = self.space()
                commands["host"] = (host_words(), "h2")
                victims = [v for v in victims if v != "host"] + ["host"]
            for victim in victims:
                for pid in self.pids(victim):
                    os.kill(pid, signal.SIGKILL)
            if victims == ["unit"]:
                killed = time.monotonic()
                self.until(f"round {number}: the carrier goes", lambda: not self.carrier(self.two))
                slow.append(time.monotonic() - killed)
                self.assertIn("10.9.0.2", self.two.run("ip", "addr", "show", "eth0"))
            for victim in victims:
                if victim in commands:
                    self.until(f"round {number}: {victim} again", lambda: start(*commands[victim]))
            if "container" in victims:
                self.two.run("ip", "addr", "add", "10.9.0.2/24", "dev", "eth0")
            self.until(f"round {number}: {victims}: the carrier", lambda: self.carrier(self.two))
            if "container" in victims:
                self.call()
            self.talk(f"round {number}")
        if slow:
            print(f"the carrier went within {max(slow):.2f} s, at most; {sorted(slow)[len(slow) // 2]:.2f} s is the median")
            self.assertLess(sorted(slow)[len(slow) // 2], 1)

    def test_down_removes_the_interface(self):
        self.heddle("tap", "down", "eth2")
        self.until("it goes", lambda: "eth0" not in self.two.run("ip", "link"))
        self.until("the unit notices", lambda: self.stat("unit")["hosts"] == [])


class Machines(Base):
    """Two agents that know each other only by network addresses, as on two machines."""
    tests = 0

    def setUp(self):
        super().setUp()
        (self.place / "e").mkdir(mode=0o700)
        self.one = {"HEDDLE_DIR": str(self.place / "d")}
        self.two = {"HEDDLE_DIR": str(self.place / "e")}
        # An agent keeps its address for a while: it repeats goodbyes that nobody has answered.
        Machines.tests += 1
        self.addresses = [f"127.{90 + os.getpid() % 100}.{os.getpid() // 256 % 250}.{2 * Machines.tests + n}" for n in (1, 2)]

    def tearDown(self):
        self.heddle("tap", "down", status=None, **self.two)
        super().tearDown()

    def begin(self):
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, "--addr", self.addresses[0], **self.one)

    def test_by_address(self):
        for mode in ("rdma", "send"):
            with self.subTest(mode=mode):
                self.lan, space = self.space(), self.space()
                self.begin()
                self.heddle("tap", "host", self.addresses[0], "--tap", "eth0", "--netns", space.pid, "--addr", self.addresses[1],
                            "--mode", mode, **self.two)
                self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "lan0")
                space.run("ip", "addr", "add", "10.9.0.2/24", "dev", "eth0")
                self.until("the carrier", lambda: self.carrier(space))
                self.ping(space)
                unit = self.pids("unit")
                self.assertEqual(len(unit), 1)
                os.kill(unit[0], signal.SIGKILL)
                self.until("the carrier goes", lambda: not self.carrier(space))
                self.begin()
                self.until("the carrier returns", lambda: self.carrier(space))
                self.ping(space)
                # A unit that ends says so.
                self.heddle("tap", "down", "unit", **self.one)
                self.until("the carrier goes", lambda: not self.carrier(space))
                self.heddle("tap", "down", **self.two)

    def test_cells_name_their_ports(self):
        """Each cell has the MAC addresses of the two ports, each of which follows from the port's address."""
        if not shutil.which("tshark"):
            self.skipTest("tshark is not installed")
        for mode in ("rdma", "send"):
            with self.subTest(mode=mode):
                capture = self.place / f"{mode}.pcapng"
                self.lan, space = self.space(), self.space()
                self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, "--addr", self.addresses[0], "--channel", "cells",
                            HEDDLE_CAPTURE=str(capture), **self.one)
                self.heddle("tap", "host", self.addresses[0], "--tap", "eth0", "--netns", space.pid, "--addr", self.addresses[1], "--channel",
                            "cells", "--mode", mode, **self.two)
                self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "lan0")
                space.run("ip", "addr", "add", "10.9.0.2/24", "dev", "eth0")
                self.until("the carrier", lambda: self.carrier(space))
                self.ping(space)
                self.heddle("tap", "down", **self.two)
                self.heddle("tap", "down", **self.one)
                script = Captures.SCRIPT.with_name("heddle-cell.lua")
                done = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-n", "-r", str(capture), "-Y", "heddle_cell", "-T", "fields", "-E",
                                       "occurrence=a", "-e", "heddle_cell.to", "-e", "heddle_cell.from"], capture_output=True, text=True, timeout=100)
                macs = ["02:48:" + socket.inet_aton(address).hex(":") for address in self.addresses]
                ways = {tuple(part.split(",")[0] for part in line.split("\t")) for line in done.stdout.splitlines()}
                self.assertEqual(ways, {(macs[0], macs[1]), (macs[1], macs[0])}, done.stderr)

    def test_a_machine_stops(self):
        """Nobody says goodbye for it, and in send mode nothing is acknowledged."""
        self.lan, space = self.space(), self.space()
        self.begin()
        self.heddle("tap", "host", self.addresses[0], "--tap", "eth0", "--netns", space.pid, "--addr", self.addresses[1], "--mode", "send",
                    **self.two)
        self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "lan0")
        space.run("ip", "addr", "add", "10.9.0.2/24", "dev", "eth0")
        self.until("the carrier", lambda: self.carrier(space))
        self.ping(space)
        for word, folder, gone in (("unit", "d", lambda: not self.carrier(space)), ("host", "e", lambda: self.stat("unit")["hosts"] == [])):
            machine = self.pids(word, folder) + self.pids("heddled", folder)
            self.assertEqual(len(machine), 2)
            for pid in machine:
                os.kill(pid, signal.SIGSTOP)
            try:
                self.until(f"the {word} counts as gone", gone)
            finally:
                for pid in machine:
                    os.kill(pid, signal.SIGCONT)
            self.until("they connect again", lambda: self.carrier(space) and len(self.stat("unit")["hosts"]) == 1)
            self.ping(space)

    def test_nobody_there(self):
        space = self.space()
        self.heddle("tap", "host", self.addresses[0], "--tap", "eth0", "--netns", space.pid, "--addr", self.addresses[1], status=75, **self.two)
        self.assertIn("the other end does not answer", self.errors)
        self.until("a reason", lambda: json.loads(self.heddle("tap", "stat", "--json", **self.two))[0].get("why"))
        self.assertFalse(self.carrier(space))


class Loss(Base):
    """A link that loses one packet in a hundred between Heddle's ends: a relay of ours between two namespaces."""

    def carry(self, *more, loss=10, unit=()):
        relay = FOLDER / "bench/taprelay"
        if not relay.exists():
            self.skipTest("bench/taprelay is not built")
        self.lan, space = self.space(), self.space()
        process = subprocess.Popen([relay, f"{self.lan.pid}:n0", f"{space.pid}:n0", "0", str(loss)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE)
        self.started.append(process)
        process.stdout.readline()
        for where, folder, number in ((self.lan, "d", 1), (space, "e", 2)):
            (self.place / folder).mkdir(mode=0o700, exist_ok=True)
            where.run("ip", "addr", "add", f"10.77.0.{number}/24", "dev", "n0")
            where.env = dict(self.env, HEDDLE_DIR=str(self.place / folder))
        self.inside(self.lan, "tap", "unit", "--lan", "tap:lan0", "--addr", "10.77.0.1", *unit)
        self.inside(space, "tap", "host", "10.77.0.1", "--tap", "eth0", "--addr", "10.77.0.2", *more)
        self.lan.run("ip", "addr", "add", "10.9.0.1/24", "dev", "lan0")
        space.run("ip", "addr", "add", "10.9.0.2/24", "dev", "eth0")
        self.until("the carrier", lambda: self.carrier(space))
        return space

    def inside(self, space, *words):
        done = subprocess.run(space.command(FOLDER / "heddle", *words), env=space.env, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def tearDown(self):
        for space in self.spaces:
            subprocess.run(space.command(FOLDER / "heddle", "tap", "down"), env=space.env, capture_output=True, timeout=60)
        super().tearDown()

    def test_acknowledged_channels_lose_nothing(self):
        space = self.carry()
        out = space.run("ping", "-c", "200", "-i", "0.01", "-W", "10", "-s", "3000", "10.9.0.1")
        self.assertIn(" 0% packet loss", out)
        stat = json.loads(self.inside(space, "tap", "stat", "--json"))[0]
        self.assertEqual(stat["counters"]["refused"], 0)
        self.assertEqual(stat["connections"], 1)
        self.fetch(space)

    def test_send_mode_loses_as_an_ethernet_does(self):
        space = self.carry("--mode", "send")
        out = space.run("ping", "-c", "400", "-i", "0.01", "-W", "5", "10.9.0.1", check=False)
        lost = float(re.search(r"([\d.]+)% packet loss", out).group(1))
        self.assertTrue(0 < lost < 20, out)
        self.fetch(space)


class Sockets(Base):
    """QEMU's -netdev stream and passt: frames with a length before each."""

    def peer(self, path):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        self.addCleanup(sock.close)
        return sock

    def read(self, sock):
        def exactly(count):
            data = b""
            while len(data) < count:
                more = sock.recv(count - len(data))
                self.assertTrue(more, "the socket was closed")
                data += more
            return data
        return exactly(struct.unpack(">I", exactly(4))[0])

    def arp(self, mac, own, target):
        return (b"\xff" * 6 + mac + b"\x08\x06" + struct.pack(">HHBBH", 1, 0x800, 6, 4, 1) + mac + socket.inet_aton(own) + b"\0" * 6
                + socket.inet_aton(target))

    def test_a_guest_by_socket(self):
        self.unit()
        path = self.place / "vm"
        self.heddle("tap", "host", "u", "--unix", path, node="h2")
        guest = self.peer(path)
        mac = bytes.fromhex("020000000042")
        frame = self.arp(mac, "10.9.0.42", "10.9.0.1")
        message = struct.pack(">I", len(frame)) + frame
        guest.sendall(message[:7])  # in pieces, as a stream may
        guest.sendall(message[7:] + message)
        while True:
            got = self.read(guest)
            if got[12:14] == b"\x08\x06" and got[:6] == mac:
                break
        self.assertEqual(got[28:32], socket.inet_aton("10.9.0.1"))
        self.assertEqual(self.stat("unit")["hosts"][0]["mac"], "02:00:00:00:00:42")
        # Another host with a real interface stops offloading segments: the guest could not take them.
        self.assertEqual(self.stat("unit")["offloads"], 1)

    def test_a_guest_has_one_address(self):
        """That of its first frame, until another guest connects; or what the user of the host has said."""
        self.unit()
        path = self.place / "vm"
        first, second, said = (bytes.fromhex(f"0200000000{n}") for n in ("61", "62", "63"))

        def send(guest, *macs):
            for mac in macs:
                frame = self.arp(mac, "10.9.0.61", "10.9.0.1")
                guest.sendall(struct.pack(">I", len(frame)) + frame)

        def known():
            return [row["mac"] for row in self.stat("unit")["hosts"]]
        self.heddle("tap", "host", "u", "--unix", path, node="h2")
        guest = self.peer(path)
        send(guest, first, second, second)
        self.until("two frames are refused", lambda: self.stat("vm")["refused_frames"] == 2)
        self.assertEqual(known(), [first.hex(":")])
        # The unit starts again: the guest keeps its address, and does not get another one by that.
        self.heddle("tap", "down", "unit")
        self.heddle("tap", "unit", "--lan", "tap:lan0", "--netns", self.lan.pid, node="u")
        self.until("the host is back", lambda: known() == [first.hex(":")])
        send(guest, second)
        self.until("another one is refused", lambda: self.stat("vm")["refused_frames"] == 3)
        guest.close()
        self.until("the guest has gone", lambda: not self.stat("vm")["interface"]["there"])
        send(self.peer(path), second)
        self.until("the next guest has its own", lambda: known() == [second.hex(":")])
        self.heddle("tap", "down", "vm")
        self.heddle("tap", "host", "u", "--unix", path, "--mac", said.hex(":"), node="h2")
        send(self.peer(path), first, said)
        self.until("one is refused", lambda: self.stat("vm")["refused_frames"] == 1)
        self.assertEqual(known(), [said.hex(":")])

    def test_nobody_at_the_socket(self):
        """Then the unit listens there, and says that no frames pass yet."""
        path = self.place / "lan"
        self.heddle("tap", "unit", "--lan", f"unix:{path}", node="u")
        self.assertIn(f"unit waits at {path}: nobody is there yet", self.errors)
        self.assertFalse(self.stat("unit")["interface"]["link"])
        self.heddle("tap", "host", "u", "--unix", self.place / "vm", node="h2", status=75)
        self.assertIn("vm is not connected yet: the LAN of its unit has no link", self.errors)
        self.assertEqual((self.stat("vm")["up"], self.stat("vm")["link"]), (True, False))
        lan = socket.socket(socket.AF_UNIX)
        self.addCleanup(lan.close)
        lan.connect(str(path))
        self.until("somebody is there", lambda: self.stat("unit")["interface"]["link"])
        self.until("the host knows", lambda: self.stat("vm")["link"])

    def test_a_lan_that_ends_and_returns(self):
        """Such as passt: the unit looks for it again, and hosts have no carrier meanwhile."""
        path = self.place / "lan"

        def serve():
            server = socket.socket(socket.AF_UNIX)
            self.addCleanup(server.close)
            server.settimeout(PATIENCE_S)
            server.bind(str(path))
            server.listen()
            return server
        server = serve()
        self.heddle("tap", "unit", "--lan", f"unix:{path}", node="u")
        self.assertEqual(self.errors, "")
        lan = server.accept()[0]
        space = self.host(2)
        for _ in range(2):
            server.close()
            path.unlink()
            lan.close()
            self.until("no carrier without the LAN", lambda: not self.carrier(space))
            server = serve()
            lan = server.accept()[0]
            self.addCleanup(lan.close)
            self.until("the carrier returns", lambda: self.carrier(space))
        self.assertEqual(self.stat("eth2")["connections"], 1)
        lan.settimeout(PATIENCE_S)
        pinging = space.start("ping", "-c", "1", "-W", "1", "10.9.0.77", stdout=subprocess.DEVNULL)
        self.started.append(pinging)
        while self.read(lan)[12:14] != b"\x08\x06":  # who has 10.9.0.77?
            pass

    def test_the_recipe_of_the_readme(self):
        """Its commands as printed: two machines are one namespace, the network behind the first one is another."""
        if not shutil.which("passt") or not shutil.which("curl"):
            self.skipTest("passt or curl is not installed")
        machines = self.space()
        network = self.space(beside=machines)
        machines.run("ip", "link", "add", "n0", "type", "veth", "peer", "name", "n1", "netns", network.pid)
        for space, device, address in ((machines, "n0", "203.0.113.2/24"), (machines, "lo", "192.0.2.1/32"), (machines, "lo", "192.0.2.2/32"),
                                       (network, "n1", "203.0.113.1/24"), (network, "lo", "1.1.1.1/32")):
            space.run("ip", "addr", "add", address, "dev", device)
            space.run("ip", "link", "set", device, "up")
        machines.run("ip", "route", "add", "default", "via", "203.0.113.1")
        web = network.start(PYTHON, "-c", "import http.server as h\nclass H(h.BaseHTTPRequestHandler):\n def do_HEAD(self):\n"
                            "  self.send_response(200, 'as printed')\n  self.end_headers()\n def log_message(self, *_): pass\n"
                            "s=h.HTTPServer(('1.1.1.1',80),H)\nprint(flush=True)\ns.serve_forever()", stdout=subprocess.PIPE)
        self.started.append(web)
        web.stdout.readline()
        text = (Path(__file__).resolve().parents[3] / "README.md").read_text()
        section = text.split("## A network card on another machine")[1].split("\n## ")[0]
        lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
        cut = next(i for i, line in enumerate(lines) if "the other one" in line)
        (self.place / "e").mkdir(mode=0o700)
        (self.place / "heddle").symlink_to((FOLDER / "heddle").resolve())
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in self.pids("passt")])
        halves = {"d": lines[:cut], "e": [*lines[cut:], "kill %1"]}
        for folder, half in halves.items():
            script = "set -e\n" + "\n".join(half).replace("/tmp/lan.sock", str(self.place / "lan.sock"))
            done = subprocess.run(machines.command("bash", "-c", script), cwd=self.place, capture_output=True, text=True, timeout=60,
                                  env=dict(self.env, HEDDLE_DIR=str(self.place / folder)))
            if "passt" in done.stderr and done.returncode != 0 and folder == "d":
                self.skipTest("passt does not run here: " + done.stderr[-300:])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("200 as printed", done.stdout)
        for frames in re.findall(r"(?:in|out) (\d+) frames", done.stdout):
            self.assertGreater(int(frames), 0)
        self.heddle("tap", "down", status=None, HEDDLE_DIR=str(self.place / "e"))

    def test_passt_as_the_lan(self):
        if not shutil.which("passt"):
            self.skipTest("passt is not installed")
        path = self.place / "passt"
        passt = subprocess.Popen(["passt", "-f", "-1", "--socket", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.started.append(passt)
        end = time.monotonic() + 10
        while not path.exists() and passt.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        if not path.exists():
            self.skipTest("passt does not run here: " + passt.stderr.read()[:200])
        self.heddle("tap", "unit", "--lan", f"unix:{path}", node="u")
        space = self.space()
        self.heddle("tap", "host", "u", "--tap", "eth0", "--name", "eth2", "--netns", space.pid, node="h2")
        self.until("the carrier", lambda: self.carrier(space))
        address, gateway = self.route()
        if address is None:
            self.skipTest("this machine has no default route")
        space.run("ip", "addr", "add", address, "dev", "eth0")
        space.run("ip", "route", "replace", "default", "via", gateway, "dev", "eth0", "onlink")
        # passt answers for the gateway, and a TCP connection to it reaches this machine's loopback.
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def answer():
            with server.accept()[0] as sock:
                sock.sendall(b"real network\n")
        threading.Thread(target=answer, daemon=True).start()
        script = f"import socket; print(socket.create_connection(('{gateway}', {server.getsockname()[1]}), 20).recv(100).decode())"
        self.assertIn("real network", space.run(PYTHON, "-c", script))

    def route(self):
        out = subprocess.run(["ip", "-j", "-4", "route", "show", "default"], capture_output=True, text=True).stdout
        for row in json.loads(out or "[]"):
            addresses = json.loads(subprocess.run(["ip", "-j", "-4", "addr", "show", "dev", row["dev"]], capture_output=True, text=True).stdout)
            for info in addresses[0].get("addr_info", []):
                if "gateway" in row:
                    return f"{info['local']}/{info['prefixlen']}", row["gateway"]
        return None, None


class Captures(Base):
    """tshark with the project's dissector names every message and every frame."""

    SCRIPT = Path(__file__).resolve().parents[3] / "docs/wireshark/heddle-push.lua"

    def lines(self, capture, *options):
        done = subprocess.run(["tshark", "-X", f"lua_script:{self.SCRIPT}", "-n", "-r", str(capture), *options], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Lua", done.stderr)
        return done.stdout.splitlines()

    def test_every_message_has_its_name(self):
        if not shutil.which("tshark"):
            self.skipTest("tshark is not installed")
        seen = set()
        for more in ([], ["--model", "push-pull"], ["--model", "pull-pull"], ["--mode", "send"], ["--indicate", "message"]):
            captures = [self.place / "unit.pcapng", self.place / "host.pcapng"]
            for capture in captures:
                capture.unlink(missing_ok=True)
            self.unit(HEDDLE_CAPTURE=str(captures[0]))
            space = self.host(2, *more, HEDDLE_CAPTURE=str(captures[1]))
            self.ping(space, "10.9.0.1", "-s", "3000")
            self.stat("eth2")
            self.heddle("tap", "mac", "eth2", "02:00:00:00:00:77")
            self.heddle("tap", "down", "eth2")
            self.heddle("tap", "down")
            for capture in captures:
                self.assertEqual(self.lines(capture, "-Y", "_ws.malformed"), [])
                # Sends (RC 0 to 5, UC 32 to 37) and writes (6 to 11, 38 to 43) that are not dissected.
                plain = self.lines(capture, "-Y", "(infiniband.bth.opcode <= 11 || (infiniband.bth.opcode >= 32 && infiniband.bth.opcode <= 43)) && "
                                   "!heddle_push")
                self.assertEqual(plain, [], more)
                seen |= set(self.lines(capture, "-T", "fields", "-e", "heddle_push.function"))
                for line in self.lines(capture, "-Y", "heddle_indication", "-T", "fields", "-e", "heddle_indication.pool", "-e",
                                       "heddle_indication.bytes", "-e", "_ws.col.Info"):
                    self.assertRegex(line, r"^[01]\t\d+\t(Frame|Part).*-> pool")
        self.assertEqual(seen - {""}, {str(n) for n in range(1, 10)})


class Hostile(Base):
    """A host with an open connection that breaks the rules ends its own connection, and no other."""

    def test_every_attack(self):
        self.unit()
        space = self.host(2)
        self.ping(space)
        # Which rule it was: what the unit keeps of the connection. The others are stopped by the queue pair itself.
        rules = {"pool": "no_pool", "size": "size", "twice": "not_offered", "noise": "message", "elements": "pool_limit", "update": "no_element",
                 "flush": "no_pool"}
        sums = {}
        for attack in ("beyond", "across", "wrap", "handle", "read", "pool", "size", "twice", "send", "noise", "elements", "update", "flush",
                       "long"):
            with self.subTest(attack=attack):
                done = subprocess.run([FOLDER / "tests/interop/tap/interop-tap-hostile", "u", attack], env=dict(self.env, HEDDLE_NODE="x"),
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, f"{attack}: {done.returncode} {done.stdout}{done.stderr}")
                self.until("the unit has one host", lambda: len(self.stat("unit")["hosts"]) == 1)
                last = self.stat("unit")["ended"]["last"][-1]
                self.assertEqual(last["name"], "hostile")
                self.assertNotEqual(last["why"], "")
                counters = {name: value for name, value in last["counters"].items() if name.startswith("refused") and value > 0}
                self.assertEqual(counters, {"refused": 1, "refused_" + rules[attack]: 1} if attack in rules else {})
                for name, value in counters.items():
                    sums[name] = sums.get(name, 0) + value
        ended = self.stat("unit")["ended"]
        self.assertEqual((ended["connections"], len(ended["last"])), (14, 14))
        self.assertEqual({name: value for name, value in ended["counters"].items() if name.startswith("refused") and value > 0}, sums)
        text = self.heddle("tap", "stat", "unit")
        self.assertIn("14 connections have ended", text)
        self.assertIn("2 refused_no_pool", text)
        self.until("the unit has one host", lambda: len(self.stat("unit")["hosts"]) == 1)
        self.ping(space)
        self.assertEqual(self.stat("eth2")["connections"], 1)
        self.assertEqual(self.stat("unit")["accepted"], 15)


    def test_a_unit_has_64_hosts(self):
        self.unit()
        space = self.host(2)
        program = FOLDER / "tests/interop/tap/interop-tap-hostile"
        crowd = subprocess.Popen([program, "u", "crowd"], env=dict(self.env, HEDDLE_NODE="x"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)
        self.started.append(crowd)
        self.assertEqual(crowd.stdout.readline(), "all are taken\n")
        self.until("the unit has all hosts", lambda: len(self.stat("unit")["hosts"]) == 64)
        done = subprocess.run([program, "u", "beyond"], env=dict(self.env, HEDDLE_NODE="y"), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("too many hosts", done.stderr)
        self.ping(space)
        crowd.stdin.close()
        self.assertEqual(crowd.wait(60), 0)
        self.until("they have gone", lambda: len(self.stat("unit")["hosts"]) == 1)
        self.ping(space)


class Mistakes(Base):
    """Each gets a sentence that says what to do."""

    def fails(self, text, *words, status=1):
        self.heddle("tap", *words, status=status)
        self.assertIn(text, self.errors)

    def test_sentences(self):
        space = self.space()
        self.fails("--lan tap:NAME", "unit", status=64)
        self.fails("is not tap:NAME", "unit", "--lan", "what", status=64)
        self.fails("--tap NAME or --unix", "host", "u", status=64)
        self.fails("namespace of your own", "unit", "--lan", "tap:hx0")
        self.fails("CAP_NET_RAW", "unit", "--lan", "packet:lo")
        self.fails("`ip link'", "unit", "--lan", "packet:nothing0", "--netns", space.pid)
        self.fails("must run", "unit", "--lan", "tap:hx0", "--netns", "2147483646")
        self.fails("as the same user", "unit", "--lan", "tap:hx0", "--netns", "1")
        self.fails("Unix stream socket", "unit", "--lan", "unix:/nowhere/at/all")
        self.fails("--mtu 4", "host", "u", "--tap", "e0", "--mode", "send", "--mtu", "9000", status=64)
        self.fails("nothing called 'x'", "stat", "x")
        self.fails("there is no 'what'", "what", status=64)
        self.unit()
        self.fails("runs already", "unit", "--lan", "tap:lan1", "--netns", space.pid)
        self.fails("another name", "unit", "--lan", "tap:lan0", "--name", "b", "--netns", self.lan.pid)
        self.heddle("tap", "unit", "--lan", "tap:lan1", "--name", "b", "--netns", space.pid, node="u", status=1)
        self.assertIn("a unit on this node already", self.errors)
        self.fails("a unit has no address", "mac", "unit")

    def test_directory(self):
        """Which directory is unusable, not only why."""
        wide = self.place / "wide"
        wide.mkdir()
        wide.chmod(0o755)
        for folder, why in (wide, "must be 0700"), (self.place / "no" / "where", "No such file"), ("relative", "absolute"):
            for words in ("stat", "x"), ("down", "x"), ("unit", "--lan", "tap:hx0"):
                self.heddle("tap", *words, status=1, HEDDLE_DIR=str(folder))
                self.assertIn(why, self.errors)
                self.assertIn(f"{folder}: ", self.errors)

    def test_no_device(self):
        """A container without /dev/net/tun."""
        hidden = subprocess.run(["unshare", "-Urmn", "sh", "-c", f"mount -t tmpfs none /dev/net && exec {FOLDER}/heddle tap unit --lan tap:x0"],
                                env=self.env, capture_output=True, text=True, timeout=60)
        if "mount:" in hidden.stderr:
            self.skipTest(hidden.stderr)
        self.assertEqual(hidden.returncode, 1)
        self.assertIn("--device /dev/net/tun", hidden.stderr)

    def test_versions_differ(self):
        program = FOLDER / "tests/interop/tap/interop-tap-versions"
        self.unit()
        done = subprocess.run([program, "u"], env=dict(self.env, HEDDLE_NODE="x"), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "versions differ\n", done.returncode)
        unit = subprocess.Popen([program], env=dict(self.env, HEDDLE_NODE="y"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(unit)
        self.addCleanup(unit.stdin.close)
        self.assertEqual(unit.stdout.readline(), "ready\n")
        self.heddle("tap", "host", "y", "--tap", "eth0", "--no-wait", "--netns", self.space().pid, node="h2")
        self.until("a reason", lambda: "install the same Heddle" in self.stat("eth0").get("why", ""))

    def test_the_link_is_up_when_the_command_returns(self):
        self.unit()
        for way in ({}, {"HEDDLE_LOCAL": "off"}):
            if way:  # both ends have to
                self.heddle("tap", "down")
                self.unit(**way)
            for number in range(5):
                space = self.space()
                started = json.loads(self.heddle("tap", "host", "u", "--tap", "eth0", "--name", f"eth{number}", "--netns", space.pid, "--json",
                                                 node=f"h{number}", **way))
                self.assertTrue(started["up"])
                self.assertTrue(self.carrier(space))
                self.assertTrue(self.stat(f"eth{number}")["up"])

    def test_addresses_that_are_none(self):
        for wrong in ("999.1.1.1", "1.2.3", "1.2.3.4.5", "fd00:::1", "::g"):
            self.fails("neither an address nor", "host", wrong, "--tap", "eth0", status=64)

    def test_lanes_at_one_end_only(self):
        for unit, host in (({}, {"HEDDLE_LOCAL": "off"}), ({"HEDDLE_LOCAL": "off"}, {})):
            self.unit(**unit)
            space = self.space()
            self.heddle("tap", "host", "u", "--tap", "eth0", "--netns", space.pid, node="h2", status=75, **host)
            self.assertIn("HEDDLE_LOCAL=off at one end only", self.errors)
            self.assertIn("HEDDLE_LOCAL=off at one end only; set it at both, or at none", self.stat("eth0")["why"])
            self.heddle("tap", "down")

    def test_limits_of_the_command(self):
        self.unit()
        path = str(self.place / "d" / "tap-unit.sock")
        clients = []
        for _ in range(12):  # TAP_MAX_CLIENTS is 8: it hangs up on others
            clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self.addCleanup(clients[-1].close)
            clients[-1].settimeout(PATIENCE_S)
            clients[-1].connect(path)
        for client in clients[8:]:
            self.assertEqual(client.recv(10), b"")
        clients[0].send(b'{"do":"stat"}')
        self.assertIn(b"accepted", clients[0].recv(131072))
        clients[1].send(b"no JSON")
        self.assertIn(b"not a question", clients[1].recv(1000))
        # It is known to run, though it has no time for us.
        self.fails("runs already", "unit", "--lan", "tap:lan1", "--netns", self.lan.pid)
        for client in clients:
            client.close()
        self.until("it answers again", lambda: self.heddle("tap", "stat", "unit", status=None))
        self.fails("31 characters", "unit", "--lan", "tap:lan1", "--name", "n" * 32, status=64)
        self.fails("not a name that fits", "unit", "--lan", "tap:" + "i" * 16, "--name", "b", "--netns", self.lan.pid, status=64)
        self.fails("68 to 9000", "unit", "--lan", "tap:lan1", "--mtu", "67", status=64)
        self.fails("68 to 9000", "unit", "--lan", "tap:lan1", "--mtu", "9001", status=64)

    def test_unknown_unit_is_waited_for(self):
        space = self.space()
        self.heddle("tap", "host", "u", "--tap", "eth0", "--netns", space.pid, node="h2", status=75)
        self.assertIn("there is no node 'u'", self.errors)
        self.assertIn("goes on trying", self.errors)
        self.assertIn("no node 'u'", self.stat("eth0")["why"])
        self.assertIn("down", self.heddle("tap", "stat", "eth0"))
        self.heddle("tap", "host", "u", "--tap", "eth1", "--netns", space.pid, "--no-wait", node="h2")
        self.assertNotEqual(self.stat("eth1")["why"], "")
        self.heddle("tap", "down", "eth1")
        self.assertFalse(self.carrier(space))
        self.unit()
        self.until("the carrier", lambda: self.carrier(space))


if __name__ == "__main__":
    main()
