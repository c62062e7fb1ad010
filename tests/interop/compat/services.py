#!/usr/bin/python3
"""Larger programs of Debian on our libibverbs.so.1, which bring a protocol of their own. What they carried is compared.

  services.py FOLDER iser       tgtd with a disk in a file, and libiscsi's programs on it over iSER
  services.py FOLDER rsockets   netcat, curl and iperf3, which know sockets only, through librspreload
  services.py FOLDER mpi PROG   Open MPI with four processes: PROG checks messages, collective and one-sided operations
  services.py FOLDER fio        fio's rdma engine, each of its verbs
  services.py FOLDER fabric     libfabric's fi_pingpong, each kind of endpoint
  services.py FOLDER dapl       DAPL's own tests, on rdma_cm and on verbs alone

  services.py FOLDER ... wire    the same over UDP in place of the same-host path, all processes on one node
  services.py FOLDER ... nodes   the same, servers on one node and clients on another; of MPI's processes half on each
  services.py FOLDER ... hosts   the same between two networks (not mpi), as in programs.py
  services.py FOLDER ... iwarp [WAY]   the same on heddle_iw0 (not mpi)

FOLDER as in programs.py. A missing program is a skip (exit 77) that says so."""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from programs import HOSTS, NODES, OPTIONS, SKIP, WAYS, at_server, expect, free_port, starts_on

