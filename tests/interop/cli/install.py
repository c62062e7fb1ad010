#!/usr/bin/python3
"""Heddle as it is installed: the command, the drop-in library and the agent find each other wherever the build was told to put them.

  install.py SOURCE BUILD      BUILD is this test's own; what is there from the last time is used again
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
del sys.argv[1:3]
MULTIARCH = "lib/x86_64-linux-gnu"


def environment(**more):
    """Nothing of this session tells the programs where Heddle is."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("HEDDLE_", "LD_", "PKG_CONFIG", "MESON", "NINJA", "MAKE", "XDG_RUNTIME")) and k not in ("DESTDIR", "CFLAGS", "LDFLAGS")}
    return {**kept, **more}


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, **{"env": environment(), **more})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def set_up():
    """Fast to compile: what is tested is where things are."""
    if not (BUILD / "build.ninja").exists():
        shutil.rmtree(BUILD, ignore_errors=True)
        run("meson", "setup", BUILD, SOURCE, "-Doptimization=0", "-Ddebug=false", "-Dtests=false")


class Install(unittest.TestCase):
    def setUp(self):
        set_up()
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="hdl"))
        self.dir = self.base / "d"
        self.dir.mkdir(mode=0o700)

    def tearDown(self):
        self.end_agent()
        shutil.rmtree(self.base, ignore_errors=True)

    def end_agent(self):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.dir / "agent.lock").read_text()), signal.SIGTERM)
        for _ in range(1000):
            if not (self.dir / "agent.sock").exists():
                return
            time.sleep(0.01)
        self.fail("the agent does not leave")

    def works(self, heddle, root):
        """Programs get the drop-in of @root, the agent is the one of @root, and both are found by nothing but the command's own place."""
        env = environment(HEDDLE_DIR=str(self.dir))
        out = run(heddle, "run", "sh", "-c", "echo $LD_LIBRARY_PATH; exec ibv_devices", env=env)
        folder = pathlib.Path(out.splitlines()[0].split(":")[0]).resolve()
        self.assertTrue(folder.is_relative_to(root), folder)
        self.assertTrue((folder / "libibverbs.so.1").exists())
        self.assertIn("heddle0", out)
        agent = int((self.dir / "agent.lock").read_text())
        self.assertTrue(pathlib.Path(os.readlink(f"/proc/{agent}/exe")).is_relative_to(root))

    def test_multiarch_below_destdir(self):
        """As Debian's packages are built: lib/TRIPLET, and libexec somewhere else than in the prefix's libexec."""
        root = self.base / "root"
        run("meson", "configure", BUILD, "-Dprefix=/usr", f"-Dlibdir={MULTIARCH}", f"-Dlibexecdir={MULTIARCH}/heddle-private")
        run("ninja", "-C", BUILD, "installed")
        run("meson", "install", "-C", BUILD, "--no-rebuild", env=environment(DESTDIR=str(root)))
        self.assertTrue((root / "usr" / MULTIARCH / "heddle" / "libibverbs.so.1").exists())
        self.works(root / "usr/bin/heddle", root)
        for name in ("heddle", "ibc"):  # nothing of what the library was built with
            flags = run("pkg-config", "--cflags", "--libs", name, env=environment(PKG_CONFIG_PATH=str(root / "usr" / MULTIARCH / "pkgconfig")))
            self.assertEqual([flag for flag in flags.split() if not flag.startswith(("-I", "-L", "-Wl,"))], [f"-l{name}"])
        moved = self.base / "moved"
        (root / "usr").rename(moved)
        self.end_agent()
        self.works(moved / "bin/heddle", moved)

    def test_the_example_of_the_readme_as_printed(self):
        """In a home of its own; the only thing added is which build `make install` is to use."""
        readme = (SOURCE / "README.md").read_text()
        found = re.search(r"((?:^    .*\n)*^    cc hello\.c .*\n)", readme, re.M)
        self.assertIsNotNone(found)
        commands = "".join(line[4:] for line in found[1].splitlines(True))
        self.assertIn("make install PREFIX=$HOME/.local", commands)
        run("meson", "configure", BUILD, "-Dlibexecdir=libexec")
        home, tree = self.base / "home", self.base / "tree"
        home.mkdir()
        shutil.copytree(SOURCE / "examples", tree / "examples")
        for name in ("Makefile", "tools", "src", "include"):  # what the Makefile calls is where it was
            (tree / name).symlink_to(SOURCE / name)
        out = run("sh", "-ec", commands, cwd=tree, env=environment(HOME=str(home), BUILD=str(BUILD)))
        self.assertIn("bob received: a message", out)
        self.assertIn("written, and bob did nothing", out)
        self.works(home / ".local/bin/heddle", home)


if __name__ == "__main__":
    unittest.main(verbosity=2)
