#!/usr/bin/env python3
"""Runs the real weft command: what it says when used wrongly, short verified runs, and what it does when things die.

usage: test_command.py WEFT CLASS...    (the classes below; none: all)

No timing is asserted but that everything ends.
"""
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = "weft"
LIMIT = 120  # seconds for anything at all: under sanitizers, on a busy machine
KEYS = {"provider", "rails", "op", "size", "page_size", "depth", "ops", "bytes", "seconds", "gbps", "line_gbps",
        "utilization", "mops", "p50_us", "p99_us", "p99_9_us", "max_us", "cpu_s", "verified", "simulated", "interrupted",
        "notes", "rail", "memory", "time", "host", "weft", "libfabric", "workers", "groups", "peer_host", "peer_weft", "peer_libfabric",
        "peer_workers", "peer_rails", "seed", "command", "direction", "clients", "mem", "mem_path", "peer_mem", "peer_mem_path"}
CSV_KEYS = {"provider", "rails", "op", "size", "page_size", "depth", "ops", "bytes", "seconds", "gbps", "line_gbps",
            "utilization", "mops", "p50_us", "p99_us", "p99_9_us", "max_us", "cpu_s", "verified", "simulated", "interrupted",
            "time", "host", "direction", "clients", "mem", "mem_path", "peer_mem", "peer_mem_path"}
PHASE_KEYS = {"name", "nics_down", "seconds", "gbps", "line_gbps", "utilization", "second_half_gbps",
              "second_half_utilization", "reachable_gbps", "cpu_s"}
RAIL_KEYS = {"name", "group", "bytes", "gbps", "share", "errors", "retries"}
SHORT = ["--duration", "200ms", "--warmup", "50ms", "--region", "32M", "--pages", "8", "--depth", "8"]
SHORT_CONTIGUOUS = ["--duration", "200ms", "--warmup", "50ms", "--region", "32M", "--depth", "8"]


def weft(*words):
    return subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=LIMIT)


STARTED = []


