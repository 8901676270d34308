#!/usr/bin/env python3
"""What the tree promises about itself: layers, symbols, the header, sizes, documents, words.

usage: structure.py SOURCE BUILD CC [CXX]
"""
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

SOURCE, BUILD, CC = sys.argv[1:4]
CXX = sys.argv[4] if len(sys.argv) > 4 else None

# A file may include from its own layer and from those below it. topo and mem stand side by side.
LAYERS = [["base"], ["wire"], ["mem", "topo"], ["rail"], ["worker"], ["engine"], ["api"]]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def files(folders, endings):
    found = []
    for folder in folders:
        for where, inner, names in os.walk(os.path.join(SOURCE, folder)):
            inner[:] = [name for name in inner if not name.startswith((".", "build"))]
            found += [os.path.relpath(os.path.join(where, name), SOURCE) for name in names if name.endswith(endings)]
    return sorted(found)


def layer_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "api"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)


def functions(text):
    """(name, first line, lines) of every function body: a brace in column 0 opens one and closes it."""
    lines = without_comments(text).split("\n")
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            head = start - 1
            while head > 0 and lines[head].strip() and not lines[head - 1].rstrip().endswith((";", "}")):
                if not lines[head].startswith(("\t", " ")):
                    break
                head -= 1
            name = re.search(r"(\w+)\(", lines[head])
            yield (name.group(1) if name else "?", head + 1, number - head + 1)
            start = None


def declared():
    return sorted(set(re.findall(r"^[\w\s\*]+?\b(weft_\w+)\(", without_comments(read("include/weft.h")), flags=re.M)))


class Layers(unittest.TestCase):
    def test_every_folder_has_a_place(self):
        for path in files(["src"], (".c", ".h")):
            self.assertIn(layer_of(path), LEVEL, path)

    def test_includes_point_downward(self):
        wrong = []
        for path in files(["src"], (".c", ".h")):
            level = LEVEL[layer_of(path)]
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(path), flags=re.M):
                if name == "weft.h":
                    continue
                folder = name.split("/")[0] if "/" in name else layer_of(path)
                if LEVEL.get(folder, 99) > level or (LEVEL.get(folder) == level and folder != layer_of(path)):
                    wrong.append(f"{path} includes {name}")
        self.assertEqual(wrong, [])

    def test_only_the_rail_sees_libfabric(self):
        wrong = [path for path in files(["src"], (".c", ".h")) if not path.startswith("src/rail/")
                 and re.search(r"^\s*#\s*include\s+<rdma/", read(path), flags=re.M)]
        self.assertEqual(wrong, [])

    def test_only_topo_sees_hwloc(self):
        wrong = [path for path in files(["src"], (".c", ".h")) if not path.startswith("src/topo/")
                 and re.search(r"^\s*#\s*include\s+<hwloc", read(path), flags=re.M)]
        self.assertEqual(wrong, [])


class Symbols(unittest.TestCase):
    def setUp(self):
        self.declared = declared()
        self.mapped = sorted(re.findall(r"^\s*(weft_\w+);", read("src/weft.map"), flags=re.M))

    def test_something_is_declared(self):
        self.assertGreater(len(self.declared), 30)

    def test_map_is_the_header(self):
        self.assertEqual(self.mapped, self.declared)

    def test_library_is_the_map(self):
        out = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, "libweft.so")], check=True,
                             capture_output=True, text=True).stdout
        exported = sorted({line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[1] != "A"})
        # A sanitizer's build exports its own start-up code too.
        exported = [name for name in exported if not name.startswith(("__asan", "__tsan", "__odr", "__ubsan"))]
        self.assertEqual(exported, self.mapped)

    def test_private_names_have_their_prefix(self):
        out = subprocess.run(["nm", "--defined-only", os.path.join(BUILD, "libweft.a")], check=True,
                             capture_output=True, text=True).stdout
        names = {line.split()[-1] for line in out.splitlines() if re.match(r"^[0-9a-f]+ [TDBRC] ", line)}
        wrong = [name for name in names if not name.startswith(("weft_", "wf_", "__asan", "__odr", "__tsan", "__ubsan"))]
        self.assertEqual(wrong, [])


