#!/usr/bin/python3
"""The completion for bash: loaded into bash and asked.  completion.py PROGRAM SCRIPT"""
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM, SCRIPT = sys.argv.pop(1), sys.argv.pop(1)


def complete(*words):
    """What bash offers for the last of @words."""
    line = " ".join(words)
    asked = (f'source "{SCRIPT}"; COMP_WORDS=({" ".join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; '
             f'COMP_LINE={line!r}; COMP_POINT={len(line)}; _heddle; printf "%s\\n" "${{COMPREPLY[@]}}"')
    done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return set(done.stdout.split())


def heddle(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True).stdout


@unittest.skipUnless(shutil.which("bash"), "there is no bash")
class Completion(unittest.TestCase):
    def test_commands(self):
        named = set(re.findall(r"^  (\w+) ", heddle("help"), re.M))
        self.assertGreater(len(named), 4)
        self.assertEqual({w for w in complete("heddle", "") if not w.startswith("-")}, named)
        self.assertEqual(complete("heddle", "st"), {"status"})
        self.assertEqual(complete("heddle", "help", "pe"), {"perf"})

    def test_every_option_that_help_names(self):
        for command in ("run", "devices", "status", "perf", "aperture"):
            named = set(re.findall(r"(--[a-z]+)", heddle("help", command)))
            self.assertGreater(len(named), 2)
            self.assertEqual({w for w in complete("heddle", command, "--")}, named, command)

    def test_every_option_of_a_verb(self):
        for command, verbs in (("vswitch", "up down show cut heal"), ("ibc", "ping trace discover route key")):
            self.assertEqual(complete("heddle", command, ""), {*verbs.split(), "--help"})
            self.assertEqual(set(re.findall(r"^  (\w+) ", heddle("help", command), re.M)), set(verbs.split()))
            for verb in verbs.split():
                named = set(re.findall(r"^ .*(--[a-z]+)", heddle(command, verb, "--help"), re.M))
                self.assertEqual(complete("heddle", command, verb, "--"), named, verb)

    def test_every_option_of_tap(self):
        verbs = {"unit", "host", "stat", "mac", "down"}
        self.assertEqual(complete("heddle", "tap", ""), verbs | {"--help"})
        self.assertEqual(set(re.findall(r"^  (\w+) ", heddle("help", "tap"), re.M)), verbs)
        for verb in verbs:
            named = set(re.findall(r"^ +(?:-., )? *(--[a-z-]+)", heddle("tap", verb, "--help"), re.M))
            self.assertIn("--json", named)
            self.assertEqual(complete("heddle", "tap", verb, "--"), named, verb)
        self.assertEqual(complete("heddle", "tap", "host", "u", "--model", "push"), {"push-push", "push-pull"})
        self.assertEqual(complete("heddle", "tap", "unit", "--lan", "p"), {"packet:"})

    def test_arguments(self):
        self.assertEqual(complete("heddle", "perf", "-c", "U"), {"UC", "UD"})
        self.assertEqual(complete("heddle", "perf", "--operation", ""), {"send", "write", "read", "atomic"})
        self.assertEqual(complete("heddle", "perf", "--port", ""), set())
        self.assertEqual(complete("heddle", "aperture", "st"), {"status"})
        self.assertEqual(complete("heddle", "aperture", "criteria", "al"), {"alive", "aliveack", "all"})
        self.assertEqual(complete("heddle", "run", "--device", ""), {"heddle0", "heddle_ib0", "heddle_iw0"})

    def test_codes(self):
        self.assertEqual(complete("heddle", "explain", "ve"), {"vendor_err"})
        self.assertEqual(complete(PROGRAM, "explain", "status", "HDL_WC_RNR"), {"HDL_WC_RNR_RETRY_EXC_ERR"})
        self.assertEqual(complete(PROGRAM, "explain", "errno", "EHOST"), {"EHOSTUNREACH"})

    def test_programs_to_run(self):
        self.assertIn("bash", complete("heddle", "run", "--node", "a", "bas"))
        self.assertIn("bash", complete("heddle", "run", "--", "bas"))

    def test_it_is_what_complete_uses(self):
        done = subprocess.run(["bash", "--norc", "-c", f'source "{SCRIPT}"; complete -p heddle'],
                              capture_output=True, text=True)
        self.assertIn("-F _heddle", done.stdout)


if __name__ == "__main__":
    unittest.main()
