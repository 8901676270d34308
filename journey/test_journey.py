#!/usr/bin/env python3
"""Runs one program of the journey over every transport it has here and looks at what it prints: the shape, never the speed."""
import os
import re
import socket
import subprocess
import sys
import unittest

PROGRAM, SOURCE = sys.argv[1], sys.argv[2]
NAME = os.path.basename(PROGRAM)
RATE = r"\d+ (simulated )?NICs?, \d+ workers?: \d+\.\d\d (simulated )?Gbit/s( of \d+)?, \d+ writes, \d+ ns of CPU each"
SHORT = ["--ms", "20", "--page", "4096", "--pages", "64"]

CASES = {
    "04-hello": ([], [r"sent: hello, other machine", r"received: hello, other machine"]),
    "05-reply": (["--rounds", "20"], [r"the answer: forty-two", r"first round trip \d+\.\d us, the others \d+\.\d us on average"]),
    "06-write": (["--bytes", "1000000"], [r"1000000 bytes arrived whole, told by immediate 42",
                                          r"wrote 1000000 bytes in 16 writes, \d+\.\d\d Gbit/s"]),
    "07-queue": (SHORT + ["--depth", "16"], [r"  16 in flight: +\d+\.\d\d Gbit/s, \d+ posts refused", RATE]),
}
for rung in ("09-rails", "10-warmup", "11-threads", "12-pinning", "13-sharding", "14-batching", "15-lazy", "16-weft"):
    CASES[rung] = (SHORT, [RATE])


def environment(sim):
    env = {key: value for key, value in os.environ.items() if key not in ("SIMFAB", "FI_PROVIDER_PATH")}
    if sim:
        env.update(SIMFAB=sim, FI_PROVIDER_PATH=os.environ["SIM_PROVIDER_PATH"],
                   WEFT_TOPOLOGY_XML=os.path.join(SOURCE, "sim/topology/%s.xml" % sim.split(",")[0]))
    return env


def run(arguments, sim=None):
    # libfabric's shm names its files by process id and leaves those of killed processes: who gets such an id finds it taken. A new
    # process has another one.
    for attempt in range(3):
        done = subprocess.run([PROGRAM, *arguments], env=environment(sim), capture_output=True, text=True, timeout=100)
        if "shm" not in arguments or "fi_enable: Device or resource busy" not in done.stderr:
            break
    return done.returncode, done.stdout, done.stderr


class Journey(unittest.TestCase):
    def look(self, arguments, sim=None):
        usual, shapes = CASES[NAME]
        code, out, said = run(usual + arguments, sim)
        self.assertEqual((code, said), (0, ""), out)
        lines = sorted(out.splitlines())
        self.assertEqual(len(lines), len(shapes), out)
        for shape in shapes:
            self.assertTrue(any(re.fullmatch(shape, line) for line in lines), "%s is not in:\n%s" % (shape, out))
        return out

    @unittest.skipIf(NAME == "08-topology", "sends nothing")
    def test_tcp(self):
        self.look(["--provider", "tcp"] + ([] if NAME < "09" or NAME > "16" else ["--nics", "2"]))

    @unittest.skipIf(NAME == "08-topology", "sends nothing")
    def test_shared_memory(self):
        self.look(["--provider", "shm"])

    @unittest.skipIf(NAME == "08-topology", "sends nothing")
    def test_simulated_efa_forgives_nothing(self):
        out = self.look([], "p5,nics=8,strict=1")
        if NAME > "07":
            self.assertIn("%d simulated NIC" % (1 if NAME == "07-queue" else 8), out)

    @unittest.skipIf(NAME == "08-topology", "sends nothing")
    def test_simulated_verbs(self):
        self.look([], "verbs,strict=1")

    @unittest.skipUnless("09" <= NAME < "16", "has one NIC, or its own choice of them")
    def test_workers(self):
        out = self.look(["--threads", "2"], "p5,nics=8")
        self.assertIn("8 simulated NICs, %d worker" % (1 if NAME < "11" else 2), out)

    @unittest.skipUnless("09" <= NAME, "has one NIC")
    def test_two_sides_and_an_address_for_each_nic(self):
        """As on two hosts with two links each. The side that connects starts first and tries until the other one listens."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        usual, shapes = CASES[NAME]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment(None)}
        with subprocess.Popen([PROGRAM, *usual, "--connect", "127.0.0.1:%d" % port, "--from", "127.0.0.1,127.0.0.2"], **options) as one:
            with subprocess.Popen([PROGRAM, *usual, "--listen", str(port), "--from", "127.0.0.3,127.0.0.4"], **options) as two:
                heard = two.communicate(timeout=100)
            said = one.communicate(timeout=100)
        self.assertEqual((one.returncode, said[1], two.returncode, heard), (0, "", 0, ("", "")))
        self.assertRegex(said[0], "^2 NICs, .*\n$")
        self.assertRegex(said[0].strip(), "^%s$" % shapes[0])

    @unittest.skipUnless(NAME == "06-write", "moves no memory of a card")
    def test_memory_of_a_card(self):
        """With this host's card, or with a library that stands in for the driver's; no NIC here reaches either."""
        env = environment(None)
        env.pop("LD_LIBRARY_PATH", None)  # Meson names the stand-in's folder there
        done = subprocess.run([PROGRAM, "--gpu", "--provider", "tcp"], env=env, capture_output=True, text=True, timeout=100)
        if done.returncode:
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, "^no card here: libcuda.so.1")
            env["LD_LIBRARY_PATH"] = os.environ["STANDIN"]
        for arguments in (["--provider", "tcp"], ["--provider", "shm"], ["--sim", "p5,nics=8,strict=1"]):
            done = subprocess.run([PROGRAM, "--gpu", "--bytes", "1000000", *arguments], env=env, capture_output=True, text=True,
                                  timeout=100)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("1000000 bytes arrived whole on the card", done.stdout)

    @unittest.skipUnless(NAME == "08-topology", "is no map")
    def test_map(self):
        code, out, said = run([], "p5")
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(len(re.findall(r"^group \d: GPU 0000:[0-9a-f]{2}:00.0, NUMA node [01], 48 cores$", out, re.M)), 8, out)
        self.assertEqual(len(re.findall(r"^  rdmap\S+ +0000:[0-9a-f]{2}:00.0  100 Gbit/s$", out, re.M)), 32, out)
        self.assertIn("32 NICs in 8 groups (simulated)", out)

    @unittest.skipIf(NAME == "08-topology", "sends nothing")
    def test_what_is_not_there_is_said(self):
        code, out, said = run(["--provider", "nosuch"])
        self.assertNotEqual(code, 0)
        self.assertRegex(said, "nosuch|no such|provider|NIC|not")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
