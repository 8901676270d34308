#!/usr/bin/env python3
"""Runs spin over the models in this directory, exhaustively: each must hold, and each broken variant must be found wrong.

check.py [MODEL...]    exit 0: all as it should be; 1: not; 77: spin or a C compiler is not installed
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# model: (sizes it must hold for, variants that must fail)
MODELS = {
    "inbox": (["-DPRODUCERS=2 -DNOTES=2 -DSIZE=2", "-DPRODUCERS=3 -DNOTES=1 -DSIZE=2", "-DPRODUCERS=2 -DNOTES=2 -DSIZE=4",
               "-DPRODUCERS=1 -DNOTES=1 -DTELLERS=2 -DTELLS=2", "-DPRODUCERS=1 -DNOTES=0 -DTELLERS=3 -DTELLS=1",
               "-DPRODUCERS=2 -DNOTES=1 -DTELLERS=1 -DTELLS=2"],
              ["-DNO_RECHECK", "-DWAKE_FIRST", "-DITEMS_ONLY", "-DNO_SEQUENCE",
               *("-DPRODUCERS=1 -DNOTES=1 -DTELLERS=2 -D" + broken for broken in
                 ("NO_TOLD_RECHECK", "TOLD_WAKE_FIRST", "TOLD_LATE", "TOLD_TWO_STEPS"))]),
    "queue": (["-DPRODUCERS=2 -DENDS=2", "-DPRODUCERS=3 -DENDS=1", "-DPRODUCERS=1 -DENDS=5", "-DPRODUCERS=2 -DENDS=1 -DLOOKER",
               "-DPRODUCERS=1 -DENDS=3 -DLOOKER"],
              ["-DNO_RECHECK", "-DARM_LATE", "-DTWO_STEPS", "-DPRODUCERS=1 -DLOOKER -DNO_MARK",
               "-DPRODUCERS=1 -DLOOKER -DLOOK_BACK"]),
}


def verify(model, options, directory):
    """Whether spin found an error, how many states it visited, and its report."""
    source = os.path.join(HERE, model + ".pml")
    expanded = os.path.join(directory, "model.pml")
    with open(expanded, "w") as out:
        subprocess.run(["cpp", "-P", *options.split(), source], check=True, stdout=out)
    subprocess.run(["spin", "-a", "model.pml"], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-w", "-DSAFETY", "-DMEMLIM=2048", "-o", "pan", "pan.c"],
                   cwd=directory, check=True)
    report = subprocess.run(["./pan", "-m1000000", "-n"], cwd=directory, capture_output=True, text=True).stdout
    errors = int(re.search(r"errors: (\d+)", report).group(1))
    states = int(float(re.search(r"([\d.e+]+) states, stored", report).group(1)))
    whole = "Search not completed" not in report and "max search depth too small" not in report
    return errors, states, whole or errors, report


def main():
    if not all(shutil.which(tool) for tool in ("spin", "cpp", "cc")):
        print("spin, cpp or cc is not installed: skipped")
        return 77
    bad = 0
    for model in sys.argv[1:] or MODELS:
        holds, fails = MODELS[model]
        for options, expected in [(o, False) for o in holds] + [(o, True) for o in fails]:
            with tempfile.TemporaryDirectory() as directory:
                errors, states, whole, report = verify(model, options, directory)
            right = bool(errors) == expected and whole
            bad += not right
            print(f"{model} {options}: {states} states, {'an error found' if errors else 'holds'}"
                  f"{'' if right else '  <-- not as it should be'}")
            if not right:
                print(report)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
