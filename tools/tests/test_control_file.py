#!/usr/bin/env python3
"""weft sim and control= given what is no control file: it is refused, and stays as it was.

usage: test_control_file.py WEFT
"""
import os
import tempfile
import threading

import test_command as command
from test_command import LIMIT, weft

LONG_AGO = 1_000_000_000_000_000_000  # ns; any touch would show


class NotOurs(command.Case):
    def setUp(self):
        if "  sim " not in weft("--help").stdout:
            self.skipTest("built without the simulator")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def runs(self, path, everything):
        """Those that read and that write a control file; or everything that takes one."""
        runs = [["sim", "faults", path], ["sim", "set", path, "fault=drop"]]
        if everything:
            runs += [["sim", "clear", path], ["sim", "link", path, "0", "down"], ["sim", "link", path, "0", "up"],
                     ["bench", "--sim", f"p5,nics=1,control={path}", "--ops", "1"],
                     ["bench", "--sim", f"p5,nics=2,control={path}", "--kill-rail", "0@100ms"],
                     ["info", "--sim", f"p5,nics=1,control={path}", "--peers", "0"]]
        return runs

    def refused(self, path, everything=False):
        before = os.stat(path)
        for words in self.runs(path, everything):
            run = weft(*words)
            self.assertIn(run.returncode, (1, 2), words)
            self.assertIn("not a control file", run.stderr, words)
            self.assertEqual(run.stdout, "", words)
            after = os.stat(path)
            for name in ("st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns"):
                self.assertEqual(getattr(before, name), getattr(after, name), (words, name))
        self.assertEqual([name for name in os.listdir(self.folder) if "." in name], [])

    def test_no_folder(self):
        """One that cannot be made is refused in one line, which says why."""
        path = self.path("nosuch/faults")
        for command in ("bench", "info"):
            run = weft(command, "--sim", f"p5,nics=1,control={path}")
            self.assertEqual(run.returncode, 2)
            self.assertEqual(run.stderr, f"weft {command}: --sim p5,nics=1,control={path}: {path}: No such file or directory\n")

    def write(self, name, contents):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(contents)
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        return path

    def whole(self):
        path = self.path("whole")
        self.assertEqual(weft("sim", "set", path, "nic=3,fault=drop").returncode, 0)
        with open(path, "rb") as file:
            return file.read()

    def unchanged(self, contents, everything=False):
        path = self.write("file", contents)
        self.refused(path, everything)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), contents)

    def test_text(self):
        self.unchanged(b"A year's work\n", everything=True)

    def test_empty(self):
        self.unchanged(b"")

    def test_large(self):
        """As long as a control file, longer, and all zeroes."""
        size = len(self.whole())
        self.unchanged(b"x" * size)
        self.unchanged(b"x" * (size + 1))
        self.unchanged(bytes(size))

    def test_truncated(self):
        whole = self.whole()
        for size in (8, len(whole) - 1):
            self.unchanged(whole[:size])

    def test_directory(self):
        path = self.path("directory")
        os.mkdir(path)
        self.refused(path)

    def test_fifo(self):
        """Nothing blocks, and who waits at the other end is not woken."""
        path = self.path("fifo")
        os.mkfifo(path)
        woken = threading.Event()

        def reader():
            with open(path, "rb"):
                woken.set()

        thread = threading.Thread(target=reader)
        thread.start()
        self.refused(path)
        self.assertFalse(woken.is_set())
        os.close(os.open(path, os.O_WRONLY))
        thread.join(LIMIT)
        self.assertTrue(woken.is_set())

    def test_symlink(self):
        """A link is what it leads to: refused for a user's file, followed to a control file."""
        path = self.path("link")
        os.symlink(self.write("file", b"mine\n"), path)
        self.refused(path)
        os.unlink(path)
        self.whole()
        os.symlink(self.path("whole"), path)
        self.assertIn("fault=drop", weft("sim", "faults", path).stdout)
        os.unlink(path)
        os.symlink(self.path("nowhere"), path)
        run = weft("sim", "set", path, "fault=drop")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(sorted(os.listdir(self.folder)), ["file", "link", "whole"])

    def test_faults_only_reads(self):
        """Also where the user may only read."""
        self.whole()
        path = self.path("whole")
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        os.chmod(path, 0o400)
        before = os.stat(path)
        run = weft("sim", "faults", path)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("nic=3,fault=drop", run.stdout)
        self.assertEqual(os.stat(path).st_mtime_ns, before.st_mtime_ns)

    def test_wrong_words_make_nothing(self):
        """A rule that is refused leaves no file behind."""
        path = self.path("new")
        for words in (["set", path, "fault=dorp"], ["set", path], ["set", path, "fault=drop", "more"],
                      ["link", path, "3", "sideways"], ["link", path, "nic-3", "down"], ["link", path, "3"]):
            self.assertEqual(weft("sim", *words).returncode, 2, words)
            self.assertEqual(os.listdir(self.folder), [], words)

    def test_made_whole(self):
        """Many at once that find none make one, and each sees it whole."""
        path = self.path("shared")
        started = [command.start("sim", "set", path, f"nic={number},fault=drop") for number in range(8)]
        for process in started:
            self.ended(process, 0)
        self.assertEqual(len(weft("sim", "faults", path).stdout.splitlines()), 8)
        self.assertEqual(os.listdir(self.folder), ["shared"])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)


if __name__ == "__main__":
    command.main(__doc__)
