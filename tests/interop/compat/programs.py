#!/usr/bin/python3
"""Unmodified programs of Debian on our libibverbs.so.1: do they start, find the device and say what they should?

  programs.py FOLDER devices     ibv_devices and ibv_devinfo -v
  programs.py FOLDER starts      programs that link libmlx5, libefa and librdmacm beside libibverbs; ucx_info
  programs.py FOLDER ucx         ucx_perftest with itself, over each transport
  programs.py FOLDER pingpong    the examples of libibverbs, two processes
  programs.py FOLDER perftest    perftest, two processes
  programs.py FOLDER lane        perftest where no process reaches the memory of another
  programs.py FOLDER rdmacm      programs on librdmacm, two processes
  programs.py FOLDER connections those of them that connect and disconnect in the first place
  programs.py FOLDER names       those that look up a host find a node by its name
  programs.py FOLDER multicast   programs that send to groups, on both devices
  programs.py FOLDER infiniband  programs that address by LID, on heddle_ib0
  programs.py FOLDER iwarp       programs of librdmacm that know iWARP, on heddle_iw0: a few
  programs.py FOLDER iwarp-all   all of them, and qperf
  programs.py FOLDER ucx-pair    ucx_perftest, two processes
  programs.py FOLDER sample      some rows of each of these
  programs.py FOLDER asyncwatch  ibv_asyncwatch is told when the node agent has died and another one took over
  programs.py FOLDER pyverbs     rdma-core's own tests, as python3-pyverbs brings them

  programs.py FOLDER ... wire    the same over UDP in place of the same-host path, both programs on one node
  programs.py FOLDER ... nodes   the same, each program on a node of its own
  programs.py FOLDER ... hosts   the same, each program in a network of its own with an address and an agent; for the administrator
  programs.py FOLDER ... iwarp   the same on heddle_iw0, before one of these: over TCP then

FOLDER holds the library, and the command and the node agent, without which two processes do not meet. A missing program is a skip (exit 77) that says so."""
import atexit
import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "capture"))
from capture import negotiated  # noqa: E402
SKIP = 77
PYVERBS_TESTS = Path("/usr/share/doc/rdma-core/tests")
PYVERBS_PASS = 97  # at least so many of them pass; the others need hardware of somebody's
PYVERBS_CM_PASS = 10
# Seconds that a program may take for what is a matter of moments. Two programs that look at memory without a pause use up what a busy machine gives them, and the
# adapter's thread then waits for the scheduler with each message: tens of milliseconds.
PATIENCE = 150
BEFORE = []  # words before every program of a pair
OPTIONS = []  # of heddle run, for every program
SERVER_OPTIONS = []  # of heddle run, for servers alone
NODES = [f"programs-{os.getpid()}"] * 2  # of the server, of the client; None: the one that nobody named
HOSTS = []  # of the server, of the client: network namespace, address, folder of the agent


# A network loses what finds no room, and these programs wait for ever for what an unreliable service lost: a few short messages.
GENTLE = ["-n", "48", "-s", "1024"]


def over_wire(nodes):
    """From here on nothing takes the same-host path."""
    os.environ["HEDDLE_LOCAL"] = "off"
    if nodes:
        NODES[1] += "-client"


def command(*words):
    return subprocess.run(words, capture_output=True, text=True).returncode == 0


def over_namespaces():
    """From here on each side is on a machine of its own, as far as it can see."""
    spaces = [f"heddle{side}-{os.getpid()}" for side in "ab"]
    scratch = tempfile.mkdtemp()
    atexit.register(lambda: ([command("ip", "netns", "del", space) for space in spaces], shutil.rmtree(scratch, True)))
    made = shutil.which("ip") and all(command("ip", "netns", "add", space) for space in spaces) and \
        command("ip", "link", "add", "ha", "netns", spaces[0], "type", "veth", "peer", "name", "hb", "netns", spaces[1])
    for space, link, address in zip(spaces, ("ha", "hb"), ("10.72.0.1", "10.72.0.2")):
        made = made and command("ip", "-n", space, "addr", "add", f"{address}/24", "dev", link) and \
            command("ip", "-n", space, "link", "set", link, "mtu", "9000", "up") and command("ip", "-n", space, "link", "set", "lo", "up")
        HOSTS.append((space, address, os.path.join(scratch, space)))
        os.mkdir(HOSTS[-1][2], 0o700)
    if not made:
        print("skipped: no network namespaces can be made")
        sys.exit(SKIP)
    # The links come up in their own time.
    if not all(command("ip", "netns", "exec", space, "timeout", "20", "sh", "-c",
                       f"until grep -qx up /sys/class/net/{link}/operstate; do sleep 0.05; done") for space, link in zip(spaces, ("ha", "hb"))):
        sys.exit("FAILED: the links between the two networks come up")


