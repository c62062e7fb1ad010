#!/usr/bin/python3
"""The heddle command as a user meets it: what each command prints, and its exit status.  command.py PROGRAM SUBJECT VERBS_SUBJECT"""
import json
import os
import selectors
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SUBJECT, VERBS_SUBJECT = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
RUNTIME = tempfile.TemporaryDirectory(prefix="hdl")
os.environ["HEDDLE_DIR"] = RUNTIME.name  # an agent of our own
os.environ.pop("HEDDLE_NODE", None)


def heddle(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


class Command(unittest.TestCase):
    def test_version(self):
        for word in ("version", "--version"):
            done = heddle(word)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stdout, r"^heddle \d+\.\d+\.\d+\n$")

    def test_help_names_every_command(self):
        for arguments in (["help"], ["--help"], ["-h"]):
            done = heddle(*arguments)
            self.assertEqual(done.returncode, 0)
            for command in ("perf", "version", "help"):
                self.assertIn(command, done.stdout)
        self.assertIn("--json", heddle("help", "perf").stdout)

    def test_wrong_usage(self):
        for arguments in ([], ["frob"], ["help", "frob"], ["perf", "--size", "0"], ["perf", "--size", "65m"],
                          ["perf", "--size", "12x"], ["perf", "--iterations", "-1"], ["perf", "--depth", "1025"],
                          ["perf", "--operation", "dance"], ["perf", "-c", "XX"], ["perf", "-c", "UD", "-s", "5000"],
                          ["perf", "-c", "UD", "-o", "write"], ["perf", "-c", "UC", "-o", "read"], ["perf", "-p", "0"],
                          ["perf", "--server", "--client"], ["perf", "more"], ["status", "more"], ["devices", "more"],
                          ["run"], ["run", "--device", "frob", "true"], ["explain"], ["explain", "frob"],
                          ["explain", "status", "99"], ["explain", "status", "frob"], ["explain", "errno", "99999"],
                          ["explain", "event", "0x"], ["explain", "vendor_err", "1", "2"]):
            done = heddle(*arguments)
            self.assertEqual(done.returncode, 64, arguments)
            self.assertEqual(done.stdout, "", arguments)
            self.assertNotEqual(done.stderr, "", arguments)

    def test_did_you_mean(self):
        for arguments, word in ((["stauts"], "status"), (["vswtich"], "vswitch"), (["pref"], "perf"), (["help", "device"], "devices"),
                                (["tap", "hots"], "host"), (["vswitch", "shwo"], "show"), (["ibc", "tarce"], "trace"), (["rn"], "run")):
            done = heddle(*arguments)
            self.assertEqual((done.returncode, done.stdout), (64, ""), arguments)
            self.assertIn(f"Did you mean '{word}'?\n", done.stderr, arguments)
        for arguments in (["frob"], ["tap", "elephant"], ["x"], ["a" * 10000], [""]):
            self.assertNotIn("Did you mean", heddle(*arguments).stderr, arguments)

    def test_arguments_too_many(self):
        """Which one, and not only how to ask for help."""
        for arguments in (["devices", "extra"], ["status", "extra"], ["vswitch", "up", "file", "extra"], ["ibc", "key", "extra"],
                          ["tap", "unit", "--lan", "extra"]):
            done = heddle(*arguments)
            self.assertEqual((done.returncode, done.stdout), (64, ""), arguments)
            self.assertIn("'extra' is ", done.stderr, arguments)

    def test_aperture_arguments(self):
        self.assertIn("'frob' is neither 'status' nor 'criteria'", heddle("aperture", "frob").stderr)
        self.assertIn("'extra' is one argument too many", heddle("aperture", "criteria", "connect", "extra").stderr)

    def test_run_nosuchprog(self):
        """127, as a shell has it, also where a directory of PATH may not be searched; 126 for what is there."""
        with tempfile.TemporaryDirectory(prefix="hdl") as place:
            os.chmod(place, 0o755)
            os.mkdir(f"{place}/shut", 0)
            os.mkdir(f"{place}/open")
            with open(f"{place}/open/there", "w", encoding="ascii"):
                pass
            who = {"user": 65534, "extra_groups": []} if os.geteuid() == 0 and os.access(PROGRAM, os.X_OK) else {}
            env = {**os.environ, "PATH": f"{place}/shut:{place}/open", "HEDDLE_DIR": place}
            for name, status, why in (("nosuchprog", 127, "No such file or directory"), ("there", 126, "Permission denied")):
                try:
                    done = subprocess.run([PROGRAM, "run", name], capture_output=True, text=True, env=env, **who)
                except PermissionError:
                    self.skipTest("the build folder is not for other users")
                self.assertEqual((done.returncode, done.stderr), (status, f"heddle: {name}: {why}\n"))

    def test_tap_of_nobody(self):
        with tempfile.TemporaryDirectory(prefix="hdl") as directory:
            for verb in ("stat", "down"):
                done = subprocess.run([PROGRAM, "tap", verb], capture_output=True, text=True, env={**os.environ, "HEDDLE_DIR": directory})
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "no unit or host runs here\n", ""))

    def test_output_that_cannot_be_written(self):
        for arguments in (["help"], ["--help"], ["version"], ["devices"], ["devices", "--json"], ["status"], ["perf", "--help"], ["perf", "--version"],
                          ["explain", "status", "5"], ["tap", "--help"], ["help", "perf"],
                          ["status", "--json"], ["aperture"], ["aperture", "--json"], ["vswitch", "show"], ["vswitch", "show", "--json"],
                          ["tap", "stat"], ["tap", "stat", "--json"], ["tap", "down", "--json"], ["ibc", "key"], ["ibc", "key", "--json"],
                          ["perf", "-L", "-n", "20", "-o", "send", "-s", "8"], ["perf", "--json", "-L", "-n", "20", "-o", "send", "-s", "8"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("No space left on device", done.stderr, arguments)

    def test_perf_says_what_it_is_about_to_do(self):
        """Into a file or a pipe, too, and before it is done: fifty million messages take a while."""
        for command, words in (([], []), (["taskset", "-c", "0"], ["one processor"])):
            perf = subprocess.Popen([*command, PROGRAM, "perf", "-L", "-n", "50m", "-o", "send"], stdout=subprocess.PIPE, text=True)
            try:
                self.assertIn("polling", perf.stdout.readline())
                for word in words:
                    self.assertIn(word, perf.stdout.readline())
                self.assertIsNone(perf.poll())
            finally:
                perf.kill()
                perf.communicate()

    def test_explain(self):
        """By number or name, Heddle's or that of libibverbs: what it means, and what to do."""
        for arguments, name, words in (
                (["vendor_err", "6"], "vendor_err 6, HDL_DETAIL_BOUNDS", "outside the range of the key"),
                (["vendor_err", "0x6"], "vendor_err 6, HDL_DETAIL_BOUNDS", "outside the range of the key"),
                (["vendor_err", "misaligned"], "vendor_err 12, HDL_DETAIL_MISALIGNED", "multiple of 8"),
                (["status", "12"], "status 12, HDL_WC_RETRY_EXC_ERR", "the peer does not answer"),
                (["status", "IBV_WC_WR_FLUSH_ERR"], "status 5, HDL_WC_WR_FLUSH_ERR", "first completion"),
                (["errno", "-22"], "errno 22, EINVAL", "HEDDLE_LOG=debug"),
                (["errno", "HDL_EHOSTUNREACH"], "errno 113, EHOSTUNREACH", "heddle status"),
                (["errno", "ENOENT"], "errno 2, ENOENT", "No call of Heddle"),
                (["event", "PEER_GONE"], "event 10, HDL_EVENT_PEER_GONE", "its process ended"),
                (["event", "IBV_EVENT_CQ_ERR"], "event 0, HDL_EVENT_CQ_OVERRUN (IBV_EVENT_CQ_ERR)", "poll it"),
                (["counter", "rnr_sent"], "counter 7, rnr_sent", "post receives")):
            done = heddle("explain", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertTrue(done.stdout.startswith(name + ":") or done.stdout.startswith(name + " (IBV_"), done.stdout)
            self.assertIn(words, done.stdout)
            self.assertEqual(done.stdout.count(", HDL_"), "HDL_" in name, done.stdout)
        # Events have other numbers in libibverbs: both are told.
        both = heddle("explain", "event", "6").stdout
        self.assertIn("event 6, HDL_EVENT_QP_LAST_WQE (IBV_EVENT_QP_LAST_WQE_REACHED, 16)", both)
        self.assertIn("event 12, HDL_EVENT_PATH_MIG (IBV_EVENT_PATH_MIG, 6)", both)

    def test_explain_lists_every_code(self):
        for kind, least in (("vendor_err", 16), ("status", 19), ("errno", 17), ("event", 15), ("counter", 39)):
            listed = heddle("explain", kind).stdout
            lines = [line for line in listed.splitlines() if line.startswith(kind + " ")]
            self.assertGreaterEqual(len(lines), least)
            self.assertEqual(listed.count("What to do: "), len(lines))
            for number in {line.split()[1].rstrip(",") for line in lines}:
                self.assertEqual(heddle("explain", kind, number).returncode, 0, (kind, number))

    def check_perf(self, result, operations, sizes):
        self.assertEqual({r["operation"] for r in result["latency"]}, operations)
        self.assertEqual({r["operation"] for r in result["bandwidth"]}, operations)
        for row in result["latency"] + result["bandwidth"]:
            self.assertIn(row["size_bytes"], {8} if row["operation"] == "atomic" else sizes)
        for row in result["bandwidth"]:
            for key in ("bytes_per_s", "messages_per_s", "memcpy_bytes_per_s"):
                self.assertGreater(row[key], 0)
            self.assertAlmostEqual(row["bytes_per_s"] / row["messages_per_s"], row["size_bytes"], delta=1)
        for row in result["latency"]:
            order = [row[k] for k in ("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")]
            self.assertEqual(order, sorted(order))
            self.assertGreater(row["min_ns"], 0)

    def perf(self, *arguments):
        done = heddle("perf", "--json", "--iterations", "100", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_perf_json(self):
        result = self.perf("--size", "4k", "--size", "16")
        self.check_perf(result, {"send", "write", "read", "atomic"}, {4096, 16})
        self.assertEqual(result["transport"], "RC")
        self.assertGreater(result["cache_line_ns"], 0)

    def test_perf_unreliable(self):
        self.check_perf(self.perf("-c", "UC", "-s", "4k"), {"send", "write"}, {4096})
        self.check_perf(self.perf("-c", "UD", "-s", "1000"), {"send"}, {1000})

    def test_perf_sleeping(self):
        result = self.perf("-e", "-s", "64", "-q", "4")
        self.check_perf(result, {"send", "write", "read", "atomic"}, {64})
        self.assertTrue(result["sleeping"])

    def test_perf_on_mapped_memory(self):
        result = self.perf("-m", "-s", "64", "-s", "64k")
        self.assertTrue(result["mapped"])
        self.check_perf(result, {"send", "write", "read", "atomic"}, {64, 65536})

    def test_perf_on_a_busy_processor(self):
        """Both sides have to share it with others: what is measured there is worth little, and does not take for ever."""
        def share():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        others = [subprocess.Popen(["timeout", "120", "sh", "-c", "while :; do :; done"], preexec_fn=share) for _ in range(2)]
        try:
            done = subprocess.run([PROGRAM, "perf", "-n", "20", "-L", "-o", "send", "-s", "8"], capture_output=True, text=True,
                                  preexec_fn=share, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            for other in others:
                other.terminate()
                other.wait()

    def test_perf_one_kind(self):
        result = self.perf("-L", "-o", "read", "-s", "1m")
        self.assertEqual([r["operation"] for r in result["latency"]], ["read"])
        self.assertEqual(result["bandwidth"], [])

    def test_perf_text(self):
        done = heddle("perf", "--size", "1000", "--iterations", "100")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("1000 B", "memcpy", "ratio", "99.9%", "atomic"):
            self.assertIn(word, done.stdout)

    def test_perf_server_and_client(self):
        server = subprocess.Popen([PROGRAM, "perf", "--server", "--node", "there", "--port", "4711"],
                                  stderr=subprocess.PIPE, text=True)
        try:
            self.assertIn("Waiting", server.stderr.readline())
            for _ in range(2):  # one client after the other
                result = self.perf("--client", "--port", "4711", "--node", "here", "-s", "64", "there")
                self.check_perf(result, {"send", "write", "read", "atomic"}, {64})
            done = heddle("perf", "--client", "--port", "4712", "there")
            self.assertEqual(done.returncode, 1)
            self.assertIn("heddle perf --server", done.stderr)
            again = heddle("perf", "--server", "--node", "there", "--port", "4711")
            self.assertEqual(again.returncode, 1)
            self.assertIn("--port", again.stderr)
            status = json.loads(heddle("status", "--json").stdout)
            self.assertIn(("there", server.pid), [(p["node"], p["pid"]) for p in status])
        finally:
            server.kill()
            server.communicate()
        done = heddle("perf", "--client", "there")
        self.assertEqual(done.returncode, 1)
        self.assertIn("heddle perf --server", done.stderr)

    def test_status(self):
        """Two programs that talk: both are shown, each with the other as its peer."""
        server = subprocess.Popen([PROGRAM, "perf", "--server", "--port", "4714", "--node", "there"],
                                  stderr=subprocess.PIPE, text=True)
        self.assertIn("Waiting", server.stderr.readline())
        client = subprocess.Popen([PROGRAM, "perf", "--client", "there", "--port", "4714", "--node", "here", "-n", "50m",
                                   "-o", "send", "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                status = {p["pid"]: p for p in json.loads(heddle("status", "--json").stdout)}
                ends = [status.get(p.pid, {"queue_pairs": []})["queue_pairs"] for p in (server, client)]
                if all(end and end[0]["state"] == "RTS" for end in ends):
                    break
            here, there = status[client.pid], status[server.pid]
            self.assertEqual((here["node"], there["node"]), ("here", "there"))
            self.assertNotEqual(here["gid"], there["gid"])
            self.assertEqual(here["program"], "heddle")
            mine, theirs = here["queue_pairs"][0], there["queue_pairs"][0]
            self.assertEqual((mine["type"], mine["state"]), ("RC", "RTS"))
            self.assertEqual((mine["peer_qpn"], mine["peer_pid"]), (theirs["qpn"], server.pid))
            self.assertEqual((theirs["peer_qpn"], theirs["peer_pid"]), (mine["qpn"], client.pid))
            self.assertEqual((here["regions"], here["windows"]), (1, 0))
            self.assertGreaterEqual(here["region_bytes"], 16)
            self.assertIn("bytes_sent", here["counters"])
            text = heddle("status").stdout
            for word in ("node here", "node there", f"(pid {client.pid})", f"heddle (pid {server.pid})", "RTS", "1 regions",
                         f"0x{theirs['qpn']:06x}"):
                self.assertIn(word, text)
        finally:
            for program in (client, server):
                program.kill()
                program.communicate()

    def test_status_of_queues_and_errors(self):
        """How full the queues are, and what went wrong last: in words, and in JSON."""
        subject = subprocess.Popen([SUBJECT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "HEDDLE_NODE": "seen"})
        try:
            a, b, c, d, e, f, g, status = map(int, subject.stdout.readline().split())
            shown = json.loads(heddle("status", "--json", "--node", "seen").stdout)
            self.assertEqual([p["pid"] for p in shown], [subject.pid])
            qps = {qp["qpn"]: qp for qp in shown[0]["queue_pairs"]}
            levels = {n: (qps[n]["requests_outstanding"], qps[n]["receives_posted"], qps[n]["receives_shared"]) for n in qps}
            self.assertEqual(levels, {a: (3, 0, False), b: (0, 5, False), c: (0, 3, True), d: (0, 3, True),
                                      e: (0, 0, False), f: (0, 0, False), g: (0, 0, False)})
            self.assertEqual([qps[n]["last_error"] for n in (a, b, c, d)], [None] * 4)
            self.assertEqual((qps[e]["state"], qps[f]["state"]), ("ERR", "ERR"))
            self.assertFalse(qps[a]["over_network"])
            failed = qps[e]["last_error"]
            self.assertEqual((failed["status"], failed["vendor_err"], failed["detail"]), (status, 1, "the key is not valid"))
            self.assertIn("remote access error", failed["text"])
            refused = qps[f]["last_error"]
            self.assertEqual((refused["event_text"], refused["event_detail"]),
                             ("the peer's request was refused", "the key is not valid"))
            self.assertNotIn("status", refused)
            self.assertEqual(shown[0]["counters"]["refused_not_valid"], 1)
            text = heddle("status", "-n", "seen").stdout
            self.assertIn("3 requests outstanding, 0 receives posted", text)
            self.assertIn(f"qp 0x{g:06x} RC INIT; 0 requests outstanding", text)
            self.assertIn("3 receives posted (shared)", text)
            self.assertRegex(text, r"last error: remote access error[^\n]*; the key is not valid\n")
            self.assertRegex(text, r"last event: the peer's request was refused; the key is not valid\n")
            self.assertNotIn("seen", heddle("status", "-n", "other").stdout)
            self.assertIn("\n(Directory of the node agent: /", text)
            self.assertRegex(heddle("status", "-n", "other").stdout, r"^No program uses Heddle on the node other now. \(Directory of the node agent: /[^\n]+\)\n$")
        finally:
            subject.stdin.close()
            self.assertEqual(subject.wait(timeout=30), 0)
            subject.stdout.close()

    def test_status_watched(self):
        with tempfile.TemporaryDirectory(prefix="hdl") as directory:
            env = {**os.environ, "HEDDLE_DIR": directory}
            told = f"No program uses Heddle now. (Directory of the node agent: {directory})\n"
            for arguments, line in ((["--watch=0.1"], told), (["-w0.1", "-j"], "[]\n")):
                watch = subprocess.Popen([PROGRAM, "status", *arguments], stdout=subprocess.PIPE, text=True, env=env)
                try:
                    got = [watch.stdout.readline() for _ in range(5)]
                    self.assertGreaterEqual(got.count(line), 3)
                    watch.stdout.close()  # whoever read it has gone: so does it
                    self.assertNotEqual(watch.wait(timeout=30), 0)
                finally:
                    watch.kill()
                    watch.wait()
        for wrong in ("--watch=0", "--watch=-1", "--watch=soon", "--watch=1e9", "--watch=nan"):
            self.assertEqual(heddle("status", wrong).returncode, 64, wrong)

    def test_debug_says_why(self):
        """What is refused, and what fails, is told for HEDDLE_LOG=debug, and not without it."""
        def run(level):
            env = {**os.environ, "HEDDLE_NODE": "refused"}
            if level:
                env["HEDDLE_LOG"] = level
            return subprocess.run([SUBJECT, "refused"], capture_output=True, text=True, env=env, timeout=60)
        quiet = run(None)
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))
        told = run("debug")
        self.assertEqual((told.returncode, told.stdout), (0, quiet.stdout))
        lines = told.stderr.splitlines()
        for words in ("RESET to INIT refused: it needs ACCESS, PKEY_INDEX", "RESET to INIT refused: it does not take SQ_PSN",
                      "RESET to INIT refused: out of range is PORT", "RESET to RTS refused: there is no such transition",
                      "RESET to INIT refused: CUR_STATE is given as RTS, but it is in RESET",
                      "INIT to RTR refused: no process of user", "at fe80::77; it does not run, belongs to another user",
                      "is in ERR: the program put it there", "cannot create a queue pair: 1048576 sends", "cannot create a completion queue: 0 entries",
                      "cannot register memory: the rights 0x8", "cannot register memory: 64 bytes at 0x1000",
                      "(RC): SEND with wr_id 0x51 is refused: the queue pair is in INIT, and sends go from RTS on",
                      "(RC): a receive is refused: the queue pair is in RESET", "takes its receives from a shared receive queue; post them there",
                      "a receive is refused: its queue pair is NULL", "a receive is refused: its shared receive queue is NULL",
                      "a receive with wr_id 0x0 is refused: its list has 2 entries, and the queue takes 1",
                      "a receive with wr_id 0x61 is refused: all 2 elements of the queue are in use", "a send is refused: its queue pair is NULL",
                      "SEND with wr_id 0x0 is refused: its list has 2 entries, and the queue takes 1", "num_sge is 1, and sg_list is NULL",
                      "there is no operation 99", "the flags 0x100000 mean nothing", "it has 5000 bytes of inline data, and max_inline is ",
                      "READ with wr_id 0x0 is refused: it sends no data that could be inline", "its list has 9 bytes, and an atomic takes 8",
                      "REGISTER with wr_id 0x0 is refused: the queue pair was created without register_on_send",
                      "BIND with wr_id 0x0 is refused: the window, the region", "(UD): SEND with wr_id 0x0 is refused: its address handle is NULL",
                      "READ with wr_id 0x0 is refused: queue pairs of type UD do not have", "is refused: all 16 elements of the send queue are in use",
                      "a request failed: local protection error: a piece of the list failed a check; the key is not valid"):
            self.assertEqual(sum(words in line for line in lines), 1, (words, told.stderr))
        self.assertRegex(told.stderr, r"heddle: queue pair 0x[0-9a-f]{6} \(RC to 0x[0-9a-f]{6} at fe80:[0-9a-f:]+\) "
                         "goes to ERR: a request failed")

    def test_status_over_a_network(self):
        """A peer on another machine is not one that does not exist."""
        with tempfile.TemporaryDirectory(prefix="hdl") as directory:
            env = {**os.environ, "HEDDLE_DIR": directory, "HEDDLE_ADDR": "127.0.0.60"}
            subject = subprocess.Popen([SUBJECT, "far"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
            try:
                qpn = int(subject.stdout.readline())
                shown = subprocess.run([PROGRAM, "status"], capture_output=True, text=True, env=env).stdout
                self.assertIn(f"qp 0x{qpn:06x} RC RTR  to 0x000007 over a network; 0 requests outstanding", shown)
                self.assertNotIn("does not exist", shown)
                status = json.loads(subprocess.run([PROGRAM, "status", "-j"], capture_output=True, text=True, env=env).stdout)
                self.assertEqual([(qp["peer_qpn"], qp["peer_pid"], qp["over_network"]) for qp in status[0]["queue_pairs"]], [(7, None, True)])
            finally:
                subject.stdin.close()
                self.assertEqual(subject.wait(timeout=30), 0)
                subject.stdout.close()

    def test_without_the_network_of_its_node(self):
        """Another program of the node has --addr: the cure is told at the default level, once."""
        with tempfile.TemporaryDirectory(prefix="hdl") as directory:
            env = {**os.environ, "HEDDLE_DIR": directory}
            server = subprocess.Popen([PROGRAM, "perf", "--server", "--port", "4717"], stderr=subprocess.PIPE, text=True,
                                      env={**env, "HEDDLE_ADDR": "127.0.0.62"})
            try:
                self.assertIn("Waiting", server.stderr.readline())
                done = subprocess.run([SUBJECT, "refused"], capture_output=True, text=True, timeout=60, env=env)
                self.assertEqual(done.returncode, 0)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("use the network at ::ffff:127.0.0.62, and this one does not: start it with the same --addr (HEDDLE_ADDR)", done.stderr)
                told = subprocess.run([SUBJECT, "refused"], capture_output=True, text=True, timeout=60, env={**env, "HEDDLE_LOG": "debug"})
                self.assertIn("this program uses no network (--addr, HEDDLE_ADDR)", told.stderr)
                self.assertNotIn("on a network that this node has no address on", told.stderr)
            finally:
                server.kill()
                server.communicate()

    def test_debug_says_which_path_mtu_is_too_large(self):
        with tempfile.TemporaryDirectory(prefix="heddle-mtu-") as directory:
            how = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
            done = subprocess.run([*how, "sh", "-c", f"ip link set lo mtu 1500 up && exec {SUBJECT} too-large"], capture_output=True, text=True,
                                  timeout=60, env={**os.environ, "HEDDLE_LOCAL": "off", "HEDDLE_LOG": "debug", "HEDDLE_DIR": directory})
        if "unshare" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual((done.returncode, done.stdout), (0, "mtu: 1024\ntoo large: -22\nfits: 0\n"), done.stderr)
        self.assertIn("INIT to RTR refused: PATH_MTU is 2048, and packets on the network of this node carry 1024 bytes at most", done.stderr)

    def test_debug_says_why_to_programs_of_libibverbs(self):
        def run(**more):
            return subprocess.run([PROGRAM, "run", VERBS_SUBJECT], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, **more})
        quiet = run()
        self.assertEqual((quiet.returncode, quiet.stderr.count("\n")), (0, 1), quiet.stderr)  # said at every level, once
        self.assertIn("an address on heddle0", quiet.stderr)
        self.assertEqual(quiet.stdout, "missing: 22\ncapabilities: 95\ninit: 0\nno GID: 22\nno such index: 22\nno queue: 1\n"
                         "send: 22\nreceive: 22\nopcode: 22\n")
        told = run(HEDDLE_LOG="debug")
        for words in ("RESET to INIT refused: it needs ACCESS, PKEY_INDEX", "IBV_QP_CAP and IBV_QP_RATE_LIMIT cannot be changed",
                      "an address on heddle0, which is Ethernet", "there is no GID with index 99",
                      "ibv_create_qp: a completion queue is missing",
                      "(RC): SEND with wr_id 0x7 is refused: the queue pair is in INIT, and sends go from RTS on",
                      "(RC): a receive with wr_id 0x8 is refused: its list has 100 entries, and the queue takes ",
                      "the request with wr_id 0x7 has the opcode 77, which does not exist here"):
            self.assertEqual(told.stderr.count(words), 1, (words, told.stderr))

    def test_status_of_nobody(self):
        with tempfile.TemporaryDirectory(prefix="hdl") as directory:
            env = {**os.environ, "HEDDLE_DIR": directory}
            done = subprocess.run([PROGRAM, "status"], capture_output=True, text=True, env=env)
            self.assertEqual((done.returncode, done.stdout), (0, f"No program uses Heddle now. (Directory of the node agent: {directory})\n"))
            done = subprocess.run([PROGRAM, "status", "-j"], capture_output=True, text=True, env=env)
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, []))
            self.assertEqual(os.listdir(directory), [])  # it starts nothing

    def test_perf_survives_the_death_of_its_other_side(self):
        server = subprocess.Popen([PROGRAM, "perf", "--server", "--port", "4713"], stderr=subprocess.PIPE, text=True)
        self.assertIn("Waiting", server.stderr.readline())
        client = subprocess.Popen([PROGRAM, "perf", "--client", "--port", "4713", "-n", "50m", "-o", "send"],
                                  stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with selectors.DefaultSelector() as ready:  # until it is at work, or says what is wrong
            ready.register(client.stderr, selectors.EVENT_READ)
            ready.select(0.5)
        server.kill()
        server.communicate()
        _, err = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 1)
        self.assertIn("heddle perf: ", err)


if __name__ == "__main__":
    unittest.main()
