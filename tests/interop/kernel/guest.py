"""A guest with a kernel of its own at the end of a cable: boots it, runs commands in it, loses packets on the way, ends it.

The guest is User-Mode Linux (tools/peer), an ordinary process. Its card is a socket, the other end of which `relay` carries to
and from a tap device. Everything lives in a network and a process namespace of this program alone: nothing of it can be reached from
outside, and nothing of it stays when the program ends, however it ends."""
import base64
import gzip
import os
import queue
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SKIP = 77
HERE, THERE = "10.72.0.1", "10.72.0.2"
HERE6, THERE6 = "fd72::1", "fd72::2"
TAP = "heddle-tap"
MEMORY_MIB = 768
BOOT_SECONDS = 30
OUTPUT_BYTES = 20000  # of a command in the guest, from its end

# Of the host, copied into the guest with the libraries that they name.
TOOLS = "sh mount mkdir rm rmdir ln cat sha256sum sleep timeout base64 stty grep tail ip rdma ibv_devinfo".split()
# Opened by name, so ldd does not tell: the drivers of verbs, and what pthread_exit(3) loads.
OPENED = ["libibverbs/librxe-rdmav*.so", "libibverbs/libsiw-rdmav*.so", "libgcc_s.so.1"]

INIT = """#!/bin/sh
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
ulimit -l unlimited
{ grep . /proc/cpuinfo; echo "cpu MHz : $MHZ"; } >/tmp/cpuinfo
mount --bind /tmp/cpuinfo /proc/cpuinfo
ip link set lo up
ip link set vec0 name eth0
ip link set eth0 mtu $MTU up
ip addr add $THERE/24 dev eth0
ip addr add $THERE6/64 dev eth0 nodad
exec <>/dev/ttyS0 >&0
stty raw -echo
echo ready
while read -r word job rest; do
	case $word in
	start)
		limit=${rest%% *}
		(
			timeout -k 2 "$limit" sh -c "${rest#* }" >"/tmp/$job" 2>&1 </dev/null &
			echo $! >"/tmp/$job.pid"
			wait $!
			echo "done $job $?"
		) &
		;;
	output)
		echo "output $job $(tail -c $OUTPUT "/tmp/$job" | base64 -w 0)"
		rm -f "/tmp/$job" "/tmp/$job.pid"
		;;
	end)
		kill "$(cat "/tmp/$job.pid")"
		;;
	kill)
		kill -9 "-$(cat "/tmp/$job.pid")" # timeout(1) leads a group
		;;
	esac
done
"""


TARGET = "iqn.2026-01.net.heddle:disk"
DISK_MIB = 16

# Commands that only the guest has.
COMMANDS = {
    "use-rxe": """#!/bin/sh
# use-rxe: RoCE (rdma_rxe, device rxe0) on the cable, in place of siw.
rdma link del siw0 2>/dev/null
rdma link add rxe0 type rxe netdev eth0
""",
    "use-siw": """#!/bin/sh
# use-siw: iWARP (siw, device siw0) on the cable, in place of rdma_rxe.
rdma link del rxe0 2>/dev/null
rdma link add siw0 type siw netdev eth0
""",
    "lio-up": f"""#!/bin/sh
# lio-up ADDRESS PORT: the kernel's iSCSI target, over iSER, with the disk /dev/ram0 as its LUN 0. Any
# initiator may log in and write.
set -e
[ -d /sys/kernel/config/target ] || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/target
case $1 in *:*) portal="[$1]:$2" ;; *) portal=$1:$2 ;; esac
mkdir -p core/iblock_0/disk
echo udev_path=/dev/ram0 >core/iblock_0/disk/control
echo 1 >core/iblock_0/disk/enable
mkdir -p iscsi/{TARGET}/tpgt_1
cd iscsi/{TARGET}/tpgt_1
mkdir lun/lun_0 "np/$portal"
ln -s /sys/kernel/config/target/core/iblock_0/disk lun/lun_0/disk
echo 1 >"np/$portal/iser"
echo 0 >attrib/authentication
echo 1 >attrib/generate_node_acls
echo 0 >attrib/demo_mode_write_protect
# With immediate data libiscsi declares data in its commands that it does not send along when it uses
# iSER, and LIO ends the connection.
echo No >param/ImmediateData
echo 1 >enable
""",
    "lio-down": f"""#!/bin/sh
# lio-down: end the target and its connections, or what lio-up could make of it, and print the SHA-256 of
# its disk.
cd /sys/kernel/config/target || exit
group=iscsi/{TARGET}/tpgt_1
echo 0 >$group/enable
rm -f $group/lun/lun_0/disk
rmdir $group/lun/lun_0 $group/np/* $group iscsi/{TARGET} core/iblock_0/disk core/iblock_0
[ ! -e iscsi/{TARGET} ] && [ ! -e core/iblock_0 ] && sha256sum /dev/ram0
""",
}


