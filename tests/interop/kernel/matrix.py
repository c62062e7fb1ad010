#!/usr/bin/python3
"""Linux's rdma_rxe and siw as the other end of our wire: programs nobody here wrote, and one of ours that compares every byte,
between Heddle and a guest with a kernel of its own (guest.py), in both directions, over IPv4 and IPv6, with and without loss. RoCEv2
is what rdma_rxe speaks, and heddle0; iWARP is what siw speaks, and heddle_iw0.

  matrix.py FOLDER [--quick] [--driver rxe|siw] [--only WORDS] [--family 4|6] [--loss 0|1] [--mtu BYTES] [--self [DRIVER]]
            [--keep FOLDER] [--rounds N]

FOLDER is that of the build. --quick: a few rows, and only where the kernel is at hand already. --only: the rows that have all
these words, or "goodbyes", the ends of connections. --driver: that one only. --self: the guest at both ends, which tells the faults of rdma_rxe and of this
program from ours; with siw for DRIVER, the rows that its iWARP can run, none of which involves Heddle.
--keep: the captures and the output of rows that failed are put there. One line per row; exit status 1 when a row failed, 77 when
it cannot run here."""
import argparse
import hashlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import guest as peer
from guest import Cannot, wait_until

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/interop/capture"))
from capture import GUESSES, negotiated  # noqa: E402
LIMIT = 180       # seconds that a program may take,
LOSSY_LIMIT = 300  # and this long where packets are lost
LOSS_ONE_IN = 100
MTU = 1500        # of the cable: RoCE's is then 1024
JUMBO = 4200      # and here 4096
SERVER_FIRST = 60  # seconds until a server listens, in a guest that may get little of a busy processor
OUTPUT_LINES = 90  # of a program that failed
UDADDY_PORT = 7174  # which it cannot be told

# The drivers of the guest, and which device of ours talks to them.
DEVICES = {"rxe": "heddle0", "siw": "heddle_iw0"}

# Where packets are lost. A busy host keeps either end from running for half a second now and then, which is as long as programs try
# by themselves. rdma_rxe finds out by its timeout alone that a response got lost, so that is a short one, and 7 retries are
# endless for it; Heddle, which sooner or later counts to 7, sees it long before its timeout.
PATIENCE = {"heddle": "18", "rxe": "14"}

# Faults of perftest's, for which a row is run again, and the table says so. It measures the processor's clock, and gives up when a
# busy host makes a guest's time too uneven for that.
# With -R its server listens twice, and between the two a port of TCP refuses the client, where InfiniBand's CM tries again.
PERFTEST = re.compile("Correlation coefficient|Failed to connect through RDMA CM.\\s+ERRNO: Connection refused")
TRIES = 4
# So is one that failed while the processors were not to be had for so many seconds at a stretch, as when a real-time program takes
# them: every timeout of both ends is shorter than that.
STARVED = 0.5
# And one of libiscsi's, which gives up a connection over iSER when nothing happens for a second.
LIBISCSI = re.compile("revents is not POLLIN")

# Programs of ours that run at both ends, by their names there.
OURS = {"patterns", "refusals"}

# What the clients of the kernel's target print when all is well, and when there is no such target.
TARGET_SAYS = {"iscsi-inq": "Vendor:LIO-ORG", "iscsi-readcapacity16": f"Total size:{peer.DISK_MIB << 20}",
               "iscsi-perf": "finished", "disk": "Images are identical"}
NO_SUCH_TARGET = "Service unavailable(769)"

