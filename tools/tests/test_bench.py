#!/usr/bin/env python3
"""weft bench: what its results carry, several sizes, and the progress line of a terminal.

usage: test_bench.py WEFT
"""
import csv
import datetime
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import tempfile
import termios

import test_command as command
from test_command import CSV_KEYS, KEYS, LIMIT, SHORT, weft


class Results(command.Case):
    def test_stands_alone(self):
        """Time, hosts, versions, seed and command line are in the JSON."""
        words = ["--provider", "tcp", "--rails", "2", "--seed", "7", *SHORT]
        before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        result = self.result(*words)
        began = datetime.datetime.strptime(result["time"], "%Y-%m-%dT%H:%M:%S%z")
        self.assertLessEqual(before, began)
        self.assertLessEqual(began, datetime.datetime.now(datetime.timezone.utc))
        self.assertEqual(result["host"], socket.gethostname()[:63])
        self.assertEqual(result["peer_host"], result["host"])
        self.assertIn(result["weft"], weft("--version").stdout)
        self.assertRegex(result["libfabric"], r"^\d+\.\d+")
        self.assertEqual(result["peer_libfabric"], result["libfabric"])
        self.assertEqual((result["seed"], result["workers"], result["peer_rails"]), (7, 1, 2))
        self.assertEqual(result["command"], ["weft", "bench", "--json", *words])

    def test_histogram(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "latency.csv")
            result = self.result("--provider", "shm", "--op", "call", "--histogram", path, "--duration", "200ms")
            with open(path) as file:
                rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
        self.assertEqual(sum(row["count"] for row in rows), result["ops"])
        for row, after in zip(rows, rows[1:]):
            self.assertLessEqual(row["from_ns"], row["to_ns"])
            self.assertLess(row["to_ns"], after["from_ns"])
        self.assertGreaterEqual(rows[-1]["to_ns"], result["max_us"] * 1000 - 1)
        self.assertLessEqual(result["p99_us"], result["p99_9_us"])
        self.assertLessEqual(result["p99_9_us"], result["max_us"])

    def test_histogram_nowhere(self):
        """Said before the run, so that nobody waits for a result in vain."""
        for path, status in (("/nonexistent/file", 1), ("/", 1), ("-", 2)):
            run = weft("bench", "--provider", "shm", "--histogram", path, "--quiet", "--duration", "600s")
            self.assertEqual(run.returncode, status, run.stderr)
            self.assertIn("--histogram", run.stderr)
            self.assertIn(path, run.stderr)
            self.assertEqual(run.stdout, "")

    def test_rails_by_group(self):
        if "--sim" not in weft("help", "bench").stdout:
            self.skipTest("built without the simulator")
        words = ["--sim", "p5,copy=none", "--workers", "8", "--quiet", *SHORT]
        out = weft("bench", *words).stdout
        self.assertEqual(len(re.findall(r"(?m)^  group \d, 4 rails ", out)), 8, out)
        self.assertIn("--each-rail", out)
        out = weft("bench", *words, "--each-rail").stdout
        self.assertEqual(len(re.findall(r"(?m)^  rdmap\d+s0 ", out)), 32, out)
        self.assertNotIn("group 0", out)


