#!/usr/bin/python3
"""Ceph with RDMA between its daemons and clients: a monitor, and one object store in memory.

  ceph.py FOLDER                 objects are written, read back and compared
  ceph.py FOLDER wire            the same over UDP in place of the same-host path
  ceph.py FOLDER nodes           the same, daemons on one node and clients on another
  ceph.py FOLDER bench [TURNS [SECONDS]]
                                 `rados bench` over Heddle and over loopback TCP, in turns

FOLDER as in programs.py. Takes about 20 s per cluster, so `make interop` runs it and `make test` does not. A missing program is a skip
(exit 77) that says so."""
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import WAYS, expect, free_port, starts_on
from services import end, need

PATIENCE = 60  # seconds that a program may take on a busy machine
OBJECT_BYTES = 24 << 20
FSID = "7a1c6b36-6f5e-4d47-9d0e-0f6c0ce4d1aa"

# ms_type is all that RDMA needs; heddle0 is found by itself. The settings of ms_async_rdma are for a small machine. Each end of a connection
# has a receive queue of its own, by default 4,096 buffers of 128 KiB, half a GiB; and each process has a thread that polls for 1 ms
# before it waits, which on few processors is time that the others need.
CONF = """
[global]
fsid = {fsid}
mon_host = v2:127.0.0.1:{port}/0
mon_initial_members = a
ms_type = async+{kind}
ms_async_rdma_polling_us = 0
ms_async_rdma_receive_queue_len = 256
ms_async_rdma_receive_buffers = 2048
ms_async_rdma_send_buffers = 512
ms_bind_msgr1 = false
ms_bind_ipv6 = false
ms_bind_exclude_lo_iface = false
public_network = 127.0.0.0/8
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
mon_data_avail_warn = 1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = 4294967296
run_dir = {folder}
admin_socket = {folder}/$name.$pid.asok
pid_file = {folder}/$name.pid
log_file = {folder}/$name.log
mon_data = {folder}/mon
osd_data = {folder}/osd
[mon.a]
public_addr = v2:127.0.0.1:{port}/0
"""


class Cluster:
    """@kind: rdma, or posix for TCP."""

    def __init__(self, folder, scratch, kind):
        self.folder, self.scratch, self.kind, self.daemons = folder, Path(scratch), kind, []
        self.conf = self.scratch / "ceph.conf"

    def words(self, client, *words):
        before = starts_on(self.folder, client) if self.kind == "rdma" else []
        return [*before, words[0], "-c", str(self.conf), *map(str, words[1:])]

    def run(self, *words, client=True, patience=PATIENCE):
        done = subprocess.run(self.words(client, *words), capture_output=True, text=True, timeout=patience)
        if done.returncode != 0:
            raise RuntimeError(" ".join(map(str, words)) + ": " + (done.stderr or done.stdout)[-1000:])
        return done.stdout

    def start(self, *words):
        with open(self.scratch / f"{words[0]}.out", "w") as output:
            self.daemons.append(subprocess.Popen(self.words(False, *words, "-f"), stdout=output, stderr=subprocess.STDOUT,
                                                 start_new_session=True))

    def until(self, pattern, *words):
        """Ask until the answer shows @pattern."""
        last, said = time.monotonic() + PATIENCE, ""
        while not re.search(pattern, said):
            if time.monotonic() > last or any(daemon.poll() is not None for daemon in self.daemons):
                raise RuntimeError(f"{' '.join(words)}: {said}")
            try:
                said = self.run(*words, patience=10)
            except (RuntimeError, subprocess.TimeoutExpired) as failure:
                said = str(failure)

    def __enter__(self):
        port = free_port()
        for name in ("mon", "osd"):
            (self.scratch / name).mkdir()
        self.conf.write_text(CONF.format(fsid=FSID, port=port, kind=self.kind, folder=self.scratch))
        subprocess.run(["monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{port}/0]", "--fsid", FSID, self.scratch / "monmap"],
                       check=True, capture_output=True)
        try:
            self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", self.scratch / "monmap", client=False)
            self.start("ceph-mon", "-i", "a")
            self.until(r"quorum a", "ceph", "-s")
            self.run("ceph", "osd", "create")
            self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", FSID, client=False)
            self.run("ceph", "osd", "crush", "add", "osd.0", "1.0", "host=localhost", "root=default")
            self.start("ceph-osd", "-i", "0")
            self.until(r"1 up", "ceph", "osd", "stat")
            self.run("ceph", "osd", "pool", "create", "p", "8")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            os.killpg(daemon.pid, signal.SIGTERM)
            try:
                daemon.wait(timeout=3)
            except subprocess.TimeoutExpired:
                pass
            end(daemon)

    def bench(self, what, seconds):
        """MB per second. rados(8) compares what it reads with what it wrote."""
        more = ["--no-cleanup"] if what == "write" else []
        said = self.run("rados", "-p", "p", "bench", seconds, what, "-t", "16", *more, patience=PATIENCE + seconds)
        return float(re.search(r"Bandwidth \(MB/sec\): *([\d.]+)", said)[1])


def check(folder):
    with tempfile.TemporaryDirectory() as scratch, Cluster(folder, scratch, "rdma") as cluster:
        print("ok: the monitor and the object store have started")
        written, read = Path(scratch, "written"), Path(scratch, "read")
        written.write_bytes(random.randbytes(OBJECT_BYTES))
        cluster.run("rados", "-p", "p", "put", "thing", written)
        cluster.run("rados", "-p", "p", "get", "thing", read)
        expect("an object is read as it was written", read.read_bytes() == written.read_bytes())
        for what in ("write", "seq"):
            expect(f"rados bench {what}", cluster.bench(what, 2) > 0)
        expect("the daemons are still there", all(daemon.poll() is None for daemon in cluster.daemons))


def measure(folder, turns, seconds):
    figures = {}
    for turn in range(turns):
        for kind in ("rdma", "posix") if turn % 2 == 0 else ("posix", "rdma"):
            with tempfile.TemporaryDirectory() as scratch, Cluster(folder, scratch, kind) as cluster:
                for what in ("write", "seq"):
                    figures.setdefault((what, kind), []).append(cluster.bench(what, seconds))
                    print(f"turn {turn + 1}: {what} {kind} {figures[what, kind][-1]:.0f} MB/s", flush=True)
    for (what, kind), found in sorted(figures.items()):
        print(f"{what:6} {kind:6} {statistics.median(found):6.0f} MB/s ({min(found):.0f} to {max(found):.0f})")


if __name__ == "__main__":
    need("ceph", "ceph-mon", "ceph-osd", "monmaptool", "rados")
    words = sys.argv[2:]
    if words and words[-1] in WAYS:
        WAYS[words.pop()]()
    if words:
        measure(sys.argv[1], *map(int, words[1:] + ["3", "8"][len(words) - 1:]))
    else:
        check(sys.argv[1])
