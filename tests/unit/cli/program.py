#!/usr/bin/python3
"""heddle run warns of programs that will not find Heddle, and runs them all the same.  program.py PROGRAM COMPAT

The programs are built here, by cc; what cannot be built or made here is skipped by name."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, COMPAT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
NOBODY = 65534
SOURCE = "int main(void)\n{\n\treturn 7;\n}\n"
# Without a library: exit(7), by the 32-bit system call.
SOURCE_32 = ('void _start(void)\n{\n\t__asm__("movl $1, %eax; movl $7, %ebx; int $0x80");\n}\n')


@unittest.skipUnless(shutil.which("cc"), "there is no cc")
class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="hdl")
        os.chmod(self.folder.name, 0o755)
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def build(self, name, *flags, source=SOURCE):
        with open(self.path(name + ".c"), "w", encoding="ascii") as file:
            file.write(source)
        done = subprocess.run(["cc", "-o", self.path(name), self.path(name + ".c"), *flags], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("cc cannot: " + " ".join(flags))
        return self.path(name)

    def run_it(self, *program, options=(), **how):
        env = {**os.environ, "HEDDLE_COMPAT": COMPAT}
        return subprocess.run([PROGRAM, "run", *options, "--", *program], capture_output=True, text=True, env=env, **how)

    def expect(self, done, *words, status=7):
        """One sentence with @words, and the program was run."""
        self.assertEqual(done.returncode, status, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1 if words else 0, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])
        if words:
            self.assertTrue(lines[0].startswith("heddle: warning: "), lines[0])

    def test_ordinary_program(self):
        self.expect(self.run_it(self.build("plain")))
        self.expect(self.run_it(self.build("pie", "-pie", "-fPIE")))
        self.expect(self.run_it("sh", "-c", "exit 7"))

    def test_static(self):
        for flags in (["-static"], ["-static-pie", "-fPIE"]):
            path = self.build("fixed", *flags)
            self.expect(self.run_it(path), path, "linked statically", "shared libibverbs")

    def test_found_by_path(self):
        self.build("fixed", "-static")
        env = os.environ["PATH"]
        os.environ["PATH"] = "/nowhere:" + self.folder.name + ":" + env
        try:
            self.expect(self.run_it("fixed"), self.path("fixed"), "linked statically")
        finally:
            os.environ["PATH"] = env

    def test_32_bit(self):
        path = self.build("narrow", "-m32", "-nostdlib", "-static", source=SOURCE_32)
        done = self.run_it(path)
        if done.returncode != 7:
            self.skipTest("the kernel runs no 32-bit programs")
        self.expect(done, path, "32-bit", "64-bit build")

    def test_other_processor(self):
        path = self.build("plain")
        with open(path, "r+b") as file:
            file.seek(18)
            file.write(struct.pack("<H", 183))
        done = self.run_it(path)
        self.assertIn(done.returncode, (2, 126, 127))  # it cannot be run; the reason is told before
        self.assertIn(f"heddle: warning: {path} is built for another processor (AArch64)", done.stderr.splitlines()[0])

    def test_rpath(self):
        """DT_RPATH comes before LD_LIBRARY_PATH, DT_RUNPATH behind it."""
        os.mkdir(self.path("lib"))
        old = "-Wl,--disable-new-dtags,-rpath,"
        given = self.build("old", old + "/nowhere:" + self.path("lib"))
        origin = self.build("origin", old + "$ORIGIN/lib")
        new = self.build("new", "-Wl,--enable-new-dtags,-rpath," + self.path("lib"))
        for path in (given, origin, new):  # nothing is there
            self.expect(self.run_it(path))
        with open(self.path("lib/libibverbs.so.1"), "w", encoding="ascii") as file:
            file.write("a library")
        for path in (given, origin):
            self.expect(self.run_it(path), path, "DT_RPATH", self.path("lib"), "--preload")
        self.expect(self.run_it(new))
        ours = self.build("ours", old + COMPAT)
        self.expect(self.run_it(ours))
        with open(os.path.join(COMPAT, "libibverbs.so.1"), "rb") as file:
            sanitized = b"__asan_init" in file.read()
        if not sanitized:  # which cannot be loaded into a program that is not
            self.expect(self.run_it(given, options=["--preload"]))

    def test_script(self):
        fixed = self.build("fixed", "-static")
        with open(self.path("script"), "w", encoding="ascii") as file:
            file.write(f"#! {fixed} -x\nwhatever\n")
        os.chmod(self.path("script"), 0o755)
        self.expect(self.run_it(self.path("script")), fixed, "interprets the script", "linked statically")
        with open(self.path("again"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 7\n")
        os.chmod(self.path("again"), 0o755)
        self.expect(self.run_it(self.path("again")))

    def test_script_that_interprets_itself(self):
        with open(self.path("loop"), "w", encoding="ascii") as file:
            file.write(f"#!{self.path('loop')}\n")
        os.chmod(self.path("loop"), 0o755)
        self.assertNotEqual(self.run_it(self.path("loop"), timeout=20).returncode, 0)

    def test_no_program(self):
        done = self.run_it(self.path("missing"))
        self.assertEqual(done.returncode, 127)
        self.assertNotIn("warning", done.stderr)
        with open(self.path("torn"), "wb") as file:  # an ELF header that leads nowhere
            file.write(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 1 << 62, 0, 0, 64, 56,
                                                                         9, 0, 0, 0))
        os.chmod(self.path("torn"), 0o755)
        self.assertNotIn("warning", self.run_it(self.path("torn")).stderr)

    @unittest.skipUnless(os.getuid() == 0, "only root can make such programs")
    def test_other_rights(self):
        path = self.build("plain")
        os.chmod(path, 0o4755)
        self.expect(self.run_it(path))  # set-uid to oneself changes nothing
        os.chown(path, NOBODY, NOBODY)
        os.chmod(path, 0o4755)
        self.expect(self.run_it(path), path, "set-uid", "cp " + path)
        os.chmod(path, 0o2755)
        self.expect(self.run_it(path), path, "set-gid", "cp " + path)
        os.chmod(path, 0o2644)  # not a group's right, and nothing that can be run
        self.assertNotIn("set-gid", self.run_it(path).stderr)
        os.chown(path, 0, 0)
        os.chmod(path, 0o4711)  # cannot be read
        self.expect(self.run_it(path, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"), path, "set-uid")
        os.chmod(path, 0o755)
        self.expect(self.run_it(path, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"))
        try:  # cap_net_raw, permitted and effective
            os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"no capabilities of files here: {error}")
        self.expect(self.run_it(path, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"), path, "capabilities", "cp " + path)
        self.expect(self.run_it(path))  # root has it anyway


if __name__ == "__main__":
    unittest.main()