def start(*words, **more):
    STARTED.append(subprocess.Popen([WEFT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more))
    return STARTED[-1]


def listen():
    """A listening side on a free port: the process and its port, read from what it prints."""
    process = start("bench", "--listen", "127.0.0.1:0", "--once")
    line = process.stdout.readline()
    found = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
    if not found:
        process.kill()
        raise AssertionError(f"no port in {line!r}: {process.communicate()}")
    return process, found.group(1)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def wait_for(what, reason, pause=0.02):
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        got = what()
        if got:
            return got
        time.sleep(pause)
    raise AssertionError(reason)


def said(err):
    """What a command has to say on standard error, but that a busy machine keeps it waiting."""
    return "".join(line for line in err.splitlines(True) if not line.startswith("weft bench: waiting: "))


def running_for_real(process):
    """Waits for the first progress line: then operations are ending."""
    line, before = process.stderr.readline(), ""
    while line and "posted" not in line:  # a machine that is busy has more to tell
        before += line
        line = process.stderr.readline()
    assert line, before


def threads_at_rest(pid):
    """True when every thread of a stopped process is inside a system call."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/syscall") as file:
            if file.read().split()[0] in ("-1", "running"):
                return False
    return True


def stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def kill_at_rest(pid):
    """Kills a process while none of its threads is inside libfabric 1.17's shared memory: dying within that spin lock
    holds up its callers, inside libfabric, for good (docs/decisions/07)."""
    for _ in range(2000):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: stopped(pid), "it does not stop")
        if threads_at_rest(pid):
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)  # let it come to another place
    os.kill(pid, signal.SIGKILL)


def catches(pid, signum):
    with open(f"/proc/{pid}/status") as file:
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", file.read()).group(1)
    return int(caught, 16) >> (signum - 1) & 1


class Case(unittest.TestCase):
    def tearDown(self):
        """What a test that failed left running would fail others, or the machine's next user."""
        while STARTED:
            process = STARTED.pop()
            if process.poll() is None:
                process.kill()
                process.communicate()

    def ended(self, process, status):
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def result(self, *words):
        run = weft("bench", "--json", *words)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        lines = run.stdout.splitlines()
        self.assertEqual(len(lines), 1)
        return json.loads(lines[0])

    def good(self, result, op, rails):
        self.assertEqual(set(result), KEYS)
        self.assertEqual(result["op"], op)
        self.assertEqual(result["rails"], rails)
        self.assertEqual(len(result["rail"]), rails)
        self.assertIs(result["verified"], True)
        self.assertIs(result["simulated"], False)
        self.assertIs(result["interrupted"], False)
        self.assertGreater(result["ops"], 0)
        self.assertEqual(result["bytes"], result["ops"] * result["size"])
        self.assertLessEqual(result["p50_us"], result["p99_us"])
        for rail in result["rail"]:
            self.assertEqual(set(rail), RAIL_KEYS)
        if op not in ("send", "call"):
            self.assertGreaterEqual(sum(rail["bytes"] for rail in result["rail"]), result["bytes"])


class Usage(Case):
    def wrong(self, *words):
        run = weft(*words)
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        self.assertEqual(run.stdout, "")
        return run.stderr

    def test_help(self):
        for words in (["--help"], ["-h"], ["help"], ["help", "help"], ["help", "bench"], ["help", "info"], ["bench", "--help"]):
            run = weft(*words)
            self.assertEqual(run.returncode, 0)
            self.assertIn("Examples:", run.stdout)
        self.assertRegex(weft("--version").stdout, r"^weft \d+\.\d+")

    def test_output_that_cannot_be_written(self):
        """A full disk, or no standard output at all: never a success."""
        runs = [["--help"], ["--version"], ["help", "bench"], ["info", "--provider", "shm", "--json"],
                ["bench", "--provider", "shm", "--json", *SHORT], ["bench", "--provider", "shm", "--quiet", *SHORT]]
        available = weft("--help").stdout
        runs += [[name] for name in ("sim", "topo") if f"  {name} " in available]
        for words in runs:
            with open("/dev/full", "w") as full:
                run = subprocess.run([WEFT, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, 1, words)
            self.assertIn("standard output:", run.stderr, words)
        for words in (["--version"], ["bench", "--provider", "tcp", "--json", *SHORT]):
            run = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", WEFT, *words], stderr=subprocess.PIPE, text=True,
                                 timeout=LIMIT)
            self.assertEqual(run.returncode, 1, words)
            self.assertIn("standard output", run.stderr, words)

    def test_help_fits_a_terminal(self):
        commands = re.findall(r"(?m)^  ([a-z]+) ", weft("--help").stdout.split("Options:")[0])
        for words in (["--help"], *(["help", name] for name in commands if name != "help")):
            for line in weft(*words).stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_man_pages_agree_with_help(self):
        manual = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "man")
        for name in re.findall(r"(?m)^  ([a-z]+) ", weft("--help").stdout.split("Options:")[0]):
            if name == "help":
                continue
            with open(os.path.join(manual, f"weft-{name}.1")) as page:
                told = set(re.findall(r"(?m)^\.It Fl -([a-z-]+)", page.read()))
            options = set(re.findall(r"(?m)^  --([a-z-]+)", weft("help", name).stdout))
            # A build without the simulator has fewer.
            self.assertEqual(options - told, set(), name)
            self.assertLessEqual(told - options, {"sim", "kill-rail", "revive-rail"}, name)

    def test_hidden_options_stay_hidden(self):
        self.assertNotIn("peer-fd", weft("help", "bench").stdout)
        self.assertNotIn("peers-fd", weft("help", "info").stdout)

    def test_suggestions(self):
        self.assertIn("'bench'", self.wrong("bnech"))
        self.assertIn("'info'", self.wrong("help", "inof"))
        self.assertIn("--version", self.wrong("--verison"))
        self.assertIn("--duration", self.wrong("bench", "--duratoin", "1s"))
        self.assertIn("--page-size", self.wrong("bench", "--pagesize", "1K"))
        self.assertIn("did you mean scatter", self.wrong("bench", "--op", "scater"))
        self.assertIn("--json", self.wrong("info", "--jsn"))
        self.assertNotIn("did you mean", self.wrong("bench", "--xyzzyplugh"))

    def test_values(self):
        for words, named in ((["--size", "12Q", "--op", "write"], "--size"), (["--depth", "0"], "--depth"),
                             (["--duration", "soon"], "--duration"), (["--pages", "-3"], "--pages"),
                             (["--seed"], "--seed"), (["--region", "1M"], "--region"), (["--json=1"], "--json"),
                             (["--json", "--csv"], "--csv"), (["--size", "1M"], "--page-size"),
                             (["--op", "write", "--pages", "2"], "--size"), (["a", "b"], "'b'"),
                             (["--listen", "1", "host"], "HOST"), (["--once"], "--listen"),
                             (["--listen", "no port"], "--listen"), (["--listen", "99999"], "65535"),
                             (["--listen", "127.0.0.1:99999"], "65535"), (["127.0.0.1:99999"], "65535"),
                             (["127.0.0.1:0"], "from 1 to 65535"), (["--manual", "--workers", "2"], "--workers"),
                             (["--listen", "--sizes", "4K-1M"], "HOST"), (["--sim", "p5,nisc=2"], "weft sim knobs"),
                             (["--op", "send", "--size", "1G"], "--size"),
                             (["--no-local", "--provider", "local"], "--no-local"), (["--memory", "x"], "weft, own")):
            self.assertIn(named, self.wrong("bench", *words), words)

    def test_nothing(self):
        self.assertIn("Usage:", self.wrong())

    def test_unknown_provider(self):
        run = weft("bench", "--provider", "shn")
        self.assertEqual(run.returncode, 1)
        self.assertIn("shn", run.stderr)
        self.assertIn("shm", run.stderr)
        run = weft("bench", "--provider", "shn", "--json")
        self.assertEqual(run.returncode, 1)
        self.assertIn("shn", json.loads(run.stdout)["error"])

    def test_provider_in_capitals(self):
        run = weft("bench", "--provider", "SHM")
        self.assertEqual(run.returncode, 1)
        self.assertIn("did you mean shm?", run.stderr)

    def test_providers_agree(self):
        """An error names the providers 'weft info' lists, and neither names one that does not work."""
        listed = {nic["provider"] for nic in json.loads(weft("info", "--provider", "shm", "--json").stdout)["nics"]}
        named = re.search(r"Here are: ([^.?]*)(; did|$)", weft("bench", "--provider", "zzzzzz").stderr.strip()).group(1)
        self.assertEqual(set(named.split(", ")), listed)
        self.assertNotIn("udp;ofi_rxd", listed)

    def test_rails_and_avoid(self):
        for rails, word in (("eth0,eth0", "eth0 twice"), ("-1", "from 1 to 64"), ("0", "from 1 to 64"),
                            ("99999999999999999999", "from 1 to 64")):
            self.assertIn(word, self.wrong("bench", "--rails", rails))
        run = weft("bench", "--provider", "shm", "--rails", "4", "--avoid", "nope", "--json", *SHORT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("--rails 4: only 1", run.stderr)
        self.assertIn("--avoid nope: no NIC", run.stderr)

    def test_avoid_falls_back(self):
        run = weft("bench", "--avoid", "shm", "--json", *SHORT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotEqual(json.loads(run.stdout)["provider"], "shm")
        self.assertEqual(said(run.stderr), "")

    def test_deadline(self):
        run = weft("bench", "--provider", "shm", "--timeout", "1ms", "--op", "write", "--size", "64M",
                   "--depth", "1")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--timeout", run.stderr)
        self.assertNotIn("timeout_ns", run.stderr)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run = weft("bench", "--listen", f"127.0.0.1:{port}")
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"{port} is in use", run.stderr)
        self.assertIn("--listen", run.stderr)

    def test_nobody_listens(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            run = weft("bench", f"127.0.0.1:{port}")
        self.assertEqual(run.returncode, 1)
        self.assertIn("nobody listens", run.stderr)

    def test_stranger_at_the_port(self):
        """Neither side takes a stranger for weft, nor waits for one for ever."""
        process, port = listen()
        with socket.create_connection(("127.0.0.1", int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: weft\r\n\r\n")
            out, err = self.ended(process, 1)
        self.assertIn("is not 'weft bench'", err)
        process, port = listen()
        with socket.create_connection(("127.0.0.1", int(port))) as stranger:
            stranger.sendall(b"hi\n")
        self.assertIn("is not 'weft bench'", self.ended(process, 1)[1])
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            process = start("bench", f"127.0.0.1:{server.getsockname()[1]}")
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
            out, err = self.ended(process, 1)
            connection.close()
        self.assertIn("is not 'weft bench'", err)


class Runs:
    """Every operation over one provider; the subclasses say which."""
    words, rails = [], 1

    def run_op(self, op, *words):
        short = SHORT if op in ("pages", "scatter") else SHORT_CONTIGUOUS
        self.good(self.result("--op", op, *self.words, *short, *words), op, self.rails)

    def test_pages(self):
        self.run_op("pages")

    def test_odd_pages(self):
        self.run_op("pages", "--page-size", "5003", "--seed", "7")

    def test_write(self):
        self.run_op("write", "--size", "1M")

    def test_small_write(self):
        self.run_op("write", "--size", "9")

    def test_read(self):
        self.run_op("read", "--size", "300K")

    def test_scatter(self):
        self.run_op("scatter")

    def test_send(self):
        self.run_op("send")

    def test_large_send(self):
        self.run_op("send", "--size", "1M", "--depth", "2")

    def test_call(self):
        self.run_op("call", "--depth", "1")

    def test_manual(self):
        self.run_op("call", "--depth", "1", "--manual")
        self.run_op("pages", "--manual")

    def test_ops(self):
        result = self.result(*self.words, "--ops", "37", "--region", "32M", "--pages", "8")
        self.assertEqual(result["ops"], 37)
        self.assertIs(result["verified"], True)


class Shm(Runs, Case):
    words = ["--provider", "shm"]

    def test_largest_send(self):
        """Messages larger than the engine's defaults, up to the most there can be."""
        self.run_op("send", "--size", "8M", "--depth", "2")
        result = self.result("--op", "send", *self.words, "--size", "64M", "--ops", "2", "--warmup", "0")
        self.good(result, "send", 1)
        self.assertEqual(result["depth"], 1)


class Tcp(Runs, Case):
    words = ["--provider", "tcp", "--rails", "1"]


class Tcp4(Runs, Case):
    words, rails = ["--provider", "tcp", "--rails", "4"], 4


class Output(Case):
    def test_default(self):
        run = weft("bench", "--duration", "200ms", "--quiet")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(said(run.stderr), "")
        for word in ("transport", "verified      every byte", "Gbit/s", "rail", "p99", "CPU"):
            self.assertIn(word, run.stdout)

    def test_one_host(self):
        """Two processes of one host use the local rail by default; what is mapped, copied or not wanted is said."""
        mapped = self.result(*SHORT)
        self.assertEqual((mapped["provider"], mapped["memory"], mapped["verified"]), ("local", "mapped", True))
        copied = self.result("--memory", "own", *SHORT)
        self.assertEqual((copied["provider"], copied["memory"], copied["verified"]), ("local", "copied", True))
        small = self.result("--page-size", "64", "--pages", "3000", "--depth", "4", "--duration", "200ms", "--region", "4M")
        self.assertEqual((small["memory"], small["verified"]), ("mapped", True))
        small = self.result("--memory", "own", "--page-size", "96", "--pages", "3000", "--depth", "4", "--duration", "200ms",
                            "--region", "4M")
        self.assertEqual((small["memory"], small["verified"]), ("copied", True))
        other = self.result("--no-local", *SHORT)
        self.assertNotEqual(other["provider"], "local")
        self.assertIsNone(other["memory"])
        two = self.result("--workers", "2", *SHORT)
        self.assertEqual((two["rails"], two["verified"]), (2, True))

    def test_progress_when_piped(self):
        run = weft("bench", "--provider", "shm", "--duration", "3s", "--region", "64M", "--depth", "8")
        self.assertRegex(run.stderr, r"(?m)^ +\d+\.\d s .* Gbit/s .* posted, ")
        self.assertNotIn("\r", run.stderr)
        self.assertNotIn("posted", run.stdout)

    def test_messages(self):
        """Of messages their number is what counts."""
        for op, counted in (("call", "calls"), ("send", "messages")):
            run = weft("bench", "--provider", "shm", "--op", op, "--duration", "3s")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, rf"(?m)^  throughput    [1-9].* {counted}/s")
            self.assertRegex(run.stdout, r"latency       p50 \d[\d.]{0,3} [num]?s, p99")
            self.assertRegex(run.stderr, rf"(?m)^ +\d+\.\d s .* {counted}/s .* posted, ")

    def test_csv(self):
        run = weft("bench", "--provider", "shm", "--csv", *SHORT)
        self.assertEqual(run.returncode, 0, run.stderr)
        header, values = run.stdout.splitlines()
        self.assertEqual(set(header.split(",")), CSV_KEYS)
        self.assertEqual(len(values.split(",")), len(CSV_KEYS))
        self.assertEqual(said(run.stderr), "")

    def test_not_verified(self):
        self.assertIsNone(self.result("--provider", "shm", "--no-verify", *SHORT)["verified"])

    def test_info(self):
        run = weft("info", "--provider", "shm", "--peers", "3", "--json")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        info = json.loads(run.stdout)
        self.assertEqual(info["provider"], "shm")
        self.assertGreaterEqual(len(info["rails"]), 1)
        self.assertGreater(info["memory"]["engine_resident_bytes"], 0)
        self.assertEqual(info["memory"]["further_peers"], 3)
        run = weft("info", "--provider", "tcp", "--rails", "4", "--peers", "2")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for word in ("127.0.0.4", "Configuration", "engine memory resident with 4 rails and one peer", "each further peer"):
            self.assertIn(word, run.stdout)
        self.assertEqual(weft("info", "--provider", "shn").returncode, 1)

    def test_info_local(self):
        """By default an engine has the local rail beside NICs, and a peer of this host is reached over it; less than 256 KiB each."""
        info = json.loads(weft("info", "--provider", "local", "--peers", "8", "--json").stdout)
        self.assertTrue(info["memory"]["peers_local"])
        self.assertLess(info["memory"]["peer_resident_bytes"], 256 << 10)
        info = json.loads(weft("info", "--peers", "2", "--json").stdout)
        self.assertIn("local", {rail["provider"] for rail in info["rails"]})
        self.assertTrue(info["memory"]["peers_local"])
        for words in (["--no-local"], ["--provider", "tcp", "--rails", "1"]):
            info = json.loads(weft("info", *words, "--peers", "1", "--json").stdout)
            self.assertNotIn("local", {rail["provider"] for rail in info["rails"]})
            self.assertFalse(info["memory"]["peers_local"])


class Sim(Case):
    def setUp(self):
        if "--sim" not in weft("help", "bench").stdout:
            self.skipTest("built without the simulator")

    def test_pages(self):
        result = self.result("--sim", "p5,nics=4,rate=2G", *SHORT)
        self.assertEqual(set(result), KEYS)
        self.assertIs(result["simulated"], True)
        self.assertIs(result["verified"], True)
        self.assertEqual(result["rails"], 4)
        self.assertEqual(result["line_gbps"], 8)
        self.assertGreater(result["utilization"], 0)

    def test_says_so(self):
        run = weft("bench", "--sim", "p5,nics=2,copy=none", "--quiet", *SHORT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for line in ("transport", "throughput"):
            self.assertRegex(run.stdout, rf"(?m)^ +{line} .*simulated")
        self.assertIn("verified      no: the simulated NICs", run.stdout)
        self.assertIn("in flight (simulated NICs, a post takes 450 ns of CPU)", run.stdout)
        run = weft("bench", "--sim", "p5,nics=2,copy=none,post_ns=0", "--quiet", *SHORT)
        self.assertIn("in flight (simulated NICs, posts take no CPU time)", run.stdout, run.stderr)
        run = weft("bench", "--sim", "p5,nics=2", "--csv", *SHORT)
        self.assertIn(",true,false,20", run.stdout, run.stderr)  # simulated, not interrupted, the time

    def test_depth_follows_the_line(self):
        """What 200 Gbit/s carry in 1.4 ms is 34 operations of 1 MiB. Not where it was said, nor where the host's cores copy."""
        write = ("--op", "write", "--duration", "100ms", "--warmup", "50ms")
        self.assertEqual(self.result("--sim", "p5,nics=2,copy=none", *write)["depth"], 34)
        self.assertEqual(self.result("--sim", "p5,nics=4,copy=none", "--rails", "2", *write)["depth"], 34)
        self.assertEqual(self.result("--sim", "p5,nics=2,copy=none", "--depth", "5", *write)["depth"], 5)
        self.assertEqual(self.result("--sim", "p5,nics=2", *write)["depth"], 16)

    def test_low_rate_is_explained(self):
        """Copying is the host's work: said where it is the limit, and what to do."""
        run = weft("bench", "--sim", "p5", "--quiet", *SHORT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("cores copy the data", run.stdout)
        self.assertIn("--sim p5,copy=none --no-verify", run.stdout)
        self.assertNotIn("cores copy the data", weft("bench", "--quiet", "--sim", "p5,copy=none", *SHORT).stdout)

    def test_wrong(self):
        for spec in ("p6", "p5,nics=0", "p5,colour=red"):
            run = weft("bench", "--sim", spec)
            self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
            self.assertIn("--sim", run.stderr)

    def test_faults(self):
        """Rules set, listed and cleared; what is not there is not made."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "faults")
            for verb in ("faults", "clear"):
                run = weft("sim", verb, path)
                self.assertEqual(run.returncode, 1)
                self.assertIn("No such file", run.stderr)
                self.assertFalse(os.path.exists(path))
            self.assertEqual(weft("sim", "set", path, "nic=3,fault=drop").stdout, "rule 0 set\n")
            self.assertEqual(json.loads(weft("sim", "set", path, "nic=4,fault=drop", "--json").stdout), {"number": 1})
            rules = json.loads(weft("sim", "faults", path, "--json").stdout)
            self.assertEqual([(rule["number"], rule["seen"], rule["hit"]) for rule in rules], [(0, 0, 0), (1, 0, 0)])
            self.assertEqual(weft("sim", "clear", path).returncode, 0)
            self.assertEqual(weft("sim", "faults", path).stdout, "")

    def test_kill_rail(self):
        """The run goes on without a link and with it again; what arrived is right."""
        result = self.result("--sim", "p5,nics=4,rate=1G", "--kill-rail", "1@800ms", "--revive-rail", "1@1800ms",
                             "--duration", "3s", "--region", "64M", "--pages", "16", "--depth", "8")
        self.assertEqual(set(result), KEYS | {"phases", "rails_down", "rails_up", "rail_events"})
        self.assertIs(result["verified"], True)
        self.assertIs(result["simulated"], True)
        self.assertEqual([phase["name"] for phase in result["phases"]], ["before", "down", "after"])
        self.assertEqual([phase["line_gbps"] for phase in result["phases"]], [4, 3, 4])
        for phase in result["phases"]:
            self.assertEqual(set(phase), PHASE_KEYS)
            self.assertGreater(phase["gbps"], 0)
        for event in result["rail_events"]:
            self.assertIn(event["state"], ("down", "reopened", "carries"))
        # A rail that was reopened while its link is down carries nothing; what carries was reopened before.
        states = [event["state"] for event in result["rail_events"] if event["rail"] == "rdmap80s0"]
        for before, state in zip([None, *states], states):
            self.assertTrue(state != "carries" or before == "reopened", states)

    def test_kill_rail_table(self):
        run = weft("bench", "--sim", "p5,nics=4,rate=1G,copy=none", "--kill-rail", "1@200ms",
                   "--kill-rail", "2@200ms", "--revive-rail", "1@800ms", "--duration", "2s", "--quiet",
                   "--rail-limit", "50ms", "--peer-limit", "5s")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for word in ("rail limit    50 ms", "link          rdmap80s0 (NIC 1) down at 0.200 s", "(simulated)", "goal"):
            self.assertIn(word, run.stdout)
        self.assertRegex(run.stdout, r"(?m)^  down +2 .*\n  down +1 ")

    def test_kill_rail_own_control_file(self):
        """The user's own control file is used, and left without our rules."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "faults")
            run = weft("bench", "--sim", f"p5,nics=2,rate=1G,control={path}", "--kill-rail", "0@100ms", "--duration",
                       "400ms", "--json")
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertEqual(weft("sim", "faults", path).stdout, "")

    def test_kill_rail_wrong(self):
        for words, named in ((["--kill-rail", "3@1s"], "--sim"), (["--sim", "p5", "--kill-rail", "3"], "3@1s"),
                             (["--sim", "p5,nics=2", "--kill-rail", "3@1s"], "no NIC 3"),
                             (["--sim", "p5", "--revive-rail", "3@1s"], "not down"),
                             (["--sim", "p5", "--kill-rail", "3@1s", "--kill-rail", "3@2s"], "already"),
                             (["--sim", "p5,nics=1", "--kill-rail", "0@1s"], "one must stay"),
                             (["--sim", "p5", "--kill-rail", "3@1s", "--duration", "1s"], "--duration"),
                             (["--sim", "p5", "--kill-rail", "3@1s", "--ops", "5"], "--ops"),
                             (["--sim", "p5", "--kill-rail", "3@1s", "--csv"], "--csv"),
                             (["--sim", "p5", "--kill-rail", "3@1s", "host-a"], "HOST"),
                             (["--rail-limit", "0"], "--rail-limit")):
            run = weft("bench", *words)
            self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
            self.assertIn(named, run.stderr, words)

    def test_info(self):
        info = json.loads(weft("info", "--sim", "p5,nics=8", "--peers", "2", "--json").stdout)
        self.assertIs(info["simulated"], True)
        self.assertEqual(len(info["rails"]), 8)


class Hosts(Case):
    """Two processes that know each other only by host and port."""

    def between(self, *words):
        process, port = listen()
        run = weft("bench", f"127.0.0.1:{port}", "--json", *words)
        out, err = self.ended(process, 0)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr + err)
        return json.loads(run.stdout)

    def test_default(self):
        self.good(self.between(*SHORT), "pages", 1)

    def test_tcp(self):
        self.good(self.between("--provider", "tcp", "--rails", "2", *SHORT), "pages", 2)

    def test_read(self):
        self.good(self.between("--op", "read", *SHORT_CONTIGUOUS), "read", 1)

    def test_call(self):
        self.good(self.between("--op", "call", "--provider", "tcp", "--duration", "200ms"), "call", 1)

    def test_serves_one_after_another(self):
        process = start("bench", "--listen", "127.0.0.1:0", "--quiet")
        port = re.search(r":(\d+);", process.stdout.readline()).group(1)
        for _ in range(2):
            self.good(self.result(f"127.0.0.1:{port}", *SHORT), "pages", 1)
        process.send_signal(signal.SIGINT)
        self.ended(process, 0)


    def test_busy(self):
        """Who comes while another is served is told so, and served next."""
        listener = start("bench", "--listen", "127.0.0.1:0", "--quiet")
        port = re.search(r":(\d+);", listener.stdout.readline()).group(1)
        first = start("bench", f"127.0.0.1:{port}", "--provider", "tcp", "--duration", "600s")
        running_for_real(first)
        second = start("bench", f"127.0.0.1:{port}", "--provider", "tcp", "--json", *SHORT)
        line = second.stderr.readline()
        while "has not answered yet" in line:  # the listener had no CPU to turn it away with
            line = second.stderr.readline()
        self.assertIn("is serving another benchmark", line)
        first.send_signal(signal.SIGINT)
        self.ended(first, 130)
        out, err = self.ended(second, 0)
        self.assertEqual(said(err), "")
        self.good(json.loads(out), "pages", 1)
        listener.send_signal(signal.SIGINT)
        self.ended(listener, 0)

    def test_silent_host(self):
        """Something that takes connections and says nothing, as many a service does."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            process = start("bench", f"127.0.0.1:{server.getsockname()[1]}", "--provider", "tcp")
            with server.accept()[0]:
                line = process.stderr.readline()
        self.assertRegex(line, r"127\.0\.0\.1:\d+ has not answered yet; it may be busy, or no 'weft bench --listen'$")
        self.ended(process, 1)

    def test_idle_connection(self):
        """A connection that says nothing holds nobody up for long."""
        listener = start("bench", "--listen", "127.0.0.1:0", "--quiet")
        port = re.search(r":(\d+);", listener.stdout.readline()).group(1)
        with socket.create_connection(("127.0.0.1", int(port))):
            self.good(self.result(f"127.0.0.1:{port}", *SHORT), "pages", 1)
        listener.send_signal(signal.SIGINT)
        self.ended(listener, 0)


class Deaths(Case):
    def killed_peer(self, kill, *words):
        process = start("bench", "--duration", "600s", *words)
        running_for_real(process)
        peer = wait_for(lambda: children(process.pid), "no peer process")[0]
        kill(peer)
        out, err = self.ended(process, 1)
        self.assertIn("killed by signal 9", err)
        self.assertIn("transport", out)

    def test_peer_killed_shm(self):
        self.killed_peer(kill_at_rest, "--provider", "shm")

    def test_peer_killed_tcp(self):
        self.killed_peer(lambda peer: os.kill(peer, signal.SIGKILL), "--provider", "tcp", "--rails", "2")

    def test_peer_killed_call(self):
        self.killed_peer(kill_at_rest, "--provider", "shm", "--op", "call", "--manual")

    def test_peer_stopped(self):
        """A peer that neither answers nor dies: its silence ends the run."""
        process = start("bench", "--duration", "600s", "--provider", "tcp", "--timeout", "5s")
        running_for_real(process)
        peer = wait_for(lambda: children(process.pid), "no peer process")[0]
        os.kill(peer, signal.SIGSTOP)
        self.ended(process, 1)
        self.assertFalse(os.path.exists(f"/proc/{peer}"))

    def stopped_before_its_greeting(self):
        """A driver whose peer process has not come to answer, that process, and what the driver says of it. Where the process was
        faster than our signal there is nothing to be said: then another try."""
        for _ in range(20):
            process = start("bench", "--provider", "tcp", "--json", *SHORT)
            peer = wait_for(lambda: children(process.pid), "no peer process", pause=0)[0]
            os.kill(peer, signal.SIGSTOP)
            line = process.stderr.readline() if select.select([process.stderr], [], [], 5)[0] else ""
            if "has not answered yet" in line:
                return process, peer, line
            os.kill(peer, signal.SIGKILL)
            process.kill()
            process.communicate()
        raise AssertionError("the peer process always answers before it is stopped")

    def test_peer_slow(self):
        """Of the process it started itself it does not say that it serves another."""
        process, peer, line = self.stopped_before_its_greeting()
        os.kill(peer, signal.SIGCONT)
        self.assertEqual(line, "weft bench: waiting: the peer process has not answered yet; this host may be busy\n")
        out, err = self.ended(process, 0)
        self.good(json.loads(out), "pages", 1)

    def test_driver_killed(self):
        process = start("bench", "--duration", "600s", "--provider", "shm")
        running_for_real(process)
        peer = wait_for(lambda: children(process.pid), "no peer process")[0]
        kill_at_rest(process.pid)
        process.communicate()
        wait_for(lambda: not os.path.exists(f"/proc/{peer}"), "the peer outlived its driver")

    def test_interrupt(self):
        """As a terminal does it: the signal goes to every process of the group."""
        process = start("bench", "--duration", "600s", "--provider", "shm", start_new_session=True)
        running_for_real(process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = self.ended(process, 130)
        self.assertIn("interrupted", out)
        self.assertIn("verified      every byte", out)

    def test_interrupt_is_in_the_result(self):
        """What a program reads does not look like a whole run."""
        for form, signum, status in (("--json", signal.SIGINT, 130), ("--csv", signal.SIGTERM, 143)):
            process = start("bench", form, "--duration", "600s", "--provider", "shm", "--region", "32M", "--depth", "8")
            wait_for(lambda: children(process.pid) and catches(process.pid, signum), "it does not catch the signal")
            process.send_signal(signum)
            out, err = self.ended(process, status)
            if form == "--json":
                self.assertIs(json.loads(out)["interrupted"], True)
            else:
                header, values = out.splitlines()
                self.assertEqual(dict(zip(header.split(","), values.split(",")))["interrupted"], "true")

    def test_listener_killed(self):
        listener, port = listen()
        process = start("bench", f"127.0.0.1:{port}", "--provider", "tcp", "--duration", "600s")
        running_for_real(process)
        listener.kill()
        listener.communicate()
        out, err = self.ended(process, 1)
        self.assertIn("weft bench:", err)

    def test_listener_interrupted(self):
        listener, port = listen()
        process = start("bench", f"127.0.0.1:{port}", "--provider", "tcp", "--duration", "600s")
        running_for_real(process)
        listener.send_signal(signal.SIGINT)
        self.ended(listener, 1)
        out, err = self.ended(process, 1)
        self.assertIn("interrupted", err)

    def test_driver_gone(self):
        listener, port = listen()
        process = start("bench", f"127.0.0.1:{port}", "--provider", "tcp", "--duration", "600s")
        running_for_real(process)
        process.kill()
        process.communicate()
        self.ended(listener, 1)


def main(usage):
    """Runs the tests of the program that was started."""
    global WEFT
    if len(sys.argv) < 2:
        sys.exit(usage)
    WEFT = os.path.abspath(sys.argv[1])
    # What libfabric leaks is not weft's to fix; anything else a sanitizer finds fails the run.
    known = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lsan.supp")
    os.environ.setdefault("LSAN_OPTIONS", f"suppressions={known}:print_suppressions=0")
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])


if __name__ == "__main__":
    main(__doc__)
