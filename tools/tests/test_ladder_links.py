#!/usr/bin/env python3
"""weft ladder between two network namespaces, over two shaped links: the command of the guide's last chapter, at a smaller size. Skipped
(77) where this process may not make namespaces.

usage: test_ladder_links.py SOURCE BUILD
"""
import json
import os
import subprocess
import sys

SOURCE, BUILD = sys.argv[1:3]


def main():
    links = [os.path.join(SOURCE, "bench", "links.py"), "--case", "ladder", "--links", "2", "--rate", "200", "--rounds", "1",
             "--json", "--build", BUILD]
    done = subprocess.run([sys.executable, *links], capture_output=True, text=True, timeout=230)
    if done.returncode and ("needs root" in done.stderr or "needs ip" in done.stderr or "not permitted" in done.stderr):
        print("SKIPPED: " + done.stderr.strip())
        return 77
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert not said["simulated"], said
    rungs = said["rungs"]
    assert [rung["rung"] for rung in rungs] == [7, 9, 10, 11, 12, 13, 14, 15, 16], rungs
    assert [rung["nics"] for rung in rungs] == [1] + 8 * [2], rungs
    assert [rung["modelled"] for rung in rungs] == 9 * [""], rungs
    assert all(rung["cpu_ns_per_write"] > 0 for rung in rungs), rungs
    # Two links of 200 Mbit/s, and what their buckets let through at the start, carry no more, however fast the programs are.
    assert all(rung["gbit_per_s"] < 1 for rung in rungs), rungs
    return 0


sys.exit(main())
