#!/usr/bin/python3
"""heddle vswitch and heddle ibc, as a user calls them.

  command.py FOLDER SOURCE     FOLDER has the programs, SOURCE is the root of the project

The two-node example on one machine and between two network namespaces; captures; files with errors; discovery of a 4x4 torus with one link cut."""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FOLDER, SOURCE = (Path(p) for p in sys.argv[1:3])
KEY = "000102030405060708090a0b0c0d0e0f"
EXAMPLE_KEY = "6c1d2f0b94a7e3586f20d4b1c98e7a35"  # of examples/two-switches.conf
PATIENCE_S = 30  # links need a moment to come up, on a busy machine more


class Base(unittest.TestCase):
    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="hv", dir="/tmp"))
        self.directory = self.place / "d"
        self.directory.mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")}
        self.env["HEDDLE_DIR"] = str(self.directory)

    def tearDown(self):
        if (self.directory / "vswitch.conf").exists():
            self.heddle("vswitch", "down", status=None)
        shutil.rmtree(self.place, ignore_errors=True)

    def heddle(self, *words, status=0, before=(), env=None):
        done = subprocess.run([*before, FOLDER / "heddle", *words], env=env or self.env, capture_output=True, text=True, timeout=100)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        self.errors = done.stderr
        return done.stdout

    def json(self, *words):
        return json.loads(self.heddle(*words, "--json"))

    def until(self, what, check):
        """Links go up and down by keep-alives: wait until @check is true."""
        end = time.monotonic() + PATIENCE_S
        while not check():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def file(self, text, name="net.conf"):
        path = self.place / name
        path.write_text(text)
        return path