# name of the row | program and options of both | of the server | of the client. Words:
#   DEVICE and GID the device of that end, and the index of its GID; PORT a port that is free; HOST the server's address, over
#   TCP that of IPv4, since most of the programs do not know others there; EVENTS is -e without loss: perftest's pairs wait for two
#   events in the order in which they come when nothing is lost; LOSSY is -l with loss; MIGRATES is -m on Heddle: Linux knows
#   alternate paths on InfiniBand alone. On iWARP perftest's senders count receives themselves and may wait for an event that
#   none is left to raise, so ib_send_bw has no -e there; ADDRESS is the server's of the family, whatever HOST is
# Before the program may stand a variable for Heddle's end alone; what it asks of MPA must be seen on the cable.
# Before the name: what is special.
#   t  they meet over TCP at PORT      m  they meet through rdma_cm: the server is bound to HOST
#   r  reliable: also with loss        q  also in the short run       j  also with large packets
#   4  IPv4 only: perftest's -R does not know the other
#   w  siw can run it, too: through rdma_cm, no datagrams, no atomics      i  iWARP only
#   c  Heddle is the client: siw cannot be told to ask for it              x  the client must be rejected
#   k  the server is the kernel's iSCSI target, which only the guest has. URL is its disk over iSER; NOWHERE is
#      one of a target that does not exist, and the client must be refused; DATA is a file as long as the
#      disk, and must be on the disk in the end
ROWS = """
trqj patterns RC | patterns LOSSY -t rc -d DEVICE -g GID -p PORT | | HOST
tr   patterns RC migrating | patterns LOSSY MIGRATES -b 70000 -t rc -d DEVICE -g GID -p PORT | | HOST
tq   patterns UC | patterns -t uc -d DEVICE -g GID -p PORT | | HOST
tqj  patterns UD | patterns -t ud -d DEVICE -g GID -p PORT | | HOST
tr   ibv_rc_pingpong | ibv_rc_pingpong -d DEVICE -g GID -p PORT -c -e -n 500 | | HOST
tr   ibv_rc_pingpong 64 KiB | ibv_rc_pingpong -d DEVICE -g GID -p PORT -c -e -n 50 -s 65536 | | HOST
t    ibv_rc_pingpong polling | ibv_rc_pingpong -d DEVICE -g GID -p PORT -n 50 | | HOST
t    ibv_uc_pingpong | ibv_uc_pingpong -d DEVICE -g GID -p PORT -c -e -n 200 | | HOST
tq   ibv_ud_pingpong | ibv_ud_pingpong -d DEVICE -g GID -p PORT -e -n 200 -s 1024 | | HOST
tr   ibv_srq_pingpong | ibv_srq_pingpong -d DEVICE -g GID -p PORT -c -e -n 500 | | HOST
trq  ib_send_lat | ib_send_lat -d DEVICE -x GID -p PORT EVENTS -n 200 | | HOST
t    ib_send_lat UC | ib_send_lat -d DEVICE -x GID -p PORT EVENTS -n 200 -c UC | | HOST
t    ib_send_lat UD | ib_send_lat -d DEVICE -x GID -p PORT EVENTS -n 200 -c UD | | HOST
tr   ib_write_lat | ib_write_lat -d DEVICE -x GID -p PORT -n 50 | | HOST
tr   ib_read_lat | ib_read_lat -d DEVICE -x GID -p PORT -e -n 200 | | HOST
tr   ib_atomic_lat | ib_atomic_lat -d DEVICE -x GID -p PORT -e -n 200 | | HOST
tr   ib_send_bw | ib_send_bw -d DEVICE -x GID -p PORT -e -n 500 | | HOST
tj   ib_send_bw 2 B to 8 MiB | ib_send_bw -d DEVICE -x GID -p PORT -e -n 5 -a | | HOST
t    ib_send_bw UC | ib_send_bw -d DEVICE -x GID -p PORT -e -n 100 -s 4096 -c UC | | HOST
t    ib_send_bw UD | ib_send_bw -d DEVICE -x GID -p PORT -e -n 100 -s 1024 -c UD | | HOST
tr   ib_send_bw 4 queue pairs | ib_send_bw -d DEVICE -x GID -p PORT -n 100 -q 4 | | HOST
tr   ib_send_bw shared receives | ib_send_bw -d DEVICE -x GID -p PORT -e -n 200 --use-srq -r 256 | | HOST
trqj ib_write_bw | ib_write_bw -d DEVICE -x GID -p PORT -n 200 | | HOST
tj   ib_write_bw 2 B to 8 MiB | ib_write_bw -d DEVICE -x GID -p PORT -n 5 -a | | HOST
t    ib_write_bw UC | ib_write_bw -d DEVICE -x GID -p PORT -n 100 -c UC | | HOST
tr   ib_write_bw 1 MiB | ib_write_bw -d DEVICE -x GID -p PORT -n 10 -s 1048576 | | HOST
trqj ib_read_bw | ib_read_bw -d DEVICE -x GID -p PORT -e -n 200 | | HOST
tj   ib_read_bw 2 B to 8 MiB | ib_read_bw -d DEVICE -x GID -p PORT -e -n 5 -a | | HOST
tr   ib_read_bw 1 MiB | ib_read_bw -d DEVICE -x GID -p PORT -e -n 10 -s 1048576 | | HOST
tr   ib_read_bw 2 MiB | ib_read_bw -d DEVICE -x GID -p PORT -e -n 5 -s 2097152 -o 1 -t 1 | | HOST
tr   ib_atomic_bw fetch and add | ib_atomic_bw -d DEVICE -x GID -p PORT -e -n 500 | | HOST
tr   ib_atomic_bw compare and swap | ib_atomic_bw -d DEVICE -x GID -p PORT -e -n 200 -A CMP_AND_SWAP | | HOST
mrqjw rping | rping -a HOST -p PORT -C 10 -V -v | -s | -c
mrw  rping 60000 bytes | rping -a HOST -p PORT -C 10 -S 60000 -V | -s | -c
mrqw ucmatose | ucmatose -p PORT -c 5 -C 10 -S 4000 | -b HOST | -s HOST
mq   udaddy | udaddy -c 3 -C 5 -S 500 | -b HOST | -s HOST
mrw  rstream | rstream -p PORT -S 100000 -C 20 | -b HOST | -s HOST
mrw  rstream 64 B | rstream -p PORT -S 64 -C 200 | -b HOST | -s HOST
tijw patterns iWARP | patterns -R ADDRESS -p PORT | | HOST
tiw  patterns iWARP, no CRC | HEDDLE_MPA=no-crc patterns -R ADDRESS -p PORT | | HOST
tiwc patterns iWARP, MPA revision 1 | HEDDLE_MPA=revision-1 patterns -R ADDRESS -p PORT | | HOST
tiwc patterns iWARP, not peer-to-peer | HEDDLE_MPA=client-server patterns -b 70000 -R ADDRESS -p PORT | | HOST
tiw  private data, 1 byte | refusals -R ADDRESS -p PORT -P 1 private | | HOST
tiw  private data, 251 bytes | refusals -R ADDRESS -p PORT -P 251 private | | HOST
miwx markers are refused | HEDDLE_MPA=markers rping -a HOST -p PORT -C 3 -v | -s | -c
tiw  refused: wrong tags, ranges | refusals -R ADDRESS -p PORT tags | | HOST
tiw  refused: access rights | refusals -R ADDRESS -p PORT access | | HOST
tiw  refused: a message too long | refusals -R ADDRESS -p PORT too-long | | HOST
tiw  a message before its receive | refusals -R ADDRESS -p PORT no-receive | | HOST
tiw  siw has no atomics | refusals -R ADDRESS -p PORT atomics | | HOST
tiw  siw has no immediate data | refusals -R ADDRESS -p PORT immediate | | HOST
tiw  iWARP has no send with immediate | refusals -R ADDRESS -p PORT send-immediate | | HOST
tiw  siw has no windows, Heddle has | refusals -R ADDRESS -p PORT windows | | HOST
tiw  siw reads into one piece | refusals -R ADDRESS -p PORT lists | | HOST
mr4w ib_send_lat -R | ib_send_lat -R -p PORT EVENTS -n 100 | | HOST
mr4w ib_write_bw -R | ib_write_bw -R -p PORT -n 100 | | HOST
mr4w ib_read_bw -R | ib_read_bw -R -p PORT -e -n 200 | | HOST
mi4jw ib_send_bw -R 2 B to 8 MiB | ib_send_bw -R -p PORT -n 5 -a | | HOST
mi4jw ib_write_bw -R 2 B to 8 MiB | ib_write_bw -R -p PORT -n 5 -a | | HOST
mi4jw ib_read_bw -R 2 B to 8 MiB | ib_read_bw -R -p PORT -e -n 5 -a | | HOST
mi4w ib_write_bw -R 5 bytes | ib_write_bw -R -p PORT -n 5000 -s 5 | | HOST
mi4jw ib_send_bw -R 1001 bytes | ib_send_bw -R -p PORT -n 2000 -s 1001 | | HOST
mr4  ib_atomic_bw -R | ib_atomic_bw -R -p PORT -e -n 100 | | HOST
m4   ib_send_bw -R UD | ib_send_bw -R -p PORT -e -n 100 -s 512 -c UD | | HOST
kqj  iSER: iscsi-inq | | lio-up HOST PORT | iscsi-inq URL
k    iSER: iscsi-inq, wrong target | | lio-up HOST PORT | iscsi-inq NOWHERE
k    iSER: iscsi-readcapacity16 | | lio-up HOST PORT | iscsi-readcapacity16 URL
k    iSER: iscsi-perf | | lio-up HOST PORT | iscsi-perf -t 1 -r URL
kj   iSER: qemu-img, data compared | | lio-up HOST PORT | disk URL DATA
"""