class Cannot(Exception):
    """It cannot be done on this machine: a skip, with the reason."""


def alone():
    """Go on in namespaces of our own; they and all that runs in them end with this process. Called first, since it starts
    the program again."""
    if os.environ.get("HEDDLE_PEER_ALONE"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    how = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        how += ["--user", "--map-root-user"]
    tried = subprocess.run([*how, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Cannot(f"no namespaces of our own: {tried.stderr.strip()}")
    os.environ["HEDDLE_PEER_ALONE"] = "1"
    sys.stdout.flush()
    os.execvp(how[0], [*how, sys.executable, *sys.argv])


def kernel(root, at_hand):
    """The path of the guest's kernel, which may be built for it."""
    done = subprocess.run([f"{root}/tools/peer", *(["--at-hand"] if at_hand else [])], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE if at_hand else None, text=True)
    if done.returncode != 0:
        raise Cannot(done.stderr.strip() if at_hand else "there is no kernel for the other end (see above)")
    return done.stdout.strip()


def processor_mhz():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return line.split(":")[1].strip()
    return "1000"


# --- The guest's files ---

def libraries(path):
    """Those that the loader would load for @path, and the loader."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return [word for word in said.split() if word.startswith("/")]


def collect(programs):
    """path in the guest -> path here, for @programs (names, or (name, path)) and all that they need."""
    files = {}
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    assert "LD_LIBRARY_PATH" not in os.environ  # the guest has the libraries of Debian
    for program in programs:
        name, path = program if isinstance(program, tuple) else (program, shutil.which(program))
        if path is None:
            raise Cannot(f"{name} is not installed")
        files[f"/usr/bin/{name}"] = path
    libs = Path(next(path for path in libraries(files["/usr/bin/sh"]) if "libc.so" in path)).resolve().parent
    for pattern in OPENED:
        found = list(libs.glob(pattern))
        if not found:
            raise Cannot(f"{libs}/{pattern} is not installed")
        for path in found:
            files[str(path)] = str(path)
    for path in list(files.values()):
        for library in libraries(path):
            files.setdefault(library if library.startswith("/usr/") else "/usr" + library, library)
    for path in Path("/etc/libibverbs.d").glob("*"):
        if path.stem in ("rxe", "siw"):
            files[str(path)] = str(path)
    return files


def archive(files):
    """An initramfs: path -> bytes, in the "newc" format of cpio."""
    out, number = bytearray(), 0

    def entry(name, mode, data):
        nonlocal number
        number += 1
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0")
        out.extend(bytes(-len(out) % 4) + data)
        out.extend(bytes(-len(out) % 4))

    for name in ("bin", "lib", "lib64"):  # all of them below /usr, as on the host
        entry(name, stat.S_IFLNK | 0o777, f"usr/{name}".encode())
    folders = {"/proc", "/sys", "/dev", "/tmp"}
    for path in files:
        folders.update(str(parent) for parent in Path(path).parents)
    for folder in sorted(folders - {"/"}):
        entry(folder[1:], stat.S_IFDIR | 0o755, b"")
    for path, data in files.items():
        entry(path[1:], stat.S_IFREG | 0o755, data)
    entry("TRAILER!!!", 0, b"")
    return bytes(out)


# --- The guest ---

class Job:
    """A command that runs in the guest."""

    def __init__(self, guest, number):
        self.guest, self.name, self.code, self.ended = guest, f"job{number}", None, threading.Event()

    def wait(self, seconds):
        """Its exit status, or None when it still runs."""
        return self.code if self.ended.wait(seconds) else None

    def end(self):
        if not self.ended.is_set():
            self.guest.say(f"end {self.name}")
            self.ended.wait(5)

    def kill(self):
        """With no time for a disconnect notice."""
        self.guest.say(f"kill {self.name}")

    def output(self):
        return self.guest.fetch(self.name)


class Guest:
    """@programs go into the guest besides TOOLS; @helpers is the folder of relay and of what the programs are given."""

    def __init__(self, linux, helpers, programs, mtu=1500):
        self.jobs, self.answers, self.number, self.closing = {}, queue.Queue(), 0, False
        self.lock = threading.Lock()
        self.scratch = tempfile.mkdtemp(prefix="heddle-peer-")
        self.process = self.relay = None
        try:
            self.boot(linux, helpers, programs, mtu)
        except BaseException:
            self.close()
            raise

    def boot(self, linux, helpers, programs, mtu):
        names = {"MHZ": processor_mhz(), "MTU": mtu, "THERE": THERE, "THERE6": THERE6, "OUTPUT": OUTPUT_BYTES}
        head, body = INIT.split("\n", 1)
        init = "\n".join([head, *(f"{name}={value}" for name, value in names.items()), body])
        files = {path: Path(source).read_bytes() for path, source in collect([*TOOLS, *programs]).items()}
        files["/init"] = init.encode()
        files.update((f"/usr/bin/{name}", text.encode()) for name, text in COMMANDS.items())
        for name in ("clock.so", "stay.so"):
            files[f"/usr/lib/{name}"] = Path(helpers, name).read_bytes()
        Path(self.scratch, "initrd").write_bytes(gzip.compress(archive(files), 1))

        here, card = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (here, card):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        self.relay = subprocess.Popen([f"{helpers}/relay", TAP, str(here.fileno()), str(mtu)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, pass_fds=[here.fileno()])
        here.close()
        if self.relay.stdout.readline() != "ok\n":
            raise Cannot("no tap device")
        for words in (["addr", "add", f"{HERE}/24", "dev", TAP], ["addr", "add", f"{HERE6}/64", "dev", TAP, "nodad"],
                      ["link", "set", TAP, "up"]):
            subprocess.run(["ip", *words], check=True)

        to_guest, self.control = os.pipe()
        self.from_guest, from_guest = os.pipe()
        self.log = open(f"{self.scratch}/console", "w+")
        env = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TMP", "TEMP")}
        self.process = subprocess.Popen(
            [linux, f"mem={MEMORY_MIB}M", f"initrd={self.scratch}/initrd", f"uml_dir={self.scratch}", "umid=guest", "quiet", "panic=-1", "nohz=off",
             f"ramdisk_size={DISK_MIB << 10}",
             "con=null", "con0=null,fd:1", f"ssl0=fd:{to_guest},fd:{from_guest}",
             f"vec0:transport=fd,fd={card.fileno()},depth=128,mtu={mtu},mac=52:54:00:72:00:02"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env=env, start_new_session=True,
            pass_fds=[card.fileno(), to_guest, from_guest])
        card.close()
        os.close(to_guest)
        os.close(from_guest)
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            self.answers.get(timeout=BOOT_SECONDS)
        except queue.Empty:
            raise RuntimeError(f"the guest does not start:\n{self.console()}") from None

    def listen(self):
        """Take what the guest says: ready; done JOB STATUS; output JOB BASE64."""
        with os.fdopen(self.from_guest, "r", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if words[:1] == ["done"] and words[1] in self.jobs:
                    job = self.jobs.pop(words[1])
                    job.code = int(words[2])
                    job.ended.set()
                elif words[:1] in (["ready"], ["output"]):
                    self.answers.put(words)
        if not self.closing:  # it died: nobody waits for ever
            for job in self.jobs.values():
                job.code = 125
                job.ended.set()

    def say(self, line):
        os.write(self.control, f"{line}\n".encode())

    def console(self):
        self.log.flush()
        return "\n".join(Path(self.log.name).read_text(errors="replace").splitlines()[-40:])

    def alive(self):
        return self.process.poll() is None

    def start(self, command, limit=60):
        assert "\n" not in command
        with self.lock:
            self.number += 1
            job = Job(self, self.number)
            self.jobs[job.name] = job
            self.say(f"start {job.name} {limit} {command}")
        return job

    def fetch(self, name):
        with self.lock:
            self.say(f"output {name}")
            try:
                words = self.answers.get(timeout=20)
            except queue.Empty:
                return f"(the guest does not answer)\n{self.console()}"
        return base64.b64decode(words[2]).decode(errors="replace") if len(words) > 2 else ""

    def run(self, command, limit=60):
        """Run to the end: (status, output)."""
        job = self.start(command, limit)
        code = job.wait(limit + 10)
        return (125 if code is None else code), job.output()

    def cable(self, words):
        """A command of the relay's."""
        self.relay.stdin.write(words + "\n")
        self.relay.stdin.flush()
        answer = self.relay.stdout.readline().strip()
        if not answer or answer.startswith("no"):
            raise RuntimeError(f"relay: {answer}")
        return answer

    def close(self):
        self.closing = True
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)  # it has helpers
            except ProcessLookupError:
                pass
            self.process.wait()
            os.close(self.control)
        if self.relay is not None:
            self.relay.stdin.close()
            self.relay.wait(10)
        shutil.rmtree(self.scratch, ignore_errors=True)


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