class Example(Base):
    """The network of figure 1."""

    def setUp(self):
        super().setUp()
        said = self.heddle("vswitch", "up", SOURCE / "examples/two-switches.conf")
        self.assertIn("4 nodes and switches run here, 3 of 3 links", said)

    def test_ask(self):
        self.assertIn("4 sent, 4 answered", self.heddle("ibc", "ping", "n104"))
        pings = self.json("ibc", "ping", "1-3-2", "-c", "2", "-s", "4000")
        self.assertEqual((pings["route"], pings["sent"], pings["answered"]), ("1-3-2", 2, 2))
        self.assertEqual(self.heddle("ibc", "route", "n102", "n104"), "1-3-2\n")
        self.assertEqual(self.heddle("ibc", "route", "n104", "n102"), "0-1-2\n")
        self.assertEqual(self.heddle("ibc", "route", "n104", "n104"), ".\n")
        rows = self.json("ibc", "trace", "n104")
        self.assertEqual([(r["route"], r["name"]) for r in rows], [(".", "n102"), ("1", "s106"), ("1-3", "s108"), ("1-3-2", "n104")])
        self.assertEqual([r["arrival"] for r in rows][1:], [2, 1, 0])
        self.assertTrue(all(r["us"] > 0 for r in rows))
        self.assertIn("n104, node 104, route 1-3-2", self.heddle("ibc", "discover"))
        self.assertIn("n102, node 102, route 0-1-2", self.heddle("ibc", "discover", "--node", "n104"))

    def test_two_clients_use_one_port(self):
        """Both leave n104 by its only port that has a link, at the same time, and each gets its own answers."""
        pings = [subprocess.Popen([FOLDER / "heddle", "ibc", "ping", "n102", "--node", "n104", "-c", "4", "-s", str(size)], env=self.env,
                                  stdout=subprocess.PIPE, text=True) for size in (10, 3000)]
        for ping in pings:
            self.assertIn("4 sent, 4 answered", ping.communicate(timeout=100)[0])

    def test_rejections(self):
        self.assertIn("NACK: no such port", self.heddle("ibc", "ping", "1-9", "-c", "1", status=1))
        self.assertIn("NACK: port down", self.heddle("ibc", "ping", "1-4", "-c", "1", status=1))
        self.assertIn("NACK: loop", self.heddle("ibc", "ping", "1-2", "-c", "1", status=1))
        self.assertIn("NACK: not allowed", self.heddle("ibc", "trace", "1", "--key", "f" * 32, status=1))
        # The key that is given replaces those of the topology, for discovery as well.
        for words in (("discover",), ("discover", "--json"), ("route", "n102", "n104")):
            self.assertEqual(self.heddle("ibc", *words, "--key", "f" * 32, status=1), "")
            self.assertIn("the switch of the own node does not answer: is its port process up, and the key right?", self.errors)
        self.assertIn("n104, node 104", self.heddle("ibc", "discover", "--key", EXAMPLE_KEY))
        bare = self.file("node n102 id 102\nnic guid 1 ports 0 1\n", "bare.conf")  # knows no key
        self.heddle("ibc", "discover", "--file", bare, status=1)
        self.assertIn("needs the key", self.errors)
        self.assertIn("4 nodes and switches, 3 links", self.heddle("ibc", "discover", "--file", bare, "--key", EXAMPLE_KEY))
        self.heddle("ibc", "ping", "1-3-x", status=1)
        self.assertIn("neither a route", self.errors)
        self.heddle("ibc", "ping", "1-63", status=1)
        self.heddle("ibc", "ping", "n102", "--node", "s106", status=1)
        self.assertIn("without applications", self.errors)

    def test_cut_and_heal(self):
        self.heddle("vswitch", "cut", "s106:3")
        self.assertIn("NACK: port down", self.heddle("ibc", "ping", "n104", "-c", "1", status=1))
        self.heddle("ibc", "route", "n102", "n104", status=1)
        self.assertIn("no way leads to n104 now; `heddle ibc discover' shows what is reached from n102", self.errors)
        self.heddle("ibc", "route", "n102", "nowhere", status=1)
        self.assertIn("there is no node or switch 'nowhere'", self.errors)
        states = {p["port"]: p["state"] for p in self.json("vswitch", "show", "s106")[0]["ports"]}
        self.assertEqual(states[3], "down")
        self.until("the other end notices", lambda: {p["port"]: p["state"] for p in self.json(
            "vswitch", "show", "s108")[0]["ports"]}[1] == "down")
        self.heddle("vswitch", "heal", "s106:3")
        self.assertEqual(self.errors, "")
        # It returns when the link carries packets, in both directions.
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        for _ in range(3):
            self.heddle("vswitch", "cut", "s106:3")
            self.assertEqual(self.json("vswitch", "heal", "s106:3"), {"port": "s106:3", "state": "up"})
            self.assertIn("4 nodes and switches, 3 links", self.heddle("ibc", "discover"))
        # The far end of a link: from the first node there is no way to it any more, from the other one there is.
        self.heddle("vswitch", "cut", "s108:1")
        self.heddle("vswitch", "heal", "s108:1")
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        # A port without a cable is in service, but not up.
        self.assertEqual(self.json("vswitch", "heal", "s106:1"), {"port": "s106:1", "state": "down"})
        self.assertIn("s106:1 is in service, and down: the file has no link there", self.errors)
        # Neither is one whose other end is out of service.
        self.heddle("vswitch", "cut", "n102:1", "--node", "n102")
        self.heddle("vswitch", "cut", "s106:2", "--node", "n104")
        self.heddle("vswitch", "heal", "n102:1", status=1)
        self.assertIn("n102:1 is in service, but its link to s106:2 has not come up within", self.errors)
        self.heddle("vswitch", "heal", "s106:2", "--node", "n104")
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        self.heddle("vswitch", "cut", "s106:9", status=1)
        self.assertIn("is not a port of the network", self.errors)

    def test_show(self):
        self.heddle("ibc", "ping", "n104", "-c", "3")
        nodes = {n["name"]: n for n in self.json("vswitch", "show")}
        self.assertEqual(list(nodes), ["n102", "n104", "s106", "s108"])
        self.assertEqual([n["kind"] for n in nodes.values()], ["node", "node", "switch", "switch"])
        self.assertEqual({p["port"]: p.get("link") for p in nodes["s106"]["ports"]}, {1: None, 2: "n102:1", 3: "s108:1", 4: None})
        self.assertGreaterEqual(nodes["n104"]["counters"]["consumed"], 3)
        self.assertGreaterEqual(nodes["s106"]["counters"]["forwarded"], 6)
        self.assertGreaterEqual(next(p for p in nodes["s108"]["ports"] if p["port"] == 2)["counters"]["out"], 3)
        self.assertIn("s108, switch 108", self.heddle("vswitch", "show", "s108"))
        self.assertEqual(self.heddle("vswitch", "show", "nobody", "s106", status=1).count("switch 106"), 1)
        self.assertIn("there is no node or switch 'nobody'", self.errors)

    def test_show_has_what_a_program_needs(self):
        """IBC_Send() takes the GUID of a NIC and a port of it: show prints both for each port of a node."""
        lines = [line.split() for line in self.heddle("vswitch", "show", "n102").splitlines()]
        self.assertIn(["port", "1", "up", "s106:2", "NIC", "0x1", "port", "1"], [line[:8] for line in lines])
        self.assertIn(["port", "0", "down", "-", "NIC", "0x1", "port", "0"], [line[:8] for line in lines])
        self.assertNotIn("NIC", self.heddle("vswitch", "show", "s106"))

    def test_unknown_nodes(self):
        bare = self.file("node n104 id 104\nnic guid 2 ports 0\n", "bare.conf")
        self.heddle("ibc", "ping", "n104", "--node", "n102", "--file", bare, status=1)
        self.assertIn("n102 is not in the topology, so no way from there is known", self.errors)
        self.heddle("ibc", "ping", "n104", "--node", "nowhere", status=1)
        self.assertIn("no process runs the ports of node nowhere", self.errors)

    def test_an_application_says_no(self):
        """Its NACK has another reason than that of a switch."""
        store = subprocess.Popen([FOLDER / "examples/example-ibc_store", "33"], env={**self.env, "HEDDLE_NODE": "n104"})
        try:
            said = "1-3-2-33: NACK: not allowed (so says the application at the end of the route)"
            self.until("the store is up", lambda: "no such application" not in self.heddle("ibc", "ping", "1-3-2-33", "-c", "1", status=1))
            self.assertIn(said, self.heddle("ibc", "ping", "1-3-2-33", "-c", "1", status=1))
            self.assertIn(said.split(": ", 1)[1], self.heddle("ibc", "trace", "1-3-2-33", status=1))
        finally:
            store.kill()
            store.wait()

    def test_examples_say_how(self):
        for name in ("chat", "lookup", "manager"):
            done = subprocess.run([FOLDER / f"examples/example-ibc_{name}"], env=self.env, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage: ", done.stderr)

    def test_chat_says_why(self):
        """A wrong NIC: the example ends with a message, and not with success."""
        env = {**self.env, "HEDDLE_NODE": "n102"}
        for words, why in ((("7", "1", "3", "2"), "bad parameter"), (("1", "0", "3", "2"), "the port is down")):
            chat = subprocess.run([FOLDER / "examples/example-ibc_chat", *words], env=env, input="hello\n", capture_output=True, text=True, timeout=60)
            self.assertEqual((chat.returncode, chat.stderr.strip()), (1, why))

    def test_up_and_down(self):
        self.heddle("vswitch", "up", SOURCE / "examples/two-switches.conf", status=1)
        self.assertIn("is up already", self.errors)
        self.heddle("vswitch", "up", self.file("node other id 5\n"), status=1)
        self.assertIn("another network is up", self.errors)
        pids = [n["pid"] for n in self.json("vswitch", "show")]
        self.assertEqual(self.heddle("vswitch", "down", "nosuch", status=1), "")
        self.assertIn("there is no node or switch 'nosuch'", self.errors)
        self.heddle("vswitch", "down", "s108")
        self.heddle("vswitch", "down", "s108")
        self.assertIn("s108 is not up", self.errors)
        self.assertEqual(self.heddle("vswitch", "show", "s108", status=1), "")
        self.assertIn("s108 is not up", self.errors)
        self.assertEqual([n["name"] for n in self.json("vswitch", "show") if "pid" in n], ["n102", "n104", "s106"])
        self.heddle("vswitch", "up", "--node", "s108", SOURCE / "examples/two-switches.conf")
        self.assertIn("2 answered", self.heddle("ibc", "ping", "n104", "-c", "2"))
        self.heddle("vswitch", "down")
        self.assertEqual(self.heddle("vswitch", "show"), "no virtual switch is up\n")
        for pid in pids:
            self.assertFalse(Path(f"/proc/{pid}/exe").exists() and "heddle-vport" in os.readlink(f"/proc/{pid}/exe"), pid)
        self.assertFalse((self.directory / "vswitch.conf").exists())
        self.assertEqual([f.name for f in self.directory.glob("vl*")], [])
        self.heddle("vswitch", "down", status=1)
        self.heddle("ibc", "ping", "n104", status=1)
        self.assertIn("heddle vswitch up FILE", self.errors)


class Keyless(Base):
    """Section 5 of the tutorial: the map that discovery writes has no keys."""

    def test_map_of_a_map(self):
        self.heddle("vswitch", "up", SOURCE / "examples/two-switches.conf")
        conf = self.place / "map.conf"
        self.heddle("ibc", "discover", "--conf", conf)
        self.assertIn("has no keys", conf.read_text())
        self.heddle("vswitch", "down")
        self.heddle("vswitch", "up", conf)
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        self.assertIn("NACK: not allowed (the topology has no key; the switch takes no commands without one)",
                      self.heddle("ibc", "trace", "n104", status=1))
        self.assertIn("NACK: not allowed (the switch has another key, or none)", self.heddle("ibc", "trace", "n104", "--key", EXAMPLE_KEY, status=1))
        self.heddle("vswitch", "cut", "s106:3", status=1)
        self.assertIn("has no key, so nobody may configure it", self.errors)
        self.heddle("vswitch", "down")
        conf.write_text(f"key {EXAMPLE_KEY}\n" + conf.read_text())
        self.heddle("vswitch", "up", conf)
        self.heddle("ibc", "trace", "n104")
        self.assertIn("4 nodes and switches, 3 links", self.heddle("ibc", "discover"))


class Administrator(Base):
    """Identifiers for administrators, by the manual: the key from the command, to the program in its environment."""

    def run_store(self, key, apid="20"):
        env = {**self.env, **({"HEDDLE_IBC_KEY": key} if key else {})}
        return subprocess.Popen([FOLDER / "examples/example-ibc_store", apid], env=env, stderr=subprocess.PIPE, text=True)

    def refused(self, key, apid="20"):
        store = self.run_store(key, apid)
        said = store.communicate(timeout=60)[1]
        self.assertEqual(store.returncode, 1, said)
        return said

    def lookup(self, *words):
        return subprocess.run([FOLDER / "examples/example-ibc_lookup", *words], env=self.env, capture_output=True, text=True, timeout=60).stdout

    def test_key(self):
        key = self.heddle("ibc", "key").strip()  # before any agent has run
        self.assertRegex(key, "^[0-9a-f]{32}$")
        self.assertEqual(self.json("ibc", "key"), {"key": key})
        self.assertEqual((self.directory / "vswitch.key").stat().st_mode & 0o777, 0o600)
        store = self.run_store(key)
        try:
            self.until("the store is up", lambda: self.lookup("colour=blue", "20") == "blue\n")
            self.assertEqual(self.lookup("colour", "20"), "blue\n")
            self.assertEqual(self.heddle("ibc", "key").strip(), key)  # the agent has taken it over
            for given in (None, "0" * 32, "f" * 32):
                self.assertIn("heddle ibc key", self.refused(given, "21"))
            self.assertIn("the APID is not available", self.refused(key, "20"))
        finally:
            store.kill()
            store.communicate()

    def test_own_key(self):
        """The user writes the file: heddled does not replace it, nor remove it."""
        path = self.directory / "vswitch.key"
        path.write_text(f"# mine\n{KEY}\n")
        path.chmod(0o600)
        self.assertEqual(self.heddle("ibc", "key"), KEY + "\n")
        store = self.run_store(KEY)
        self.until("the store is up", lambda: self.lookup("a=b", "20") == "b\n")
        store.kill()
        store.communicate()
        path.write_text("nonsense\n")
        self.heddle("ibc", "key", status=1)
        self.assertIn("32 hexadecimal digits", self.errors)
        path.chmod(0o644)
        self.heddle("ibc", "key", status=1)
        self.assertIn("open to others", self.errors)


class Broken(Base):
    """The port process of a node was killed."""

    def setUp(self):
        super().setUp()
        self.conf = SOURCE / "examples/two-switches.conf"
        self.heddle("vswitch", "up", self.conf)

    def kill(self, name):
        os.kill(next(n["pid"] for n in self.json("vswitch", "show") if n["name"] == name), signal.SIGKILL)
        self.until("the agent notices", lambda: name not in [n["name"] for n in self.json("vswitch", "show") if "pid" in n])

    def test_what_to_do_is_said(self):
        self.kill("n104")
        self.heddle("vswitch", "up", self.conf, status=1)
        self.assertIn(f"n102 is up already; to start what is missing: heddle vswitch up --node n104 {self.conf}", self.errors)
        self.heddle("ibc", "ping", ".", "--node", "n104", "-c", "1", status=1)
        self.assertIn("no process runs the ports of node n104", self.errors)
        self.heddle("vswitch", "up", "--node", "n104", self.conf)
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        self.heddle("vswitch", "up", self.conf, status=1)
        self.assertIn("the network of this file is up already", self.errors)

    def test_who_asks_is_said(self):
        self.kill("n102")
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "-c", "1"))
        self.assertIn("n104 asks itself", self.errors)
        self.assertIn("1 answered", self.heddle("ibc", "ping", "n104", "--node", "n104", "-c", "1"))
        self.assertEqual(self.errors, "")

    def test_no_such_node(self):
        for words in (("ibc", "ping", "n104"), ("ibc", "discover"), ("ibc", "trace", "n104")):
            self.heddle(*words, status=1, env={**self.env, "HEDDLE_NODE": "n14"})
            self.assertIn("no process runs the ports of node n14 (HEDDLE_NODE)", self.errors)
        chat = subprocess.run([FOLDER / "examples/example-ibc_manager", "0" * 32, "1", "1"], env={**self.env, "HEDDLE_NODE": "n14"}, capture_output=True,
                              text=True, timeout=60)
        self.assertNotEqual(chat.returncode, 0)
        self.assertIn("no process runs the hardware ports of node n14", chat.stderr)
        self.assertIn("the port is down", chat.stderr)


