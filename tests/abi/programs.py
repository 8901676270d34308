#!/usr/bin/env python3
"""Programs of one header on the library of another, really built and run: the kept header of 0.1 on a library whose every
structure has grown, and a program of the grown header on today's library.

usage: programs.py SOURCE BUILD CC
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, CC = sys.argv[1:4]
ABI = os.path.join(SOURCE, "tests", "abi")
KEPT = os.path.join(ABI, "weft-0.1.h")
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", '-DWEFT_VERSION="0.1.0"', "-pthread"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def grow(header):
    """Every structure with a field more at its end."""
    grown, count = re.subn(r"^(struct weft_\w+ \{\n.*?)^\};", r"\1\tuint64_t grown;\n};", header, flags=re.S | re.M)
    assert count == len(re.findall(r"^struct weft_\w+ \{", header, flags=re.M)) >= 14, count
    return grown


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if result.returncode:
        raise AssertionError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def packages(kind):
    return run("pkg-config", kind, "libfabric", "hwloc", "libxxhash").split()


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name, header in (("old", read(KEPT)), ("grown", grow(read(os.path.join(SOURCE, "include", "weft.h"))))):
            os.mkdir(os.path.join(cls.folder.name, name))
            with open(os.path.join(cls.folder.name, name, "weft.h"), "w", encoding="utf-8") as file:
                file.write(header)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def program(self, header, library, *flags):
        out = self.path(f"program-{header}")
        run(*shlex.split(CC), *FLAGS, *flags, "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-I",
            self.path(header), os.path.join(ABI, "program.c"), "-o", out, "-L", library, "-lweft", "-Wl,-rpath," + library)
        return run(out)

    def grown_library(self):
        sources = re.findall(r"'([\w/]+\.c)'", read(os.path.join(SOURCE, "src", "meson.build")))
        sources += ["topo/" + name for name in re.findall(r"'([\w/]+\.c)'", read(os.path.join(SOURCE, "src/topo/meson.build")))]
        paths = [os.path.join(SOURCE, "src", name) for name in sources]
        objects = []
        for path in paths:
            objects.append(self.path(path.replace("/", "_") + ".o"))
            run(*shlex.split(CC), *FLAGS, "-g0", "-O0", "-fPIC", "-I", self.path("grown"), "-I", os.path.join(SOURCE, "src"),
                *packages("--cflags"), "-c", path, "-o", objects[-1])
        os.mkdir(self.path("library"))
        run(*shlex.split(CC), "-shared", *objects, "-o", self.path("library", "libweft.so"),
            "-Wl,--version-script," + os.path.join(SOURCE, "src", "weft.map"), *packages("--libs"), "-ldl", "-pthread")
        return self.path("library")

    def test_old_program_on_todays_library(self):
        self.program("old", BUILD)

    def test_old_program_on_a_grown_library(self):
        self.program("old", self.grown_library())

    def test_new_program_on_todays_library(self):
        self.program("grown", BUILD, "-DGROWN")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