class Row:
    def __init__(self, line):
        head, both, server, client = (part.strip() for part in line.split("|"))
        self.flags, self.name = head.split(None, 1)
        self.settings = [word for word in both.split() if word.startswith("HEDDLE_")]
        both = [word for word in both.split() if word not in self.settings]
        self.server, self.client = [*both, *server.split()], [*both, *client.split()]

    def programs(self):
        """Those of the system that it needs."""
        if "k" in self.flags:
            return {"qemu-img"} if self.client[0] == "disk" else {self.client[0]}
        return {self.server[0]} - OURS


class Heddle:
    """This end: programs on Heddle, on the address of the tap."""
    name = "heddle"

    def __init__(self, folder, device):
        self.folder, self.device = folder, device
        self.directory = tempfile.mkdtemp(prefix="heddle-here-")
        self.env = dict(os.environ, HEDDLE_DIR=self.directory, HEDDLE_LOG="info")
        self.programs = dict(ours(folder), disk=str(Path(__file__).parent / "disk"))
        self.stay = str(Path(self.programs["patterns"]).parent / "stay.so")

    def facts(self, family):
        return {"DEVICE": self.device, "GID": "0"}

    def address(self, family):
        return peer.HERE if family == 4 else peer.HERE6

    def start(self, words, family, stays, settings=()):
        env = dict(self.env, LD_PRELOAD=self.stay) if stays else dict(self.env)
        env.update(setting.split("=", 1) for setting in settings)
        words = [self.programs.get(words[0], words[0]), *words[1:]]
        # On several devices a program with an address of its own would choose the first.
        device = ["--device", self.device] if self.device != "heddle0" else []
        return HostJob([f"{self.folder}/heddle", "run", "--node", f"ipv{family}", "--addr", self.address(family), *device, "--",
                        *words], env)

    def listens(self, row, port, job):
        """Wait until the server @job does."""
        if "t" in row.flags:
            return wait_until(lambda: tcp_listens(port) or job.code() is not None, SERVER_FIRST)
        return wait_until(lambda: f"listening on port {port}\n" in job.output() or job.code() is not None, SERVER_FIRST)

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def ours(folder):
    return {name: str(next(Path(folder).rglob(f"interop-kernel-{name}"))) for name in OURS}


