#!/usr/bin/env python3
"""weft bench --mem, on the tests' driver of cards: what is moved, where it is checked, and what is said where that cannot be.

usage: test_mem.py WEFT DRIVER    (the folder with the driver)
"""
import csv
import json
import os
import re
import subprocess
import sys

import test_command as command
from test_command import CSV_KEYS, KEYS, LIMIT, weft

DRIVER = sys.argv.pop(2)
SHORT = ["--ops", "6", "--warmup", "0", "--region", "8M", "--depth", "2"]
PAGED = [*SHORT, "--pages", "16"]


def plain():
    """The environment of a host without a card."""
    return {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}


class Mem(command.Case):
    def setUp(self):
        os.environ["LD_LIBRARY_PATH"] = DRIVER

    def tearDown(self):
        del os.environ["LD_LIBRARY_PATH"]
        super().tearDown()

    def moved(self, *words):
        result = self.result(*words)
        self.assertIs(result["verified"], True, words)
        self.assertGreater(result["ops"], 0)
        self.assertEqual(set(result), KEYS | ({"client"} if "both" in words else set()))
        return (result["mem"], result["mem_path"], result["peer_mem"], result["peer_mem_path"])

    def test_one_host(self):
        """Over the local rail a card's memory is opened by the other process, at either side."""
        card, host = ("cuda:0", "local"), ("host", None)
        self.assertEqual(self.moved("--mem", "cuda", *PAGED), card + card)
        self.assertEqual(self.moved("--mem", "cuda:0,host", *PAGED), card + host)
        self.assertEqual(self.moved("--mem", "host,cuda:1", *PAGED), host + ("cuda:1", "local"))
        self.assertEqual(self.moved("--mem", "host", *PAGED), host + host)

    def test_operations(self):
        for op in ("write", "read"):
            for size in ("4096", "5000003"):  # the second is checked in several pieces, the last of odd length
                self.moved("--mem", "cuda", "--op", op, "--size", size, *SHORT, "--region", "16M")
        self.moved("--mem", "cuda,host", "--op", "scatter", *PAGED)

    def test_directions(self):
        """The first word of --mem is for this side, also when the peer drives."""
        self.assertEqual(self.moved("--mem", "cuda,host", "--direction", "in", *PAGED), ("cuda:0", "local", "host", None))
        self.assertEqual(self.moved("--mem", "host,cuda", "--direction", "in", "--op", "read", *SHORT, "--size", "4K"),
                         ("host", None, "cuda:0", "local"))
        self.assertEqual(self.moved("--mem", "host,cuda", "--direction", "both", *PAGED), ("host", None, "cuda:0", "local"))

    def test_over_a_nic(self):
        self.assertEqual(self.moved("--mem", "cuda,host", "--provider", "tcp", *PAGED), ("cuda:0", "staged", "host", None))

    def test_hosts(self):
        """The listening side allocates what the other names; without a driver there it says what to do."""
        for env, status in ((dict(os.environ), 0), (plain(), 1)):
            listener = subprocess.Popen([command.WEFT, "bench", "--listen", "127.0.0.1:0", "--once"], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            command.STARTED.append(listener)
            port = re.search(r":(\d+)", listener.stdout.readline()).group(1)
            run = weft("bench", f"127.0.0.1:{port}", "--mem", "host,cuda", "--quiet", *PAGED)
            self.ended(listener, status)
            self.assertEqual(run.returncode, status, run.stdout + run.stderr)
            if status:
                self.assertIn("the peer says: no NVIDIA driver is here", run.stderr)
            else:
                self.assertIn("host here, cuda:0 at the peer (local)", run.stdout)

    def test_wrong_bytes_are_found(self):
        """A driver that copies wrongly is not believed."""
        os.environ["FAKE_CUDA_WRONG"] = "1"
        try:
            for words in (["--mem", "cuda"], ["--mem", "host,cuda", "--op", "write", "--size", "8M", "--region", "16M"],
                          ["--mem", "cuda", "--op", "read", "--size", "64K"]):
                run = weft("bench", "--quiet", *(SHORT if "--op" in words else PAGED), *words)
                self.assertEqual(run.returncode, 1, run.stdout)
                self.assertRegex(run.stderr, r"\d+ of \d+ slots arrived wrong")
        finally:
            del os.environ["FAKE_CUDA_WRONG"]

    def test_no_card(self):
        run = subprocess.run([command.WEFT, "bench", "--mem", "cuda", *PAGED], capture_output=True, text=True, timeout=LIMIT,
                             env=plain())
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertRegex(run.stderr, "no NVIDIA driver is here .*install it.*--mem host.*weft doctor")
        os.environ["FAKE_CUDA_CARDS"] = "0"
        try:
            self.assertRegex(weft("bench", "--mem", "cuda", *PAGED).stderr, "the NVIDIA driver finds no card .*nvidia-smi")
        finally:
            del os.environ["FAKE_CUDA_CARDS"]
        self.assertIn("there is no card cuda:7 here", weft("bench", "--mem", "cuda:7", *PAGED).stderr)

    def test_no_room(self):
        run = weft("bench", "--mem", "cuda", "--region", "2G")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"the card has no room for 2048 MiB: 1024 of its 1024 MiB are free; use a smaller --region")

    def test_refused(self):
        """What the engine does not do is said in its words."""
        run = weft("bench", "--mem", "cuda", "--checksum", *PAGED)
        self.assertEqual(run.returncode, 1)
        self.assertIn("a card's memory", run.stderr)

    def test_wrong_use(self):
        for words in (["--mem", "gpu"], ["--mem", "cuda:"], ["--mem", "cuda:x"], ["--mem", "cuda:64"], ["--mem", "host,cuda,host"],
                      ["--mem", ","], ["--mem", "cuda", "--op", "send"], ["--mem", "cuda", "--memory", "own"],
                      ["--mem", "cuda", "--listen"], ["--mem", "cuda" * 40]):
            run = weft("bench", *words)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn("--mem" if "--listen" not in words else "HOST", run.stderr)

    def test_sizes(self):
        run = weft("bench", "--mem", "cuda:0,host", "--sizes", "4K,64K", "--csv", *PAGED)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = list(csv.DictReader(run.stdout.splitlines()))
        self.assertEqual(set(rows[0]), CSV_KEYS)
        self.assertEqual([(row["page_size"], row["mem"], row["peer_mem"], row["mem_path"], row["peer_mem_path"]) for row in rows],
                         [("4096", "cuda:0", "host", "local", ""), ("65536", "cuda:0", "host", "local", "")])
        self.assertIn("memory        cuda:0 here (local), host at the peer",
                      weft("bench", "--mem", "cuda:0,host", "--sizes", "64K", "--quiet", *PAGED).stdout)

    def test_offered(self):
        self.assertIn("--mem\tWHERE[,WHERE]\thost cuda cuda,host host,cuda\t", weft("bench", "--complete").stdout)
        self.assertIn("--mem cuda:0,host", weft("bench", "--help").stdout)


