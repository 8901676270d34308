#!/usr/bin/env python3
"""Runs a small example over tcp and the local rail and looks at every line it prints."""
import os
import re
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
LINES = {  # in the alphabet's order: two processes print them
    "pages": ["65536000 bytes written", "layer 7 has landed: 1000 of 1000 pages are right"],
    "kv_push": ["decode: 4 of 4 layers are here, every byte", "prefill: 4 layers pushed"],
    "fanout": ["24 MiB went to 3 hosts"] + 3 * ["a host has version 12: whole"],
    "call_server": ["client: 12 squared is 144", "client: an unknown method: .+", "client: no answer: .+",
                    "server: 2 calls answered"],
    "replace": ["20 writes to the new one", "20 writes, then the target was killed: .+",
                "the old memory under the new process: .+"],
    "epoll_loop": ["one loop: 5 messages, 1 timer, 1 letter by the socket"],
    "checked": ["receiver: told, and every byte is right: yes", "writer: a later one did not: .+",
                "writer: the first write arrived as it was sent"],
}


class Example(unittest.TestCase):
    def look(self, provider):
        done = subprocess.run([PROGRAM, provider], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        lines = sorted(done.stdout.splitlines())
        shapes = LINES[os.path.basename(PROGRAM)]
        self.assertEqual(len(lines), len(shapes), done.stdout)
        for line, shape in zip(lines, shapes):
            self.assertTrue(re.fullmatch(shape, line), "%s is not %s" % (line, shape))

    def test_tcp(self):
        self.look("tcp")

    def test_local(self):
        self.look("local")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
