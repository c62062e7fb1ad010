#!/usr/bin/python3
"""Unmodified programs where containers confine them (confine.c says how): they work, perhaps more slowly, or say what is missing.

  containers.py BUILD CONFINE CONNECTED
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / folder) for folder in ("agent", "compat")]
from programs import await_listener, ended_late, finish, free_port, listens
from situations import BUILD, agent_pid, environment
import situations

CONFINE, CONNECTED = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
SKIP = 77
PATIENCE = 60  # seconds that a busy machine may take for what is a matter of moments
HEDDLE = str(BUILD / "heddle")

# What filters on system calls refuse: some of it all of them, all of it none.
COPIES = "process_vm_readv,process_vm_writev,ptrace,kcmp,ptracer"
MANY = f"{COPIES},membarrier,userfaultfd,io_uring_setup,bpf,unshare,setns,pidfd_getfd,pidfd_send_signal,sched_setscheduler," \
    "sched_setaffinity,mlock,sndbufforce,rcvbufforce,filter-program"
OLD = "pidfd_open,peer-pidfd,pidfd-info,clone3,close_range,statx,faccessat2,rseq"
SMALL = ["--tmpfs", "/dev/shm=65536", "--limit", "nofile=64", "--limit", "memlock=0"]

PINGPONG = ["ibv_rc_pingpong", "-g", "0", "-s", "70000", "-n", "50", "-c", "-e", "-p", "PORT"]
RPING = ["rping", "-C", "5", "-S", "9000", "-V", "-v", "-p", "PORT"]
ATOMIC = ["ib_atomic_lat", "-F", "-n", "50", "-p", "PORT"]


def both(program):
    """The words of the server and of the client."""
    port = str(free_port())
    words = [port if word == "PORT" else word for word in program]
    if program is RPING:
        return [*words, "-s"], [*words, "-c", "-a", "127.0.0.1"]
    return words, [*words, "localhost"]


def end_agent(directory):
    """End the agent of @directory, unless it is in a container, which ends it: then its number is somebody else's here."""
    end = time.monotonic() + PATIENCE
    while (pid := agent_pid(directory)) is not None and time.monotonic() < end:
        process = pathlib.Path(f"/proc/{pid}")
        try:
            ours = os.readlink(process / "exe") == str(BUILD / "heddled") and \
                f"HEDDLE_DIR={directory}".encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            ours = False
        if ours:
            situations.end_agent(directory)
        else:
            time.sleep(0.01)