class HostJob:
    def __init__(self, command, env):
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def code(self):
        return self.process.poll()

    def wait(self, seconds):
        try:
            return self.process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        self.end()

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def output(self):
        self.out.seek(0)
        return self.out.read()


class Kernel:
    """The other end: programs in the guest, on rdma_rxe or on siw."""

    def __init__(self, guest, driver):
        self.guest, self.name = guest, driver
        self.gids = {}
        code, said = guest.run(f"use-{driver} && ibv_devinfo -v -d {driver}0")
        for index, gid in re.findall(r"GID\[\s*(\d+)\]:\s+(\S+?),", said):
            self.gids[{f"::ffff:{peer.THERE}": 4, peer.THERE6: 6}.get(gid)] = index
        if code != 0 or (driver == "rxe" and not {4, 6} <= set(self.gids)):
            raise RuntimeError(f"{driver} in the guest: {said}\n{guest.console()}")

    def facts(self, family):
        return {"DEVICE": f"{self.name}0", "GID": self.gids.get(family, "0")}

    def address(self, family):
        return peer.THERE if family == 4 else peer.THERE6

    def start(self, words, family, stays, settings=()):
        given = ["/lib/clock.so"] * words[0].startswith("ib_") + ["/lib/stay.so"] * stays
        env = f"LD_PRELOAD={':'.join(given)} HEDDLE_PEER_MHZ={peer.processor_mhz()} "
        return self.guest.start(env * bool(given) + shlex.join(words), LOSSY_LIMIT)

    def listens(self, row, port, job):
        look = f"grep -q ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6"
        if "m" in row.flags:
            look = f"rdma resource show cm_id | grep -q 'state LISTEN .*src-addr .*:{port} '"
        looks = self.guest.start(f"until {look}; do sleep 0.05; done", SERVER_FIRST)
        wait_until(lambda: looks.ended.is_set() or job.ended.is_set(), SERVER_FIRST + 2)
        looks.end()
        return looks.code == 0


