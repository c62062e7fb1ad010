#!/usr/bin/python3
"""A guest of QEMU whose card is `heddle tap host --unix`: pings, a file with its checksum, and a container beside it on the same unit.

  vm.py FOLDER     FOLDER has the programs

The guest is Debian's cloud kernel with busybox, without KVM, so it takes some seconds: make interop runs it, make test does not.
TAP_GUEST_ROOT=PATH takes boot/ and lib/modules/ from there (`dpkg -x` of the package) instead of /."""
import gzip
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
from rig import PYTHON, Base, main  # noqa: E402

ROOT = Path(os.environ.get("TAP_GUEST_ROOT", "/"))
BOOT_S = 240  # on a busy machine
MODULES = "virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net".split()
MAC = "52:54:00:12:34:56"
SERVE = """
import socket, sys
data = open(sys.argv[2], "rb").read()
s = socket.create_server((sys.argv[1], 8000))
print(flush=True)
while True:
    c, _ = s.accept()
    got = b""
    while b"\\r\\n\\r\\n" not in got:
        got += c.recv(65536)
    c.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(data) + data)
    c.close()
"""
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for m in {modules}; do insmod /$m.ko; done
ip link set lo up
ip link set eth0 up
echo "HEDDLE booted"
{commands}
echo "HEDDLE end"
poweroff -f
"""
# udhcpc calls it with what the server said.
LEASE = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev eth0
ip route add "${router%% *}" dev eth0
ip route add default via "${router%% *}"
echo "$router" >/router
"""