class Capture(Base):
    """What heddle vswitch up and a client write, in tshark."""

    def test_capture(self):
        if not shutil.which("tshark"):
            self.skipTest("tshark is not installed")
        capture = self.place / "net.pcapng"
        said = self.json("vswitch", "up", "--capture", capture, SOURCE / "examples/two-switches.conf")
        self.assertEqual(said, {"started": ["n102", "n104", "s106", "s108"], "links": 3, "up": 3})
        self.env["HEDDLE_CAPTURE"] = str(capture)
        self.heddle("ibc", "ping", "n104", "-c", "1")
        del self.env["HEDDLE_CAPTURE"]
        self.assertEqual(self.json("vswitch", "cut", "s106:3"), {"port": "s106:3", "state": "down"})
        self.heddle("ibc", "ping", "n104", "-c", "1", status=1)
        self.assertEqual(self.json("vswitch", "heal", "s106:3"), {"port": "s106:3", "state": "up"})
        self.assertEqual(self.json("vswitch", "down"), {"ended": ["n102", "n104", "s106", "s108"]})
        rows = self.tshark(capture, "-e", "heddle_ibc.route", "-e", "frame.interface_name", "-e", "frame.comment", "-e", "frame.packet_flags_direction")
        seen = {(row[0], row[1].split("-")[0], row[2], int(row[3], 16)) for row in rows}
        came, left = 1, 2
        # Out of the client, and on both sides of every link.
        for wanted in (("32-3-2-63 [Fwd;2]", "n102", "from port 32 to port 1", left), ("32-3-2-63 [Fwd;2]", "n102", "port 1", left),
                       ("32-3-2-63 [Fwd;2]", "s106", "port 2", came), ("32-2-2-63 [Fwd;3]", "s106", "port 3", left),
                       ("32-2-2-63 [Fwd;3]", "s108", "port 1", came), ("32-2-1-63 [Fwd;4]", "n104", "port 0", came),
                       ("32-2-1-63 [Rev;3]", "n104", "port 0", left), ("32-3-2-63 [Rev;1]", "n102", "port 1", came),
                       ("1-3-2-63 [Rev;0]", "n102", "from port 1 to port 32", came)):
            self.assertIn(wanted, seen)
        self.assertTrue(self.tshark(capture, "-Y", "heddle_ibc.type == 6 && heddle_ibc.reason == 3", "-e", "heddle_ibc.type"))
        self.assertEqual(self.tshark(capture, "-Y", "_ws.malformed || heddle_ibc.bad || heddle_ibc.bad_check || !heddle_ibc", "-e", "frame.number"), [])

    def test_capture_on_a_full_disk(self):
        """The port process may write no more: the counters say how many packets the capture lacks, and what is there stays readable."""
        capture = self.place / "full.pcapng"
        self.heddle("vswitch", "up", "--capture", capture, SOURCE / "examples/two-switches.conf")
        sender = next(node for node in self.json("vswitch", "show") if node["name"] == "n102")
        self.assertEqual(sender["counters"]["missing_in_capture"], 0)
        resource.prlimit(sender["pid"], resource.RLIMIT_FSIZE, (capture.stat().st_size + 500, resource.RLIM_INFINITY))
        self.heddle("ibc", "ping", "n104", "-c", "20")
        self.until("missing packets", lambda: self.json("vswitch", "show", "n102")[0]["counters"]["missing_in_capture"] > 0)
        self.assertIn(" missing_in_capture", self.heddle("vswitch", "show", "n102"))
        self.heddle("vswitch", "down")
        if shutil.which("tshark"):
            self.assertEqual(self.tshark(capture, "-Y", "_ws.malformed || heddle_ibc.bad || !heddle_ibc", "-e", "frame.number"), [])

    def tshark(self, capture, *words):
        done = subprocess.run(["tshark", "-X", f"lua_script:{SOURCE}/docs/wireshark/heddle-ibc.lua", "-n", "-r", capture, "-T", "fields", *words],
                              capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]