class Header(unittest.TestCase):
    def compile(self, compiler, standard, ending):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "alone" + ending)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#include <weft.h>\n#include <weft.h>\n"
                           "struct weft_config config = WEFT_CONFIG_INIT;\n"
                           "int use(void);\nint use(void) { return weft_close(0); }\n")
            result = subprocess.run([*compiler.split(), "-std=" + standard, "-Wall", "-Wextra", "-Werror", "-pedantic",
                                     "-I", os.path.join(SOURCE, "include"), "-c", path, "-o", path + ".o"],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_compiles_alone_as_c11(self):
        self.compile(CC, "c11", ".c")

    @unittest.skipUnless(CXX, "no C++ compiler")
    def test_compiles_alone_as_cpp11(self):
        self.compile(CXX, "c++11", ".cpp")

    def test_is_the_only_one_and_has_no_inlines(self):
        self.assertEqual(files(["include"], (".h",)), ["include/weft.h"])
        self.assertNotIn("inline", without_comments(read("include/weft.h")).split())


class Sizes(unittest.TestCase):
    FOLDERS = ["src", "tools", "sim", "tests", "bench", "examples"]

    def test_files(self):
        wrong = [f"{path}: {read(path).count(chr(10))} lines" for path in files(self.FOLDERS, (".c", ".h"))
                 if read(path).count("\n") > 650]
        self.assertEqual(wrong, [])

    def test_functions(self):
        seen, wrong = 0, []
        for path in files(self.FOLDERS, (".c",)):
            for name, line, lines in functions(read(path)):
                seen += 1
                if lines > 80:
                    wrong.append(f"{path}:{line}: {name}() has {lines} lines")
        self.assertGreater(seen, 500)
        self.assertEqual(wrong, [])

    def test_first_comment(self):
        folders = [folder for folder in self.FOLDERS if folder != "tests"]
        wrong = [path for path in files(folders, (".c", ".h")) if not read(path).startswith("/*")]
        self.assertEqual(wrong, [], "a file's first comment says what it is for")


class Documents(unittest.TestCase):
    def test_every_function_has_its_threads(self):
        text = read("docs/THREADING.md")
        rows = " ".join(line for line in text.splitlines() if line.startswith("|"))
        self.assertEqual([name for name in declared() if not re.search(rf"\b{name}\b", rows)], [])

    def test_and_no_other_is_named(self):
        named = set(re.findall(r"\b(weft_\w+)\(\)", read("docs/THREADING.md")))
        self.assertEqual(sorted(named - set(declared())), [])

    def test_every_error_in_the_header_is_explained(self):
        table = read("src/base/error.c")
        named = set(re.findall(r"-(E[A-Z]{3,})\b", read("include/weft.h")))
        self.assertEqual(sorted(name for name in named if not re.search(rf"\b{name}\b", table)), [])

    def test_snippets_are_parts_of_programs(self):
        """C in a document is what stands between /* README */ and /* README end */ in an example, which is run as a test."""
        marked = {}
        for path in files(["examples"], ".c"):
            parts = re.findall(r"^[ \t]*/\* README \*/\n(.*?)^[ \t]*/\* README end \*/$", read(path), re.S | re.M)
            marked[path] = "".join(textwrap.dedent(part) for part in parts).expandtabs(8)
        documents = [name for name in os.listdir(SOURCE) if name.endswith(".md")] + files(["docs"], ".md")
        snippets = [(name, text) for name in documents for text in re.findall(r"^```c\n(.*?)^```$", read(name), re.S | re.M)]
        self.assertTrue(snippets)
        for name, text in snippets:
            self.assertTrue(text in marked.values(), "%s has C that is not marked in any example:\n%s" % (name, text))


class Words(unittest.TestCase):
    def tracked(self):
        try:
            out = subprocess.run(["git", "-C", SOURCE, "ls-files"], check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("not a git checkout")
        return out.split("\n")[:-1]

    def test_nothing_of_the_place_it_was_written_in(self):
        # Written in parts, so that this file does not find itself.
        bad = re.compile("|".join(["/" + "work/", "/home/" + r"\w+/", "/Users/" + r"\w+/", r"\bsess" + r"ions?\b",
                                   r"(?i:\bissue\s+#?\d)"]))
        wrong = []
        for path in self.tracked():
            full = os.path.join(SOURCE, path)
            if not os.path.isfile(full) or path.endswith((".xml", ".png", ".svg")):
                continue
            with open(full, encoding="utf-8", errors="replace") as file:
                wrong += [f"{path}:{number}: {line.strip()}" for number, line in enumerate(file, 1) if bad.search(line)]
        self.assertEqual(wrong, [])

    def test_nothing_left_to_do(self):
        bad = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
        wrong = []
        for path in files(["src", "include", "tools", "sim", "tests", "bench"], (".c", ".h")):
            wrong += [f"{path}:{number}" for number, line in enumerate(read(path).split("\n"), 1) if bad.search(line)]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
