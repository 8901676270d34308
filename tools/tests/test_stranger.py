#!/usr/bin/env python3
"""What one meets who has never used weft: slips of the keyboard, words too many, IPv6, groups that were merged.

usage: test_stranger.py WEFT
"""
import json
import os
import re
import signal
import socket

import test_command as command
from test_command import SHORT, start, weft


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


class Words(command.Case):
    def wrong(self, *words):
        run = weft(*words)
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        self.assertEqual(run.stdout, "")
        return run.stderr

    def test_another_word_is_no_slip(self):
        for words in (["foo"], ["help", "foo"], ["bench", "--foo"], ["doctor", "--foo"], ["sim", "foo"], ["bench", "-v"]):
            self.assertNotIn("did you mean", self.wrong(*words), words)

    def test_slips(self):
        for words, meant in ((["ifno"], "'info'"), (["version"], "'--version'"), (["sim", "machine"], "'machines'"),
                             (["bench", "--rial"], ""), (["bench", "--dept", "1"], "--depth")):
            self.assertIn(meant, self.wrong(*words), words)

    def test_too_many(self):
        for words in (["--version", "x"], ["help", "bench", "x"], ["--help", "bench", "x"], ["sim", "machines", "x"],
                      ["info", "x"], ["topo", "x"], ["doctor", "x"]):
            self.assertIn("'x' is one argument too many", self.wrong(*words), words)

    def test_help_of_a_command(self):
        self.assertEqual(weft("--help", "bench").stdout, weft("help", "bench").stdout)

    def test_listener_takes_no_load(self):
        """What only the other side decides is not quietly ignored."""
        for words in (["--duration", "1s"], ["--op", "read"], ["--size", "1M"], ["--ops", "3"], ["--no-verify"]):
            self.assertIn("HOST", self.wrong("bench", "--listen", "0", *words), words)

    def test_listener_on_loopback(self):
        """What it says to run can work."""
        process = start("bench", "--listen", "127.0.0.1:0")
        port = re.search(r"on this host run: weft bench 127\.0\.0\.1:(\d+)$", process.stdout.readline())
        self.assertTrue(port)
        process.send_signal(signal.SIGINT)
        self.ended(process, 0)

    def test_waits_once(self):
        """Several clients wait for one listener: that is said once, and not at all with --quiet."""
        with socket.socket() as dumb:
            dumb.bind(("127.0.0.1", 0))
            dumb.listen()
            for words, lines in (([], 1), (["--quiet"], 0)):
                run = weft("bench", f"127.0.0.1:{dumb.getsockname()[1]}", "--clients", "3", *words)
                self.assertEqual(run.returncode, 1)
                self.assertEqual(run.stderr.count("waiting:"), lines, run.stderr)

    def test_topo(self):
        if "  topo " not in weft("--help").stdout:
            self.skipTest("built without topo")
        run = weft("topo", "--provider", "nosuch")
        self.assertEqual(run.returncode, 1)
        self.assertIn("nosuch", run.stderr)
        self.assertEqual(run.stdout, "")
        self.wrong("topo", "--cpus", "5-")


class Ipv6(command.Case):
    def setUp(self):
        if not has_ipv6():
            self.skipTest("no IPv6 here")

    def listen(self, *where):
        process = start("bench", "--listen", *where, "--quiet")
        line = process.stdout.readline()
        port = re.search(r":(\d+)[ ;]", line)
        self.assertTrue(port, line)
        return process, port.group(1), line

    def served(self, process, host):
        run = weft("bench", host, "--provider", "tcp", "--json", *SHORT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIs(json.loads(run.stdout)["verified"], True)

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        self.ended(process, 0)

    def test_brackets(self):
        process, port, line = self.listen("[::1]:0")
        self.assertIn("listening on [::1]:", line)
        self.served(process, f"[::1]:{port}")
        self.stop(process)

    def test_every_address(self):
        """By default both kinds of address reach it."""
        process, port, line = self.listen("0")
        self.assertIn("IPv4 too", line)
        self.served(process, f"[::1]:{port}")
        self.served(process, f"127.0.0.1:{port}")
        self.stop(process)

    def test_port_without_brackets(self):
        """The last group was meant as a port: what to write instead is said. What cannot be one is not suspected."""
        for words in (["::1:7471"], ["--listen", "::1:7471"]):
            run = weft("bench", *words)
            self.assertEqual(run.returncode, 1)
            self.assertIn("[::1]:7471", run.stderr)
        self.assertIn("[fe80::1%lo]:7471", weft("bench", "fe80::1%lo:7471").stderr)
        for host in ("::1:ff", "2001:db8::7", "[::1:7471]"):
            self.assertNotIn("brackets", weft("bench", "--listen", host).stderr)

    def test_link_local(self):
        for words in (["fe80::1"], ["--listen", "[fe80::1]:0"]):
            self.assertIn("fe80::1%DEVICE", weft("bench", *words).stderr)

    def test_errors_have_brackets(self):
        with socket.socket(socket.AF_INET6) as taken:
            taken.bind(("::1", 0))
            port = taken.getsockname()[1]
            self.assertIn(f"nobody listens at [::1]:{port}", weft("bench", f"[::1]:{port}").stderr)
            taken.listen()
            run = weft("bench", "--listen", f"[::1]:{port}")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--listen [::1]:PORT", run.stderr)


class Groups(command.Case):
    """A machine with more groups than this process has cores for."""

    def setUp(self):
        if "  topo " not in weft("--help").stdout:
            self.skipTest("built without topo")
        self.cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, self.cores[:1])
        self.addCleanup(os.sched_setaffinity, 0, self.cores)

    def test_merged_is_explained(self):
        topo = json.loads(weft("topo", "--sim", "p5", "--json").stdout)
        info = json.loads(weft("info", "--sim", "p5", "--peers", "0", "--json").stdout)
        self.assertEqual((len(topo["groups"]), topo["engine_groups"]), (8, 1))
        self.assertEqual((info["topology_groups"], info["groups"]), (8, 1))
        text = weft("topo", "--sim", "p5").stdout
        self.assertIn("merges these into 1", text)
        self.assertIn("weft bench --workers 8", text)
        text = weft("info", "--sim", "p5", "--peers", "0").stdout
        self.assertIn("the topology has 8 groups", text)
        self.assertIn("--workers 8", text)
        self.assertNotIn("the topology has", weft("info", "--sim", "p5", "--peers", "0", "--workers", "8").stdout)


class Efa(command.Case):
    """Simulated NICs that call themselves efa."""

    def setUp(self):
        if "--sim" not in weft("help", "bench").stdout:
            self.skipTest("built without the simulator")

    def test_provider_follows(self):
        for spec, provider in (("p5,nics=2,as=efa", "efa"), ("p5,nics=2,as=efa,personality=efa-direct", "efa-direct"),
                               ("p5,nics=2", "simfab")):
            result = self.result("--sim", spec, *SHORT)
            self.assertEqual((result["provider"], result["simulated"], result["verified"]), (provider, True, True))

    def test_info(self):
        lines = weft("info", "--sim", "p5,nics=1,as=efa", "--peers", "0").stdout.splitlines()
        used = {line.split()[0]: line for line in lines if line.startswith("  efa")}
        self.assertTrue(used["efa"].endswith("by default, simulated"), used)
        self.assertTrue(used["efa-direct"].endswith("when named, simulated"), used)


if __name__ == "__main__":
    command.main(__doc__)
