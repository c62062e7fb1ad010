#!/usr/bin/python3
"""The heddle command as a user meets it: what each command prints, and its exit status.  command.py PROGRAM"""
import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def heddle(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


class Command(unittest.TestCase):
    def test_version(self):
        for word in ("version", "--version"):
            done = heddle(word)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, r"^heddle \d+\.\d+\.\d+\n$")

    def test_help_names_every_command(self):
        for arguments in (["help"], ["--help"]):
            done = heddle(*arguments)
            self.assertEqual(done.returncode, 0)
            for command in ("perf", "version", "help"):
                self.assertIn(command, done.stdout)
        self.assertIn("--json", heddle("help", "perf").stdout)

    def test_wrong_usage(self):
        for arguments in ([], ["frob"], ["help", "frob"], ["perf", "--size", "0"], ["perf", "--size", "65m"],
                          ["perf", "--size", "12x"], ["perf", "--iterations", "-1"], ["perf", "--threads", "3"],
                          ["perf", "more"], ["run", "--device", "frob", "true"], ["devices", "more"]):
            done = heddle(*arguments)
            self.assertEqual(done.returncode, 64, arguments)
            self.assertEqual(done.stdout, "", arguments)
            self.assertNotEqual(done.stderr, "", arguments)

    def test_perf_json(self):
        for threads in ("1", "2"):
            done = heddle("perf", "--json", "--size", "4k", "--iterations", "100", "--threads", threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual({r["operation"] for r in result["latency"]}, {"send", "write"})
            self.assertEqual({r["operation"] for r in result["bandwidth"]}, {"send", "write", "read"})
            for rate in result["bandwidth"]:
                self.assertEqual(rate["size_bytes"], 4096)
                self.assertGreater(rate["bytes_per_s"], 0)
                self.assertGreater(rate["memcpy_bytes_per_s"], 0)
            for latency in result["latency"]:
                order = [latency[k] for k in ("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")]
                self.assertEqual(order, sorted(order))

    def test_perf_text(self):
        done = heddle("perf", "--size", "1000", "--iterations", "100", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("memcpy", done.stdout)
        self.assertIn("1000 B", done.stdout)


if __name__ == "__main__":
    unittest.main()