def tcp_listens(port):
    """Without connecting: the programs take one connection only."""
    return any(line.split()[3] == "0A" and int(line.split()[1].rsplit(":", 1)[1], 16) == port
               for table in ("/proc/net/tcp", "/proc/net/tcp6") for line in Path(table).read_text().splitlines()[1:])


def tail(text):
    return "\n".join(text.rstrip().splitlines()[-OUTPUT_LINES:])


def good(row, server, client, said):
    if "x" in row.flags:
        return client not in (0, None) and "RDMA_CM_EVENT_REJECTED" in said.split("--- client")[1]
    # rping's thread for events may find the channel gone that another has closed at the end, and then ends the program so.
    fine = (0, 255) if row.server[0] == "rping" else (0,)
    return client == 0 and server in fine and "invalid data" not in said and "FAILED" not in said


def run_target(row, server, client, family, port):
    """As run_row(), with the kernel's iSCSI target for the server."""
    host = server.address(family)
    url = f"iser://{f'[{host}]' if family == 6 else host}:{port}/{peer.TARGET}"
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch, "data")
        if "DATA" in row.client:
            data.write_bytes(random.randbytes(peer.DISK_MIB << 20))
        meaning = {"HOST": host, "PORT": str(port), "URL": f"{url}/0", "NOWHERE": f"{url}-nowhere/0", "DATA": str(data)}
        made, said = server.guest.run(shlex.join(meaning.get(word, word) for word in row.server))
        said, code, printed = f"--- target is made ({made}):\n{said}", None, ""
        if made == 0:
            job = client.start([meaning.get(word, word) for word in row.client], family, False)
            code = job.wait(LIMIT)
            job.end()
            printed = job.output()
        gone, disk = server.guest.run("lio-down")
        said += f"--- client ({code}):\n{tail(printed)}\n--- target is removed ({gone}):\n{disk}"
        if "NOWHERE" in row.client:
            passed = code not in (0, None) and NO_SUCH_TARGET in printed
        else:
            passed = code == 0 and TARGET_SAYS[row.client[0]] in printed
        if "DATA" in row.client:
            passed = passed and disk.split()[:1] == [hashlib.sha256(data.read_bytes()).hexdigest()]
        return passed and gone == 0, said


def run_row(row, server, client, family, port, loss):
    """(passed, what they said)"""
    if "k" in row.flags:
        return run_target(row, server, client, family, port)
    host = server.address(4 if "t" in row.flags else family)

    def words(end, line):
        meaning = dict(end.facts(family), PORT=str(port), HOST=host, ADDRESS=server.address(family), EVENTS="" if loss else "-e", LOSSY="-l" if loss else "",
                       MIGRATES="-m" if end.name == "heddle" else "")
        patient = ["-u", PATIENCE[end.name]] if loss and line[0].startswith(("ib_", "patterns")) else []
        return [word for word in (meaning.get(word, word) for word in (*line, *patient)) if word]

    stays = bool(loss) and ("pingpong" in row.server[0] or "m" in row.flags)
    # siw closes the socket when its program does, and then answers a message of the peer's with a reset: what it has sent
    # last gets lost (docs/COMPATIBILITY.md).
    first = server.start(words(server, row.server), family, stays or (server.name, row.server[0]) == ("siw", "rstream"), row.settings)
    limit = LOSSY_LIMIT if loss else LIMIT
    second, codes, until = None, [None, None], time.monotonic() + limit
    try:
        if server.listens(row, port, first):
            second = client.start(words(client, row.client), family, stays, row.settings)
            codes[1] = second.wait(until - time.monotonic())
            codes[0] = first.wait(max(5, until - time.monotonic()) if codes[1] == 0 else 1)
    finally:
        for job in (first, second):
            if job is not None:
                job.end()
    said = "".join(f"--- {name} ({code}):\n{tail(job.output()) if job else 'not started'}\n"
                   for name, code, job in (("server", codes[0], first), ("client", codes[1], second)))
    return good(row, *codes, said), said


# --- The table ---