def starts_on(folder, client, *options):
    """The words that start a server or a @client on its node."""
    options = [*OPTIONS, *options, *([] if client else SERVER_OPTIONS)]
    if HOSTS:
        space, address, directory = HOSTS[client]
        return ["ip", "netns", "exec", space, "env", f"HEDDLE_DIR={directory}", os.path.join(folder, "heddle"), "run", "--addr", address,
                *options, "--", *BEFORE]
    node = ["--node", NODES[client]] if NODES[client] else []
    return [os.path.join(folder, "heddle"), "run", *node, *options, "--", *BEFORE]


def at_server(folder, words):
    """@words with the address of the server's node where they name this host's: between nodes that is another one."""
    if HOSTS:
        return [HOSTS[0][1] if word in ("127.0.0.1", "localhost") else word for word in words]
    if NODES[0] == NODES[1] or not {"127.0.0.1", "::1"} & set(words):
        return words
    code, out, err = run(folder, os.path.join(folder, "heddle"), "devices", "--node", NODES[0])
    found = {"127.0.0.1": re.search(r"127\.72\.\d+\.\d+", out)[0], "::1": re.search(r"fe80:\S+", out)[0]}
    return [found.get(word, word) for word in words]


def run(folder, *command, **options):
    if shutil.which(command[0]) is None:
        print(f"skipped: {command[0]} is not installed")
        sys.exit(SKIP)
    env = dict(os.environ, LD_LIBRARY_PATH=folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, **options)
    return done.returncode, done.stdout, done.stderr


def expect(what, condition, *output):
    if not condition:
        sys.exit("\n".join([f"FAILED: {what}", *output]))
    print(f"ok: {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port, pid="self"):
    """Is somebody listening, where @pid is? Without connecting: the programs take one connection only."""
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:  # no such family, or it has gone
            continue
        for words in map(str.split, lines):
            if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def pair(folder, what, server, client, *options):
    """Run @server and, once it listens, @client; PORT stands for a free port. Both must end well. @options are those of heddle run."""
    if not os.path.exists(os.path.join(folder, "heddled")):
        print("skipped: there is no node agent")
        sys.exit(SKIP)
    if shutil.which(server[0]) is None:
        print(f"skipped: {server[0]} is not installed")
        sys.exit(SKIP)
    port = free_port()
    client = at_server(folder, client)
    server, client = ([*starts_on(folder, side, *options), *(str(port) if word == "PORT" else word for word in words)]
                      for side, words in enumerate((server, client)))
    with tempfile.TemporaryFile("w+") as output:
        first = subprocess.Popen(server, stdout=output, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + PATIENCE
            while not listens(port, first.pid) and first.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            done = subprocess.run(client, capture_output=True, text=True, timeout=PATIENCE)
            code = first.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            done, code = None, None
        finally:
            if first.poll() is None:
                first.kill()
                first.wait()
        output.seek(0)
        expect(what, done is not None and done.returncode == 0 and code == 0,
               "client:", *((done.stdout, done.stderr) if done else ("timed out",)), "server:", output.read())


def ended_late(done, client):
    """Did rping's @client do all its rounds, and then find the channel gone that another of its threads has closed? Its thread for events
    ends the program so. Only a client that says what it does (-v) shows that this was its end."""
    if "rping" not in client or done.returncode != 255 or "rdma_get_cm_event: Bad file descriptor" not in done.stderr:
        return False
    return done.stdout.count("ping data") == int(client[client.index("-C") + 1])


def start_server(words, output):
    """Start what says in @output when it listens by rdma_cm: nothing else outside shows it."""
    return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ, HEDDLE_LOG="info"))


def await_listener(server, output):
    """Wait until @server listens, or has ended."""
    end = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < end and b"listening on port" not in os.pread(output.fileno(), 1 << 20, 0):
        time.sleep(0.01)


def finish(process, ends=True):
    """The code with which @process ends, None when it does not in time; one that does not end by itself is ended."""
    try:
        return process.wait(timeout=PATIENCE) if ends else 0
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()