class Files(Base):
    def test_errors_name_file_and_line(self):
        path = self.file("node a id 1\nnode b id 2\nlink a:1 b:1 shm\n")
        self.heddle("vswitch", "up", path, status=1)
        self.assertIn(f"{path}:3: expected a hardware port of that node or switch, found 'a:1'", self.errors)
        self.assertEqual(self.heddle("vswitch", "show"), "no virtual switch is up\n")
        self.heddle("vswitch", "up", self.place / "missing", status=1)
        self.assertIn("No such file", self.errors)
        self.heddle("vswitch", "up", self.place, status=1)
        self.assertIn(f"{self.place}: Is a directory", self.errors)
        for file, words in ((path, ":3: expected a hardware port of that node or switch, found 'a:1'"), (self.place, ": Is a directory\n")):
            vport = subprocess.run([FOLDER / "heddle-vport", "--node", "a", file], env=self.env, capture_output=True, text=True, timeout=60)
            self.assertEqual((vport.returncode, vport.stdout), (1, ""))
            self.assertTrue(vport.stderr.startswith(f"heddle-vport: {file}{words}"), vport.stderr)
        self.heddle("vswitch", "up", "--node", "c", self.file("node a id 1\n"), status=1)
        self.assertIn("has no node or switch 'c'", self.errors)

    def test_a_nic_for_some(self):
        path = self.file("node a id 1\nnic guid 1 ports 0\napids 16-30 62\nnode b id 2\nnic guid 2 ports 0\nlink a:0 b:0 shm\n")
        self.heddle("vswitch", "up", path)
        self.assertIn("NIC 0x1 port 0   apids 16-31 62", self.heddle("vswitch", "show", "a"))
        self.assertEqual(self.json("vswitch", "show", "a")[0]["ports"][0]["apids"], "16-31 62")
        self.assertIn("NACK: not allowed (the topology gives that NIC to other APIDs)", self.heddle("ibc", "ping", "b", "-c", "1", status=1))
        self.assertIn("1 answered", self.heddle("ibc", "ping", "a", "-c", "1", "--node", "b"))  # the switch itself

    def test_one(self):
        self.assertEqual(self.heddle("vswitch", "up", self.file(f"key {KEY}\nnode a id 1\nnic guid 1 ports 0\n")),
                         "1 node or switch runs here, 0 of 0 links between them are up\n")
        self.assertIn("1 node or switch, 0 links\n", self.heddle("ibc", "discover"))

    def test_all_or_nothing(self):
        """The second node cannot listen at its address: the first one is ended."""
        path = self.file("node a id 1\nnic guid 1 ports 0\nnode b id 2\nnic guid 2 ports 0\nlink a:0 b:0 udp 127.0.0.1:17171 192.0.2.77:17171\n")
        self.heddle("vswitch", "up", path, status=1)
        self.assertIn("ending what has been started", self.errors)
        self.assertEqual([n for n in self.json("vswitch", "show") if "pid" in n], [])

    def test_route_of_a_file(self):
        words = ("ibc", "route", "--file", SOURCE / "examples/two-switches.conf")
        self.assertEqual(self.heddle(*words, "n102", "n104"), "1-3-2\n")
        self.heddle(*words, "n102", "nowhere", status=1)

    def test_usage(self):
        for words in (["vswitch"], ["ibc"], ["vswitch", "sideways"], ["ibc", "ping"], ["vswitch", "up"], ["ibc", "ping", "1", "-c", "0"]):
            self.heddle(*words, status=64)