class Pulse(threading.Thread):
    """How long this program was kept from running."""
    EVERY = 0.02

    def __init__(self):
        super().__init__(daemon=True)
        self.worst = 0
        self.start()

    def run(self):
        while True:
            before = time.monotonic()
            time.sleep(self.EVERY)
            self.worst = max(self.worst, time.monotonic() - before - self.EVERY)

    def take(self):
        """At the longest, in seconds, since the last time."""
        worst, self.worst = self.worst, 0
        return worst


class Table:
    def __init__(self, guest, keep, mtu, driver):
        self.driver, self.cells = driver, {}
        self.guest, self.keep, self.mtu, self.failed, self.passed, self.lost, self.port = guest, keep, mtu, [], 0, 0, 18000
        self.keep_all, self.again, self.pulse = False, 0, Pulse()

    def run(self, row, server, client, family, loss, remark=""):
        if row.settings and not self.keep:  # what they ask for is to be seen on the cable
            with tempfile.TemporaryDirectory() as self.keep:
                self.run(row, server, client, family, loss, remark)
            self.keep = None
            return
        self.port += 1
        port = self.port if "PORT" in row.server else UDADDY_PORT
        name = f"{row.name}-{client.name}-{self.mtu}-{family}-{loss}{remark}-{port}".replace(" ", "-").replace(",", "")
        self.guest.cable("counts")
        self.guest.cable(f"loss {LOSS_ONE_IN if loss else 0}")
        if self.keep:
            self.guest.cable(f"capture {self.keep}/{name}.pcap")
        start = time.monotonic()
        for tries in range(TRIES):
            self.pulse.take()
            passed, said = run_row(row, server, client, family, port, loss)
            late = self.pulse.take()
            if passed or not (PERFTEST.search(said) or LIBISCSI.search(said) or late > STARVED):
                break
        seconds = time.monotonic() - start
        self.guest.cable("loss 0")
        if self.keep:
            self.guest.cable("capture -")
            if not all(negotiated(Path(self.keep, f"{name}.pcap"), setting.split("=")[1]) for setting in row.settings):
                passed, said = False, said + f"--- this is not what {row.settings} is to bring about\n"
            if passed and not self.keep_all:
                Path(self.keep, f"{name}.pcap").unlink()
        _, packets, lost = map(int, self.guest.cable("counts").split())
        self.lost += lost if loss else 0
        self.line(row.name + remark, f"{client.name} -> {server.name}", family, f"{lost} of {packets}" if loss else "-",
                  passed, seconds, tries)
        if not passed:
            said += f"--- nothing could run here for up to {late:.2f} s\n"
            print("    " + said.replace("\n", "\n    "), flush=True)
            if self.keep:
                Path(self.keep, f"{name}.txt").write_text(said)

    def line(self, name, ends, family, loss, passed, seconds, again=0):
        column = (ends, family, loss != "-")
        self.cells.setdefault(name, {})[column] = passed and self.cells.get(name, {}).get(column, True)
        print(f"{name:34} {ends:16} IPv{family}   {loss:>14}  {'ok' if passed else 'FAILED':6} {seconds:6.1f} s"
              + (f"  try {again + 1}" if again else ""), flush=True)
        self.again += again > 0
        if passed:
            self.passed += 1
        else:
            self.failed.append(f"{name}, {ends}, IPv{family}, lost {loss}")

    def show(self):
        """The whole table, one line per row: each direction by IPv4 and IPv6, then with loss."""
        columns = sorted({column for cells in self.cells.values() for column in cells}, key=lambda c: (c[2], c[0], c[1]))
        heads = [f"{ends}, IPv{family}{', loss' if loss else ''}" for ends, family, loss in columns]
        print(f"\n{self.driver}, the cable carries {self.mtu} bytes:")
        for place, head in enumerate(heads, 1):
            print(f"  {place:2}  {head}")
        print(f"{'':36}" + "".join(f"{place:>7}" for place in range(1, len(columns) + 1)))
        for name, cells in self.cells.items():
            marks = ({True: "ok", False: "FAILED", None: "."}[cells.get(column)] for column in columns)
            print(f"{name:36}" + "".join(f"{mark:>7}" for mark in marks))


# Of iWARP in tshark: what is real, cut into segments by two kernels.
IWARP_CAPTURED = "m rping | rping -a HOST -p PORT -C 10 | -s | -c"


