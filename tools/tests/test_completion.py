#!/usr/bin/env python3
"""The completions of bash, zsh and fish offer what the tables of this weft have. A shell that is not installed is skipped.

usage: test_completion.py WEFT
"""
import os
import re
import shutil
import subprocess
import tempfile

import test_command as command
from test_command import LIMIT, weft

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "completions")


def options(name):
    return set(re.findall(r"(?m)^  (--[a-z-]+)", weft("help", name).stdout)) | {"--help"}


class Tables(command.Case):
    def test_lists_what_help_lists(self):
        commands = [line.split("\t")[0] for line in weft("--complete").stdout.splitlines()]
        self.assertIn("bench", commands)
        for name in commands:
            if name.startswith("--") or name == "help":
                continue
            run = weft(name, "--complete")
            self.assertEqual(run.returncode, 0)
            rows = [line.split("\t") for line in run.stdout.splitlines()]
            self.assertEqual({len(row) for row in rows}, {4}, rows)
            self.assertEqual({row[0] for row in rows if row[0].startswith("--")}, options(name))
        self.assertIn("--op\tOP\tpages write read scatter send call\t", weft("bench", "--complete").stdout)


class Shell:
    """The same questions to each shell; complete() gives the answers."""

    def setUp(self):
        if not shutil.which(self.shell):
            self.skipTest(f"no {self.shell}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.symlink(command.WEFT, os.path.join(folder.name, "weft"))
        self.environment = dict(os.environ, PATH=f"{folder.name}:{os.environ['PATH']}", HOME=folder.name, TERM="dumb")

    def ask(self, *words):
        run = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=self.environment)
        self.assertEqual(run.stderr, "", words)
        return run.stdout.splitlines()

    def test_commands(self):
        self.assertLessEqual({"bench", "info", "help"}, set(self.complete("weft", "")))
        self.assertEqual(set(self.complete("weft", "be")), {"bench"})
        self.assertIn("info", self.complete("weft", "help", ""))

    def test_options(self):
        self.assertEqual(set(self.complete("weft", "bench", "--")), options("bench"))
        self.assertEqual(set(self.complete("weft", "info", "--pe")), {"--peers"})

    def test_values(self):
        self.assertEqual(set(self.complete("weft", "bench", "--op", "s")), {"scatter", "send"})
        self.assertEqual(set(self.complete("weft", "doctor", "--require", "")), {"nothing", "efa", "verbs"})
        self.assertIn("lo", self.complete("weft", "bench", "--rails", "l"))


class Bash(Shell, command.Case):
    shell = "bash"

    def complete(self, *words):
        script = f"""source {FOLDER}/weft.bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; printf '%s\\n' "${{COMPREPLY[@]}}\""""
        return self.ask("bash", "--norc", "-c", script, "bash", *words)


    def test_folders(self):
        """Files are offered as such, so that a folder can be entered; words are not."""
        script = f"""source {FOLDER}/weft.bash; compopt() {{ echo "$*"; }}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft"""
        for words in (["bench", "--histogram", "/"], ["bench", "--groups", "/"], ["sim", "faults", "/"]):
            self.assertEqual(self.ask("bash", "--norc", "-c", script, "bash", "weft", *words), ["-o filenames"])
        self.assertEqual(self.ask("bash", "--norc", "-c", script, "bash", "weft", "bench", "--op", "s"), [])


class Fish(Shell, command.Case):
    shell = "fish"

    def complete(self, *words):
        script = f"source {FOLDER}/weft.fish; complete -C {chr(39)}{' '.join(words)}{chr(39)}"
        return [line.split("\t")[0] for line in self.ask("fish", "--no-config", "-c", script)]


class Zsh(Shell, command.Case):
    shell = "zsh"

    def complete(self, *words):
        """The real function, with what would draw a menu replaced by what prints it."""
        script = f"""autoload -Uz compinit; fpath=({FOLDER} $fpath); compinit -u -D
[[ $_comps[weft] == _weft ]] || print -u2 'weft has no completion'
_describe() {{ local one; for one in "${{(@P)2}}"; do print -r -- "${{one%%:*}}"; done }}
compadd() {{ [[ $1 == -- ]] && shift; print -rl -- "$@" }}
words=("$@"); CURRENT=$#; _weft"""
        return [one for one in self.ask("zsh", "-f", "-c", script, "zsh", *words) if one.startswith(words[-1])]


if __name__ == "__main__":
    command.main(__doc__)
