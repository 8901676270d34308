#!/usr/bin/env python3
"""What the tree promises about itself: layers, symbols, the header, sizes, documents, words.

usage: structure.py SOURCE BUILD CC [CXX]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

SOURCE, BUILD, CC = sys.argv[1:4]
CXX = sys.argv[4] if len(sys.argv) > 4 else None

# A file may include from its own layer and from those below it. device and wire stand side by side, and local and topo.
LAYERS = [["base"], ["device", "wire"], ["local", "topo"], ["rail"], ["worker"], ["engine"], ["api"]]
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
                           "int use(void);\nint use(void) { return weft_engine_close(0); }\n")
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
    FOLDERS = ["src", "tools", "sim", "tests", "bench", "examples", "journey"]

    def test_files(self):
        wrong = [f"{path}: {read(path).count(chr(10))} lines" for path in files(self.FOLDERS, (".c", ".h"))
                 if read(path).count("\n") > (600 if path.startswith("src/") else 650)]
        self.assertEqual(wrong, [])

    def test_functions(self):
        seen, wrong = 0, []
        for path in files(self.FOLDERS, (".c",)):
            for name, line, lines in functions(read(path)):
                seen += 1
                if lines > (70 if path.startswith("src/") else 80):
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

    def test_architecture_names_what_exists(self):
        """Every file exists; every function is defined, and where a row names a file, in that file."""
        text = read("ARCHITECTURE.md")
        sources = files(["src", "include"], (".c", ".h"))
        defined = {path: without_comments(read(path)) for path in sources}

        def defines(path, name):
            return re.search(rf"^(?!\s)[^\n;#]*\b{name}\([^;]*?\n\{{", defined[path], flags=re.M)

        wrong = [f"{path} is not there" for path in set(re.findall(r"`((?:src|include)/[\w/.]+\.[ch])`", text))
                 if path not in sources]
        for line in text.splitlines():
            row = re.findall(r"`(src/[\w/.]+\.[ch])`", line) if line.startswith("|") else []
            for name in re.findall(r"`((?:wf|weft)_\w+)\(\)`", line):
                where = [path for path in row or sources if path in sources]
                if not any(defines(path, name) for path in where):
                    wrong.append(f"{name}() is not in {' or '.join(row) or 'src'}")
        self.assertEqual(wrong, [])

    def test_the_map_names_every_file_of_the_engine(self):
        text = read("ARCHITECTURE.md")
        for room in ["core", "ops", "move", "peer"]:
            part = re.search(rf"^src/engine/{room}/ (.*?)^src/", text, flags=re.M | re.S).group(1)
            names = {os.path.splitext(os.path.basename(path))[0] for path in files([f"src/engine/{room}"], (".c", ".h"))}
            self.assertEqual(sorted(name for name in names if not re.search(rf"(?m)(^|  ){name}\b", part)), [], room)

    def test_a_write_crosses_few_files(self):
        walk = re.search(r"^\*\*One fenced paged write\*\*.*?\n\n", read("ARCHITECTURE.md"), flags=re.M | re.S).group()
        steps = re.findall(r"`(src/[\w/.]+\.c)`", walk)
        self.assertGreater(len(steps), 10)
        self.assertLessEqual(len(set(steps)), 12)

    def test_every_error_in_the_header_is_explained(self):
        table = read("src/base/error.c")
        named = set(re.findall(r"-(E[A-Z]{3,})\b", read("include/weft.h")))
        self.assertEqual(sorted(name for name in named if not re.search(rf"\b{name}\b", table)), [])

    def test_documents_name_functions_that_exist(self):
        wrong = []
        for path in [name for name in os.listdir(SOURCE) if name.endswith(".md")] + files(["docs"], ".md"):
            wrong += [f"{path}: {name}()" for name in set(re.findall(r"\b(weft_\w+)\(\)", read(path))) - set(declared())]
        self.assertEqual(sorted(wrong), [])

    def test_snippets_are_parts_of_programs(self):
        """C in a document is what stands between /* README */ and /* README end */ in an example, which is run as a test."""
        marked = {}
        for path in files(["examples"], ".c"):
            parts = re.findall(r"^[ \t]*/\* README \*/\n(.*?)^[ \t]*/\* README end \*/$", read(path), re.S | re.M)
            marked[path] = "".join(textwrap.dedent(part) for part in parts).expandtabs(8)
        documents = [name for name in os.listdir(SOURCE) if name.endswith(".md")] + files(["docs"], ".md")
        documents = [name for name in documents if not name.startswith("docs/guide/")]  # its code is scripts/guide's affair
        snippets = [(name, text) for name in documents for text in re.findall(r"^```c\n(.*?)^```$", read(name), re.S | re.M)]
        self.assertTrue(snippets)
        for name, text in snippets:
            self.assertTrue(text in marked.values(), "%s has C that is not marked in any example:\n%s" % (name, text))


class ManPages(unittest.TestCase):
    """Section 3: a page per function, with the codes that its comment in the header lists."""
    # What the header says once for all operations, and for every call.
    OPERATION = {"EAGAIN", "EINVAL", "E2BIG", "EOPNOTSUPP", "ESHUTDOWN", "ENOMEM", "ENOENT", "EHOSTDOWN"}
    MEMORY = {"ERANGE", "EACCES", "ESTALE", "EBUSY", "EMSGSIZE"}
    ON_MEMORY = {"weft_write", "weft_read", "weft_write_pages", "weft_read_pages", "weft_scatter"}
    ON_PEERS = {"weft_send", "weft_call", "weft_reply", "weft_barrier", "weft_expect"}

    def page(self, name):
        text = read(f"man/{name}.3")
        link = re.match(r"\.so man3/(\w+)\.3\n$", text)
        return read(f"man/{link.group(1)}.3") if link else text

    def listed(self, name):
        """The codes below a function's heading in ERRORS."""
        errors = self.page(name).split(".SH ERRORS\n")[1].split("\n.SH ")[0]
        part = re.search(rf"^\.SS {name}\(\)\n(.*?)(?=^\.SS |\Z)", errors, flags=re.S | re.M)
        return set(re.findall(r"^\.B \\-(E[A-Z0-9]+)$", part.group(1), flags=re.M)) if part else set()

    def promised(self, name):
        """The codes that begin a sentence of the comment before the declaration, as the header lists them."""
        header = read("include/weft.h")
        before = header[:re.search(rf"^\w[^\n]*\b{name}\(", header, flags=re.M).start()]
        comment = re.search(r"/\*((?:(?!\*/).)*)\*/\n(?:\w[^\n;{}]*;\n|[ \t]+[^\n]*;\n)*\Z", before, flags=re.S)
        if not comment or name in self.ON_MEMORY:
            return set()
        text = re.sub(r"\s*\n \* ?", " ", comment.group(1))
        if not name.endswith("_wait"):  # of two functions that share a comment
            text = re.sub(r"-E[A-Z0-9]+ \(wait\):", "", text)
        lists = re.findall(r"(?:^|[.;] )((?:-E[A-Z0-9]+(?: after 60 s| \(wait\))?(?:, (?:and )?)?)+)(?=[:. ])", text.strip())
        return set(re.findall(r"-(E[A-Z0-9]+)", " ".join(lists)))

    def test_every_function_has_a_page_that_names_it(self):
        for name in declared():
            line = re.search(r"^\.SH NAME\n(.*)$", self.page(name), flags=re.M).group(1)
            self.assertRegex(line, rf"\b{name}\b.* \\- ", name)
            self.assertIn(f"{name}(", self.page(name).split(".SH SYNOPSIS")[1].split(".SH DESCRIPTION")[0], name)

    def test_no_page_is_of_nothing(self):
        pages = sorted(name[:-2] for name in os.listdir(os.path.join(SOURCE, "man")) if name.endswith(".3"))
        self.assertEqual(pages, declared())
        self.assertEqual(sorted(re.findall(r"'(\w+)\.3'", read("man/meson.build"))), pages)

    def test_every_code_of_the_header_is_listed(self):
        missing, seen = [], 0
        for name in declared():
            if re.search(rf"^(?:const char \*|void ){name}\(|^int weft_version_number\(", read("include/weft.h"), flags=re.M) \
                    and name in ("weft_strerror", "weft_error_hint", "weft_version", "weft_version_number", "weft_event_release"):
                continue
            wanted = self.promised(name)
            wanted |= self.OPERATION if name in self.ON_MEMORY | self.ON_PEERS else set()
            wanted |= self.MEMORY if name in self.ON_MEMORY else set()
            wanted -= {"EMSGSIZE"} if "read" in name else set()  # of counted and checked writes
            seen += len(wanted)
            missing += [f"{name}: {code}" for code in sorted(wanted - self.listed(name))]
        self.assertGreater(seen, 100)
        self.assertEqual(missing, [])

    def everything(self):
        """All pages as one text, without what groff needs and without line ends."""
        text = " ".join(read(path) for path in files(["man"], ".3"))
        return " ".join(text.replace("\\-", "-").replace("\\e", "\\").split())

    def test_every_structure_is_shown_as_the_header_has_it(self):
        header, pages = read("include/weft.h"), self.everything()
        shown = re.findall(r"^struct weft_\w+ \{\n.*?^\};", header, flags=re.S | re.M)
        self.assertGreater(len(shown), 12)
        wrong = [text.split("\n")[0] for text in shown if " ".join(text.replace("…", "...").split()) not in pages]
        self.assertEqual(wrong, [], "section 3 shows them otherwise, or not at all")

    def test_every_constant_is_in_a_page(self):
        pages = self.everything()
        names = set(re.findall(r"\bWEFT_[A-Z0-9_]+\b", without_comments(read("include/weft.h"))))
        names = {name for name in names if not name.endswith("MAX_ENUM") and name != "WEFT_H"}
        self.assertGreater(len(names), 50)
        self.assertEqual(sorted(name for name in names if not re.search(rf"\b{name}\b", pages)), [])

    def test_pages_render_without_warnings(self):
        tools = [tool for tool in (["groff", "-man", "-ww", "-Tutf8", "-z"], ["mandoc", "-Tlint", "-Wwarning"])
                 if shutil.which(tool[0])]
        if not tools:
            self.skipTest("neither groff nor mandoc here")
        for name in declared():
            path = os.path.join(SOURCE, "man", name + ".3")
            if read(path).startswith(".so"):
                continue
            for tool in tools:
                result = subprocess.run([*tool, path], capture_output=True, text=True)
                self.assertEqual(result.stdout + result.stderr, "", path)


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

    # Folders and files whose comments, messages and documents are not plain English yet.
    NOT_YET = ()
    DIALECT = re.compile("|".join([
        r"\b[Ss]o (?:often|many|much|long|few)\b(?! (?:as|that)\b)",  # say which number or time: "every N ms", "up to N"
        r"\b[Ww]hoe" + r"ver\b",                                   # name who: "a peer that", "the caller"
        r"\b[Oo]f one t" + r"hat\b|(?:^|[.:;] )Of (?:one|what|those)\b|/\* (?:Of|Those of|That of) ",  # put the subject first
        r"\bis w" + r"e\b|\b[Uu]p to w" + r"hich\b|\bwhat of (?:it|them)\b",
        # Numbers are "per" a thing, not "a" thing.
        r"\b\d(?:[\d,.]*\d)? (?:(?!of|in|to|for|by|on|as|is)\w+ )?an? (?:second|piece|rail|peer|group|page|call|request|operation|side"
        r"|core|target|process|host|worker|turn|NIC)\b",
    ]), re.M)

    def test_plain_english(self):
        wrong = []
        for path in self.tracked():
            if path.startswith(self.NOT_YET) or path.endswith((".xml", ".png", ".svg", ".gz")):
                continue
            if not os.path.isfile(os.path.join(SOURCE, path)):
                continue
            # A comment's lines are one text.
            text = re.sub(r"[ \t]*\n[ \t]*(?:\*(?!/)|#|//)?[ \t]*", " ", read(path))
            wrong += [f"{path}: ...{text[max(0, found.start() - 40):found.end() + 40]}..." for found in self.DIALECT.finditer(text)]
        self.assertEqual(wrong, [], "plain English: subject first, verb second")

    def test_one_page_stays_one_page(self):
        for path in ("docs/PERFORMANCE.md", "docs/RELIABILITY.md"):
            self.assertLess(len(re.findall(r"\S*\w\S*", read(path))), 1000, path + ": runs and findings belong in docs/lab/")

    def test_nothing_left_to_do(self):
        bad = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
        wrong = []
        for path in files(["src", "include", "tools", "sim", "tests", "bench", "examples", "journey"], (".c", ".h")):
            wrong += [f"{path}:{number}" for number, line in enumerate(read(path).split("\n"), 1) if bad.search(line)]
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
