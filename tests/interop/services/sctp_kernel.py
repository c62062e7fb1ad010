#!/usr/bin/env python3
"""RDMA over SCTP (RFC 5043) with the SCTP of Linux as the other end: a small end on its sockets (sctp_peer.c) in a guest, UDP
encapsulation, both directions, IPv4 and IPv6, with and without loss.

    sctp_kernel.py BUILD

A few rows, where the kernel is at hand (tools/peer). Exit status 77: it is not."""
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/interop/kernel"))
import guest as peer  # noqa: E402

LIMIT = 60
PORT = 5043
LOSS_ONE_IN = 20


def row(guest, own, word, six, loss):
    """One direction: (passed, what was said)."""
    here, there = (peer.HERE6, peer.THERE6) if six else (peer.HERE, peer.THERE)
    guest.cable(f"loss {LOSS_ONE_IN if loss else 0}")
    with tempfile.TemporaryDirectory(prefix="heddle-sctp-") as directory:
        env = dict(os.environ, HEDDLE_DIR=directory, HEDDLE_ADDR=here)
        if word == "connect":
            job = guest.start(f"sctp-peer server {PORT}", LIMIT)
            peer.wait_until(lambda: guest.run(f"grep -q {PORT} /proc/net/sctp/eps")[0] == 0, 10)
            done = subprocess.run([own, "connect", here, there, str(PORT)], env=env, capture_output=True, text=True, timeout=LIMIT)
            said = done.stdout + done.stderr
        else:
            side = subprocess.Popen([own, "accept", here], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            lines = []
            while not lines or not lines[-1].strip().isdigit():
                lines.append(side.stdout.readline())
                if not lines[-1]:
                    break
            job = guest.start(f"sctp-peer client {here} {lines[-1].strip()}", LIMIT)
            said = "".join(lines) + side.communicate(timeout=LIMIT)[0]
            done = side
        code = job.wait(LIMIT)
    guest.cable("loss 0")
    return done.returncode == 0 and code == 0, f"{said}\nguest ({code}): {job.output()}"


def two(guest, own):
    """Two processes of one node, which share the UDP port, and the guest at both."""
    guest.cable("loss 0")
    with tempfile.TemporaryDirectory(prefix="heddle-sctp-") as directory:
        env = dict(os.environ, HEDDLE_DIR=directory, HEDDLE_ADDR=peer.HERE)
        sides, jobs = [], []
        for _ in range(2):
            side = subprocess.Popen([own, "accept", peer.HERE], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            line = "-"
            while line and not line.strip().isdigit():
                line = side.stdout.readline()
            sides.append((side, line.strip()))
        for _, port in sides:
            jobs.append(guest.start(f"sctp-peer client {peer.HERE} {port}", LIMIT))
        codes = [job.wait(LIMIT) for job in jobs]
        said = "".join(side.communicate(timeout=LIMIT)[0] for side, _ in sides)
    return all(side.returncode == 0 for side, _ in sides) and not any(codes), said + "".join(job.output() for job in jobs)


def main():
    build = Path(sys.argv[1])
    own = str(build / "tests/interop/services/interop-services-sctp-kernel")
    os.environ["HEDDLE_AGENT"] = str(build / "heddled")
    guest, failed = None, 0
    try:
        peer.alone()
        linux = peer.kernel(ROOT, True)
        program = build / "tests/interop/services/sctp-peer"
        guest = peer.Guest(linux, str(build / "tests/interop/kernel"), [("sctp-peer", str(program))])
        code, said = guest.run("echo 9899 >/proc/sys/net/sctp/encap_port && echo 9899 >/proc/sys/net/sctp/udp_port")
        if code != 0:
            raise peer.Cannot(f"the kernel of the guest has no SCTP inside UDP: {shlex.quote(said)}")
        passed, said = two(guest, own)
        print(f"{'ok    ' if passed else 'FAILED'} two processes accept on one UDP port", flush=True)
        if not passed:
            print(said, guest.console(), flush=True)
        failed += not passed
        for loss in (False, True):
            for six in (False, True):
                for word in ("accept", "connect"):
                    passed, said = row(guest, own, word, six, loss)
                    print(f"{'ok    ' if passed else 'FAILED'} {word} IPv{6 if six else 4}{' with loss' if loss else ''}", flush=True)
                    if not passed:
                        print(said, guest.console(), flush=True)
                    failed += not passed
    except peer.Cannot as why:
        print(f"skipped: {why}")
        return peer.SKIP
    finally:
        if guest is not None:
            guest.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
