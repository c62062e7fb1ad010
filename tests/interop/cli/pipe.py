#!/usr/bin/python3
"""heddle pipe on one machine (AP8): what goes in at one end comes out at the other, in both directions.

  pipe.py BUILD
"""
import os
import pathlib
import random
import select
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "agent"))
import situations
from situations import BUILD, environment

HEDDLE = str(BUILD / "heddle")
PATIENCE = 60
PORT = 4711


class Pipe(situations.InDirectory):
    def start(self, *words, data=None, **more):
        return subprocess.Popen([HEDDLE, "pipe", *map(str, words)], env=environment(HEDDLE_DIR=str(self.dir), **more),
                                stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def connect(self, target, data=None, **more):
        """The other end may not listen yet."""
        end = time.monotonic() + PATIENCE
        while True:
            client = self.start(target, data=data, **more)
            out, error = client.communicate(data, timeout=PATIENCE)
            if client.returncode == 0 or time.monotonic() > end:
                return client.returncode, out, error
            time.sleep(0.05)

    def both_ways(self, node, of_server, of_client):
        chance = random.Random(7)
        there, back = (chance.randbytes(count) for count in (3 << 20, 1 << 20))
        (self.base / "back").write_bytes(back)
        with open(self.base / "back", "rb") as source, open(self.base / "there", "wb") as sink:
            server = subprocess.Popen([HEDDLE, "pipe", "--listen", str(PORT)], env=environment(HEDDLE_DIR=str(self.dir), **of_server),
                                      stdin=source, stdout=sink, stderr=subprocess.PIPE)
        code, out, error = self.connect(f"{node}:{PORT}", there, **of_client)
        server_error = server.communicate(timeout=PATIENCE)[1]
        self.assertEqual((code, error), (0, b""))
        self.assertEqual((server.returncode, server_error), (0, b""))
        self.assertEqual(out, back)
        self.assertEqual((self.base / "there").read_bytes(), there)

    def test_one_node(self):
        self.both_ways("one", {"HEDDLE_NODE": "one"}, {"HEDDLE_NODE": "one"})

    def test_two_nodes(self):
        self.both_ways("one", {"HEDDLE_NODE": "one"}, {"HEDDLE_NODE": "two"})

    def test_over_udp(self):
        self.both_ways("one", {"HEDDLE_NODE": "one", "HEDDLE_LOCAL": "off"}, {"HEDDLE_NODE": "two", "HEDDLE_LOCAL": "off"})

    def test_nobody_listens(self):
        server = self.start("--listen", PORT, HEDDLE_NODE="one")
        try:
            code, out, error = self.connect(f"one:{PORT}", b"", HEDDLE_NODE="one")
            self.assertEqual(code, 0, error)
        finally:
            server.communicate(timeout=PATIENCE)
        client = self.start(f"one:{PORT + 1}", HEDDLE_NODE="one")
        out, error = client.communicate(timeout=PATIENCE)
        self.assertNotEqual(client.returncode, 0)
        self.assertIn(b"heddle pipe: ", error)

    def test_the_other_end_is_killed(self):
        server = self.start("--listen", PORT, data=b"", HEDDLE_NODE="one")
        end = time.monotonic() + PATIENCE
        while True:
            client = self.start(f"one:{PORT}", data=b"", HEDDLE_NODE="one")
            client.stdin.write(b"x")
            client.stdin.flush()
            if select.select([server.stdout], [], [], 1)[0]:
                break
            self.assertLess(time.monotonic(), end)
            client.kill()
            client.communicate()
        self.assertEqual(os.read(server.stdout.fileno(), 1), b"x")
        server.kill()
        server.communicate()
        began = time.monotonic()
        with client.stdin, client.stdout, client.stderr:
            self.assertEqual(client.wait(timeout=PATIENCE), 1)
            self.assertIn(b"ended", client.stderr.read())
        self.assertLess(time.monotonic() - began, 30)  # a second, on a machine that has nothing else to do

    def test_wrong_words(self):
        for words in ([], ["--listen", "0"], ["--listen", "70000"], ["one"], ["one:x"], ["--listen", "1", "one:1"]):
            done = self.start(*words)
            out, error = done.communicate(timeout=PATIENCE)
            self.assertEqual(done.returncode, 64, words)
            self.assertIn(b"heddle pipe: ", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