class Doctor(command.Case):
    """What the doctor hears from the driver; test_doctor.c has all that it makes of it."""

    def card(self, **more):
        run = subprocess.run([command.WEFT, "doctor", "--json"], capture_output=True, text=True, timeout=LIMIT, env={**plain(), **more})
        found = [one for one in json.loads(run.stdout)["checks"] if one["id"] == "card-memory"]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_ways(self):
        found = self.card(LD_LIBRARY_PATH=DRIVER)
        self.assertRegex(found["seen"], "^2 cards: local between processes of this host; ")
        self.assertNotIn("GPUDirect", found["seen"])
        found = self.card(LD_LIBRARY_PATH=DRIVER, FAKE_CUDA_NO_DIRECT="1", FAKE_CUDA_NO_DMABUF="1", FAKE_CUDA_CARDS="1")
        self.assertRegex(found["seen"], r"^1 card: local .*not direct: .*\(GPUDirect RDMA\), the NVIDIA driver has no dmabuf")
        self.assertTrue(found["mend"])
        found = self.card(LD_LIBRARY_PATH=DRIVER, FAKE_CUDA_NO_IPC="1")
        self.assertEqual(found["result"], "warn")
        self.assertIn("not local: ", found["seen"])
        found = self.card(LD_LIBRARY_PATH=DRIVER, FAKE_CUDA_BYTES="1000")
        self.assertIn("card 0000:53:00.0 (fake card 0): the card has no room", found["seen"])

    def test_none(self):
        self.assertEqual((self.card()["result"], self.card()["seen"]), ("not applicable", "no card"))


if __name__ == "__main__":
    command.main(__doc__)
