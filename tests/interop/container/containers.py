#!/usr/bin/python3
"""Unmodified programs where containers confine them (confine.c says how): they work, perhaps more slowly, or say what is missing.

  containers.py BUILD CONFINE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / folder) for folder in ("agent", "compat")]
from programs import free_port
from situations import BUILD, end_agent, environment

CONFINE = pathlib.Path(sys.argv.pop(1)).resolve()
SKIP = 77
HEDDLE = str(BUILD / "heddle")

# What filters on system calls refuse: some of it all of them, all of it none.
COPIES = "process_vm_readv,process_vm_writev,ptrace,kcmp,ptracer"
MANY = f"{COPIES},membarrier,userfaultfd,io_uring_setup,bpf,unshare,setns,pidfd_getfd,pidfd_send_signal,sched_setscheduler," \
    "sched_setaffinity,mlock,sndbufforce,rcvbufforce,filter-program"
OLD = "pidfd_open,peer-pidfd,pidfd-info,clone3,close_range,statx,faccessat2,rseq"
SMALL = ["--tmpfs", "/dev/shm=65536", "--limit", "nofile=64", "--limit", "memlock=0"]

PINGPONG = ["ibv_rc_pingpong", "-g", "0", "-s", "70000", "-n", "50", "-c", "-e", "-p", "PORT"]
RPING = ["rping", "-C", "5", "-S", "9000", "-V", "-v", "-p", "PORT"]


def both(program):
    """The words of the server and of the client."""
    port = str(free_port())
    words = [port if word == "PORT" else word for word in program]
    if program is RPING:
        return [*words, "-s"], [*words, "-c", "-a", "127.0.0.1"]
    return words, [*words, "localhost"]


class Containers(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="hdl"))
        self.dir = self.base / "d"
        self.dir.mkdir(mode=0o700)

    def tearDown(self):
        end_agent(self.dir)
        shutil.rmtree(self.base, ignore_errors=True)

    def words(self, flags, program):
        confined = [] if flags is None else [CONFINE, *(str(self.dir) if flag == "DIR" else flag for flag in flags)]
        if shutil.which(program[0]) is None:
            self.skipTest(f"{program[0]} is not installed")
        return [*confined, HEDDLE, "run", *program]

    def env(self, more):
        return environment(**{"HEDDLE_DIR": str(self.dir), **more})

    def run_in(self, flags, *program, **more):
        done = subprocess.run(self.words(flags, program), env=self.env(more), capture_output=True, text=True, timeout=60)
        if done.returncode == SKIP:
            self.skipTest(done.stderr.strip())
        return done

    def works(self, flags, **more):
        done = self.run_in(flags, "ibv_devices", **more)
        done = self.run_in(flags, "ibv_devinfo", **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PORT_ACTIVE", done.stdout)

    def fails(self, flags, *said, **more):
        """It ends soon, with an error, and says each of @said."""
        done = self.run_in(flags, "ibv_devinfo", **more)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for what in said:
            self.assertIn(what, done.stderr)

    def together(self, flags, *programs, **more):
        """Each of @programs with itself, all in one container."""
        lines = []
        for program in programs:
            if shutil.which(program[0]) is None:
                self.skipTest(f"{program[0]} is not installed")
            server, client = (" ".join([HEDDLE, "run", *words]) for words in both(program))
            lines += [f"{server} > {self.dir}/server 2>&1 &",
                      f"tries=0; until {client} > {self.dir}/client 2>&1; do tries=$((tries + 1))",
                      f"[ $tries -lt 50 ] || {{ cat {self.dir}/client {self.dir}/server; exit 1; }}; sleep 0.1; done",
                      "wait $! || [ $? = 255 ] || exit 2"]
        words = [CONFINE, *(str(self.dir) if flag == "DIR" else flag for flag in flags), "sh", "-c", "\n".join(lines)]
        done = subprocess.run(words, env=self.env(more), capture_output=True, text=True, timeout=100)
        if done.returncode == SKIP:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # --- one container ---

    def test_one_container(self):
        self.together(["--pid", "--user", "0", "--refuse", MANY, "--read-only", "DIR", *SMALL], PINGPONG, RPING)

    def test_one_container_over_udp(self):
        self.together(["--pid", "--user", "0", "--refuse", MANY, "--read-only", "DIR", *SMALL], PINGPONG, RPING, HEDDLE_LOCAL="off")

    def test_an_old_kernel(self):
        self.together(["--missing", f"{MANY},{OLD}"], PINGPONG, RPING)


if __name__ == "__main__":
    unittest.main(verbosity=2)
