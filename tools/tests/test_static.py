#!/usr/bin/env python3
"""The line that pkg-config gives links a program, against the shared library and against libweft.a, from an installed tree.

usage: test_static.py BUILD COMPILER...
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """#include <stdio.h>
#include <weft.h>
int main(void)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	weft_engine *engine;
	config.provider = "shm";
	if (weft_engine_open(&config, &engine, NULL, 0))
		return 1;
	puts(weft_version());
	return weft_engine_close(engine) ? 1 : 0;
}
"""


class Links(unittest.TestCase):
    def setUp(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.stage = folder.name
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "devel,runtime", "--destdir", self.stage],
                       check=True, capture_output=True)
        self.found = glob.glob(f"{self.stage}/**/weft.pc", recursive=True)
        self.assertEqual(len(self.found), 1)
        with open(f"{self.stage}/program.c", "w") as file:
            file.write(PROGRAM)

    def compile(self, *words):
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(self.found[0]), PKG_CONFIG_SYSROOT_DIR=self.stage)
        line = subprocess.run(["pkg-config", *words, "--cflags", "--libs", "weft"], check=True, capture_output=True, text=True,
                              env=environment).stdout.split()
        run = subprocess.run([*COMPILER, "-o", f"{self.stage}/program", f"{self.stage}/program.c", *line],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        libraries = os.path.dirname(os.path.dirname(self.found[0]))
        return subprocess.run([f"{self.stage}/program"], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, LD_LIBRARY_PATH=libraries))

    def test_shared(self):
        self.assertEqual(self.compile().returncode, 0)

    def test_static(self):
        for library in glob.glob(f"{self.stage}/**/libweft.so*", recursive=True):
            os.unlink(library)
        run = self.compile("--static")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"^\d+\.\d+")


if __name__ == "__main__":
    BUILD, COMPILER = os.path.abspath(sys.argv[1]), sys.argv[2:]
    unittest.main(argv=[sys.argv[0], "-v"])
