#!/usr/bin/python3
"""heddle pipe on one machine (AP8): what goes in at one end comes out at the other, in both directions.

  pipe.py BUILD
"""
import contextlib
import os
import pathlib
import random
import select
import subprocess
import sys
import threading
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

    def test_localhost(self):
        """Names the own node, too, where that has an address and packets to 127.0.0.1 would reach nobody."""
        self.both_ways("localhost", {}, {})
        for name in ("localhost", "127.0.0.1", "[::1]"):
            for node in ({}, {"HEDDLE_NODE": "one"}):
                self.both_ways(name, {**node, "HEDDLE_LOCAL": "off"}, {**node, "HEDDLE_LOCAL": "off"})

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

    def joined(self, data, **more):
        """A listener whose input has ended and to which @data has been written, as far as there is room, and its client."""
        server = self.start("--listen", PORT, HEDDLE_NODE="one")
        end = time.monotonic() + PATIENCE
        while True:
            client = self.start(f"one:{PORT}", data=b"", HEDDLE_NODE=more.get("node", "one"))
            os.set_blocking(client.stdin.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                os.write(client.stdin.fileno(), data)
            if select.select([server.stdout], [], [], 1)[0]:
                os.set_blocking(client.stdin.fileno(), True)
                return server, client
            self.assertLess(time.monotonic(), end)
            client.kill()
            client.communicate()

    def fails(self, client):
        with client.stdout, client.stderr:
            self.assertEqual(client.wait(timeout=PATIENCE), 1)
            self.assertIn(b"the connection ended early", client.stderr.read())

    def test_a_receiver_that_dies_with_the_rest(self):
        """Its own input had ended, and the whole of the other's is in the queue, or in a pipe that nobody reads."""
        for node in ("one", "two"):
            server, client = self.joined(b"x", node=node)
            # Fills the pipe behind the receiver, so that it stands in write(2) with bytes that nobody gets.
            client.stdin.write(bytes(400000))
            client.stdin.close()
            server.kill()
            server.wait(timeout=PATIENCE)
            server.stdout.close()
            server.stderr.close()
            self.fails(client)

    def test_a_receiver_that_dies_while_more_comes(self):
        server, client = self.joined(b"x")
        writer = threading.Thread(target=self.feed, args=(client, 20 << 20))
        writer.start()
        self.assertEqual(len(server.stdout.read(10)), 10)
        server.kill()
        server.wait(timeout=PATIENCE)
        server.stdout.close()
        server.stderr.close()
        self.fails(client)
        writer.join()

    @staticmethod
    def feed(client, count):
        with contextlib.suppress(BrokenPipeError):
            client.stdin.write(bytes(count))
        with contextlib.suppress(BrokenPipeError):
            client.stdin.close()

    def test_no_room_at_the_connector(self):
        """The connector cannot write out what comes, and its own input has ended: both say so."""
        for count in (1000, 20 << 20):
            (self.base / "source").write_bytes(bytes(count))
            with open(self.base / "source", "rb") as source:
                server = subprocess.Popen([HEDDLE, "pipe", "--listen", str(PORT)], stdin=source, stdout=subprocess.DEVNULL,
                                          env=environment(HEDDLE_DIR=str(self.dir), HEDDLE_NODE="one"), stderr=subprocess.PIPE)
            end = time.monotonic() + PATIENCE
            while True:
                with open("/dev/full", "wb") as full:
                    client = subprocess.run([HEDDLE, "pipe", f"one:{PORT}"], stdin=subprocess.DEVNULL, stdout=full, timeout=PATIENCE,
                                            env=environment(HEDDLE_DIR=str(self.dir), HEDDLE_NODE="one"), stderr=subprocess.PIPE)
                if b"No space left" in client.stderr or time.monotonic() > end:
                    break
                time.sleep(0.05)
            self.assertEqual(client.returncode, 1)
            self.assertIn(b"standard output: No space left", client.stderr)
            error = server.communicate(timeout=PATIENCE)[1]
            self.assertEqual(server.returncode, 1)
            self.assertIn(b"the connection ended early", error)

    def test_input_that_cannot_be_read(self):
        """The other end must not take it for the end of the input."""
        server = self.start("--listen", PORT, HEDDLE_NODE="one")
        end = time.monotonic() + PATIENCE
        while True:
            folder = os.open("/", os.O_RDONLY)
            client = subprocess.run([HEDDLE, "pipe", f"one:{PORT}"], stdin=folder, stdout=subprocess.DEVNULL, timeout=PATIENCE,
                                    env=environment(HEDDLE_DIR=str(self.dir), HEDDLE_NODE="one"), stderr=subprocess.PIPE)
            os.close(folder)
            if b"standard input" in client.stderr or client.returncode == 0 or time.monotonic() > end:
                break
            time.sleep(0.05)
        self.assertEqual((client.returncode, client.stderr), (1, b"heddle pipe: standard input: Is a directory\n"))
        error = server.communicate(timeout=PATIENCE)[1]
        self.assertEqual(server.returncode, 1)
        self.assertIn(b"the connection ended early", error)

    def test_somebody_at_a_terminal(self):
        """Does not end the input once the other end has finished; neither end calls that a failure."""
        master, slave = os.openpty()
        server = subprocess.Popen([HEDDLE, "pipe", "--listen", str(PORT)], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=environment(HEDDLE_DIR=str(self.dir), HEDDLE_NODE="one"))
        code, out, error = self.connect(f"one:{PORT}", b"hello", HEDDLE_NODE="one")
        self.assertEqual((code, out, error), (0, b"", b""))
        self.assertEqual(server.communicate(timeout=PATIENCE), (b"hello", b""))
        self.assertEqual(server.returncode, 0)
        os.close(master)
        os.close(slave)

    def test_wrong_words(self):
        for words in ([], ["--listen", "0"], ["--listen", "70000"], ["one"], ["one:x"], ["--listen", "1", "one:1"]):
            done = self.start(*words)
            out, error = done.communicate(timeout=PATIENCE)
            self.assertEqual(done.returncode, 64, words)
            self.assertIn(b"heddle pipe: ", error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