def judge_iwarp(path):
    """What tshark does not like in the capture at @path, and how many FPDUs have a good CRC."""
    words = subprocess.run(["tshark", "-n", "-r", path, "-V", "--enable-heuristic", "iwarp_mpa_tcp", "--disable-protocol", "rpcordma",
                            "--disable-protocol", "smb_direct"], capture_output=True, text=True).stdout
    problems = [line for line in words.splitlines() if "Malformed" in line or "Bad CRC" in line]
    return problems, words.count("(Good CRC32)")


def judge_capture(path, iwarp):
    """What tshark does not like in the capture at @path, and the number of packets that are InfiniBand's."""
    if iwarp:
        return judge_iwarp(path)
    tshark = ["tshark", "-n", "-r", path, *(word for guess in GUESSES for word in ("--disable-heuristic", guess)), "-Y"]
    problems, packets = (subprocess.run([*tshark, words], capture_output=True, text=True).stdout.splitlines()
                         for words in ("_ws.malformed || _ws.expert.severity == error", "infiniband"))
    return problems, len(packets)


def captured(table, rows, server, client):
    """Some rows once more, with tshark as the judge."""
    if shutil.which("tshark") is None:
        print("tshark is not installed: nothing was captured")
        return
    kept, table.keep_all = table.keep, True
    with tempfile.TemporaryDirectory() as table.keep:
        for row in rows:
            start = time.monotonic()
            table.run(row, server, client, 4, 0, ", captured")
            problems, count = judge_capture(next(Path(table.keep).glob("*.pcap")), server.name == "siw")
            table.line(f"{row.name}, in tshark", f"{client.name} -> {server.name}", 4, "-", not problems and count > 0,
                       time.monotonic() - start)
            print("\n".join([f"    {count} of them in tshark", *problems[:20]]))
            for path in Path(table.keep).iterdir():
                path.unlink()
    table.keep, table.keep_all = kept, False


def goodbyes(table, server, client):
    """The end of three connections, where just what ends them gets lost once: both ends wait for it and say it again."""
    row = Row("m ucmatose | ucmatose -p PORT -c 3 -C 5 -S 4000 | -b HOST | -s HOST")
    for name, kind in (("DREQ", 0x15), ("DREP", 0x16)):
        table.guest.cable(f"drop {kind} 3")
        table.run(row, server, client, 4, 0, f", {name} lost")
        left = int(table.guest.cable("drop 0 0"))
        if left > 0:
            table.line(f"{left} of 3 {name} were not there", f"{client.name} -> {server.name}", 4, "-", False, 0)


def killed(table, server, client, family, victim="client"):
    """An end that is killed in mid-transfer: the other is told. By Heddle's agent, who says so again when that is lost; by Linux once;
    on iWARP by the end of the TCP connection."""
    iwarp = "siw" in (client.name, server.name)
    lost = 3 if client.name == "heddle" and not iwarp else 0
    table.port += 1
    start = time.monotonic()
    words = ["rping", "-a", server.address(family), "-p", str(table.port), "-v"]
    first, second, passed = server.start([*words, "-s"], family, False), None, False
    try:
        if server.listens(Row("m rping | rping | |"), table.port, first):
            table.guest.cable("counts")
            second = client.start([*words, "-c"], family, False)
            seen = 0
            for _ in range(LIMIT * 10):
                seen += int(table.guest.cable("counts").split()[0 if iwarp else 1])
                if seen > 200:  # they are at it
                    break
                time.sleep(0.1)
            table.guest.cable(f"drop 0x15 {lost}")
            dies, stays = (second, first) if victim == "client" else (first, second)
            dies.kill()
            passed = seen > 200 and stays.wait(LIMIT) is not None and table.guest.cable("drop 0 0") == "0"
    finally:
        for job in (first, second):
            if job is not None:
                job.end()
    table.line(f"rping, {victim} killed" + ("" if iwarp else f", {lost} DREQ lost"), f"{client.name} -> {server.name}", family, "-", passed,
               time.monotonic() - start)
    if not passed:
        print(tail(first.output()), tail(second.output()) if second else "not started", sep="\n")


def chosen(args, driver, rows):
    words = (args.only or "").split()
    return [row for row in rows if all(word in f"{row.name} {' '.join(row.server)}" for word in words)
            and ("q" in row.flags or not args.quick) and ("w" in row.flags or driver != "siw")
            and ("i" not in row.flags or driver == "siw") and not (("DATA" in row.client or row.settings) and args.self)]


