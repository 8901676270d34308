#!/usr/bin/env python3
"""weft ladder: every rung runs, the model does what its manual page says, the chart is a picture. Shapes, no speeds."""
import json
import socket
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

WEFT = sys.argv[1]


def ladder(*arguments):
    return subprocess.run([WEFT, "ladder", *arguments], capture_output=True, text=True, timeout=200)


class Ladder(unittest.TestCase):
    def test_simulated_rungs(self):
        with tempfile.NamedTemporaryFile(suffix=".svg") as chart:
            done = ladder("--sim", "p5", "--rounds", "1", "--json", "--svg", chart.name)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            xml.dom.minidom.parse(chart.name)
        said = json.loads(done.stdout)
        rungs = said["rungs"]
        self.assertTrue(said["simulated"])
        self.assertEqual(said["line_gbit_per_s"], 3200)
        self.assertEqual([rung["rung"] for rung in rungs], [7, 9, 10, 11, 12, 13, 14, 15, 16])
        self.assertEqual([rung["tutorial_gbit_per_s"] for rung in rungs],
                         [97.4, 287, 293, 355, 1238, 1523, 2589, 3108, None])
        for rung in rungs:
            self.assertGreater(rung["gbit_per_s"], 0, rung)
            self.assertLessEqual(rung["of_line"] or 0, 1, rung)
        for rung in rungs:
            self.assertTrue(rung["gain"])
            self.assertEqual(rung["modelled"] == "", rung["rung"] == 7, rung)

    def test_the_shared_line_limits_as_the_manual_says(self):
        done = ladder("--sim", "p5", "--rounds", "1", "--json", "--hop-ns", "1000")
        rates = {rung["rung"]: rung["gbit_per_s"] for rung in json.loads(done.stdout)["rungs"]}
        self.assertAlmostEqual(rates[12], 65536 * 8 / 2000, delta=0.1)
        self.assertGreater(rates[13], rates[12])

    def test_this_host_is_measured(self):
        done = ladder("--rounds", "1", "--page", "4K", "--nics", "2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [line for line in done.stdout.splitlines() if line[:2].isdigit()]
        self.assertEqual(len(rows), 9)
        for row in rows:
            self.assertTrue(row.endswith("   measured"), row)
        self.assertNotIn("simulated", done.stdout)

    def test_two_sides(self):
        """As two hosts run it, here both on the loopback device, a NIC for each of two addresses."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        usual = [WEFT, "ladder", "--rounds", "1", "--page", "4K"]
        with subprocess.Popen([*usual, "--listen", str(port), "--from", "127.0.0.3,127.0.0.4"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as other:
            done = subprocess.run([*usual, "--json", "--connect", "127.0.0.1:%d" % port, "--from", "127.0.0.1,127.0.0.2"],
                                  capture_output=True, text=True, timeout=200)
            heard = other.communicate(timeout=60)[0]
        self.assertEqual((done.returncode, done.stderr, other.returncode, heard), (0, "", 0, ""))
        rungs = json.loads(done.stdout)["rungs"]
        self.assertEqual([rung["nics"] for rung in rungs], [1] + 8 * [2])
        self.assertEqual([rung["modelled"] for rung in rungs], 9 * [""])

    def test_bad_words(self):
        for arguments, sentence in ((["--sim", "p5", "--provider", "tcp"], "exclude each other"),
                                    (["--sim", "nosuch"], "nosuch"), (["--rounds", "0"], "rounds"),
                                    (["--json", "--svg", "-"], "would mix"),
                                    (["--far-ns", "1"], "belong to --sim"),
                                    (["--sim", "p5", "--listen", "7000"], "real NICs"),
                                    (["--listen", "7000", "--json"], "belong to the other host")):
            done = ladder(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(sentence, done.stderr)

    def test_a_provider_that_is_not_there(self):
        done = ladder("--provider", "nosuch", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^weft ladder: 07-queue failed: no NIC of provider nosuch")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_chart_that_cannot_be_written(self):
        """Nothing runs: the programs would first say that there is no such provider."""
        done = ladder("--svg", "/nonexistent/chart.svg", "--provider", "nosuch")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "weft ladder: /nonexistent/chart.svg: No such file or directory\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
