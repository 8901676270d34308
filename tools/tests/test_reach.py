#!/usr/bin/env python3
"""Data ports behind a firewall: what weft bench says while it waits and when it gives up; and --ports.

usage: test_reach.py WEFT

The firewall is a routing rule in a network namespace of this test's own: answers from the listener's data ports go nowhere.
"""
import shutil
import socket
import subprocess
import tempfile

import test_command as command
from test_command import LIMIT, SHORT, said, weft

BLOCKED = "20000-20100"
NAMESPACE = ["unshare", "-rn"]
FIREWALL = f"""set -e
ip link set lo up
ip rule add pref 10 ipproto tcp sport {BLOCKED} blackhole
ip rule add pref 100 lookup local
ip rule del pref 0
"""
CONTROL = """
"$1" bench --listen 127.0.0.1:20001 --once >/dev/null 2>&1 & listener=$!
sleep 1
status=0
"$1" bench 127.0.0.1:20001 || status=$?
kill $listener
exit $status
"""
BENCH = """
"$1" bench --listen 127.0.0.1:7471 --ports "$2" --once --quiet >listener.out 2>&1 &
listener=$!
for try in $(seq 600); do grep -q listening listener.out && break; sleep 0.05; done
status=0
shift 2
"$@" || status=$?
kill $listener 2>/dev/null || true
exit $status
"""


class Ports(command.Case):
    def test_wrong(self):
        for ports in ("0", "x", "20000-", "20100-20000", "1-70000", "1-2-3"):
            run = weft("bench", "--ports", ports)
            self.assertEqual(run.returncode, 2, ports)
            self.assertIn("--ports", run.stderr)
            self.assertIn("20000-20100", run.stderr)

    def test_used_up(self):
        """An engine's port is one of the range; no port free is said so."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run = weft("bench", "--provider", "tcp", "--ports", str(port), *SHORT)
        self.assertEqual(run.returncode, 1)
        self.assertIn("every port of the range is in use", run.stderr)
        self.assertIn("--ports", run.stderr)


class Firewall(command.Case):
    def setUp(self):
        if not shutil.which("unshare") or not shutil.which("ip"):
            self.skipTest("no unshare or ip")
        if subprocess.run([*NAMESPACE, "sh", "-c", FIREWALL], capture_output=True).returncode:
            self.skipTest("no network namespace with routing rules can be made here")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def bench(self, ports, *words):
        return subprocess.run([*NAMESPACE, "sh", "-c", FIREWALL + BENCH, "sh", command.WEFT, ports, command.WEFT, "bench",
                               "127.0.0.1:7471", "--provider", "tcp", *words], cwd=self.folder, capture_output=True,
                              text=True, timeout=LIMIT)

    def test_blocked(self):
        run = self.bench(BLOCKED)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertRegex(run.stderr, r"(?m)^weft bench: waiting: no data connection to the peer yet; trying "
                                     r"127\.0\.0\.1:20\d\d\d ")
        last = run.stderr.splitlines()[-1]
        self.assertRegex(last, r"127\.0\.0\.1:20\d\d\d does not answer")
        self.assertIn("firewall", last)
        self.assertIn("--ports", last)
        self.assertNotIn("add or replace", last)

    def test_blocked_here(self):
        """The other way: who cannot reach whose addresses is told apart."""
        run = self.bench("20101-20110", "--ports", BLOCKED)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertRegex(run.stderr.splitlines()[-1], r"though 127\.0\.0\.1:201\d\d takes connections; can the peer reach "
                                                      r"127\.0\.0\.1:20\d\d\d of this side\?")

    def test_blocked_in(self):
        """The peer drives and finds our ports silent: it says so of this side."""
        run = self.bench("20101-20110", "--ports", BLOCKED, "--direction", "in", "--quiet")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertRegex(run.stderr.splitlines()[-1], r"the peer says: it could open no data connection to this side: "
                                                      r"127\.0\.0\.1:20\d\d\d of this side does not answer")
        self.assertNotIn("waiting:", run.stderr)

    def test_control_blocked(self):
        run = subprocess.run([*NAMESPACE, "sh", "-c", FIREWALL + CONTROL, "sh", command.WEFT], capture_output=True, text=True,
                             timeout=LIMIT)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, "cannot reach 127.0.0.1:20001: .*firewall.* port 20001")

    def test_let_through(self):
        run = self.bench("20101-20110", *SHORT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertNotIn("firewall", said(run.stderr))


if __name__ == "__main__":
    command.main(__doc__)