class Containers(situations.InDirectory):
    end_agent = staticmethod(end_agent)

    def words(self, flags, program):
        confined = [] if flags is None else [CONFINE, *(str(self.dir) if flag == "DIR" else flag for flag in flags)]
        if shutil.which(program[0]) is None:
            self.skipTest(f"{program[0]} is not installed")
        return [*confined, HEDDLE, "run", *program]

    def env(self, more):
        return environment(**{"HEDDLE_DIR": str(self.dir), **more})

    def run_in(self, flags, *program, **more):
        done = subprocess.run(self.words(flags, program), env=self.env(more), capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == SKIP:
            self.skipTest(done.stderr.strip())
        return done

    def works(self, flags, **more):
        done = self.run_in(flags, "ibv_devices", **more)
        done = self.run_in(flags, "ibv_devinfo", **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PORT_ACTIVE", done.stdout)

    def fails(self, flags, *said, **more):
        """It ends soon, with an error, and says each of @said. Where a setting of ours is in the environment heddle run tries it, and
        ends by itself (heddle(1), EXIT STATUS); else the program gets no list of devices, and ends with -1 (rdma-core, ibv_devinfo)."""
        done = self.run_in(flags, "ibv_devinfo", **more)
        tried = bool(more.get("HEDDLE_LOCAL"))
        self.assertEqual(done.returncode, 1 if tried else 255, done.stdout + done.stderr)
        for what in (*said, *([] if tried else ["Failed to get IB devices list"])):
            self.assertIn(what, done.stderr)

    def meet(self, of_server, of_client, program, **more):
        """@program with itself, server and client confined by flags of their own; None: not at all."""
        server, client = both(program)
        done, port = None, int(server[server.index("-p") + 1])
        with tempfile.TemporaryFile("w+") as output:
            first = subprocess.Popen(self.words(of_server, server), env=self.env({"HEDDLE_LOG": "info", **more}), stdout=output,
                                     stderr=subprocess.STDOUT)
            try:
                # Its agent is there then, too: one in the client's container would end with that, and over UDP take along what the client
                # said last.
                if program is RPING:
                    await_listener(first, output)
                end = time.monotonic() + PATIENCE
                while program is not RPING and not listens(port) and first.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
                done = self.run_in(of_client, *client, **more)
                well = done.returncode == 0 or ended_late(done, client)
            finally:
                code = finish(first, ends=done is not None)
            output.seek(0)
            said = output.read()
        if code == SKIP:
            self.skipTest(said.strip())
        told = f"client ({done.returncode}):\n{done.stdout}{done.stderr}\nserver ({code}):\n{said}"
        self.assertTrue(well, told)
        self.assertIn(code, (0, 255) if program is RPING else (0,), told)
        return done.stdout + done.stderr + said

    def together(self, flags, *programs, **more):
        """Each of @programs with itself, all in one container."""
        lines = []
        for program in programs:
            if shutil.which(program[0]) is None:
                self.skipTest(f"{program[0]} is not installed")
            server, client = (" ".join([HEDDLE, "run", *words]) for words in both(program))
            said = f"{self.dir}/client"
            late = f"[ $? = 255 ] && grep -q 'rdma_get_cm_event: Bad' {said} && [ $(grep -c 'ping data' {said}) = 5 ]"  # as in ended_late()
            lines += [f"{server} > {self.dir}/server 2>&1 &",
                      f"tries=0; until {client} > {said} 2>&1 || {{ {late if program is RPING else 'false'}; }}; do tries=$((tries + 1))",
                      f"[ $tries -lt 200 ] || {{ cat {said} {self.dir}/server; exit 1; }}; sleep 0.1; done",
                      "wait $! || [ $? = 255 ] || exit 2"]
        words = [CONFINE, *(str(self.dir) if flag == "DIR" else flag for flag in flags), "sh", "-c", "\n".join(lines)]
        done = subprocess.run(words, env=self.env(more), capture_output=True, text=True, timeout=3 * PATIENCE)
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

    # --- two containers that share the agent's directory: a number means another process in each ---

    def test_two_containers(self):
        for program in (PINGPONG, RPING, ATOMIC):
            self.meet(["--pid"], ["--pid"], program)

    def test_two_containers_on_an_old_kernel(self):
        flags = ["--pid", "--missing", OLD]
        self.meet(flags, flags, PINGPONG)

    def test_two_containers_with_users_of_their_own(self):
        self.meet(["--pid", "--user", "0"], ["--pid", "--user", "5", "--refuse", MANY], RPING)

    def test_two_containers_over_udp(self):
        self.meet(["--pid", *SMALL], ["--pid", "--refuse", MANY], RPING, HEDDLE_LOCAL="off")

    def test_a_container_and_a_host(self):
        self.meet(["--pid"], None, RPING)
        self.meet(None, ["--pid"], RPING)

    def test_two_networks(self):
        self.meet(["--pid", "--net"], ["--pid", "--net"], RPING)

    def test_the_container_of_the_agent_ends(self):
        """Who was there goes on, and is found by those who come."""
        if shutil.which("ibv_asyncwatch") is None:
            self.skipTest("ibv_asyncwatch is not installed")
        watch = subprocess.Popen(["stdbuf", "-oL", *map(str, self.words(["--pid"], ["ibv_asyncwatch"]))], env=self.env({}),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = watch.stdout.readline()  # it has opened the device: its agent is there
        server = None
        try:
            if line == "" and watch.wait(PATIENCE) == SKIP:
                self.skipTest(watch.stderr.read().strip())
            self.assertIn("heddle0", line)
            port = str(free_port())
            server = subprocess.Popen(self.words(["--pid"], ["rping", "-s", "-p", port, "-C", "3", "-v"]),
                                      env=self.env({"HEDDLE_LOG": "info"}), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while "listening on port" not in (line := server.stderr.readline()):
                self.assertNotEqual(line, "")
            watch.kill()
            watch.wait()
            end = time.monotonic() + PATIENCE
            client = ["rping", "-c", "-p", port, "-C", "3", "-v", "-a", "127.0.0.1"]
            while True:
                done = self.run_in(["--pid"], *client)
                if done.returncode == 0 or ended_late(done, client) or time.monotonic() > end:
                    break
                time.sleep(0.1)
            self.assertTrue(done.returncode == 0 or ended_late(done, client), done.stdout + done.stderr)
        finally:
            for process in filter(None, (watch, server)):
                process.kill()
                process.wait()
                process.stderr.close()
            watch.stdout.close()

    def test_a_container_is_killed_with_the_agent(self):
        """A process in another one is disconnected all the same: nobody but the kernel tells it."""
        port = str(free_port())
        first, client = (" ".join(map(str, self.words(None, words))) for words in (["ibv_devinfo"], [CONNECTED, "connect", port]))
        # The agent is stopped before, lest it says something between the death of the client and its own.
        script = f"{first} > {self.dir}/first || exit; echo; read line; {client} & read line; " \
            f"kill -STOP $(cat {self.dir}/agent.lock); echo stopped; wait"
        container = subprocess.Popen([CONFINE, "--pid", "sh", "-c", script], env=self.env({}), stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server = None

        def say(line):
            container.stdin.write(line + "\n")
            container.stdin.flush()

        try:
            if container.stdout.readline() == "":  # else its agent is there
                self.skipTest(container.stderr.read().strip())
            server = subprocess.Popen(self.words(["--pid"], [CONNECTED, "listen", port]), env=self.env({}), stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            self.assertEqual(server.stdout.readline(), "listening\n")
            say("connect")
            self.assertEqual(container.stdout.readline(), "connected\n")
            self.assertEqual(server.stdout.readline(), "connected\n")
            say("stop")
            self.assertEqual(container.stdout.readline(), "stopped\n")
            container.kill()
            self.assertEqual(server.communicate(timeout=PATIENCE)[0], "disconnected\n")
        finally:
            for process in filter(None, (container, server)):
                process.kill()
                process.communicate()

    # --- what is there in place of what is not ---

    def test_no_proc(self):
        self.together(["--no-proc"], PINGPONG, RPING)

    def test_little_address_space(self):
        self.together(["--limit", f"as={1 << 29}"], PINGPONG)

    def test_no_advice_on_memory(self):
        self.together(["--refuse", "madvise"], PINGPONG)

    def test_no_place_but_shared_memory(self):
        """/tmp can only be read: the agent's directory is in /dev/shm then."""
        self.works(["--tmpfs", f"/dev/shm={1 << 20}", "--read-only", "/dev/shm", "--pid", "--user", "4242"], HEDDLE_DIR="")

    def test_mapped_apertures_without_userfaultfd(self):
        """Filters of containers forbid it: signals tell of stores then, and the suite of the trackers passes."""
        suite = BUILD / "tests" / "unit-track"
        if not suite.exists():
            self.skipTest(f"{suite} is not built")
        for how in (["--refuse", MANY], ["--missing", MANY, "--pid", "--user", "4242"]):
            done = subprocess.run([CONFINE, *how, suite], capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode == SKIP:
                self.skipTest(done.stderr.strip())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("userfaultfd: not here\nprotect: works", done.stderr)

    # --- what cannot be done without ---

    def test_memory_that_cannot_be_shared(self):
        for how in ("--refuse", "--missing"):
            self.fails([how, "memfd_create"], "memfd_create", "seccomp")

    def test_a_lock_that_cannot_be_taken(self):
        self.fails(["--refuse", "flock"], "Operation not permitted", "HEDDLE_DIR")
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_port_that_cannot_be_shared(self):
        self.works(["--refuse", "reuseport-program"])
        end_agent(self.dir)
        self.fails(["--refuse", "reuseport-program"], "SO_ATTACH_REUSEPORT_CBPF", "seccomp", HEDDLE_LOCAL="off")

    def test_no_loopback_interface(self):
        self.works(["--net"])
        end_agent(self.dir)
        self.fails(["--net"], "ip link set lo up", HEDDLE_LOCAL="off")

    def test_too_little_address_space(self):
        self.fails(["--limit", f"as={14 << 20}"], "ulimit -v")

    @unittest.skipIf(os.geteuid() == 0, "the administrator may have as many processes as he likes")
    def test_too_few_processes(self):
        for limit in (1, 2, 3):
            end_agent(self.dir)
            done = self.run_in(["--user", "7", "--limit", f"nproc={limit}"], "ibv_devinfo")
            self.assertIn("Resource temporarily unavailable; ", done.stderr)

    def test_nowhere_to_write(self):
        self.fails(["--user", "4242", "--empty", "/dev/shm", "--read-only", "/dev/shm"], "Read-only file system", "set HEDDLE_DIR", HEDDLE_DIR="")


if __name__ == "__main__":
    unittest.main(verbosity=2)
