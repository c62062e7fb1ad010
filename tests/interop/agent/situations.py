#!/usr/bin/python3
"""What can stand between a program and the node agent: each situation is handled, or the user is told what to do next.

  situations.py BUILD
"""
import contextlib
import fcntl
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
NOBODY = 65534
HEADER = struct.Struct("=II")  # version, kind
HELLO, WELCOME, REFUSED, OBSERVE, PROCESS, END = 1, 2, 3, 9, 10, 11
MESSAGE_BYTES = 1024  # longer than a message of this version


def constant(path, name):
    """The number that a header of ours calls @name."""
    text = (pathlib.Path(__file__).resolve().parents[3] / "src" / path).read_text()
    return int(re.search(rf"^#define {name} +(\d+)u?\b", text, re.M)[1])


VERSION = constant("port/agentmsg.h", "AGENT_VERSION")
MAX_QUEUED = constant("agent/agent.h", "AGENT_MAX_QUEUED")


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_") and k != "XDG_RUNTIME_DIR"}
    return {**kept, "HEDDLE_AGENT": str(BUILD / "heddled"), **more}


def devices(directory=None, **more):
    """`heddle devices`: the shortest program that needs the agent."""
    env = environment(HEDDLE_DIR=str(directory)) if directory else environment(**more.pop("env", {}))
    return subprocess.run([BUILD / "heddle", "devices"], env=env, capture_output=True, text=True, timeout=60, **more)


def agent_pid(directory):
    """The agent that holds the lock of @directory, or None."""
    try:
        with open(pathlib.Path(directory) / "agent.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            except BlockingIOError:
                return int(lock.read() or 0) or None
    except OSError:
        return None


def open_files(pid):
    """What the descriptors of process @pid are. It may let go of some at this moment: of those of a program that has just ended."""
    links = []
    for name in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(name))
    return links


def end_agent(directory, number=signal.SIGTERM):
    """End the agent and wait until it is gone."""
    pid = agent_pid(directory)
    if pid is None:
        return None
    try:
        watch = os.pidfd_open(pid)
        os.kill(pid, number)
        select.select([watch], [], [], 60)
        os.close(watch)
    except ProcessLookupError:
        pass
    return pid


class InDirectory(unittest.TestCase):
    """Tests that each have a directory of their own for an agent."""
    end_agent = staticmethod(end_agent)

    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="hdl"))
        self.dir = self.base / "d"
        self.dir.mkdir(mode=0o700)

    def tearDown(self):
        self.end_agent(self.dir)
        shutil.rmtree(self.base, ignore_errors=True)