def run_client(words):
    """Run @words to the end; the code is None when that does not come in time."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(words, None, str(late.stdout), str(late.stderr))


def connect_pair(folder, what, server, client, *options, ends=True, shows=True):
    """Run @server and, once it listens, @client, which meet through librdmacm. A server that does not listen in the sense of rdma_cm does not
    show it (@shows): a client that fails is started again for a while. A server that does not end by itself (@ends) is ended."""
    if not os.path.exists(os.path.join(folder, "heddled")):
        print("skipped: there is no node agent")
        sys.exit(SKIP)
    if shutil.which(client[0]) is None:
        print(f"skipped: {client[0]} is not installed")
        sys.exit(SKIP)
    server, client = (at_server(folder, words) for words in (server, client))
    tries, again = [], time.monotonic() + PATIENCE / 2
    with tempfile.TemporaryFile("w+") as output:
        first = start_server([*starts_on(folder, False, *options), *server], output)
        try:
            if shows:
                await_listener(first, output)
            while True:
                done = run_client([*starts_on(folder, True, *options), *client])
                tries += [f"client, which ended with {done.returncode}:", done.stdout, done.stderr]
                if done.returncode == 0 or shows or first.poll() is not None or time.monotonic() > again:
                    break
                time.sleep(0.2)
        finally:
            code = finish(first, ends)
        output.seek(0)
        # rping's server ends as its client may (ended_late()), at a time of which it says nothing.
        good, said = (0, 255) if server[0] == "rping" else (0,), output.read()
        expect(what, (done.returncode == 0 or ended_late(done, client)) and code in good and "completion failed" not in said, *tries,
               f"server, which ended with {code}:", said)


def refused(folder):
    done = run_client([*starts_on(folder, True), "rping", "-c", "-a", "127.0.0.1", "-C", "1"])
    reason = "REJECTED, error" if OPTIONS else "REJECTED, error 8"  # of iWARP an errno, where a peer refused
    expect("rping where nobody listens is refused", reason in done.stdout + done.stderr, str(done))


RDMACM = """
rping -C 10 -v | -s | -c -a 127.0.0.1
rping -C 10 -S 4000 -V -v | -s -a ::1 | -c -a ::1
ucmatose | | -s 127.0.0.1
ucmatose -c 20 -C 50 -S 4000 | | -s 127.0.0.1
ucmatose -m | | -s ::1
udaddy -c 5 | | -s 127.0.0.1
rstream -S 1000 -C 100 | | -s 127.0.0.1
rstream -S 300000 -C 20 | | -s ::1
riostream -S 1000 -C 100 | | -s 127.0.0.1
ib_send_lat -R -n 200 | | 127.0.0.1
ib_write_bw -R -n 200 | | 127.0.0.1
ib_read_bw -R -n 200 -q 4 | | 127.0.0.1
ib_send_bw -R -n 200 -c UD | | 127.0.0.1
ib_send_bw -R -n 200 -b -e | | 127.0.0.1
ib_write_lat -R -n 200 | | 127.0.0.1
ib_read_lat -R -n 200 | | 127.0.0.1
ib_atomic_bw -R -n 200 -q 4 | | 127.0.0.1
"""


def five_at_once(folder):
    """Five clients that start together, at a server with a backlog of three."""
    client = at_server(folder, ["rping", "-c", "-v", "-a", "127.0.0.1", "-C", "10"])
    for _ in range(3):
        with tempfile.TemporaryFile("w+") as output, ThreadPoolExecutor(5) as pool:
            server = start_server([*starts_on(folder, False), "rping", "-s", "-P"], output)
            try:
                await_listener(server, output)
                done = list(pool.map(run_client, [[*starts_on(folder, True), *client]] * 5))
            finally:
                finish(server, ends=False)
            output.seek(0)
            expect("rping -s -P with five clients at once", all(one.returncode == 0 or ended_late(one, client) for one in done),
                   *map(str, done), output.read())


def across_nodes(folder):
    """Every node has an IPv4 address of its own; what it is, heddle devices tells."""
    before = NODES[:]
    NODES[:] = f"there-{os.getpid()}", f"here-{os.getpid()}"
    for device in ("heddle0", "heddle_ib0"):
        connect_pair(folder, f"rping from one node to another on {device}", ["rping", "-s", "-C", "3"],
                     ["rping", "-c", "-v", "-a", "127.0.0.1", "-C", "3"], "--device", device)
    NODES[:] = before


def names(folder):
    """A program that looks up a host by the name of a node finds that node: the client's own addresses lead elsewhere."""
    NODES[:] = f"there-{os.getpid()}", f"here-{os.getpid()}"
    for server, client in ((["rping", "-s", "-C", "3"], ["rping", "-c", "-v", "-C", "3", "-a"]), (["ucmatose"], ["ucmatose", "-s"])):
        connect_pair(folder, f"{client[0]} finds its server by the name of a node", server, [*client, NODES[0]])
    address = f"127.0.{os.getpid() % 200 + 2}.1"
    SERVER_OPTIONS[:] = ["--addr", address]
    connect_pair(folder, "rping finds the address of a node, and its own has none", ["rping", "-s", "-C", "3"], ["rping", "-c", "-v", "-C", "3", "-a", address])
    SERVER_OPTIONS.clear()
    bandwidth = ["ib_write_bw", "-n", "200", "-p", "PORT"]
    pair(folder, "so does ib_write_bw", bandwidth, [*bandwidth, NODES[0]])