class Directions(command.Case):
    """The other side drives, both do, several do: each result is verified where it arrived."""
    ONE = ["--duration", "200ms", "--warmup", "50ms", "--region", "32M", "--depth", "4"]

    def test_in(self):
        for op in ("pages", "read", "send", "call", "scatter"):
            result = self.result("--provider", "shm", "--direction", "in", "--op", op, *self.ONE)
            self.good(result, op, 1)
            self.assertEqual((result["direction"], result["clients"]), ("in", 1))

    def several(self, *words):
        result = self.result(*words, *self.ONE)
        self.assertIs(result["verified"], True)
        self.assertEqual(sum(one["ops"] for one in result["client"]), result["ops"])
        self.assertEqual(sum(one["bytes"] for one in result["client"]), result["bytes"])
        for one in result["client"]:
            self.assertGreater(one["ops"], 0)
        return [one["direction"] for one in result["client"]]

    def test_both(self):
        self.assertEqual(self.several("--provider", "tcp", "--direction", "both"), ["out", "in"])

    def test_clients(self):
        self.assertEqual(self.several("--provider", "shm", "--clients", "3", "--op", "send"), ["out"] * 3)

    def test_table(self):
        run = weft("bench", "--provider", "shm", "--direction", "both", "--clients", "2", "--quiet", *self.ONE)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("both ways at once, 2 clients", run.stdout)
        self.assertRegex(run.stdout, r"(?m)^  4 in  ")
        self.assertRegex(run.stdout, r"(?m)^ +\d+\.\d+ out, \d+\.\d+ in$")

    def table(self, *words):
        run = weft("bench", "--quiet", *words, *self.ONE)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout

    def test_both_table(self):
        """How many rails this side has; who verified what; and of calls how many a second."""
        out = self.table("--provider", "shm", "--direction", "both", "--op", "read")
        self.assertIn("shm, 1 rail: ", out)
        self.assertIn("at the side that read them", out)
        out = self.table("--provider", "shm", "--direction", "both", "--op", "call")
        self.assertRegex(out, r"(?m)^  client +calls/s +operations ")
        self.assertNotRegex(out, r"(?m)^  [12] (out|in) +0\.00 ")

    def test_in_table(self):
        out = self.table("--provider", "tcp", "--direction", "in", "--op", "call")
        self.assertRegex(out, r"every byte of \d+ messages, here, and of as many replies at the peer")
        self.assertRegex(self.table("--provider", "tcp", "--direction", "in", "--op", "read"), "every byte of .*, at the peer")

    def test_failed_clients(self):
        """All that failed are named, and no row has figures that were not measured."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            run = weft("bench", f"127.0.0.1:{taken.getsockname()[1]}", "--clients", "3")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, "")
        self.assertIn("clients 1, 2 and 3: nobody listens at", run.stderr)

    def test_one_client_killed(self):
        process = command.start("bench", "--provider", "tcp", "--duration", "600s", "--region", "32M", "--clients", "2")
        command.wait_for(lambda: self.measuring(process.pid, 2), "it does not begin")
        os.kill(command.children(process.pid)[1], signal.SIGKILL)
        process.send_signal(signal.SIGINT)
        out, err = self.ended(process, 1)
        self.assertIn("client 2: its process ended without a result", err)
        self.assertNotIn("0 ns", out)

    def test_hosts(self):
        """A listener serves those that belong together at once, and ends after them with --once."""
        for words, count in ((["--direction", "both"], 2), (["--direction", "in"], 0), (["--clients", "3"], 3)):
            listener, port = command.listen()
            result = self.result(f"127.0.0.1:{port}", "--provider", "tcp", *words, *self.ONE)
            self.assertIs(result["verified"], True)
            self.assertEqual(len(result.get("client", [])), count)
            self.ended(listener, 0)

    def test_wrong(self):
        for words, named in ((["--direction", "up"], "--direction"), (["--clients", "0"], "--clients"),
                             (["--clients", "2", "--sizes", "4K,8K"], "--sizes"),
                             (["--direction", "in", "--listen"], "HOST")):
            run = weft("bench", *words)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn(named, run.stderr)

    def test_interrupt(self):
        """Ctrl-C ends the run early with a result that is marked."""
        for words in (["--direction", "in"], ["--direction", "both"], ["--clients", "2"]):
            result = None
            # Preparing takes CPU too, under a sanitizer a lot: who was interrupted before there was a result is given longer.
            for used_s in (0.3, 2, 10):
                result = result or self.interrupted(words, used_s)
            self.assertIsNotNone(result, "always interrupted before it measured")
            self.assertIs(result["interrupted"], True)
            self.assertIs(result["verified"], True)

    def interrupted(self, words, used_s):
        """What it says when interrupted after used_s of CPU time; None: it had not begun to measure."""
        process = command.start("bench", "--provider", "tcp", "--duration", "600s", "--json", "--region", "32M", *words)
        peers = 1 if words[1] == "in" else 2
        command.wait_for(lambda: self.measuring(process.pid, peers, used_s), "it does not begin")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if process.returncode == 1 and "interrupted" in err:
            return None
        self.assertEqual(process.returncode, 130, out + err)
        return json.loads(out)

    def measuring(self, pid, count, used_s=0.3):
        """All processes that drive are well past their start: they have used CPU for a while."""
        below = command.children(pid)
        if count == 2:
            if len(below) < 2:
                return False
            below = [child for one in below for child in command.children(one)]
        return len(below) >= count and all(self.cpu_s(one) > used_s for one in below)

    def cpu_s(self, pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except FileNotFoundError:
            return 0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_peer_killed(self):
        """The one that drives dies: said, and nothing is left waiting."""
        process = command.start("bench", "--provider", "tcp", "--duration", "600s", "--region", "32M", "--direction", "in")
        command.wait_for(lambda: self.measuring(process.pid, 1), "it does not begin")
        os.kill(command.children(process.pid)[0], signal.SIGKILL)
        out, err = self.ended(process, 1)
        self.assertIn("killed by signal 9", err)


class Sizes(command.Case):
    SHORT = ["--provider", "shm", "--duration", "50ms", "--warmup", "10ms", "--region", "32M"]

    def test_pages(self):
        run = weft("bench", "--sizes", "4K-16K,64K", "--pages", "4", "--json", *self.SHORT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        sweep = json.loads(run.stdout)["sweep"]
        self.assertEqual([one["page_size"] for one in sweep], [4096, 8192, 16384, 65536])
        for one in sweep:
            self.assertEqual(set(one), KEYS)
            self.assertIs(one["verified"], True)

    def test_csv_and_table(self):
        run = weft("bench", "--op", "send", "--sizes", "64,4K", "--csv", *self.SHORT)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = list(csv.DictReader(run.stdout.splitlines()))
        self.assertEqual(set(rows[0]), CSV_KEYS)
        self.assertEqual([row["size"] for row in rows], ["64", "4096"])
        self.assertEqual((rows[0]["host"], rows[0]["direction"], rows[0]["clients"]), (socket.gethostname()[:63], "out", "1"))
        self.assertRegex(rows[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        run = weft("bench", "--op", "write", "--sizes", "64K,1M", "--quiet", *self.SHORT)
        self.assertRegex(run.stdout, r"(?m)^ +64 KiB .*every byte$\n^ +1 MiB .*every byte$")
        for line in run.stdout[run.stdout.index("\n\n"):].splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_wrong(self):
        for words, named in ((["--sizes", "4K,x"], "--sizes"), (["--sizes", "8K-4K"], "--sizes"), (["--sizes", "0"], "--sizes"),
                             (["--sizes", "4K", "--page-size", "4K"], "--page-size"),
                             (["--sizes", "4K-1000T"], "more than this host"), (["--sizes", "4K", "--listen"], "HOST")):
            run = weft("bench", *words)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn(named, run.stderr)
            self.assertEqual(run.stdout, "")


class Terminal(command.Case):
    def drawn(self, columns, *words):
        """What a terminal with that many columns was told to draw, line by line."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([command.WEFT, "bench", *words], stdout=subprocess.DEVNULL, stderr=theirs)
        command.STARTED.append(process)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:  # how Linux says that nobody has the other end any more
            pass
        os.close(ours)
        self.assertEqual(process.wait(LIMIT), 0, text)
        return re.split(r"[\r\n]+", text.decode().replace("\033[K", ""))

    def test_fits(self):
        for columns in (40, 120):
            lines = self.drawn(columns, "--provider", "shm", "--duration", "1500ms", "--region", "32M", "--depth", "4")
            for line in lines:
                self.assertLess(len(line), columns, line)
            self.assertTrue(any("Gbit/s" in line for line in lines), lines)
            for word in ("preparing", "connecting", "verifying"):
                self.assertIn(f"{word} ...", lines)

    def test_quiet(self):
        lines = self.drawn(80, "--provider", "shm", "--quiet", *SHORT)
        self.assertEqual([line for line in lines if line and "waiting:" not in line], [])


if __name__ == "__main__":
    command.main(__doc__)
