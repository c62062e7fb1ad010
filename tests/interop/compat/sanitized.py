#!/usr/bin/python3
"""Unmodified programs on a libibverbs.so.1 that was built with a sanitizer. Its runtime is loaded before the program, which it watches
as far as it can: memory that the program hands to the library, and all that the library does.

  sanitized.py FOLDER SANITIZER RUNTIME    SANITIZER: address or thread; RUNTIME: libasan.so or libtsan.so of the compiler

A missing program is a skip (exit 77) that says so."""
import os
import shutil
import sys
import tempfile

import programs

# Programs that free all that they have of the library; leaks are looked for there.
TIDY = """
ibv_rc_pingpong -g 0 -n 200 -p PORT
ibv_rc_pingpong -g 0 -n 200 -e -p PORT
ibv_ud_pingpong -g 0 -n 200 -p PORT
ibv_srq_pingpong -g 0 -n 200 -p PORT
"""
TIDY_CM = """
ucmatose -c 5 -C 10 | | -s 127.0.0.1
rstream -S 1000 -C 100 | | -s 127.0.0.1
"""
OTHERS = """
ib_send_lat -n 200 -p PORT
ib_send_bw -n 200 -e -p PORT
ib_write_bw -n 200 -q 8 -b -p PORT
ib_read_bw -n 100 -p PORT
ib_atomic_bw -n 100 -p PORT
"""
OTHERS_CM = """
rping -C 10 -v | -s | -c -a 127.0.0.1
"""
THREADED = """
ibv_rc_pingpong -g 0 -n 200 -e -p PORT
ib_send_bw -n 200 -e -p PORT
ib_write_bw -n 200 -q 8 -b -p PORT
"""
THREADED_CM = """
rping -C 10 -v | -s | -c -a 127.0.0.1
ucmatose -c 5 -C 10 | | -s 127.0.0.1
"""
UCX = ["-d heddle0:1 -x rc_verbs -t am_lat", "-t tag_bw -s 100000"]

# The programs' own: rping reads what librdmacm is still writing.
SUPPRESSIONS = "race:librdmacm.so\nrace:libucp.so\nrace:libucs.so\n"


def lines(text):
    return text.strip().split("\n")


def pairs(folder, plain, with_cm):
    for line in lines(plain):
        words = line.split()
        programs.pair(folder, line, words, [*words, "localhost"])
    for line in lines(with_cm):
        both, server, client = (part.split() for part in line.split("|"))
        programs.connect_pair(folder, line, [*both, *server], [*both, *client])


def ucx(folder):
    # UCX puts functions of its own in place of malloc(3) otherwise, as the runtime does.
    os.environ.update(UCX_MEM_EVENTS="n", UCX_TLS="rc_v,ud_v,self", UCX_NET_DEVICES="heddle0:1")
    for words in UCX:
        programs.pair(folder, f"ucx_perftest {words}", ["ucx_perftest", "-p", "PORT"],
                      ["ucx_perftest", "-p", "PORT", *words.split(), "-n", "100", "localhost"])


def main(folder, sanitizer, runtime):
    for program in ("ibv_rc_pingpong", "ib_send_lat", "rping", "ucx_perftest"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            return programs.SKIP
    programs.BEFORE[:] = ["env", f"LD_PRELOAD={runtime}"]
    os.environ["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    if sanitizer == "thread":
        with tempfile.NamedTemporaryFile("w") as suppressions:
            suppressions.write(SUPPRESSIONS)
            suppressions.flush()
            os.environ["TSAN_OPTIONS"] = f"halt_on_error=1:second_deadlock_stack=1:suppressions={suppressions.name}"
            pairs(folder, THREADED, THREADED_CM)
            ucx(folder)
        return 0
    options = "detect_stack_use_after_return=1:detect_leaks="
    os.environ["ASAN_OPTIONS"] = options + "1"
    pairs(folder, TIDY, TIDY_CM)
    os.environ["ASAN_OPTIONS"] = options + "0"
    pairs(folder, OTHERS, OTHERS_CM)
    ucx(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