def rdmacm_rows(folder, lines):
    for line in lines:
        both, server, client = (part.split() for part in line.split("|"))
        connect_pair(folder, line, [*both, *server], [*both, *client])


def rdmacm(folder):
    rdmacm_rows(folder, RDMACM.strip().split("\n"))
    connect_pair(folder, "rdma_server, rdma_client", ["rdma_server"], ["rdma_client", "-s", "127.0.0.1"])
    for kind in "rx":
        connect_pair(folder, f"rdma_xserver, rdma_xclient -c {kind}", ["rdma_xserver", "-c", kind],
                     ["rdma_xclient", "-c", kind, "-s", "127.0.0.1"])
    many = ["cmtime", "-c", "600", "-s", "127.0.0.1"]  # more at once than a socket has room for messages
    connect_pair(folder, " ".join(many), ["cmtime"], many, ends=False)
    five_at_once(folder)
    across_nodes(folder)
    refused(folder)


def killed(folder):
    """Whoever is killed is disconnected: rping's server ends when its client is no longer there."""
    words = [*starts_on(folder, True), *at_server(folder, ["rping", "-c", "-v", "-C", "1000000", "-a", "127.0.0.1"])]
    with tempfile.TemporaryFile("w+") as output:
        server = start_server([*starts_on(folder, False), "rping", "-s", "-v"], output)
        await_listener(server, output)
        client = subprocess.Popen(["stdbuf", "-oL", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = client.stdout.readline()
        client.kill()
        client.wait()
        code = finish(server)
        output.seek(0)
        expect("rping -s is told when its client was killed", "ping data" in said and code is not None, said, str(code), output.read()[-2000:])


def connections(folder):
    """What rdma_cm does, without much traffic: a connection, many of them, datagrams, addresses of the other family, a refusal."""
    rdmacm_rows(folder, [line for line in RDMACM.strip().split("\n") if line.startswith(("rping", "ucmatose", "udaddy"))])
    refused(folder)
    killed(folder)
    if not HOSTS:
        own_addresses(folder)


def host_address():
    """Of an interface that is not the loopback; None: there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))  # sends nothing
        except OSError:
            return None
        return probe.getsockname()[0]


def own_addresses(folder):
    """On the node that nobody named, the addresses of the host stand for it; with an address of its own, those of the loopback do."""
    NODES[:] = None, None
    host = host_address()
    rows = [("127.0.0.1", []), ("::1", [])] + [(host, []), ("127.0.0.1", ["--addr", host])] * bool(host)
    for address, options in rows:
        with tempfile.TemporaryDirectory() as alone:  # a node has one address, and others may use this one
            os.environ["HEDDLE_DIR"] = alone
            connect_pair(folder, " ".join([*options, "rping", address]), ["rping", "-s", "-a", address, "-C", "3"],
                         ["rping", "-v", "-c", "-a", address, "-C", "3"], *options)
    del os.environ["HEDDLE_DIR"]


# For programs that know iWARP: both | server | client. With -e an odd number of messages, for which perftest posts one receive more:
# else its client may wait for a credit that the server writes to its memory, and sleep until a completion that is not to come.
IWARP = """
rping -C 20 -V -S 30000|-s|-c -a 127.0.0.1
ucmatose -c 10 -C 20||-s 127.0.0.1
ucmatose -c 3 -C 5 -S 100000||-s 127.0.0.1
rstream -S 64 -C 100 -I 10||-s 127.0.0.1
rstream -S 300000 -C 5 -I 4||-s 127.0.0.1
ib_send_lat -R -n 100||127.0.0.1
ib_write_lat -R -n 100||127.0.0.1
ib_read_lat -R -n 100||127.0.0.1
ib_atomic_lat -R -n 100||127.0.0.1
ib_send_bw -R -n 200 -s 8||127.0.0.1
ib_send_bw -R -n 50 -s 1048576 -b||127.0.0.1
ib_write_bw -R -n 200 -q 8||127.0.0.1
ib_write_bw -R -n 5 -a||127.0.0.1
ib_read_bw -R -n 100 -s 300000||127.0.0.1
ib_send_bw -R -n 201 -e||127.0.0.1
"""


# The short run: what connects, what streams, and each operation once.
IWARP_FEW = ("rping", "ucmatose -c 10", "rstream -S 300000", "ib_send_lat", "ib_read_bw", "ib_write_bw -R -n 200", "ib_atomic_lat")
QPERF_IWARP = "rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat".split()


def iwarp(folder, few=True):
    on_iwarp()
    for line in IWARP.strip().split("\n"):
        both, server, client = (part.split() for part in line.split("|"))
        if not few or line.startswith(IWARP_FEW):
            connect_pair(folder, f"{line} on heddle_iw0", [*both, *server], [*both, *client])
    rping = ["rping", "-v", "-C", "3"]
    connect_pair(folder, "rping -s -a ::, from an IPv4 address", [*rping, "-s", "-a", "::"], [*rping, "-c", "-a", "127.0.0.1"])
    if "HEDDLE_LOCAL" in os.environ:
        asks(folder)
    if few:
        return
    program = ["qperf", "-lp", str(free_port())]
    connect_pair(folder, f"qperf -cm 1 {' '.join(QPERF_IWARP)} on heddle_iw0", program,
                 [*program, "127.0.0.1", "-cm", "1", "-t", "1", *QPERF_IWARP], ends=False, shows=False)
    refused(folder)
    killed(folder)


def asks(folder):
    """HEDDLE_MPA, both ends with the same value: it works, and the capture shows what was asked for."""
    for word in ("no-crc", "markers", "revision-1", "client-server"):
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["HEDDLE_MPA"] = word
            path = Path(scratch, "capture")
            rping = ["rping", "-V", "-v", "-S", "3000", "-C", "3"]
            connect_pair(folder, f"HEDDLE_MPA={word} rping", [*rping, "-s"],
                         ["env", f"HEDDLE_CAPTURE={path}", *rping, "-c", "-a", "127.0.0.1"])
            del os.environ["HEDDLE_MPA"]
            expect(f"HEDDLE_MPA={word} is on the wire", negotiated(path, word))


def iwarp_all(folder):
    """All of it; some of it is too long for the tests."""
    iwarp(folder, few=False)


def multicast(folder):
    for device in ("heddle0", "heddle_ib0"):
        for group in ("239.1.1.1", "ff12::1:2"):
            command = ["mckey", "-m", group, "-C", "5"]
            join_pair(folder, f"{' '.join(command)} on {device}", command, [*command, "-s"], "joined dgid", "--device", device)
    command = ["mckey", "-m", "239.1.1.1", "-b", "127.0.0.1", "-C", "5"]
    join_pair(folder, " ".join(command), command, [*command, "-s"], "joined dgid")
    ipv6 = "1" if "HEDDLE_LOCAL" in os.environ else "0"  # ib_send_bw compares the group's address with this one, and wants both to be IPv6
    for line in (f"ib_send_bw -c UD -g -x {ipv6} -n 500", "ib_send_lat -c UD -g"):
        program = [*line.split(), "-p", "PORT"]
        pair(folder, line, program, [*program, "localhost"])


def join_pair(folder, what, server, client, ready, *options):
    """Run @server and, once it says @ready, @client. Both must end well."""
    if shutil.which(server[0]) is None:
        print(f"skipped: {server[0]} is not installed")
        sys.exit(SKIP)
    server, client = ([*starts_on(folder, side, *options), *words] for side, words in enumerate((server, client)))
    # A line at a time: what it says must be seen while it waits.
    with subprocess.Popen(["stdbuf", "-oL", *server], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        said = ""
        try:
            for line in first.stdout:
                said += line
                if ready in line:
                    break
            done = subprocess.run(client, capture_output=True, text=True, timeout=PATIENCE)
            said += first.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            done = None
        finally:
            first.kill()
    expect(what, done is not None and done.returncode == 0 and first.returncode == 0,
           "client:", *((done.stdout, done.stderr) if done else ("timed out",)), "server:", said)


def udpong(folder):
    program = ["udpong", "-p", str(free_port())]
    connect_pair(folder, "udpong", [*program, "-b", "127.0.0.1"], [*program, "-s", "127.0.0.1", "-C", "100"], "--device", "heddle_ib0",
                 ends=False, shows=False)


def infiniband(folder):
    device = ("--device", "heddle_ib0")
    for kind in ("rc", "uc", "ud", "srq"):
        program = [f"ibv_{kind}_pingpong", "-p", "PORT"]
        pair(folder, f"{program[0]} by LID", program, [*program, "localhost"], *device)
    for line in ("ib_send_lat", "ib_write_bw -n 500", "ib_send_bw -n 500 -c UD"):
        program = [*line.split(), "-p", "PORT"]
        pair(folder, f"{line} by LID", program, [*program, "localhost"], *device)
    tests = "rc_lat uc_lat ud_lat rc_bw uc_bw ud_bw rc_rdma_write_lat rc_rdma_read_bw".split()
    program = ["qperf", "-lp", str(free_port())]
    connect_pair(folder, f"qperf {' '.join(tests)} by LID", program, [*program, "localhost", "-t", "1", *tests], *device, ends=False,
                 shows=False)
    udpong(folder)
    for line in ("rping -C 10 -v | -s | -c -a 127.0.0.1", "udaddy -c 5 | | -s ::1", "rstream -S 1000 -C 100 | | -s 127.0.0.1",
                 "ib_write_bw -R -n 200 | | 127.0.0.1"):
        both, server, client = (part.split() for part in line.split("|"))
        connect_pair(folder, f"{line} by LID", [*both, *server], [*both, *client], *device)
    code, out, err = run(folder, os.path.join(folder, "heddle"), "run", "--device", "heddle9", "ibv_devices")
    expect("a device that there is not is named with those that there are",
           code == 64 and "heddle9" in err and "heddle0" in err and "heddle_ib0" in err, out, err)


def pingpong(folder, kinds=("rc", "uc", "ud", "srq", "xsrq"), ways=([], ["-e"], ["-s", "2000", "-n", "200"])):
    for kind in kinds:
        for options in ways:
            program = [f"ibv_{kind}_pingpong", "-g", "0", "-p", "PORT", *options]
            pair(folder, " ".join([program[0], *options]), program, [*program, "localhost"])


PERFTEST = """
ib_send_lat
ib_send_lat -c UC
ib_send_lat -c UD
ib_send_lat -e
ib_send_lat -I 64
ib_send_lat -D 1
ib_send_lat --tclass 32
ib_send_lat -c UD -s 4096 -n 100
ib_write_lat
ib_write_lat -c UC
ib_write_lat -I 32
ib_read_lat
ib_read_lat --tclass 32
ib_atomic_lat
ib_send_bw -n 500
ib_send_bw -n 500 -c UC
ib_send_bw -n 500 -c UD
ib_send_bw -n 300 -c UC -q 16
ib_send_bw -n 300 -c UC -b
ib_send_bw -n 300 -c UD -q 16
ib_send_bw -n 300 -c UD -b
ib_send_bw -n 320 -c UD -l 8
ib_send_bw -n 300 --use-srq -r 512 -q 4
ib_send_bw -n 300 -I 32 -s 16
ib_send_bw -n 500 -Q 1 -N
ib_send_bw -n 10 -a
ib_send_bw -n 500 -b
ib_send_bw -n 500 -e
ib_send_bw -n 2000 -b -e -q 4
ib_send_bw -n 500 -q 16
ib_send_bw -n 500 --use-srq -r 512
ib_send_bw -n 800 -l 8
ib_write_bw -n 500
ib_write_bw -n 500 -b
ib_write_bw -n 500 -q 16
ib_write_bw -n 500 --tclass 96
ib_write_bw -n 500 -c UC
ib_write_bw -n 300 -c UC -q 16 -b
ib_write_bw -n 800 -l 8
ib_write_bw -n 50 -a
ib_write_bw -D 1
ib_read_bw -n 500
ib_read_bw -n 50 -a
ib_read_bw -n 300 -b -q 16
ib_read_bw -n 300 -e
ib_atomic_bw -n 500
ib_atomic_bw -n 500 -A CMP_AND_SWAP
ib_atomic_bw -n 300 -b -q 16
ib_send_lat -c XRC -n 200
ib_write_lat -c XRC -n 200
ib_send_bw -n 300 -c XRC
ib_write_bw -n 300 -c XRC
ib_write_bw -n 300 -c XRC -q 4 -b
ib_read_bw -n 300 -c XRC
ib_atomic_bw -n 300 -c XRC
"""


def perftest_rows(folder, lines):
    for line in lines:
        gentle = GENTLE if "HEDDLE_LOCAL" in os.environ and "_bw" in line and re.search("-c U[CD]", line) else []
        program = [*line.split(), *gentle, "-p", "PORT"]
        pair(folder, line, program, [*program, "localhost"])


def perftest(folder):
    perftest_rows(folder, PERFTEST.strip().split("\n"))


def sample(folder):
    pingpong(folder, ways=([],))
    perftest_rows(folder, PERFTEST.strip().split("\n")[::6])
    rdmacm_rows(folder, RDMACM.strip().split("\n")[1::3])
    udpong(folder)
    ucx_pair(folder, UCX[1:3])
    command = ["mckey", "-m", "239.1.1.1", "-C", "5"]
    join_pair(folder, " ".join(command), command, [*command, "-s"], "joined dgid")


LANE = """
ib_send_bw -n 200 -s 1048576
ib_send_bw -n 200 -s 100000 -c UC
ib_send_bw -n 200 -s 65536 -q 4 --use-srq -r 512
ib_write_bw -n 200 -s 1048576
ib_read_bw -n 200 -s 1048576
ib_read_bw -n 500 -s 8
ib_atomic_bw -n 200
"""


def lane(folder):
    os.environ["HEDDLE_COPY"] = "lane"
    perftest_rows(folder, LANE.strip().split("\n"))


UCX = """
-d heddle0:1 -x rc_verbs -t am_lat
-d heddle0:1 -x ud_verbs -t am_lat
-d heddle0:1 -x ud_verbs -t am_bw -D bcopy -s 4000
-t tag_lat
-t tag_lat -E sleep
-t tag_bw -s 8 -E sleep
-t tag_bw -s 100000
-d heddle0:1 -x rc_verbs -t put_bw -D zcopy -s 65536
-t ucp_get -s 1000000
-t ucp_fadd
""".strip().split("\n")


def ucx_pair(folder, lines=None):
    os.environ.update(UCX_TLS="rc_v,ud_v,self", UCX_NET_DEVICES="heddle0:1")
    for words in lines or UCX:
        pair(folder, f"ucx_perftest {words}", ["ucx_perftest", "-p", "PORT"],
             ["ucx_perftest", "-p", "PORT", *words.split(), "-n", "500", "localhost"])


def devices(folder):
    code, out, err = run(folder, "ibv_devices")
    expect("ibv_devices lists heddle0, heddle_ib0, heddle_iw0, with GUIDs",
           code == 0 and re.search(r"heddle0\s+[0-9a-f]{14}00\n\s+heddle_ib0\s+[0-9a-f]{14}01\n\s+heddle_iw0\s+[0-9a-f]{14}02", out), out,
           err)
    code, out, err = run(folder, "env", "HEDDLE_DEVICE=heddle_iw0", "ibv_devinfo")
    for line in (r"transport:\s+iWARP \(1\)", r"link_layer:\s+Ethernet", r"hca_id:\s+heddle_iw0"):
        expect(f"heddle_iw0 says {line}", re.search(line, out), out, err)
    code, out, err = run(folder, "env", "HEDDLE_DEVICE=heddle_ib0", "ibv_devinfo", "-v")
    guid = re.search(r"node_guid:\s+(\S+)", out)
    for line in (r"link_layer:\s+InfiniBand", r"port_lid:\s+[1-9]", r"sm_lid:\s+1", rf"GID\[\s+0\]:\s+fe80:0000:0000:0000:{guid[1]}"):
        expect(f"heddle_ib0 says {line}", "heddle0" not in out and re.search(line, out), out, err)
    code, out, err = run(folder, "ibv_devinfo", "-v")
    expect("ibv_devinfo -v ends well", code == 0, out, err)
    for line in (r"hca_id:\s+heddle0", r"state:\s+PORT_ACTIVE", r"active_mtu:\s+4096", r"link_layer:\s+Ethernet",
                 r"GID\[\s+0\]:\s+\S+, RoCE v2", r"atomic_cap:\s+ATOMIC_HCA"):
        expect(f"ibv_devinfo -v says {line}", re.search(line, out), out, err)
    two = ["env", f"HEDDLE_NODE=devices-{os.getpid()}", "HEDDLE_ADDR=127.0.0.63,127.0.0.64"]
    for device, gids in (("heddle0", ["::ffff:127.0.0.63", "::ffff:127.0.0.64"]), ("heddle1", ["::ffff:127.0.0.64"])):
        code, out, err = run(folder, *two, "ibv_devinfo", "-v", "-d", device)
        expect(f"{device} of two addresses has {gids}", re.findall(r"GID\[.*?(::ffff:\S+|fe80:\S+),", out)[:2] == gids, out, err)


def starts(folder):
    for program in ("ib_send_lat", "ib_write_bw", "ib_atomic_bw", "raw_ethernet_bw"):
        code, out, err = run(folder, program, "--version")
        expect(f"{program} starts", "Version" in out and not err, out, err)
    code, out, err = run(folder, "rping", "-h")
    expect("rping starts", "symbol" not in err, out, err)
    code, out, err = run(folder, "ucx_info", "-d")
    for transport in ("rc_verbs", "ud_verbs"):
        expect(f"ucx_info -d offers {transport} on heddle0",
               re.search(rf"Transport: {transport}\n#\s+Device: heddle0:1", out), out, err)


def ucx(folder):
    tests = [("rc_verbs", "am_lat", "short", 8), ("rc_verbs", "am_bw", "bcopy", 4096), ("rc_verbs", "am_bw", "zcopy", 8192),
             ("rc_verbs", "put_lat", "short", 8), ("rc_verbs", "put_bw", "zcopy", 65536), ("rc_verbs", "get", "zcopy", 65536),
             ("rc_verbs", "fadd", "short", 8), ("rc_verbs", "cswap", "short", 8),
             ("ud_verbs", "am_lat", "short", 8), ("ud_verbs", "am_bw", "bcopy", 4000)]
    for transport, test, layout, size in tests:
        code, out, err = run(folder, "ucx_perftest", "-d", "heddle0:1", "-x", transport, "-t", test, "-D", layout,
                             "-s", str(size), "-n", "20000", "-l")
        expect(f"ucx_perftest -x {transport} -t {test} -D {layout} -s {size} -l", code == 0 and "Final:" in out, out, err)
    for transports in ("rc_v", "ud_v", "rc_v,ud_v"):
        for test, size in (("tag_lat", 8), ("tag_lat", 200000), ("ucp_put_bw", 8000), ("ucp_get", 200000), ("ucp_fadd", 8),
                           ("stream_bw", 8000), ("ucp_am_bw", 200000)):
            code, out, err = run(folder, "env", f"UCX_TLS={transports}", "ucx_perftest", "-t", test, "-s", str(size),
                                 "-n", "1000", "-l")
            expect(f"UCX_TLS={transports} ucx_perftest -t {test} -s {size} -l", code == 0 and "Final:" in out, out, err)


def agents(directory):
    """The node agents whose folder is @directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "comm").read_text() == "heddled\n" and \
                    f"HEDDLE_DIR={directory}\0".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            pass
    return found


def asyncwatch(folder):
    if shutil.which("ibv_asyncwatch") is None:
        print("skipped: ibv_asyncwatch is not installed")
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory() as directory:
        env = dict(os.environ, HEDDLE_DIR=directory)
        watch = subprocess.Popen([os.path.join(folder, "heddle"), "run", "--", "timeout", "20", "stdbuf", "-oL", "ibv_asyncwatch"],
                                 stdout=subprocess.PIPE, text=True, env=env)
        try:
            said = watch.stdout.readline()
            expect("ibv_asyncwatch watches", "async event FD" in said, said)
            first = agents(directory)
            expect("there is one agent", len(first) == 1, str(first))
            os.kill(first[0], signal.SIGKILL)
            said = watch.stdout.readline()
            expect("ibv_asyncwatch says that a new one took over", "IBV_EVENT_CLIENT_REREGISTER" in said, said)
        finally:
            watch.terminate()  # timeout(1) hands it on
            watch.wait()
            for agent in agents(directory):
                os.kill(agent, signal.SIGTERM)


def pyverbs(folder):
    if not PYVERBS_TESTS.is_dir():
        print("skipped: python3-pyverbs is not installed")
        sys.exit(SKIP)
    os.environ["HEDDLE_LOG"] = "error"  # what is said at a refusal that a test wants would stand before its "ok"
    with tempfile.TemporaryDirectory() as scratch:
        tests = Path(scratch) / "tests"
        tests.mkdir()
        for source in PYVERBS_TESTS.iterdir():
            if source.suffix == ".gz":
                (tests / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
            else:
                shutil.copy(source, tests)
        command = ["/usr/bin/python3", "tests/run_tests.py", "--dev", "heddle0", "-v"]
        code, out, err = run(folder, *command, cwd=scratch)
        passed = len(re.findall(r"\.\.\. ok$", err, re.M))
        skipped = len(re.findall(r"\.\.\. skipped", err))
        expect(f"{passed} passed, {skipped} skipped", code == 0 and passed >= PYVERBS_PASS, out, err)
        # Those of rdma_cm ask ls(1) for the interface of the device, and bind to its first address.
        for local in ("on", "off"):
            code, out, err = run(folder, "env", f"HEDDLE_LOCAL={local}", os.path.join(folder, "heddle"), "run", "--preload", *command,
                                 "-k", "test_rdmacm", cwd=scratch)
            passed = len(re.findall(r"\.\.\. ok$", err, re.M))
            expect(f"{passed} of rdma_cm passed, HEDDLE_LOCAL={local}", code == 0 and passed == PYVERBS_CM_PASS, out, err)


def on_iwarp():
    """From here on every program sees heddle_iw0 alone."""
    OPTIONS.extend(["--device", "heddle_iw0"])


WAYS = {"wire": lambda: over_wire(False), "nodes": lambda: over_wire(True), "hosts": over_namespaces, "iwarp": on_iwarp}

if __name__ == "__main__":
    for way in sys.argv[3:]:
        WAYS[way]()
    {"devices": devices, "starts": starts, "ucx": ucx, "pingpong": pingpong, "perftest": perftest, "lane": lane,
     "sample": sample, "rdmacm": rdmacm, "connections": connections, "names": names, "multicast": multicast, "infiniband": infiniband,
     "iwarp": iwarp, "iwarp-all": iwarp_all, "ucx-pair": ucx_pair, "asyncwatch": asyncwatch, "pyverbs": pyverbs}[sys.argv[2]](sys.argv[1])
