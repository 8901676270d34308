#!/usr/bin/env python3
"""Which rails weft bench HOST takes over tcp, and what it says of those that reach nothing.

usage: test_rails.py WEFT

Two network namespaces of this test's own with one link between them; before and after it in the order of devices, this side has
networks that lead nowhere, and the other side one whose address is also one of ours.
"""
import json
import shutil
import subprocess
import tempfile

import test_command as command
from test_command import LIMIT, SHORT

NAMESPACE = ["unshare", "-rn"]
LINKS = """set -e
ip link set lo up
unshare -n sleep 120 & there=$!
trap 'kill $there $listener 2>/dev/null || true' EXIT
for try in $(seq 200); do [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break; sleep 0.05; done
over="nsenter --net=/proc/$there/ns/net"
network() { $1 ip link add $2 type veth peer name $2p; $1 ip addr add $3 dev $2; $1 ip link set $2 up; $1 ip link set $2p up; }
network "" dock0 172.30.0.1/16
ip link add a0 type veth peer name b0 netns /proc/$there/ns/net
network "" zock0 172.31.0.1/16
$over ip link set lo up
network "$over" dock0 172.30.0.1/16
ip addr add 10.79.0.1/24 dev a0; ip link set a0 up
$over ip addr add 10.79.0.2/24 dev b0; $over ip link set b0 up
running() { $1 ip -o link show up | grep -c LOWER_UP; }
for try in $(seq 200); do [ $(running "") = 6 ] && [ $(running "$over") = 4 ] && break; sleep 0.05; done
"""
BENCH = """
$over "$1" bench --listen 10.79.0.2:7471 --once --quiet >listener.out 2>&1 & listener=$!
for try in $(seq 600); do grep -q listening listener.out && break; sleep 0.05; done
"$@"
"""


class Rails(command.Case):
    def setUp(self):
        if not shutil.which("unshare") or not shutil.which("ip") or not shutil.which("nsenter"):
            self.skipTest("no unshare, nsenter or ip")
        if subprocess.run([*NAMESPACE, "sh", "-c", LINKS], capture_output=True, timeout=LIMIT).returncode:
            self.skipTest("no network namespaces can be made here")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_bench(self, *words, silent=""):
        silent = f'network "$over" zock0 {silent}\n' if silent else ""
        return subprocess.run([*NAMESPACE, "sh", "-c", LINKS + silent + BENCH, "sh", command.WEFT, "bench", "10.79.0.2:7471",
                               "--json", "--provider", "tcp", *SHORT, *words], cwd=self.folder, capture_output=True, text=True,
                              timeout=LIMIT)

    def bench(self, *words, silent=""):
        run = self.run_bench(*words, silent=silent)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return json.loads(run.stdout)

    def test_one(self):
        """Whatever the order of devices, the one rail is the one that reaches the host."""
        self.assertEqual([rail["name"] for rail in self.bench("--rails", "1")["rail"]], ["a0"])

    def test_all(self):
        """The others carry nothing, and it is said why: the kernel sends to the peer through a0. The address that both sides have is
        none of the peer's that could answer."""
        result = self.bench()
        carried = {rail["name"]: rail["bytes"] for rail in result["rail"]}
        self.assertEqual({name for name, count in carried.items() if count}, {"a0"})
        notes = "\n".join(result["notes"])
        for name in carried.keys() - {"a0"}:
            self.assertRegex(notes, f"{name} carried nothing: the kernel sends to 10\\.79\\.0\\.2:\\d+ through a0")
        self.assertNotIn("172.30.0.1", notes)

    def test_silent(self):
        """An address that no answer comes from is named once."""
        result = self.bench(silent="172.31.0.9/16")
        notes = [note for note in result["notes"] if "answer" in note]
        self.assertEqual(len(notes), 1, result["notes"])
        self.assertRegex(notes[0], "zock0 carried nothing: 172.31.0.9:\\d+ does not answer")

    def test_none_reaches(self):
        """The one rail is none that the host can answer. Its own ports answer, so it is asked whether it reaches ours; the address
        that both sides have says nothing."""
        run = self.run_bench("--rails", "dock0")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        last = run.stderr.splitlines()[-1]
        self.assertRegex(last, r"though 10\.79\.0\.2:\d+ takes connections; can the peer reach 172\.30\.0\.1:\d+ of this side\?")
        self.assertNotIn("refused", last)


if __name__ == "__main__":
    command.main(__doc__)