PRELOAD = [Path(folder) / "rsocket/librspreload.so" for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")]
PATIENCE = 90  # seconds that a pair of programs may take on a busy machine
AGAIN = 30     # seconds in which a client that finds no server is started again
LINES = 8000000  # of a stream of about 60 MB
IPERF_BYTES = 20 << 20
RSOCKET_BYTES = 128 << 10  # of memory for what was not read yet, unless it is set in /etc/rdma/rsocket/mem_default


def need(*programs):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program in programs:
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            sys.exit(SKIP)


def on_node(folder, client, *command):
    return [*starts_on(folder, client), *map(str, command)]


def server_address(folder):
    return at_server(folder, ["127.0.0.1"])[0]


def end(process):
    """@process leads a session of its own: what it has started ends with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(command, patience, **options):
    """Run to the end, as subprocess.run() does, but nothing stays when it takes too long."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)
    try:
        printed, _ = process.communicate(timeout=patience)
        return subprocess.CompletedProcess(command, process.returncode, printed)
    finally:
        end(process)


def pair_once(folder, server, client, **options):
    """Run @server and @client. Nothing outside shows that the server listens: a client that fails at once is started again.
    Returns whether both ended well, and what each of them printed, the client each time."""
    said = ""
    with tempfile.TemporaryFile("w+") as output:
        first = subprocess.Popen(on_node(folder, False, *server), stdout=output, stderr=subprocess.STDOUT,
                                 start_new_session=True, **options)
        last, until, done, code = time.monotonic() + AGAIN, time.monotonic() + PATIENCE, None, None
        try:
            while True:
                time.sleep(0.1)
                done = run(on_node(folder, True, *client), until - time.monotonic(), **options)
                said += done.stdout
                if done.returncode == 0 or first.poll() is not None or time.monotonic() > last:
                    break
            code = first.wait(timeout=max(1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            done = None
        finally:
            end(first)
        output.seek(0)
        printed = output.read()
    return done is not None and done.returncode == 0 and code == 0, said if done else f"{said}timed out", printed


def pair(folder, what, server, client, **options):
    """Run @server and @client, which must both end well. Returns what they printed."""
    good, client_printed, server_printed = pair_once(folder, server, client, **options)
    expect(what, good, "client:", client_printed, "server:", server_printed)
    return client_printed, server_printed


# --- iSER ---

TARGET, INITIATOR = "iqn.2026-01.net.heddle:disk", "iqn.2026-01.net.heddle:initiator"
# What writes, and what reads back and compares. Write10.Async and its kind ask for more at once than libiscsi can hold over iSER.
ISCSI_TESTS = ["SCSI.Read16", "SCSI.Write10.Simple", "SCSI.WriteSame10", "SCSI.WriteVerify16", "SCSI.OrWrite", "SCSI.Verify10"]


def admin(*words):
    return subprocess.run(["tgtadm", "--lld", "iser", *words], capture_output=True, text=True, timeout=PATIENCE)


def iser(folder):
    need("tgtd", "tgtadm", "iscsi-inq", "iscsi-readcapacity16", "iscsi-perf", "iscsi-test-cu")
    os.environ.pop("MALLOC_PERTURB_", None)  # meson sets it; libiscsi 1.19 looks at memory that it has not written
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 64 << 20 else None  # a disk may be slow
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        disk = Path(scratch) / "disk"
        disk.write_bytes(bytes(16 << 20))
        os.environ["TGT_IPC_SOCKET"] = f"{scratch}/tgtd"
        port = random.randint(10000, 30000)  # tgtd keeps it in a short
        with tempfile.TemporaryFile("w+") as output:
            daemon = subprocess.Popen(on_node(folder, False, "tgtd", "-f", "--iscsi", f"portal=127.0.0.1:{free_port()}",
                                              "--iser", f"port={port},pool_sz_mb=64"),
                                      stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                use_target(folder, disk, port)
                expect("tgtd is still there", daemon.poll() is None)
            except BaseException:
                output.seek(0)
                said = output.read()
                print("tgtd:", said[:3000], said[3000:][-3000:])
                raise
            finally:
                end(daemon)
        content = disk.read_bytes()
        expect("the disk was written", any(content))


def use_target(folder, disk, port):
    until = time.monotonic() + PATIENCE
    while admin("--mode", "target", "--op", "new", "--tid", "1", "--targetname", TARGET).returncode != 0:
        if time.monotonic() > until:
            expect("tgtd answers", False)
        time.sleep(0.05)
    for words in (["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", str(disk)],
                  ["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
                  ["--mode", "target", "--op", "bind", "--tid", "1", "-Q", INITIATOR]):  # this release wants both
        done = admin(*words)
        expect("tgtadm " + " ".join(words[:4]), done.returncode == 0, done.stderr)
    url = f"iser://{server_address(folder)}:{port}/{TARGET}/1"
    for program, words, says in (("iscsi-inq", [], "VIRTUAL-DISK"), ("iscsi-readcapacity16", [], f"Total size:{16 << 20}"),
                                 ("iscsi-perf", ["-t", "1", "-r"], "finished"),
                                 *(("iscsi-test-cu", ["-d", "-n", "-f", "-t", test], "return value: 0") for test in ISCSI_TESTS)):
        # libiscsi gives up a connection by iSER where nothing happens for a second: a busy machine may be as slow.
        for _ in range(4):
            done = subprocess.run(on_node(folder, True, program, "-i", INITIATOR, *words, url), capture_output=True, text=True, timeout=PATIENCE)
            if "revents is not POLLIN" not in done.stdout + done.stderr:
                break
        expect(" ".join([program, *words]), done.returncode == 0 and says in done.stdout + done.stderr,
               str(done.returncode), done.stdout, done.stderr)
    # It keeps a connection until that has been over for a while; a target with connections cannot go.
    until = time.monotonic() + PATIENCE
    while admin("--mode", "target", "--op", "delete", "--tid", "1").returncode != 0:
        if time.monotonic() > until:
            expect("tgtd has let go of all connections", False)
        time.sleep(0.1)


# --- sockets ---

def rsockets(folder):
    need("nc.traditional", "curl", "iperf3")
    preload = next((path for path in PRELOAD if path.exists()), None)
    if preload is None:
        print("skipped: librspreload is not installed")
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(3) as pool:
        data = Path(scratch) / "data"
        data.write_bytes(random.Random(1).randbytes(3 << 20))
        answer = Path(scratch) / "answer"
        answer.write_bytes(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % data.stat().st_size + data.read_bytes())

        def sockets(what, server, client):
            env = ["env", f"LD_PRELOAD={preload}"]
            return pair(folder, what, [*env, *server], [*env, *client])

        host = server_address(folder)

        def netcat():
            sockets("netcat", ["sh", "-c", f"nc.traditional -l -p 5001 > {scratch}/heard"],
                    ["sh", "-c", f"nc.traditional -q 0 {host} 5001 < {data}"])
            expect("netcat brought what was sent", Path(scratch, "heard").read_bytes() == data.read_bytes())
            sockets("curl", ["sh", "-c", f"nc.traditional -l -p 5002 < {answer}"],
                    ["curl", "-sS", "-o", f"{scratch}/got", f"http://{host}:5002/"])
            expect("curl got what was sent", Path(scratch, "got").read_bytes() == data.read_bytes())

        def long_stream():
            """No two lines are the same: what is missing, twice there or in another place changes the sum."""
            lines = Path(scratch) / "lines"  # no pipe: librspreload's select(2) does not show the end of one
            with open(lines, "wb") as file:
                subprocess.run(["seq", str(LINES)], stdout=file, check=True)
            sockets("netcat, a long stream", ["sh", "-c", f"nc.traditional -l -p 5004 | sha256sum > {scratch}/sum"],
                    ["sh", "-c", f"nc.traditional -q 0 {host} 5004 < {lines}"])
            sent, heard = hashlib.sha256(lines.read_bytes()).hexdigest(), Path(scratch, "sum").read_text().split()[0]
            expect("netcat brought every byte of a long stream", heard == sent, heard, sent)

        def iperf():
            # Its server waits by select(2) for a connection, where librdmacm looks every five seconds.
            client, _ = sockets("iperf3", ["iperf3", "-s", "-1", "-p", "5003"],
                                ["iperf3", "-J", "-c", host, "-p", "5003", "-n", str(IPERF_BYTES)])
            ends = json.loads(client[client.rfind("\n{\n") + 1:])["end"]  # of the last try
            sent, received = (ends[which]["bytes"] for which in ("sum_sent", "sum_received"))
            # Its server counts no more, and closes the stream, once it reads on its other connection that the client is done (iperf 3.12,
            # iperf_handle_message_server(), TEST_END; iperf_tcp_recv()). What is in the stream then, and not read, cannot be more than
            # the memory that a receiver's rsocket has.
            expect("iperf3 sent 20 MB", sent == IPERF_BYTES and 0 <= sent - received <= RSOCKET_BYTES, client)

        for done in [pool.submit(part) for part in (iperf, netcat, long_stream)]:
            done.result()


# --- Open MPI ---

def mpi(folder, program):
    need("mpirun")
    if not os.path.exists(program):
        print("skipped: Open MPI was not there when this was built")
        sys.exit(SKIP)
    os.environ.update(UCX_TLS="rc_v,ud_v,self", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for words in ([], ["one-sided"]):
        ranks = []
        for node in NODES:
            ranks += [*([":"] if ranks else []), "-np", "2", "-x", f"HEDDLE_NODE={node}", program, *words]
        done = subprocess.run(on_node(folder, False, "mpirun", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
                                      "--mca", "btl", "^openib,vader,tcp", *ranks), capture_output=True, text=True, timeout=100)
        expect(" ".join(["Open MPI, 4 processes", *words]), done.returncode == 0 and "ok: 4 ranks" in done.stdout,
               done.stdout, done.stderr)
        print(done.stdout.strip())


# --- fio ---

def fio(folder):
    need("fio")
    if "\trdma" not in subprocess.run(["fio", "--enghelp"], capture_output=True, text=True).stdout:
        print("skipped: fio has no rdma engine")
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory() as scratch:
        for place, verb in enumerate(("write", "read", "send")):
            common = f"ioengine=rdma\nport={7000 + place}\nbs=64k\nsize=4m\n"
            # As many receives as there are messages: a sender that outruns the receiver is told so, and fio asks for no retries.
            Path(scratch, "server").write_text(f"[global]\n{common}iodepth=128\n[receiver]\nrw=read\n")
            Path(scratch, "client").write_text(
                f"[global]\n{common}iodepth=8\nhostname={server_address(folder)}\nverb={verb}\n[sender]\nrw=write\n")
            client, _ = pair(folder, f"fio verb={verb}", ["fio", f"{scratch}/server"], ["fio", f"{scratch}/client"], cwd=scratch)
            expect(f"fio verb={verb} moved 4 MiB", "io=4096KiB" in client or "io=4.00MiB" in client or "io=4MiB" in client, client)


# --- libfabric ---

def fabric(folder):
    need("fi_pingpong")
    kinds = [("verbs", "msg"), ("verbs;ofi_rxm", "rdm"), ("verbs", "dgram"), ("verbs;ofi_rxd", "rdm")]
    for provider, kind in kinds[:2] if OPTIONS else kinds:  # no datagrams on iWARP
        command = ["fi_pingpong", "-p", provider, "-e", kind, "-I", "50", "-c"]
        port = str(free_port())
        client, server = pair(folder, " ".join(command), [*command, "-B", port], [*command, "-P", port, server_address(folder)])
        expect(f"{provider} {kind} went through all sizes", "1m" in client and "1m" in server or kind == "dgram", client, server)


# --- DAPL ---

def only_loopback():
    """Has this machine no address but those of the loopback? So it is in a network namespace of its own."""
    return not subprocess.run(["ip", "-4", "-o", "address", "show", "scope", "global"], stdout=subprocess.PIPE, check=True).stdout


def dapl(folder):
    need("dtest", "dtestsrq")
    with tempfile.TemporaryDirectory() as scratch:
        def env(client):
            registry = Path(scratch, "client" if client else "server")
            # The server tells its client by TCP what its address is.
            interface = server_address(folder) if not client else HOSTS[client][1] if HOSTS else "lo"
            registry.write_text(f'cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{interface} 0" ""\n'
                                'scm u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "heddle0 1" ""\n')
            return ["env", f"DAT_OVERRIDE={registry}"]

        lines = ["dtest -P cma -b 65536 -B 100 -D", "dtestsrq -P cma", "dtest -P scm -b 65536 -B 100 -D"]
        for line in lines[:2] if OPTIONS else lines:  # scm connects queue pairs itself, which iWARP does not know
            if "scm" in line and not HOSTS and only_loopback():
                print(f"{line}: not tried, the provider wants an address that is not on the loopback")
                continue
            words = line.split()
            pair(folder, line, [*env(False), *words], [*env(True), *words, "-h", server_address(folder)])


if __name__ == "__main__":
    words = sys.argv[3:]
    while words and words[-1] in WAYS:
        WAYS[words.pop()]()
    {"iser": iser, "rsockets": rsockets, "mpi": mpi, "fio": fio, "fabric": fabric, "dapl": dapl}[sys.argv[2]](sys.argv[1], *words)
