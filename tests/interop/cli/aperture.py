#!/usr/bin/python3
"""heddle aperture: the tables of other processes as they are, and the status of a port (AP1, AP3); which events concern the
agent (AP7).

  aperture.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "agent"))
import situations
from situations import BUILD, environment

HEDDLE = str(BUILD / "heddle")
PATIENCE = 60
PORT = 4712
CHECKS = ["valid", "sequence", "nonce", "source", "extent"]


class Aperture(situations.InDirectory):
    def heddle(self, *words, **more):
        return subprocess.run([HEDDLE, *map(str, words)], env=environment(HEDDLE_DIR=str(self.dir), **more), capture_output=True, text=True,
                              timeout=PATIENCE)

    def start(self, *words, **more):
        process = subprocess.Popen([HEDDLE, "pipe", *map(str, words)], env=environment(HEDDLE_DIR=str(self.dir), **more), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        process.kill()
        process.communicate()

    def look(self, *words):
        shown = self.heddle("aperture", "--json", *words)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        return json.loads(shown.stdout)

    def until(self, fact):
        end = time.monotonic() + PATIENCE
        while not fact():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def connected(self, **more):
        """Two ends of a pipe that have exchanged a byte; what is shown of each."""
        server = self.start("--listen", PORT, HEDDLE_NODE="one", **more)
        self.until(lambda: [p for p in self.look() if p["ports"]])
        client = self.start(f"one:{PORT}", HEDDLE_NODE="two", **more)
        client.stdin.write(b"x")
        client.stdin.flush()
        self.assertEqual(server.stdout.read(1), b"x")
        server.stdin.write(b"y")
        server.stdin.flush()
        self.assertEqual(client.stdout.read(1), b"y")
        shown = {p["pid"]: p for p in self.look()}
        return shown[server.pid], shown[client.pid]

    def check_ends(self, server, client, carrier):
        self.assertEqual([server["node"], client["node"]], ["one", "two"])
        self.assertEqual([(p["port"], p["open"]) for p in server["ports"]], [(PORT, 1)])
        for own, peer in ((server, client), (client, server)):
            self.assertTrue(own["seen"] and own["trusted"])
            (aperture,), (other,) = own["apertures"], peer["apertures"]
            into, out = aperture["incoming"], aperture["outgoing"]
            self.assertEqual([aperture["type"], aperture["state"], aperture["reason"]], ["data", "open", "none"])
            self.assertEqual(aperture["index"] >> 22, own["slot"])
            self.assertEqual(aperture["port"], own["ports"][0]["port"])
            self.assertEqual([into["checks"], into["connected"], into["read"], into["write"]], [CHECKS, True, True, True])
            self.assertEqual([out["carrier"], out["index"], out["length"]], [carrier, other["index"], other["incoming"]["length"]])
            self.assertTrue(out["sequenced"] and not out["pointed"])
            for name in ("packets_in", "packets_out", "bad_nonce", "bad_source", "bad_sequence", "bad_extent", "not_valid", "no_entry"):
                self.assertIn(name, own["counters"])
            self.assertGreater(own["counters"]["packets_in"], 0)
            self.assertFalse("nonce" in json.dumps(aperture).replace('"nonce"', "").replace("nonce_every", ""))

    def test_tables_on_one_machine(self):
        server, client = self.connected()
        self.check_ends(server, client, "lane")
        for own in (server, client):
            out = own["apertures"][0]["outgoing"]
            self.assertEqual([out["range"], out["address"] is not None], ["same", True])
        text = self.heddle("aperture").stdout
        for words in ("node one", "node two", f"port {PORT}: 0 waiting, 0 offered, 1 open, 0 rejected", "same pages at 0x",
                      "checks valid sequence nonce source extent; from fe80::", "open to 0x", "by lane", "packets_in"):
            self.assertIn(words, text)
        self.assertNotIn("from cluster address", text)  # no aperture checks it
        self.assertEqual([p["node"] for p in self.look("--node", "two")], ["two"])
        self.assertIn("No program", self.heddle("aperture", "-n", "three").stdout)
        # The numbers move, and are those of the packets.
        self.assertGreaterEqual(client["counters"]["frames_in"], 1)
        status = self.heddle("status", "--json")
        self.assertEqual({p["pid"] for p in json.loads(status.stdout)}, {server["pid"], client["pid"]})

    def test_tables_over_udp(self):
        server, client = self.connected(HEDDLE_LOCAL="off")
        self.check_ends(server, client, "udp")
        self.assertIn("by udp", self.heddle("aperture").stdout)

    def test_status_of_a_port(self):
        server, client = self.connected()
        for node in (["--node", "two"], []):
            asked = self.heddle("aperture", "status", f"one:{PORT}", "--json", *node)
            self.assertEqual((asked.returncode, asked.stderr), (0, ""))
            status = json.loads(asked.stdout)
            self.assertEqual([status[k] for k in ("node", "port", "waiting", "offers", "open", "rejected")], ["one", PORT, 0, 0, 1, 0])
        # Its thread sleeps in the event queue, for the next bytes.
        self.until(lambda: json.loads(self.heddle("aperture", "status", f"one:{PORT}", "-j").stdout)["blocked"])
        self.assertIn("1 open", self.heddle("aperture", "status", f"one:{PORT}").stdout)
        asked = self.heddle("aperture", "status", "one:9")
        self.assertEqual((asked.returncode, asked.stdout), (1, ""))
        self.assertIn("nobody holds it", asked.stderr)
        self.assertIn("no node or host", self.heddle("aperture", "status", "nowhere.invalid:9").stderr)

    def criteria(self, *words):
        """What is shown of each process, and of those to come (0)."""
        shown = self.heddle("aperture", "criteria", "--json", *words)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        return {p["pid"]: p for p in json.loads(shown.stdout)}

    def test_criteria(self):
        server, client = self.connected()
        self.until(lambda: server["pid"] in self.criteria() and client["pid"] in self.criteria())
        self.assertEqual((server["last_error"], server["trusted"]), (None, True))
        begun = self.criteria()
        for pid in (0, server["pid"], client["pid"]):
            self.assertEqual((begun[pid]["criteria"], begun[pid]["waking"]), (["blocked", "errors", "failures", "nobody"], ["errors", "failures", "nobody"]))
        self.assertIn("all: blocked,!errors,!failures,!nobody\n", self.heddle("aperture", "criteria").stdout)
        # For all, at once and for those that come later.
        done = self.heddle("aperture", "criteria", "data,!alive")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        for pid, shown in self.criteria().items():
            self.assertEqual((shown["criteria"], shown["waking"]), (["alive", "data"], ["alive"]), pid)
        # For one.
        self.assertEqual(self.heddle("aperture", "criteria", "none", "--pid", server["pid"]).returncode, 0)
        self.assertEqual(self.criteria("--pid", server["pid"])[server["pid"]]["criteria"], [])
        self.assertEqual([self.criteria()[pid]["criteria"] for pid in (0, client["pid"])], 2 * [["alive", "data"]])
        self.assertIn(f"(pid {server['pid']}): none; ", self.heddle("aperture", "criteria", "-p", server["pid"]).stdout)
        # A program that the agent does not trust cannot.
        (self.dir / "untrusted").write_text("heddle\n")
        done = self.heddle("aperture", "criteria", "all")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("does not trust this program", done.stderr)
        self.assertEqual(self.criteria()[0]["criteria"], ["alive", "data"])
        for words in (["-p", 1], ["all", "-p", 1]):
            (self.dir / "untrusted").unlink(missing_ok=True)
            done = self.heddle("aperture", "criteria", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("process 1 has no port", done.stderr)

    def test_unknown_criteria(self):
        done = self.heddle("aperture", "criteria", "blocked,!erors,data")
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertIn("'erors' is not a criterion; give words of blocked, errors, failures, nobody, connect, ", done.stderr)

    def test_nothing_there(self):
        for words in ([], ["all"]):
            done = self.heddle("aperture", "criteria", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("no node agent runs", done.stderr)
        self.assertEqual(self.heddle("aperture").stdout, "No program has apertures or ports now.\n")
        self.assertEqual(self.look(), [])

    def test_wrong_words(self):
        for words in (["more"], ["status"], ["status", "one"], ["status", "one:0"], ["status", "one:1", "two"],
                      ["criteria", "all", "more"], ["criteria", "-p", "0"], ["criteria", "-p", "1x"], ["-p", "1"], ["criteria", "-n", "one"]):
            done = self.heddle("aperture", *words)
            self.assertEqual((done.returncode, done.stdout), (64, ""), words)
            self.assertIn("heddle aperture: ", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
