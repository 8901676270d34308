#!/usr/bin/env python3
"""The library's ABI is that of the recorded baseline, or has grown from it in the ways that docs/decisions/13 allows: functions
were added, structures gained fields at their end, enumerations gained values. Skipped (77) without abigail-tools.

usage: abidiff.py SOURCE CC            compares
       abidiff.py SOURCE CC --record   writes the baseline of a release
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

SOURCE, CC = sys.argv[1:3]
ABI = os.path.join(SOURCE, "tests", "abi")
BASELINE = os.path.join(ABI, "libweft-0.1.abi")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def describe(folder, header):
    """The ABI of the exported functions with that header, as XML. Only they are compiled: what they call is not exported."""
    include = os.path.join(folder, "include")
    os.makedirs(include, exist_ok=True)
    with open(os.path.join(include, "weft.h"), "w", encoding="utf-8") as file:
        file.write(header)
    library = os.path.join(folder, "libweft.so")
    subprocess.run([*shlex.split(CC), "-std=gnu11", "-D_GNU_SOURCE", '-DWEFT_VERSION="0.1.0"', "-g", "-O0", "-fPIC", "-shared",
                    "-I", include, "-I", os.path.join(SOURCE, "src"), os.path.join(SOURCE, "src", "api.c"),
                    os.path.join(SOURCE, "src", "api_info.c"), "-Wl,--version-script," + os.path.join(SOURCE, "src", "weft.map"),
                    "-o", library], check=True, timeout=120)
    out = os.path.join(folder, "libweft.abi")
    subprocess.run(["abidw", "--headers-dir", include, "--drop-private-types", "--no-show-locs", "--no-corpus-path",
                    "--no-comp-dir-path", "--no-elf-needed", "--out-file", out, library], check=True, timeout=120)
    return out


def layouts(path):
    """{structure: [(offset, name, type)]} of the public ones."""
    tree = ElementTree.parse(path)
    names = {node.get("id"): node.get("name") for node in tree.iter() if node.get("id")}
    found = {}
    for node in tree.iter("class-decl"):
        if re.match("weft_", node.get("name", "")) and node.get("size-in-bits"):
            found[node.get("name")] = [(int(member.get("layout-offset-in-bits")), variable.get("name"),
                                        names.get(variable.get("type-id"))) for member in node.findall("data-member")
                                       for variable in member.findall("var-decl")]
    return found


def moved(old, new):
    """Fields of the old structures that are not where they were: what abidiff's suppressions for growth let pass."""
    before, after = layouts(old), layouts(new)
    return [f"{name}: {field}" for name, fields in before.items()
            for field, now in zip(fields, after.get(name, []) + [None] * len(fields)) if field != now]


def problems(old, new):
    """What a program built with the old header would trip over; empty: nothing."""
    result = subprocess.run(["abidiff", "--suppressions", os.path.join(ABI, "growth.suppr"), "--no-added-syms", old, new],
                            capture_output=True, text=True, timeout=120)
    return (result.stdout + result.stderr if result.returncode else "") + "\n".join(moved(old, new))


class Abi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.header = read(os.path.join(SOURCE, "include", "weft.h"))

    def tearDown(self):
        self.folder.cleanup()

    def changed(self, pattern, replacement):
        header, count = re.subn(pattern, replacement, self.header, count=1, flags=re.M)
        self.assertEqual(count, 1, pattern)
        return problems(BASELINE, describe(self.folder.name, header))

    def test_the_baseline_has_the_structures(self):
        self.assertGreaterEqual(len(layouts(BASELINE)), 14)

    def test_is_the_baseline_or_grown(self):
        self.assertEqual(problems(BASELINE, describe(self.folder.name, self.header)), "")

    def test_fields_at_the_end_are_growth(self):
        self.assertEqual(self.changed(r"^(\tbool quiescent;\n)", r"\1\tuint64_t grown;\n"), "")

    def test_values_at_the_end_are_growth(self):
        self.assertEqual(self.changed(r"^(\tWEFT_EVENT_MAX_ENUM)", r"\tWEFT_EVENT_GROWN,\n\1"), "")

    def test_a_field_in_between_is_found(self):
        self.assertIn("weft_op", self.changed(r"^(struct weft_op \{\n.*\n)", r"\1\tuint64_t between;\n"))

    def test_another_type_is_found(self):
        self.assertIn("weft_event", self.changed(r"^\tint status; ", "\tuint32_t status; "))

    def test_another_parameter_is_found(self):
        self.assertIn("weft_remote_close", self.changed(r"^typedef uint64_t weft_remote;", "typedef uint32_t weft_remote;"))


if __name__ == "__main__":
    if not shutil.which("abidiff") or not shutil.which("abidw"):
        print("SKIPPED: no abidiff here (Debian: apt-get install abigail-tools)")
        sys.exit(77)
    if "--record" in sys.argv:
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy(describe(scratch, read(os.path.join(SOURCE, "include", "weft.h"))), BASELINE)
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