def archive(files):
    """An initramfs: a cpio archive (newc)."""
    out = b""
    for number, (name, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")]):
        path = name.encode() + b"\0"
        fields = [number + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
        out += b"070701" + b"".join(b"%08X" % f for f in fields) + path
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return gzip.compress(out, 1)


def lacks():
    """What to install, or None."""
    if not shutil.which("qemu-system-x86_64"):
        return "there is no qemu-system-x86_64: install qemu-system-x86"
    if not shutil.which("busybox"):
        return "there is no busybox: install busybox-static"
    if not kernels():
        return "there is no kernel for the guest: install linux-image-cloud-amd64, or unpack it and name it in TAP_GUEST_ROOT"
    return None


def kernels():
    """Versions that can be read, and have the card's driver."""
    found = []
    for image in sorted((ROOT / "boot").glob("vmlinuz-*cloud-amd64")):
        version = image.name.removeprefix("vmlinuz-")
        if os.access(image, os.R_OK) and list((ROOT / "lib/modules" / version).rglob("virtio_net.ko")):
            found.append(version)
    return found


class Guest(Base):
    def boot(self, path, commands):
        """Boot a guest whose card is the socket @path, and run @commands in it. Its lines go to self.lines."""
        version = kernels()[-1]
        modules = {p.stem: p.read_bytes() for p in (ROOT / "lib/modules" / version).rglob("*.ko") if p.stem in MODULES}
        files = [("bin", 0o040755, b""), ("bin/busybox", 0o100755, Path(shutil.which("busybox")).read_bytes()),
                 ("lease", 0o100755, LEASE.encode()),
                 ("init", 0o100755, INIT.format(modules=" ".join(m for m in MODULES if m in modules), commands=commands).encode())]
        files += [(f"{name}.ko", 0o100644, data) for name, data in modules.items()]
        initramfs = self.place / "initramfs"
        initramfs.write_bytes(archive(files))
        guest = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel",
             ROOT / "boot" / f"vmlinuz-{version}", "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on",
             "-netdev", f"stream,id=n,server=off,addr.type=unix,addr.path={path}", "-device", f"virtio-net-pci,netdev=n,mac={MAC},romfile="],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.started.append(guest)
        self.lines, self.log = queue.Queue(), []

        def read():
            for line in guest.stdout:
                self.lines.put(line)
            self.lines.put(None)
        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        self.begun = time.monotonic()
        self.says("booted")
        self.boot_s = time.monotonic() - self.begun
        return guest

    def says(self, word):
        """Wait for a line `HEDDLE word ...'; returns the rest of it."""
        end = time.monotonic() + BOOT_S
        while True:
            try:
                line = self.lines.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                line = None
            self.assertIsNotNone(line, f"the guest did not say '{word}': {''.join(self.log[-30:])}")
            self.log.append(line)
            if line.startswith(f"HEDDLE {word}"):
                return line.removeprefix(f"HEDDLE {word}").strip()

    def serve(self, data, address, *before):
        (self.place / "file").write_bytes(data)
        server = subprocess.Popen([*before, PYTHON, "-c", SERVE, address, self.place / "file"], stdout=subprocess.PIPE)
        self.started.append(server)
        server.stdout.readline()

    def test_a_guest_and_a_container(self):
        self.unit()
        beside = self.host(3)
        path = self.place / "vm"
        self.heddle("tap", "host", "u", "--unix", path, "--name", "vm", node="h2")
        data = os.urandom(2000000)
        self.serve(data, "10.9.0.1", *self.lan.command())
        self.boot(path, """
ip addr add 10.9.0.2/24 dev eth0
ip -6 addr add fd09::2/64 dev eth0 nodad 2>/dev/null || ip -6 addr add fd09::2/64 dev eth0
ping -c 3 -W 20 10.9.0.1 | grep -q "3 packets received" && echo "HEDDLE ping ok" || echo "HEDDLE ping failed"
ping -c 3 -W 20 -s 8000 10.9.0.1 | grep -q "3 packets received" && echo "HEDDLE long ok" || echo "HEDDLE long failed"
ping -c 3 -W 20 10.9.0.3 | grep -q "3 packets received" && echo "HEDDLE beside ok" || echo "HEDDLE beside failed"
sleep 3
ping -6 -c 3 -W 20 fd09::1 | grep -q "3 packets received" && echo "HEDDLE six ok" || echo "HEDDLE six failed"
wget -q -O /file http://10.9.0.1:8000/file
echo "HEDDLE sum $(sha256sum /file)"
echo "HEDDLE waits"
while [ ! -s /word ]; do nc -l -p 7000 >/word; done
echo "HEDDLE word $(cat /word)"
""")
        for what in ("ping", "long", "beside", "six"):
            self.assertEqual(self.says(what), "ok", "".join(self.log[-20:]))
        self.assertEqual(self.says("sum").split()[0], hashlib.sha256(data).hexdigest())
        self.says("waits")
        # From the LAN and from the container to the guest.
        self.ping(self.lan, "10.9.0.2")
        self.ping(beside, "10.9.0.2")
        self.assertIn(MAC, self.lan.run("ip", "neigh", "show", "10.9.0.2"))
        self.assertIn(MAC, {h["mac"] for h in self.stat("unit")["hosts"]})
        self.assertEqual(self.stat("vm")["counters"]["refused"], 0)
        self.lan.run("sh", "-c", f"{PYTHON} -c \"import socket; s = socket.create_connection(('10.9.0.2', 7000), 20); s.sendall(b'hello\\n')\"")
        self.assertEqual(self.says("word"), "hello")
        self.says("end")
        print(f"(booted in {self.boot_s:.1f} s)", end=" ", flush=True)

    def test_the_real_network(self):
        """passt as the LAN: the guest gets its address from it, and a TCP connection to the gateway reaches this machine."""
        if not shutil.which("passt"):
            self.skipTest("passt is not installed")
        path, vm = self.place / "passt", self.place / "vm"
        passt = subprocess.Popen(["passt", "-f", "-1", "--socket", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.started.append(passt)
        self.until("passt listens", path.exists, 20)
        self.heddle("tap", "unit", "--lan", f"unix:{path}", node="u")
        self.heddle("tap", "host", "u", "--unix", vm, "--name", "vm", node="h2")
        data = os.urandom(200000)
        self.serve(data, "127.0.0.1")
        self.boot(vm, """
udhcpc -i eth0 -s /lease -n -q -t 20 >/dev/null 2>&1
wget -q -O /file "http://$(cat /router):8000/file"
echo "HEDDLE sum $(sha256sum /file)"
""")
        self.assertEqual(self.says("sum").split()[0], hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    why = lacks()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    main()
