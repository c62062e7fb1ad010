#!/usr/bin/python3
"""A program that runs with more rights than who started it (set-uid, set-gid, capabilities: AT_SECURE) believes nothing of its environment.

  secure.py BUILD

Every HEDDLE_ variable is hostile here, an agent lies beside the program, and all of them have to be without any effect. As an ordinary
user it takes a second group to be in; as the administrator it is somebody else who starts a set-uid program."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
NOBODY = 65534
# What each would be complained of, or do, if it were believed; an unknown one of a later version is to be added here.
HOSTILE = {"HEDDLE_ADDR": "no-address", "HEDDLE_ETHER": "no-interface", "HEDDLE_LOCAL": "no-such-way", "HEDDLE_COPY": "no-such-copy", "HEDDLE_FAST": "no-speed",
           "HEDDLE_LMC": "no-number", "HEDDLE_STRIPE": "no-way", "HEDDLE_CLUSTER": "no-addresses",
           "HEDDLE_NODE": "no-node" * 20, "HEDDLE_LOG": "no-level", "HEDDLE_DEVICE": "no-device", "HEDDLE_CM_TIMEOUT_MS": "no-time",
           "HEDDLE_MPA": "no-word",
           "HEDDLE_IBC_KEY": "no-key-of-a-node", "HEDDLE_CRITERIA": "no-criteria"}
PATHS = ("HEDDLE_AGENT", "HEDDLE_CAPTURE", "HEDDLE_COMPAT", "HEDDLE_DIR", "HEDDLE_VPORT")


def variables():
    """All that the sources ask for."""
    found = set()
    for path in (pathlib.Path(__file__).resolve().parents[3] / "src").rglob("*.c"):
        for word in path.read_text().split('"')[1::2]:
            if word.startswith("HEDDLE_") and word.replace("_", "").isalnum() and word.isupper():
                found.add(word)
    return found


class Secure(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="secure", dir=BUILD))
        os.chmod(self.base, 0o711)
        self.hostile = self.base / "hostile"  # the one who starts the program can write here
        self.hostile.mkdir(mode=0o700)
        self.program = self.base / "heddle"
        shutil.copy(BUILD / "heddle", self.program)
        self.how = {}
        if os.geteuid() == 0:
            os.chown(self.hostile, NOBODY, NOBODY)
            os.chmod(self.program, 0o4755)
            self.how = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        else:
            others = [group for group in os.getgroups() if group != os.getgid()]
            if not others:
                self.skipTest("it takes a second group, or the administrator")
            os.chown(self.program, -1, others[0])
            os.chmod(self.program, 0o2755)
        if not self.program.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            self.skipTest("no set-uid programs can be made here")
        auxiliary = subprocess.run([self.program, "version"], env={"LD_SHOW_AUXV": "1"}, capture_output=True, text=True, **self.how)
        reach = subprocess.run([self.program, "version"], capture_output=True, text=True, **self.how)
        if reach.returncode != 0:
            self.skipTest("another user cannot reach the build")
        if "AT_SECURE" in auxiliary.stdout:  # the loader shows it to ordinary programs alone
            self.skipTest("set-uid is ignored here (a file system that is mounted nosuid?)")

    def tearDown(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def evil(self, path, marker):
        path.write_text(f'#!/bin/sh\nid > "{marker}"\nexit 1\n')
        path.chmod(0o755)
        return path

    def test_every_variable_is_tried(self):
        self.assertEqual(variables() - {"HEDDLE_VERSION"}, set(HOSTILE) | set(PATHS))

    def test_nothing_is_believed(self):
        marker, capture, directory = self.hostile / "marker", self.hostile / "capture", self.hostile / "d"
        directory.mkdir(mode=0o700)
        if self.how:
            os.chown(directory, NOBODY, NOBODY)
        self.evil(self.base / "heddled", marker)  # as beside a hard link to the program
        env = {"PATH": os.environ["PATH"], "HEDDLE_AGENT": str(self.evil(self.hostile / "agent", marker)), "HEDDLE_CAPTURE": str(capture),
               "HEDDLE_DIR": str(directory), "HEDDLE_COMPAT": str(self.hostile),
               "HEDDLE_VPORT": str(self.hostile / "agent"), "XDG_RUNTIME_DIR": str(self.hostile)}
        for name in ["no place", None, *HOSTILE]:  # first only what is run or written, so that no place that is refused saves the day
            with self.subTest(name=name):
                given = {key: value for key, value in env.items() if name != "no place" or "_DIR" not in key}
                given.update({name: HOSTILE[name]} if name in HOSTILE else {})
                done = subprocess.run([self.program, "devices"], env=given, capture_output=True, text=True, timeout=60, **self.how)
                said = done.stdout + done.stderr
                self.assertFalse(marker.exists(), "code of the caller's has been run")
                self.assertFalse(capture.exists(), "a file has been written where the caller says")
                self.assertEqual(list(directory.iterdir()), [])
                self.assertFalse((self.hostile / "heddle").exists())
                self.assertNotIn(str(self.hostile), said)
                for value in HOSTILE.values():
                    self.assertNotIn(value[:16], said)
                # An agent is where the build was to be installed, or nowhere.
                self.assertTrue("heddle0" in done.stdout or "heddled was not found" in done.stderr, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