def cells(args, driver, rows, mtu):
    """(row, family, loss) that are to be run on a cable with @mtu"""
    for row in rows:
        if mtu != MTU and "j" not in row.flags and not args.mtu:
            continue
        for family in (4, 6):
            for loss in (0, 1):
                if (loss and ("r" not in row.flags or driver == "siw")) or (family == 6 and "4" in row.flags) or args.family not in (None, family) or args.loss not in (None, loss):
                    continue
                if args.quick and driver != "siw" and (loss == 1) != (family == 6) and "r" in row.flags:
                    continue
                yield row, family, loss


def on_cable(args, linux, driver, mtu, rows, totals):
    # The client of the kernel's iSCSI target runs in the guest only when the guest is at both ends.
    programs = sorted(set().union({"ucmatose", "rping"}, *(row.programs() for row in rows if args.self or "k" not in row.flags)))
    own = ours(args.folder)
    guest = peer.Guest(linux, Path(own["patterns"]).parent, [*programs, *own.items()], mtu)
    here = None
    try:
        rxe = Kernel(guest, driver)
        here = rxe if args.self else Heddle(args.folder, DEVICES[driver])
        table = Table(guest, args.keep, mtu, driver)
        print(f"\n{driver}, the cable carries {mtu} bytes\n{'':34} {'client -> server':16} {'':6} {'packets lost':>14}")
        for row, family, loss in [*cells(args, driver, rows, mtu)] * args.rounds:
            for server, client in [(rxe, rxe)] if args.self else [(rxe, here), (here, rxe)]:
                if set("kc") & set(row.flags) and server is not rxe:
                    continue
                if not guest.alive():
                    raise RuntimeError(f"the guest died:\n{guest.console()}")
                table.run(row, server, client, family, loss)
        if mtu == MTU and not args.self and not args.quick and args.only in (None, "goodbyes"):
            for server, client in ((rxe, here), (here, rxe)):
                if driver == "rxe":
                    goodbyes(table, server, client)
                    killed(table, server, client, 4)
                    continue
                for family in (4, 6):
                    for victim in ("client", "server"):
                        killed(table, server, client, family, victim)
        if mtu == MTU and driver == "siw" and not args.self and not args.only:
            captured(table, [Row(IWARP_CAPTURED)], rxe, here)
        if mtu == MTU and driver == "rxe" and not args.self and not args.only:
            small = [Row(line) for line in ("t patterns to 70000 bytes | patterns -d DEVICE -g GID -p PORT -b 70000 | | HOST",
                                            "m rping | rping -a HOST -p PORT -C 10 | -s | -c")]
            captured(table, small, rxe, here)
        totals.append(table)
    finally:
        guest.close()
        if here is not None and not args.self:
            here.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--driver", choices=sorted(DEVICES))
    parser.add_argument("--self", nargs="?", const="rxe", choices=("rxe", "siw"))
    parser.add_argument("--only")
    parser.add_argument("--keep")
    for option in ("--family", "--loss", "--mtu"):
        parser.add_argument(option, type=int)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    os.environ.pop("LD_LIBRARY_PATH", None)
    os.environ.pop("MALLOC_PERTURB_", None)  # meson sets it; libiscsi 1.19 looks at memory that it has not written
    linux = os.environ.get("HEDDLE_PEER_LINUX") or peer.kernel(ROOT, args.quick)
    os.environ["HEDDLE_PEER_LINUX"] = linux  # there is no network to get it by in a moment
    peer.alone()
    totals = []
    for driver in [args.self or args.driver] if args.self or args.driver else DEVICES:
        rows = chosen(args, driver, [Row(line) for line in ROWS.strip().splitlines()])
        for row in rows:
            for program in row.programs():
                if shutil.which(program) is None:
                    raise Cannot(f"{program} is not installed")
        for mtu in [args.mtu] if args.mtu else [MTU] if args.quick else [MTU, JUMBO]:
            on_cable(args, linux, driver, mtu, rows, totals)
    failed = [name for table in totals for name in table.failed]
    for table in totals:
        table.show()
    print(f"\n{sum(table.passed for table in totals)} passed, {len(failed)} failed; "
          f"{sum(table.lost for table in totals)} packets were lost on purpose; "
          f"{sum(table.again for table in totals)} rows were tried more than once")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Cannot as reason:
        print(f"skipped: {reason}")
        sys.exit(peer.SKIP)