class Situations(InDirectory):
    def works(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("heddle0", done.stdout)

    def fails(self, done, *words):
        """It fails, promptly and without dying of it, and says each of @words."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    @contextlib.contextmanager
    def listening(self, answer):
        """Somebody else at the agent's socket, who says @answer to whoever greets."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.bind(str(self.dir / "agent.sock"))
            sock.listen()
            child = os.fork()
            if child == 0:
                try:  # what is raised here must not go on with the tests in two processes
                    while True:
                        peer, _ = sock.accept()
                        with peer, contextlib.suppress(ConnectionError):  # some leave without a word
                            peer.recv(4096)
                            peer.send(answer)
                finally:
                    os._exit(1)
            try:
                yield
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    # --- the agent itself ---

    def test_stale_socket(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.bind(str(self.dir / "agent.sock"))  # and nobody listens
        self.works(devices(self.dir))

    def test_something_else_where_the_socket_should_be(self):
        (self.dir / "agent.sock").write_text("not a socket")
        self.works(devices(self.dir))

    def test_killed_agent(self):
        self.works(devices(self.dir))
        first = end_agent(self.dir, signal.SIGKILL)
        self.assertTrue((self.dir / "agent.sock").exists())
        self.works(devices(self.dir))
        self.assertNotEqual(agent_pid(self.dir), first)

    def test_one_that_holds_the_lock_and_does_not_listen_yet(self):
        """It was just started or is about to be gone; on a busy machine this takes a while."""
        with open(self.dir / "agent.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            release = threading.Timer(1, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
            release.start()
            self.works(devices(self.dir))
            release.join()

    def test_one_that_takes_long_to_start(self):
        """Longer than we look for one that comes and goes."""
        slow = self.base / "slow"
        slow.write_text(f'#!/bin/sh\nsleep 6\nexec "{BUILD}/heddled" "$@"\n')
        slow.chmod(0o700)
        self.works(devices(env=environment(HEDDLE_DIR=str(self.dir), HEDDLE_AGENT=str(slow))))

    def test_somebody_else_holds_the_lock(self):
        with open(self.dir / "agent.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.fails(devices(self.dir), "agent.lock")

    def test_many_start_it_at_once(self):
        env = environment(HEDDLE_DIR=str(self.dir))
        programs = [subprocess.Popen([BUILD / "heddle", "devices"], env=env, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True) for _ in range(8)]
        for program in programs:
            out, err = program.communicate(timeout=60)
            self.assertEqual(program.returncode, 0, err)
            self.assertIn("heddle0", out)

    def test_leaves_when_idle_and_takes_its_socket_along(self):
        agent = subprocess.Popen([BUILD / "heddled", "--foreground", "--idle", "1"],
                                 env=environment(HEDDLE_DIR=str(self.dir)))
        self.assertEqual(agent.wait(timeout=60), 0)
        self.assertFalse((self.dir / "agent.sock").exists())

    def test_stopped_agent(self):
        self.works(devices(self.dir))
        pid = agent_pid(self.dir)
        os.kill(pid, signal.SIGSTOP)
        try:
            self.fails(devices(self.dir), "does not answer", f"kill -9 {pid}")
        finally:
            os.kill(pid, signal.SIGCONT)

    def test_the_agent_keeps_nothing_of_its_starter(self):
        """A port that the program listens on must be free when the program has ended, though its agent lives on."""
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            port.listen()
            port.set_inheritable(True)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            try:
                self.works(devices(self.dir, close_fds=False))
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            self.assertNotIn(os.readlink(f"/proc/self/fd/{port.fileno()}"), open_files(agent_pid(self.dir)))
        self.assertIsNotNone(end_agent(self.dir, signal.SIGTERM))
        self.assertIsNone(agent_pid(self.dir), "SIGTERM is blocked")

    def test_no_agent_program(self):
        env = environment(HEDDLE_DIR=str(self.dir), HEDDLE_AGENT="/nonexistent/heddled")
        self.fails(devices(env=env), "HEDDLE_AGENT")
        wrong = self.base / "wrong"
        wrong.write_text("#!/nonexistent/interpreter\n")
        wrong.chmod(0o700)
        self.fails(devices(env={**env, "HEDDLE_AGENT": str(wrong)}), "cannot run", "HEDDLE_AGENT")

    # --- the wire ---

    def on_wire(self, directory=None, **more):
        return devices(env=environment(HEDDLE_DIR=str(directory or self.dir), **more))

    @staticmethod
    def own_address():
        """Of the loopback, which is large enough for everybody who runs this at the same time."""
        pid = os.getpid()
        return f"127.77.{pid >> 8 & 255}.{pid & 255}"

    def test_no_wire_unless_asked(self):
        self.works(devices(self.dir))
        sockets = open_files(agent_pid(self.dir))
        listed = pathlib.Path("/proc/net/udp").read_text() + pathlib.Path("/proc/net/udp6").read_text()
        inodes = {line.split()[9] for line in listed.splitlines() if "inode" not in line}
        self.assertFalse({f"socket:[{i}]" for i in inodes} & set(sockets))

    def test_the_address_is_the_first_gid(self):
        address = self.own_address()
        done = self.on_wire(HEDDLE_ADDR=address)
        self.works(done)
        self.assertIn(f"GID  0  ::ffff:{address}", done.stdout)
        done = self.on_wire(HEDDLE_LOCAL="off", HEDDLE_NODE="another")
        self.works(done)
        self.assertRegex(done.stdout, r"GID  0  ::ffff:127\.72\.")

    def test_two_addresses(self):
        first, second = self.own_address(), self.own_address().replace("127.77", "127.80")
        done = self.on_wire(HEDDLE_ADDR=f"{first},{second}")
        self.works(done)
        self.assertIn(f"GID  0  ::ffff:{first}", done.stdout)
        self.assertIn(f"GID  1  ::ffff:{second}", done.stdout)
        run = [BUILD / "heddle", "run", "--addr", first, "--addr", second, "printenv", "HEDDLE_ADDR"]
        env = environment(HEDDLE_DIR=str(self.dir))
        self.assertEqual(subprocess.run(run, capture_output=True, text=True, timeout=30, env=env).stdout, f"{first},{second}\n")
        self.fails(self.on_wire(HEDDLE_ADDR=f"{first},198.51.100.7"), "198.51.100.7", "no address of this machine")
        self.works(self.on_wire(HEDDLE_ADDR=first))  # it was given back

    def guid_on(self, machine, host):
        """The GUID of our node on a machine of these names."""
        (self.base / "machine-id").write_text(machine + "\n")
        script = f"mount --bind {self.base}/machine-id /etc/machine-id && hostname {host} && exec {BUILD}/heddle devices"
        enter = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "-u"]
        if not os.path.exists("/etc/machine-id") or subprocess.run([*enter, "sh", "-c", script.split(" && ")[0]], capture_output=True).returncode != 0:
            self.skipTest("/etc/machine-id cannot be replaced here")
        done = subprocess.run([*enter, "sh", "-c", script], env=environment(HEDDLE_DIR=str(self.dir)), capture_output=True, text=True, timeout=60)
        self.end_agent(self.dir)
        self.works(done)
        return re.search(r"GUID ([0-9a-f]{16})", done.stdout)[1]

    def test_machine(self):
        """A machine keeps the GUIDs of its nodes when it gets another host name; two machines of one host name have different ones."""
        one, two = "0123456789abcdef" * 2, "fedcba9876543210" * 2
        first = self.guid_on(one, "a")
        self.assertEqual(first, self.guid_on(one, "b"))
        self.assertNotEqual(first, self.guid_on(two, "a"))

    def test_address_that_is_none(self):
        for address in ("here", "127.0.0.1,", "127.0.0.1,127.0.0.1", ",".join(f"127.0.0.{i}" for i in range(1, 10)), "0.0.0.0", "224.0.0.1", "fe80::1", "1.2.3.4.5"):
            with self.subTest(address=address):
                self.fails(self.on_wire(HEDDLE_ADDR=address), "HEDDLE_ADDR", address, "ip address")

    def test_address_of_another_machine(self):
        self.fails(self.on_wire(HEDDLE_ADDR="198.51.100.7"), "198.51.100.7", "no address of this machine")

    def test_port_is_taken(self):
        address = self.own_address()
        for shared in (0, 1):
            with self.subTest(shared=shared), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
                taken.bind((address, 4791))
                self.fails(self.on_wire(HEDDLE_ADDR=address), "4791", address, "taken")
        self.works(self.on_wire(HEDDLE_ADDR=address))

    @contextlib.contextmanager
    def program(self, **more):
        """A program that stays: its node has an address as long as it does."""
        env = environment(HEDDLE_DIR=str(more.pop("directory", self.dir)), **more)
        program = subprocess.Popen([BUILD / "heddle", "perf", "--server"], env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self.assertTrue(select.select([program.stdout], [], [], 60)[0])
            self.assertIn("Waiting", program.stdout.readline())
            yield
        finally:
            program.kill()
            program.communicate()

    def test_address_of_another_node(self):
        address = self.own_address()
        with self.program(HEDDLE_ADDR=address, HEDDLE_NODE="first"):
            self.works(self.on_wire(HEDDLE_ADDR=address, HEDDLE_NODE="first"))
            self.works(self.on_wire(HEDDLE_LOCAL="off", HEDDLE_NODE="first"))
            self.fails(self.on_wire(HEDDLE_ADDR=address, HEDDLE_NODE="second"), address, "'first'", "of its own")
            self.fails(self.on_wire(HEDDLE_ADDR="127.0.0.1", HEDDLE_NODE="first"), address, "HEDDLE_NODE")

    def test_address_of_another_agent(self):
        """Another directory, another agent, the same user: the kernel would let them share the port."""
        address, other = self.own_address(), self.base / "e"
        other.mkdir(mode=0o700)
        try:
            with self.program(HEDDLE_ADDR=address):
                self.fails(self.on_wire(other, HEDDLE_ADDR=address), address, "taken")
            with self.program(HEDDLE_LOCAL="off"):
                self.works(self.on_wire(other, HEDDLE_LOCAL="off"))
        finally:
            end_agent(other)

    @unittest.skipUnless(shutil.which("ib_write_bw"), "perftest is not here")
    def test_a_node_on_an_address_of_the_machine_and_the_machines_own_node(self):
        """The latter lists all addresses of the machine, but a node that was put on one has it: also for programs that are older than it."""
        script = """
            ip link set lo up && ip address add 10.99.0.1/24 dev lo
            side() { timeout 30 "$HEDDLE" run "$@"; }
            both() { # server client address
                side $1 ib_write_bw -d heddle0 -n 50 -s 4096 > server.txt 2>&1 &
                for i in $(seq 100); do
                    [ -n "$(ss -Hltn sport = 18515)" ] && break; sleep 0.1
                done
                side $2 ib_write_bw -d heddle0 -n 50 -s 4096 $3 > client.txt 2>&1 && wait $! && return 0
                cat server.txt client.txt
                exit 1
            }
            both "--node W --addr 10.99.0.1" "--preload" 10.99.0.1
            echo forward
            both "--preload" "--node W --addr 10.99.0.1" 127.0.0.1
            echo backward
            """
        env = environment(HEDDLE_DIR=str(self.dir), HEDDLE=str(BUILD / "heddle"), HEDDLE_COMPAT=str(BUILD))
        unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        if subprocess.run([*unshare, "ip", "link"], capture_output=True).returncode != 0:
            self.skipTest("there are no network namespaces for us")
        done = subprocess.run([*unshare, "sh", "-c", script], env=env, capture_output=True, text=True, timeout=150, cwd=self.base)
        self.assertEqual(done.stdout, "forward\nbackward\n", done.stderr)

    def in_namespaces(self, script):
        """Run @script, where `at N COMMAND` runs it in a network namespace N with the address 10.98.0.1; `forget N` makes it a new one."""
        if os.geteuid() != 0:
            self.skipTest("it takes the administrator to make network namespaces by name")
        name = f"hdl{os.getpid()}"
        begin = f"""
            make() {{ ip netns add {name}$1 && ip -n {name}$1 link set lo up && ip -n {name}$1 address add 10.98.0.1/24 dev lo; }}
            forget() {{ ip netns del {name}$1; make $1; }}
            at() {{ where=$1; shift; ip netns exec {name}$where "$@"; }}
            trap 'kill $(jobs -p) 2>/dev/null; ip netns del {name}a; ip netns del {name}b' EXIT
            make a && make b || exit 77
            server() {{ ip netns exec {name}$1 env HEDDLE_ADDR=10.98.0.1 "$HEDDLE" perf --server > server.txt 2>&1 & server=$!
                       for i in $(seq 100); do grep -q Waiting server.txt && return; sleep 0.1; done; }}
            devices() {{ at $1 env HEDDLE_ADDR=10.98.0.1 "$HEDDLE" devices 2>&1; echo "status $?"; }}
            """
        done = subprocess.run(["sh", "-c", begin + script], env=environment(HEDDLE_DIR=str(self.dir), HEDDLE=str(BUILD / "heddle")),
                              capture_output=True, text=True, timeout=100, cwd=self.base)
        if done.returncode == 77:
            self.skipTest("there are no network namespaces for us")
        return done.stdout

    def test_agent_in_another_network_namespace(self):
        """With programs there it says so; without, there is another one. The same-host path does not care."""
        out = self.in_namespaces("""
            server a; devices b
            at b "$HEDDLE" devices > local.txt 2>&1 && echo local works
            kill $server; wait $server; echo alone; devices b; devices b""")
        first, second = out.split("alone\n")
        self.assertIn("another network namespace", first)
        self.assertIn("HEDDLE_DIR", first)
        self.assertIn("status 1", first)
        self.assertIn("local works", first)
        self.assertEqual(second.count("status 0"), 2, second)
        self.assertIn("10.98.0.1", second)

    def test_network_namespace_that_was_made_again(self):
        """It has the same name, and is another one."""
        out = self.in_namespaces("""
            devices a; forget a; devices a
            readlink /proc/$(cat $HEDDLE_DIR/agent.lock)/ns/net; at a readlink /proc/self/ns/net""")
        self.assertEqual(out.count("status 0"), 2, out)
        agent, program = out.splitlines()[-2:]
        self.assertEqual(agent, program)

    def test_address_that_has_gone(self):
        out = self.in_namespaces("""
            server a; at a ip address del 10.98.0.1/24 dev lo; devices a
            kill $server; wait $server; echo alone; devices a
            at a ip address add 10.98.0.1/24 dev lo; devices a""")
        first, second = out.split("alone\n")
        self.assertIn("10.98.0.1 is no address of this machine any more", first)
        self.assertIn("status 1", first)
        self.assertIn("no address of this machine (", second)
        self.assertTrue(second.endswith("status 0\n"), second)

    # --- what the user asks for ---

    def start(self, *options, **more):
        """`heddle run` of a program that says so when it is started."""
        env = environment(HEDDLE_DIR=str(self.dir), HEDDLE_COMPAT=str(BUILD), **more)
        return subprocess.run([BUILD / "heddle", "run", *options, "--", "echo", "started"], env=env, capture_output=True, text=True, timeout=60)

    def starts(self, done):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "started\n", ""))

    def is_not_started(self, done, status, *words):
        """The reason is said, once."""
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_no_program_with_an_address_that_is_none(self):
        for addresses in (["here"], ["0.0.0.0"], ["224.0.0.1"], ["ff02::1"], [f"127.0.0.{i}" for i in range(1, 10)], ["127.0.0.1", "127.0.0.1"]):
            options = [word for address in addresses for word in ("--addr", address)]
            with self.subTest(addresses=addresses):
                self.is_not_started(self.start(*options), 64, ",".join(addresses), "ip address")
                self.is_not_started(self.start(HEDDLE_ADDR=",".join(addresses)), 64, ",".join(addresses), "ip address")

    def test_no_program_with_one_address_that_is_to_use_two(self):
        self.is_not_started(self.start("--stripe"), 64, "--stripe needs two addresses")
        self.is_not_started(self.start("--stripe", "--addr", self.own_address()), 64, "--stripe needs two addresses")
        self.is_not_started(self.start("--stripe", "--addr", self.own_address(), "--addr", "::1"), 64, "--stripe needs two addresses of one kind")

    def test_no_program_with_an_address_that_cannot_be_had(self):
        address = self.own_address()
        self.is_not_started(self.start("--addr", "198.51.100.7"), 1, "198.51.100.7", "no address of this machine")
        self.is_not_started(self.start("--addr", address, "--addr", "198.51.100.7"), 1, "198.51.100.7")
        with self.program(HEDDLE_ADDR=address, HEDDLE_NODE="first"):
            self.is_not_started(self.start("--node", "second", "--addr", address), 1, address, "'first'")
            self.starts(self.start("--node", "first", "--addr", address))
        self.starts(self.start("--addr", address))

    def test_no_program_with_a_capture_that_cannot_be_written(self):
        text = self.base / "text"
        text.write_text("precious")
        for path, why in (("/nonexistent/x", "No such file"), (text, "no capture"), (self.base, "Is a directory")):
            with self.subTest(path=path):
                self.is_not_started(self.start("--capture", path), 1, str(path), why)
                self.is_not_started(self.start(HEDDLE_CAPTURE=str(path)), 1, str(path), why)
        self.assertEqual(text.read_text(), "precious")
        capture = self.base / "capture"
        self.works(self.on_wire(HEDDLE_CAPTURE=str(capture)))
        before = capture.read_bytes()
        self.starts(self.start(HEDDLE_CAPTURE=str(capture)))
        self.assertEqual(capture.read_bytes(), before)  # it is added to
        self.starts(self.start("--capture", capture))
        self.assertEqual(capture.read_bytes(), b"")

    def test_name_of_a_node_that_is_too_long(self):
        name = "n" * 63
        self.works(self.on_wire(HEDDLE_NODE=name))
        self.starts(self.start("--node", name))
        self.fails(self.on_wire(HEDDLE_NODE=name + "x"), "64 bytes", "63", "HEDDLE_NODE")
        self.is_not_started(self.start("--node", name + "x"), 64, "64 bytes", "63", "--node")

    def test_settings_that_mean_nothing(self):
        for name, known, unknown in (("HEDDLE_LOCAL", ("on", "off", ""), ("OFF", "0", "no", "offf")), ("HEDDLE_STRIPE", ("on", "off", ""), ("yes", "2")), ("HEDDLE_COPY", ("lane", ""), ("Lane", "direct")),
                                     ("HEDDLE_FAST", ("on", "off", ""), ("Off", "no")),
                                     ("HEDDLE_MPA", ("no-crc", "markers", "revision-1", "client-server", ""), ("crc", "no-crc,", ",", "no-cr"))):
            for value in known:
                with self.subTest(name=name, value=value):
                    self.starts(self.start(**{name: value}))
                    self.works(self.on_wire(**{name: value}))
            for value in unknown:
                with self.subTest(name=name, value=value):
                    words = (name, f"'{value}'", *(f"'{word}'" for word in known if word))
                    self.is_not_started(self.start(**{name: value}), 64, *words)
                    self.fails(self.on_wire(**{name: value}), *words)

    def test_level_of_the_log_that_means_nothing(self):
        """It is no reason not to work, but is said."""
        done = self.on_wire(HEDDLE_LOG="verbose")
        self.works(done)
        self.assertEqual(done.stderr.count("HEDDLE_LOG"), 1)
        for word in ("'verbose'", "'error'", "'warn'", "'info'", "'debug'"):
            self.assertIn(word, done.stderr)

    # --- who is at the socket ---

    def test_agent_of_another_version(self):
        for answer in (HEADER.pack(99, WELCOME) + bytes(MESSAGE_BYTES), HEADER.pack(99, WELCOME) + bytes(4),
                       HEADER.pack(1, 77), b"hm"):
            with self.subTest(answer=answer[:8]), self.listening(answer):
                self.fails(devices(self.dir), "another version", "HEDDLE_DIR")
            (self.dir / "agent.sock").unlink()

    def test_status_says_which_directory_and_which_version(self):
        def status():
            return subprocess.run([BUILD / "heddle", "status"], env=environment(HEDDLE_DIR=str(self.dir)), capture_output=True, text=True, timeout=60)
        self.assertEqual(status().stdout, f"No program uses Heddle now. (Directory of the node agent: {self.dir})\n")
        with self.listening(HEADER.pack(99, WELCOME) + bytes(4)):
            done = status()
            self.fails(done, f"the node agent of {self.dir} is of another version of Heddle", "HEDDLE_DIR")
            self.assertNotIn("errno", done.stderr)
            self.assertNotIn("which was logged", done.stderr)
        (self.dir / "agent.sock").unlink()
        with self.listening(HEADER.pack(99, REFUSED) + struct.pack("=i", 71) + b"come back tomorrow".ljust(128, b"\0")):
            self.fails(status(), "come back tomorrow", str(self.dir))
        (self.dir / "agent.sock").unlink()
        self.dir.chmod(0o755)
        self.fails(status(), f"{self.dir}: ", "chmod 700")

    def test_agent_of_another_version_says_why(self):
        why = b"come back tomorrow"
        answer = HEADER.pack(99, REFUSED) + struct.pack("=i", 1) + why.ljust(1024, b"\0")
        with self.listening(answer[:HEADER.size + 4 + 128]):
            self.fails(devices(self.dir), "refused", "come back tomorrow")

    def test_program_of_another_version(self):
        self.works(devices(self.dir))
        other = b"another version of Heddle"
        for message, why in ((HEADER.pack(99, HELLO) + bytes(500), other), (HEADER.pack(99, OBSERVE), other), (b"x", other),
                             (HEADER.pack(VERSION, 4711), b"malformed")):
            with self.subTest(message=message[:8]), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.connect(str(self.dir / "agent.sock"))
                sock.send(message)
                sock.settimeout(60)
                answer = sock.recv(4096)
                self.assertEqual(HEADER.unpack_from(answer)[1], REFUSED)
                self.assertIn(why, answer)
                self.assertEqual(sock.recv(4096), b"")
        self.works(devices(self.dir))

    def test_somebody_who_only_connects_does_not_stop_it(self):
        self.works(devices(self.dir))
        idle = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(200)]
        for sock in idle:
            sock.connect(str(self.dir / "agent.sock"))
        self.works(devices(self.dir))
        for sock in idle:
            sock.close()

    # --- who does not read what it is told ---

    @contextlib.contextmanager
    def observer(self):
        """Somebody who asks who is there, and his question."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(self.dir / "agent.sock"))
            sock.settimeout(60)
            yield sock, HEADER.pack(VERSION, OBSERVE)

    def test_who_reads_late_hears_everything(self):
        """More than the socket holds, in order, with the descriptors; and the agent keeps none of them."""
        def file_count():
            return len(os.listdir(f"/proc/{agent_pid(self.dir)}/fd"))
        with self.program(), self.observer() as (sock, question):
            sock.send(question)
            for kind in (PROCESS, END):
                self.assertEqual(HEADER.unpack_from(self.hear(sock, kind == PROCESS))[1], kind)
            before = file_count()
            for _ in range(400):
                sock.send(question)
            for turn in range(400):
                for kind in (PROCESS, END):
                    self.assertEqual(HEADER.unpack_from(self.hear(sock, kind == PROCESS))[1], kind, turn)
            for _ in range(6000):
                if file_count() == before:
                    break
                time.sleep(0.01)
            self.assertEqual(file_count(), before)

    def hear(self, sock, with_file):
        message, files, _, _ = socket.recv_fds(sock, MESSAGE_BYTES, 4)
        for file in files:
            os.close(file)
        self.assertEqual(len(files), with_file)
        return message

    def test_who_never_reads_is_left_alone(self):
        self.works(devices(self.dir))
        pid = agent_pid(self.dir)
        with self.observer() as (sock, question):
            asked = 0
            with contextlib.suppress(ConnectionError):
                while asked < 2 * MAX_QUEUED:
                    sock.send(question)
                    asked += 1
            self.assertGreater(asked, MAX_QUEUED)
            self.assertLess(asked, 2 * MAX_QUEUED, "everything is kept")
            self.works(devices(self.dir))
        self.assertEqual(agent_pid(self.dir), pid)

    def test_agent_out_of_descriptors(self):
        """It turns newcomers away, does not spin, and works again when there is room."""
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        ready, told = os.pipe()
        agent = subprocess.Popen([BUILD / "heddled", "--foreground", "--ready-fd", str(told)],
                                 env=environment(HEDDLE_DIR=str(self.dir)), pass_fds=[told], preexec_fn=few)
        os.close(told)
        self.assertEqual(os.read(ready, 1), b"")  # it listens: who comes does not start another one
        os.close(ready)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        self.works(devices(self.dir))
        held = []
        for _ in range(60):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(str(self.dir / "agent.sock"))
            held.append(sock)
        self.assertTrue(any(select.select(held, [], [], 60)[0]), "nobody was turned away")

        def ticks():
            with open(f"/proc/{agent.pid}/stat") as stat:
                return sum(map(int, stat.read().rsplit(") ", 1)[1].split()[11:13]))
        before = ticks()
        self.fails(devices(self.dir), "keeps exiting")
        self.assertLess(ticks() - before, 50)
        # Room for one more, and none for what it brings along.
        crowd = len(os.listdir(f"/proc/{agent.pid}/fd"))
        turned_away = select.select(held, [], [], 0)[0]
        next(sock for sock in held if sock not in turned_away).close()
        for _ in range(1000):
            if len(os.listdir(f"/proc/{agent.pid}/fd")) < crowd:
                break
            time.sleep(0.01)
        self.fails(devices(self.dir), "refused", "ulimit -n")
        for sock in held:
            sock.close()
        for _ in range(6000):
            if len(os.listdir(f"/proc/{agent.pid}/fd")) < 20:
                break
            time.sleep(0.01)
        self.works(devices(self.dir))

    def as_nobody(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        os.chmod(self.base, 0o711)
        os.chown(self.dir, NOBODY, NOBODY)
        reach = subprocess.run(["test", "-x", BUILD / "heddle"], user=NOBODY, group=NOBODY, extra_groups=[])
        if reach.returncode != 0:
            self.skipTest("another user cannot reach the build")
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def test_process_of_another_user_at_the_socket(self):
        nobody = self.as_nobody()
        with self.listening(HEADER.pack(VERSION, WELCOME) + bytes(MESSAGE_BYTES)):
            os.chmod(self.dir / "agent.sock", 0o666)
            self.fails(devices(self.dir, **nobody), "another user (0)", "HEDDLE_DIR")

    def test_another_user_who_connects_is_turned_away(self):
        nobody = self.as_nobody()
        self.works(devices(self.dir, **nobody))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(self.dir / "agent.sock"))  # root may enter
            sock.settimeout(60)
            with contextlib.suppress(ConnectionError):
                sock.send(HEADER.pack(VERSION, OBSERVE) + bytes(MESSAGE_BYTES))
                self.assertEqual(sock.recv(4096), b"")
        self.works(devices(self.dir, **nobody))

    # --- where it is ---

    def test_no_runtime_directory(self):
        """Without XDG_RUNTIME_DIR, or with one that cannot be used: /tmp/heddle-UID, which is ours and closed."""
        home = pathlib.Path(f"/tmp/heddle-{os.geteuid()}")
        for env in ({}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "relative"},
                    {"XDG_RUNTIME_DIR": str(self.base / "missing")}):
            with self.subTest(env=env):
                self.works(devices(env=env))
                self.assertEqual(home.lstat().st_mode & 0o7777, 0o700)
                self.assertEqual(home.lstat().st_uid, os.geteuid())

    def test_runtime_directory(self):
        self.works(devices(env={"XDG_RUNTIME_DIR": str(self.base)}))
        self.assertTrue((self.base / "heddle" / "agent.sock").is_socket())
        end_agent(self.base / "heddle")

    def test_directory_that_is_open_to_others(self):
        for mode in (0o755, 0o770, 0o701, 0o777):
            self.dir.chmod(mode)
            self.fails(devices(self.dir), "chmod 700", "HEDDLE_DIR")

    def test_directory_of_ones_own_without_rights(self):
        """Nobody else has to do with it, and the message does not say so."""
        nobody = self.as_nobody() if os.geteuid() == 0 else {}
        for mode in (0o500, 0o300, 0o000):
            self.dir.chmod(mode)
            done = devices(self.dir, **nobody)
            self.dir.chmod(0o700)
            self.fails(done, "chmod 700", "HEDDLE_DIR")
            self.assertNotIn("another user", done.stderr)
            self.assertNotIn("open to others", done.stderr)

    def test_relative_directory(self):
        """Programs in different directories would not mean the same one."""
        for name in ("d", "./d", "d/../d"):
            done = devices(env={"HEDDLE_DIR": name}, cwd=self.base)
            self.fails(done, f"{name}: ", "absolute", "HEDDLE_DIR")
            self.assertEqual(os.listdir(self.dir), [])
            done = subprocess.run([BUILD / "heddle", "status"], env=environment(HEDDLE_DIR=name), cwd=self.base, capture_output=True, text=True, timeout=60)
            self.fails(done, f"{name}: ", "absolute")
        self.works(devices(env={"HEDDLE_DIR": ""}, cwd=self.base))  # as if it were not set

    def test_user_namespace_of_its_own(self):
        """There a user has another number, root's for example. The directory that root would use is not taken."""
        who = self.as_nobody() if os.geteuid() == 0 else {}
        user = who.get("user", os.geteuid())
        if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, **who).returncode != 0:
            self.skipTest("no user namespaces here")
        root, ours = pathlib.Path("/tmp/heddle-0"), pathlib.Path(f"/tmp/heddle-{user}-0")
        before = root.exists()
        done = subprocess.run(["unshare", "-Ur", BUILD / "heddle", "devices"], env=environment(), capture_output=True, text=True, timeout=60, **who)
        self.works(done)
        self.assertNotIn("another user", done.stderr)
        self.assertEqual((ours.lstat().st_uid, ours.lstat().st_mode & 0o7777), (user, 0o700))
        self.assertEqual(root.exists(), before)
        end_agent(ours)
        shutil.rmtree(ours)

    def test_directory_that_is_a_link(self):
        """The trap in /tmp: a link that somebody else put where ours would be."""
        link = self.base / "link"
        link.symlink_to(self.dir)
        self.fails(devices(link), "symbolic link", "HEDDLE_DIR")
        self.assertEqual(os.listdir(self.dir), [])

    def test_directory_of_another_user(self):
        nobody = self.as_nobody()
        os.chown(self.dir, 0, 0)
        self.fails(devices(self.dir, **nobody), "another user", "HEDDLE_DIR")

    @unittest.skipIf(os.geteuid() != 0, "only the administrator can give directories to others")
    def test_places_that_another_user_has_taken(self):
        """/tmp/heddle-UID was made by somebody else: all programs meet at the next place, also when he gives it back, and say so. Where he has
        taken all, the advice can be followed."""
        if any(str(BUILD).startswith(place + "/") for place in ("/tmp", "/dev/shm", "/var/tmp", "/run")):
            self.skipTest("the build is where these places are")
        script = """
            set -e
            for place in /tmp /dev/shm /var/tmp; do mount -t tmpfs -o mode=1777 none $place; done
            mount -t tmpfs -o mode=755 none /run
            taken() { mkdir -m 700 "$1" && chown 65534 "$1"; }
            user() { setpriv --reuid 4242 --regid 4242 --clear-groups "$@"; }
            taken /tmp/heddle-4242
            touch /tmp/server.txt
            setpriv --reuid 4242 --regid 4242 --clear-groups "$1" perf --server --node there > /tmp/server.txt 2>&1 & server=$!
            trap 'kill $server 2>/dev/null || true' EXIT
            for i in $(seq 300); do grep -q Waiting /tmp/server.txt && break; sleep 0.1; done
            user "$1" devices
            rmdir /tmp/heddle-4242
            user "$1" perf --client there --node here -o send -L -n 100
            taken /tmp/heddle-4242
            kill $server
            rm -rf /dev/shm/heddle-4242
            taken /dev/shm/heddle-4242; taken /var/tmp/heddle-4242
            echo all are taken
            user "$1" devices || echo status $?
            HEDDLE_DIR=$(user mktemp -d) user "$1" devices
            echo done
            """
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", BUILD / "heddle"], env=environment(), capture_output=True, text=True, timeout=100)
        if "Permission denied" in done.stderr and "setpriv" in done.stderr:
            self.skipTest("another user cannot reach the build")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("/tmp/heddle-4242 belongs to another user; your programs use /dev/shm/heddle-4242 instead", done.stderr)
        first, second = done.stdout.split("all are taken\n")
        self.assertIn("heddle0", first)
        self.assertIn("latency", first.lower())
        self.assertIn("status 1", second)
        self.assertIn("mktemp -d", done.stderr)
        self.assertNotIn("remove it", done.stderr)
        self.assertTrue(second.endswith("done\n") and "heddle0" in second, second)

    def test_lock_that_is_a_link(self):
        victim = self.base / "victim"
        victim.write_text("precious")
        (self.dir / "agent.lock").symlink_to(victim)
        self.fails(devices(self.dir), "HEDDLE_DIR")
        self.assertEqual(victim.read_text(), "precious")

    def test_command_by_a_link_and_by_name(self):
        """The agent lies beside the command, however that was called."""
        link = self.base / "bin" / "heddle"
        link.parent.mkdir()
        link.symlink_to(BUILD / "heddle")
        env = environment(HEDDLE_DIR=str(self.dir), PATH=f"{link.parent}:{os.environ['PATH']}")
        del env["HEDDLE_AGENT"]
        for command, place in ((str(link), "/"), ("./heddle", link.parent), ("heddle", "/")):
            with self.subTest(command):
                self.works(subprocess.run([command, "devices"], env=env, cwd=place, capture_output=True, text=True, timeout=60))
                end_agent(self.dir)

    def test_missing_parent(self):
        self.fails(devices(self.base / "no" / "such"), "No such file", "HEDDLE_DIR")

    def test_path_too_long_for_a_socket(self):
        self.fails(devices(self.base / ("x" * 120)), "shorter")

    def test_file_in_place_of_the_directory(self):
        (self.base / "file").write_text("")
        self.fails(devices(self.base / "file"), "not a directory", "HEDDLE_DIR")

    # --- file systems ---

    def in_mount(self, options, script):
        """Run shell @script, with $D a tmpfs mounted with @options, in a mount namespace of its own."""
        place = self.base / "mount"
        place.mkdir()
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", place], capture_output=True).returncode:
            self.skipTest("no mount namespaces here (unshare -rm)")
        env = environment(D=str(place), HEDDLE_DIR=f"{place}/heddle", HEDDLE=str(BUILD / "heddle"))
        return subprocess.run(["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o {options} none $D && {script}"],
                              env=env, capture_output=True, text=True, timeout=60)

    def test_full_disk_without_a_place_for_the_directory(self):
        self.fails(self.in_mount("nr_inodes=1", "$HEDDLE devices"), "full", "HEDDLE_DIR")

    def test_full_disk_without_a_place_for_the_socket(self):
        # the root, the directory, the lock: nothing is left for the socket
        self.fails(self.in_mount("nr_inodes=3", "$HEDDLE devices"), "full", "HEDDLE_DIR")

    def test_full_disk_without_a_place_for_bytes(self):
        """The lock cannot say its process id; that is no reason not to work."""
        done = self.in_mount("size=8k", "mkdir -m 700 $D/heddle; dd if=/dev/zero of=$D/ballast 2>/dev/null; "
                             "$HEDDLE devices && test ! -s $D/heddle/agent.lock")
        self.works(done)

    def test_read_only_file_system(self):
        done = self.in_mount("mode=700", "mount -o remount,bind,ro $D; $HEDDLE devices")
        self.fails(done, "Read-only file system", "HEDDLE_DIR")

    def test_read_only_directory_of_our_own(self):
        done = self.in_mount("mode=700", "mkdir -m 700 $D/heddle; mount -o remount,bind,ro $D; $HEDDLE devices")
        self.fails(done, "Read-only file system", "HEDDLE_DIR")

    # --- limits ---

    def test_limit_on_the_length_of_files(self):
        def little():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        self.fails(devices(self.dir, preexec_fn=little), "ulimit -f")

    def test_limit_on_open_files(self):
        for count in range(3, 14):
            def few():
                resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
            done = devices(self.dir, preexec_fn=few)
            self.assertIn(done.returncode, (0, 1, 127), (count, done.stderr))
            self.assertNotEqual(done.stdout + done.stderr, "", count)
            if done.returncode == 1:
                self.assertIn("ulimit -n", done.stderr, count)

    def test_limit_on_address_space(self):
        """However little there is, it works or says what to do."""
        self.works(devices(self.dir))
        for mega in range(12, 44):
            def little():
                resource.setrlimit(resource.RLIMIT_AS, (mega << 20, mega << 20))
            done = devices(self.dir, preexec_fn=little)
            if done.returncode == 127:
                continue  # not enough for the command itself
            self.assertIn(done.returncode, (0, 1), (mega, done.stderr))
            if done.returncode == 1:
                self.assertIn("ulimit -v", done.stderr, mega)


if __name__ == "__main__":
    unittest.main()