class Torus(Base):
    def test_discover(self):
        size, text = 4, f"key {KEY}\nnode a id 100\nnic guid 1 ports 0\nnode b id 101\nnic guid 2 ports 0 1\n"
        links = [["a:0", "s0:4"], ["b:1", f"s{size * size - 1}:4"]]
        for i in range(size * size):
            text += f"switch s{i} id {i + 1} ports 0-4\n"
            x, y = i % size, i // size
            links += [[f"s{i}:0", f"s{y * size + (x + 1) % size}:1"], [f"s{i}:2", f"s{(y + 1) % size * size + x}:3"]]
        path = self.file(text + "".join(f"link {a} {b} shm\n" for a, b in links))
        self.heddle("vswitch", "up", path)
        self.until("the whole torus", lambda: self.found() == {frozenset(link) for link in links})
        self.heddle("vswitch", "cut", "s5:0")
        drawing, conf = self.place / "map.svg", self.place / "map.conf"
        rest = {frozenset(link) for link in links if "s5:0" not in link}
        self.until("one link less", lambda: self.found("--svg", drawing, "--conf", conf) == rest)
        shapes = [e.get("class") for e in ElementTree.parse(drawing).iter()]
        self.assertEqual([shapes.count(c) for c in ("switch", "node", "link", "port")], [16, 2, len(rest), 2 * len(rest)])
        # The way from one end to the other, by the map that was written.
        hops = self.heddle("ibc", "route", "--file", conf, "a", "b").strip().split("-")
        self.assertEqual(len(hops), 4)  # the torus wraps: two steps, and two ends
        self.assertIn("1 answered", self.heddle("ibc", "ping", "-c", "1", "-".join(hops)))

    def found(self, *words):
        found = self.json("ibc", "discover", *words)
        return {frozenset(f"{end['name']}:{end['port']}" for end in link) for link in found["links"]}


