#!/usr/bin/env python3
"""Compares weft with bare libfabric, UCX, MPI, iperf3 and memcpy on this machine.

Rounds are interleaved (A B C A B C …), so that other load on the machine affects all of them alike. A ratio is the median
of the rounds' ratios; latencies take three times as many rounds. With root everything runs in a network namespace of its
own with cubic on its loopback. Figures over simulated NICs are called simulated. Figures count delivered bytes; latencies
are round trips.

    scripts/compare.py [--quick] [--rounds N] [--seconds S] [--only TEXT] [--goals] [--json] [--svg FILE] [--build DIR]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_plot  # noqa: E402
import compare_tools as tools  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INSIDE = "WEFT_COMPARE_INSIDE"
P5 = "sim:p5,copy=none,post_ns=0"  # what a post costs would hide what weft adds, and limits both sides alike
LATENCY = 3  # rounds of a latency for each of the others: they are short, and a host may move the cores meanwhile
NAMES = {64: "64 B", 4096: "4 KiB", 16384: "16 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}


class Case:
    """One comparison: weft in one or more ways (the best counts) against others, each with a goal or none."""

    def __init__(self, measure, provider, size, unit, weft, others):
        self.measure, self.provider, self.size, self.unit = measure, provider, size, unit
        self.weft, self.others = weft, others

    def label(self):
        simulated = " (simulated)" if self.provider.startswith("sim:") else ""
        provider = self.provider[4:].split(",")[0] if simulated else self.provider
        return "%s, %s, %s%s" % (self.measure, provider, NAMES[self.size], simulated)


def paged_case(kit, provider, size):
    def weft(*more):
        count = str(min(64, tools.REGION // 16 // size))  # 16 operations in flight
        shape = ("--op", "pages", "--page-size", str(size), "--pages", count, "--depth", "16")
        return lambda: kit.weft(provider, *shape, *more)["gbps"]

    goal = 0.97 if size >= 65536 else 0.90 if size == 4096 else 1.0 if provider == "tcp" else None
    others = {"raw": (lambda: kit.bench("raw", provider, "--page-size", str(size))["gbps"], goal)}
    if size <= 4096 and provider == "tcp":  # over shm several ranges complete before they are delivered
        gathered = lambda: kit.bench("raw", provider, "--page-size", str(size), "--iovs", "4")["gbps"]  # noqa: E731
        others["raw, 4 an op"] = (gathered, None)
    if size >= 4096 or provider == "shm":
        others["UCX put"] = (lambda: kit.ucx(provider, size)["gbps"], 1.2 if provider == "tcp" else None)
    others["MPI put"] = (lambda: kit.mpi(provider, size)["gbps"], None)
    if provider == "tcp" and size >= 65536:
        others["iperf3"] = (lambda: kit.iperf3(size)["gbps"], None)
    if provider == "shm":
        others["memcpy"] = (lambda: kit.memcpy(size)["gbps"], None)
    return Case("paged write", provider, size, "Gbit/s", {"threads": weft(), "manual": weft("--manual")}, others)


def write_case(kit, provider, size):
    def weft(*more):
        depth = str(max(8, min(256, (8 << 20) // size)))
        return lambda: kit.weft(provider, "--op", "write", "--size", str(size), "--depth", depth, *more)["gbps"]

    others = {"UCX put": (lambda: kit.ucx(provider, size)["gbps"], None),
              "MPI put": (lambda: kit.mpi(provider, size)["gbps"], None)}
    return Case("write", provider, size, "Gbit/s", {"threads": weft(), "manual": weft("--manual")}, others)


def local_case(kit, size, place, region, memory):
    """Random pages between two processes over the local rail, beside one process that copies pages of the same memory."""
    def weft(*more):
        count = str(max(1, min(4096, region // 8 // size)))
        shape = ("--op", "pages", "--page-size", str(size), "--pages", count, "--depth", "4", "--region", str(region))
        return lambda: kit.weft("local", *shape, "--memory", memory, *more)["gbps"]

    if memory == "own":
        limit = lambda: kit.memcpy(size, "--kernel", region=region)["gbps"]  # noqa: E731
        others = {"process_vm": (limit, 0.90)}
    else:
        limit = lambda: kit.memcpy(size, "--shared", region=region)["gbps"]  # noqa: E731
        others = {"memcpy": (limit, 0.85 if size >= 4096 else 0.40)}
        others["raw shm"] = (lambda: kit.bench("raw", "shm", "--page-size", str(size), "--region", str(region))["gbps"], None)
        if place == "in cache":  # they write one buffer
            others["UCX put"] = (lambda: kit.ucx("local", size)["gbps"], None)
            others["MPI put"] = (lambda: kit.mpi("local", size)["gbps"], None)
    name = "%s, %s" % ("own memory" if memory == "own" else "pages", place)
    return Case(name, "local", size, "Gbit/s", {"threads": weft(), "manual": weft("--manual")}, others)


def local_cases(kit, quick):
    for place, region in (("in cache", 4 << 20), ("larger", 256 << 20)):
        for size in (64, 65536) if quick else (64, 4096, 65536, 1 << 20):
            yield local_case(kit, size, place, max(region, 8 * size), "weft")
        yield local_case(kit, 65536, place, region, "own")
    kit.kept.clear()

    def call(*more):
        return lambda: kit.once("weft", "local", "--op", "call", "--size", "64", "--depth", "1", *more)["p50_us"]

    others = {"UCX tag": (lambda: kit.once("ucx", "local", 64, "tag_lat")["p50_us"], 2.0),
              "raw shm": (lambda: kit.once("bench", "raw", "shm", "--op", "pingpong")["p50_us"], None)}
    yield Case("call latency p50", "local", 64, "us", {"threads": call(), "manual": call("--manual")}, others)


def adjacent_case(kit, provider):
    def weft(*more):
        return lambda: kit.bench("pages", provider, "--page-size", "4096", "--adjacent", *more)["gbps"]

    raw = lambda: kit.bench("raw", provider, "--page-size", "4096", "--adjacent")["gbps"]  # noqa: E731
    return Case("adjacent pages", provider, 4096, "Gbit/s", {"threads": weft(), "manual": weft("--manual")},
                {"raw": (raw, 3.0)})


def latency_case(kit, provider, op, quantile):
    def weft(*more):
        return lambda: kit.once("weft", provider, "--op", op, "--size", "64", "--depth", "1", *more)[quantile]

    goal = 1.25 if op == "call" and quantile == "p50_us" else None
    others = {"raw": (lambda: kit.once("bench", "raw", provider, "--op", "pingpong")[quantile], goal)}
    if quantile == "p50_us":
        others["UCX tag"] = (lambda: kit.once("ucx", provider, 64, "tag_lat")[quantile], None)
    return Case("%s latency %s" % (op, quantile[:3]), provider, 64, "us", {"threads": weft(), "manual": weft("--manual")},
                others)


def simulated_case(kit, size, workers, goal, *shape):
    def weft(*more):
        return lambda: kit.weft(P5, "--page-size", str(size), *shape, *more)["gbps"]

    raw = lambda: kit.bench("raw", P5, "--page-size", str(size))["gbps"]  # noqa: E731
    ways = {"%d worker%s" % (workers, "s" if workers > 1 else ""): weft("--workers", str(workers))}
    if workers == 1:
        ways["manual"] = weft("--manual")
    return Case("paged, %d worker%s" % (workers, "s" if workers > 1 else ""), P5, size, "Gbit/s", ways,
                {"line rate": (lambda: 3200.0, goal), "raw": (raw, None)})


def one_process_case(kit, size, goal):
    """Both ends in one process and one thread, the far end untouched: what an undisturbed core can drive."""
    weft = lambda: kit.piece(P5, size, "--depth", "32")["gbps"]  # noqa: E731
    raw = lambda: kit.piece(P5, size, "--raw")["gbps"]  # noqa: E731
    return Case("paged, one thread", P5, size, "Gbit/s", {"manual": weft}, {"line rate": (lambda: 3200.0, goal), "raw": (raw, None)})


def cases(kit, quick):
    yield from local_cases(kit, quick)
    sizes = [4096, 65536] if quick else [64, 4096, 65536, 1 << 20]
    for provider in ("shm", "tcp"):
        for size in sizes:
            yield paged_case(kit, provider, size)
        yield adjacent_case(kit, provider)
        for size in sizes[-2:]:
            yield write_case(kit, provider, size)
        for op in ("call",) if quick else ("send", "call"):
            kit.kept.clear()  # the quantiles of one operation share their runs, the operations do not
            for quantile in ("p50_us", "p99_us"):
                yield latency_case(kit, provider, op, quantile)
    yield one_process_case(kit, 65536, 0.971)
    yield simulated_case(kit, 65536, 1, 0.971)
    if not quick:
        # Two workers and the submitting thread share two cores: two gigabytes in flight (32 operations, the default) outlast
        # the thread's wait for a core.
        yield simulated_case(kit, 16384, 2, 0.90, "--pages", "4096")


def absent(kit, name):
    return next((what for tool, what in kit.missing.items() if name.startswith(tool)), None)


def measure(case, kit, rounds):
    """Samples by contender, interleaved. A run that fails is reported and gives no sample."""
    rounds *= LATENCY if case.unit == "us" else 1
    contenders = [("weft " + way, run) for way, run in case.weft.items()]
    contenders += [(name, run) for name, (run, _) in case.others.items() if not absent(kit, name)]
    samples = {name: [None] * rounds for name, _ in contenders}
    for i in range(rounds):
        kit.round = i
        for name, run in contenders:
            try:
                samples[name][i] = run() or None  # a zero is a run in which nothing was measured
            except (tools.Failed, ValueError, KeyError, IndexError) as error:
                print("compare: %s: %s: %s" % (case.label(), name, error), file=sys.stderr)
    return samples


def middle(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def best_of(case, values):
    """The best sample; for latencies the lower quartile, because the minimum only shows when cores shared a cache."""
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 4] if case.unit == "us" else known[-1]


def verdict(case, goal, ratio, top):
    """True or False if the median and the best of the rounds agree; None if not: the machine was too busy."""
    if goal is None:
        return None
    said = {value <= goal if case.unit == "us" else value >= goal for value in (ratio, top)}
    return said.pop() if len(said) == 1 else None


def judge(case, kit, samples):
    """Yields one result per other contender."""
    ways = {way: samples["weft " + way] for way in case.weft}
    usable = [way for way in ways if middle(ways[way]) is not None]
    if not usable:
        return
    pick = min if case.unit == "us" else max
    # On a busy machine a disturbed round trip says nothing: compare the best ones.
    value = best_of if case.unit == "us" else lambda _, values: middle(values)
    best = pick(usable, key=lambda way: value(case, ways[way]))
    mine = ways[best]
    for name, (_, goal) in case.others.items():
        if absent(kit, name):
            continue
        theirs = samples[name]
        pairs = [a / b for a, b in zip(mine, theirs) if a and b]
        if not pairs:
            continue
        ratio = statistics.median(pairs)
        best_mine, best_theirs = best_of(case, mine), best_of(case, theirs)
        top = best_mine / best_theirs
        yield {"measure": case.measure, "provider": case.provider, "size": case.size, "unit": case.unit,
               "weft": round(middle(mine), 4), "weft_mode": best, "other": round(middle(theirs), 4), "other_name": name,
               "ratio": round(ratio, 3), "goal": goal, "met": verdict(case, goal, ratio, top), "rounds": len(pairs),
               "spread": [round(min(pairs), 3), round(max(pairs), 3)], "ratio_of_best": round(top, 3),
               "weft_best": round(best_mine, 4), "other_best": round(best_theirs, 4),
               "simulated": case.provider.startswith("sim:")}


def show(result):
    goal = "" if result["goal"] is None else "%s%.3g" % ("<= " if result["unit"] == "us" else ">= ", result["goal"])
    met = {None: "" if result["goal"] is None else "unclear", True: "yes", False: "NO"}[result["met"]]
    provider = "p5 simulated" if result["simulated"] else result["provider"]
    print("%-20s %-12s %-7s %10.3f %-9s %-12s %10.3f  %6.2f  (%5.2f .. %5.2f)  %6.2f  %-8s %s" %
          (result["measure"], provider, NAMES[result["size"]], result["weft"], result["weft_mode"], result["other_name"],
           result["other"], result["ratio"], *result["spread"], result["ratio_of_best"], goal, met))


def enter_namespace():
    """Uses cubic on a loopback of its own, since the host's default may pace. Returns the algorithm in use."""
    if os.environ.get(INSIDE):
        return os.environ[INSIDE]
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        default = file.read().strip()
    route = "ip route change table local local %s dev lo proto kernel scope host src 127.0.0.1 congctl cubic"
    script = "ip link set lo up && %s && %s && exec \"$@\"" % (route % "127.0.0.0/8", route % "127.0.0.1")
    command = ["unshare", "-n", "sh", "-c", script, "sh"]
    try:
        allowed = os.geteuid() == 0 and subprocess.run(command + ["true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    if allowed:
        os.environ[INSIDE] = "cubic"
        sys.stdout.flush()
        os.execvp("unshare", command + [sys.executable] + sys.argv)
    return default


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, 3 short rounds: about two minutes")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 7); of latencies three times as many")
    parser.add_argument("--seconds", type=float, help="of each run (default 0.4)")
    parser.add_argument("--goals", action="store_true", help="only comparisons that have a goal")
    parser.add_argument("--only", default="", help="only measures, providers and sizes whose text contains this")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--svg", metavar="FILE", help="draw the ratios")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build directory (default build)")
    options = parser.parse_args()
    congestion = enter_namespace()
    rounds = options.rounds or (3 if options.quick else 7)
    kit = tools.Tools(options.build, options.seconds or (0.2 if options.quick else 0.4))

    facts = tools.machine(options.build, congestion)
    if options.json:
        print(json.dumps({"machine": facts, "missing": kit.missing}))
    else:
        print("\n".join("%-24s %s" % (key, value) for key, value in facts.items() if value is not None))
        for name, what in kit.missing.items():
            print("%-24s not compared: it needs %s" % (name, what))
        print("\n%-20s %-12s %-7s %10s %-9s %-12s %10s  %6s  %-16s  %6s  %s" %
              ("measure", "over", "size", "weft", "", "other", "", "ratio", "(spread)", "best", "goal, met"))
    results = []
    for case in cases(kit, options.quick):
        if options.goals:
            case.others = {name: other for name, other in case.others.items() if other[1] is not None}
        if options.only not in case.label() or not case.others:
            continue
        for result in judge(case, kit, measure(case, kit, rounds)):
            results.append(result)
            print(json.dumps(result)) if options.json else show(result)
            sys.stdout.flush()
    if options.svg:
        compare_plot.draw(options.svg, results, facts)
    if not options.json:
        print("\nload %.1f at the end; %d of %d goals met, %d unclear. Gbit/s delivered, us per round trip; ratio is weft / other: the "
              "median of %d rounds\n(latencies: %d); best is the ratio of the best rounds (latencies: of "
              "the lower quartiles).\nSimulated figures are of modelled NICs." %
              (os.getloadavg()[0], sum(r["met"] is True for r in results), sum(r["goal"] is not None for r in results),
               sum(r["goal"] is not None and r["met"] is None for r in results),
               rounds, rounds * LATENCY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
