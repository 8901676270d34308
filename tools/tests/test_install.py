#!/usr/bin/env python3
"""make install and uninstall go where PREFIX and DESTDIR say, each time: test_install.py SOURCE

With the real Makefile and its scripts, on a project that installs two small files: weft's own takes minutes to build.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = "."
PROJECT = """project('small')
install_data('note', install_dir: get_option('datadir') / 'weft')
install_data('page.1', install_dir: get_option('mandir'))
"""


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(os.path.join(SOURCE, "Makefile"), self.folder)
        os.mkdir(os.path.join(self.folder, "scripts"))
        for script in ("build", "uninstall"):
            shutil.copy(os.path.join(SOURCE, "scripts", script), os.path.join(self.folder, "scripts"))
        self.write("scripts/setup", "#!/bin/sh\n", 0o755)
        self.write("meson.build", PROJECT)
        self.write("note", "text\n")
        self.write("page.1", "text\n")

    def write(self, path, text, mode=0o644):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def make(self, *words, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        environment.update(more)
        run = subprocess.run(["make", "-C", self.folder, *words], capture_output=True, text=True, env=environment)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run

    def installed(self, under):
        return sorted(os.path.relpath(os.path.join(folder, file), under)
                      for folder, _, files in os.walk(under) for file in files)

    def test_library_folder(self):
        """Where Debian's pkg-config and loader look, even without dpkg-dev, which Meson asks."""
        if not os.path.exists("/etc/debian_version"):
            self.skipTest("not Debian")
        multiarch = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
        self.write("bin/dpkg-architecture", "#!/bin/sh\nexit 1\n", 0o755)
        self.make("build", PATH=os.path.join(self.folder, "bin") + ":" + os.environ["PATH"])
        with open(os.path.join(self.folder, "build", "meson-info", "intro-buildoptions.json")) as file:
            folder = next(option["value"] for option in json.load(file) if option["name"] == "libdir")
        self.assertEqual(folder, f"lib/{multiarch}")

    def test_prefix(self):
        stage = os.path.join(self.folder, "stage")
        self.make("build")
        for prefix in ("/one", "/two"):
            self.make("install", f"PREFIX={prefix}", f"DESTDIR={stage}")
            self.assertEqual(self.installed(stage + prefix), ["share/man/page.1", "share/weft/note"])
        self.make("install", f"DESTDIR={stage}3")
        self.assertEqual(os.listdir(stage + "3"), ["two"])  # as last time
        self.make("uninstall", "PREFIX=/one", f"DESTDIR={stage}")
        self.assertEqual(self.installed(stage), ["two/share/man/page.1", "two/share/weft/note"])
        self.assertFalse(os.path.exists(stage + "/one/share/weft"))
        self.assertTrue(os.path.isdir(stage + "/one/share/man"))
        self.make("uninstall", f"DESTDIR={stage}")
        self.assertEqual(self.installed(stage), [])
        self.make("uninstall", f"DESTDIR={stage}")

    def test_says_what_takes_long(self):
        self.write("meson.build", "project('small')\ncustom_target('slow', output: 'slow', command: ['touch', '@OUTPUT@'],"
                   " build_by_default: true)\n")
        run = self.make("build")
        self.assertIn("building in build", run.stderr)
        self.assertNotIn("building", run.stdout)
        self.assertEqual(self.make("build").stderr, "")


if __name__ == "__main__":
    SOURCE = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], "-v"])