class Namespaces(Base):
    """The example on two machines: one UDP link between two network namespaces."""
    SCRIPT = r"""
        set -e
        unshare -n sleep 200 & far=$!
        trap 'HEDDLE_DIR=$A "$HEDDLE" vswitch down; HEDDLE_DIR=$B "$HEDDLE" vswitch down; kill $far' EXIT
        at_far() { nsenter -t $far -n env HEDDLE_DIR=$B "$@"; }
        until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
        ip link add va type veth peer name vb
        ip link set vb netns $far
        ip link set lo up; ip address add 10.98.7.1/24 dev va; ip link set va up
        at_far ip link set lo up; at_far ip address add 10.98.7.2/24 dev vb; at_far ip link set vb up
        export HEDDLE_DIR=$A
        "$HEDDLE" vswitch up --node n102 --node s106 $FILE
        at_far "$HEDDLE" vswitch up --node s108 --node n104 $FILE
        until_says() { what=$1; shift; for i in $(seq 300); do "$@" >$A.said 2>&1 || true; grep -q "$what" $A.said && break; sleep 0.1; done; cat $A.said; }
        echo "@ up"; until_says "1 answered" "$HEDDLE" ibc ping n104 -c 1
        echo "@ ping"; "$HEDDLE" ibc ping n104 -c 3 -s 1000
        echo "@ trace"; "$HEDDLE" ibc trace n104
        echo "@ back"; at_far "$HEDDLE" ibc trace n102
        echo "@ discover"; "$HEDDLE" ibc discover
        at_far "$HEDDLE" vswitch cut n104:0
        echo "@ cut"; until_says "NACK" "$HEDDLE" ibc ping n104 -c 1 -t 500
        echo "@ beyond"; "$HEDDLE" ibc ping s108 -c 1
        echo "@ less"; until_says "3 nodes" "$HEDDLE" ibc discover
        at_far "$HEDDLE" vswitch heal n104:0
        echo "@ healed"; "$HEDDLE" ibc ping n104 -c 1
        ip link set va down
        echo "@ unplugged"; until_says "NACK" "$HEDDLE" ibc ping n104 -c 1 -t 500
    """

    def test_two_namespaces(self):
        how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        if subprocess.run([*how, "ip", "link", "add", "x", "type", "veth", "peer", "name", "y"], capture_output=True).returncode:
            self.skipTest("no network namespaces with veth devices here")
        text = (SOURCE / "examples/two-switches.conf").read_text()
        path = self.file(text.replace("link s106:3 s108:1 shm", "link s106:3 s108:1 udp 10.98.7.1:17000 10.98.7.2:17000"))
        far = self.place / "far"
        far.mkdir(mode=0o700)
        env = {**self.env, "A": str(self.directory), "B": str(far), "FILE": str(path), "HEDDLE": str(FOLDER / "heddle")}
        done = subprocess.run([*how, "sh", "-c", self.SCRIPT], env=env, capture_output=True, text=True, timeout=150)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = dict(part.split("\n", 1) for part in done.stdout.split("@ ")[1:])
        self.assertIn("1 sent, 1 answered", said["up"])
        self.assertEqual(said["ping"].count("1000 bytes from 1-3-2"), 3)
        self.assertIn("3 sent, 3 answered", said["ping"])
        for part, way in (("trace", ["n102", "s106", "s108", "n104"]), ("back", ["n104", "s108", "s106", "n102"])):
            self.assertEqual([line.split()[2] for line in said[part].splitlines()], way)
        self.assertIn("4 nodes and switches, 3 links", said["discover"])
        self.assertEqual(said["cut"], "1-3-2: NACK: port down\n1 sent, 0 answered\n")
        self.assertIn("1 sent, 1 answered", said["beyond"])
        self.assertIn("3 nodes and switches, 2 links", said["less"])
        self.assertIn("1 sent, 1 answered", said["healed"])
        self.assertEqual(said["unplugged"].splitlines()[0], "1-3-2: NACK: port down")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
