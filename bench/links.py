#!/usr/bin/env python3
"""How much of many links' line rate weft uses, over real TCP; and weft ladder over them.

N veth pairs join two network namespaces, each shaped to a fixed rate both ways: 32 links of 100 Mbit/s are a large
machine's NICs at one thousandth. The same links carry weft, and iperf3 with one stream per link, in turn. Then one of
eight links runs at half rate, and one of eight is cut while weft runs. `--case ladder` climbs from one link to all of them instead.
Needs root; removes what it made on any exit.

    bench/links.py [--links N] [--rate MBIT] [--seconds S] [--rounds N] [--case all|full|half|cut|ladder] [--json] [--build DIR]
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORT = 7471
BURST, LATENCY, MTU = "256kb", "20ms", 9000


class Failed(Exception):
    pass


def sh(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise Failed("%s: %s" % (" ".join(map(str, words)), done.stderr.strip()))
    return done.stdout


class Links:
    """Two namespaces and the shaped links between them."""

    def __init__(self, count, rate):
        self.count, self.rate = count, rate
        self.spaces = ["weft-links-%s-%d" % (side, os.getpid()) for side in "ab"]
        self.children = []

    def __enter__(self):
        try:
            for space in self.spaces:
                sh("ip", "netns", "add", space)
                sh("ip", "-n", space, "link", "set", "lo", "up")
            for i in range(self.count):
                self.add(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        for space in self.spaces:
            sh("ip", "netns", "delete", space, check=False)

    def name(self, i):
        return "link%d" % i

    def address(self, side, i):
        return "10.77.%d.%d" % (i, side + 1)

    def rails(self, side):
        return ",".join(self.address(side, i) for i in range(self.count))

    def add(self, i):
        a, b = self.spaces
        sh("ip", "link", "add", self.name(i), "netns", a, "type", "veth", "peer", "name", self.name(i), "netns", b)
        for side, space in enumerate(self.spaces):
            name = self.name(i)
            sh("ip", "-n", space, "link", "set", name, "mtu", MTU, "up")
            sh("ip", "-n", space, "address", "add", self.address(side, i) + "/24", "dev", name)
            # The host's default congestion control may pace below the shaper's rate.
            sh("ip", "-n", space, "route", "replace", "10.77.%d.0/24" % i, "dev", name, "src", self.address(side, i),
               "congctl", "cubic")
        self.shape(i, self.rate)

    def shape(self, i, rate):
        for space in self.spaces:
            sh("tc", "-n", space, "qdisc", "replace", "dev", self.name(i), "root", "tbf", "rate", "%gmbit" % rate,
               "burst", BURST, "latency", LATENCY)

    def set(self, i, state):
        for space in self.spaces:
            sh("ip", "-n", space, "link", "set", self.name(i), state)

    def start(self, side, words):
        command = ["ip", "netns", "exec", self.spaces[side]] + [str(word) for word in words]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child


def finish(child, limit, what):
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise Failed("%s did not end within %d s" % (what, limit))
    return out, err


def run_weft(links, build, seconds, meanwhile=None):
    weft = os.path.join(build, "weft")
    listener = links.start(1, [weft, "bench", "--listen", "%s:%d" % (links.address(1, 0), PORT), "--once", "--provider",
                               "tcp", "--rails", links.rails(1)])
    time.sleep(0.5)
    driver = links.start(0, [weft, "bench", "%s:%d" % (links.address(1, 0), PORT), "--provider", "tcp", "--rails",
                             links.rails(0), "--duration", "%gs" % seconds, "--warmup", "1s", "--region", "256M", "--json",
                             "--quiet"])
    if meanwhile:
        threading.Thread(target=meanwhile, daemon=True).start()
    try:
        out, err = finish(driver, seconds + 60, "weft bench")
    finally:
        listener.terminate()
        finish(listener, 10, "weft bench --listen")
    if not out.strip():
        raise Failed("weft bench: " + (err.strip().splitlines() or ["no output"])[-1])
    result = json.loads(out.strip().splitlines()[-1])
    if "gbps" not in result:
        raise Failed("weft bench: %s" % result.get("error"))
    return result


def run_iperf3(links, seconds):
    """Runs one stream per link at once; returns what the receivers got."""
    servers = [links.start(1, ["iperf3", "-s", "-1", "-B", links.address(1, i)]) for i in range(links.count)]
    time.sleep(1)
    clients = [links.start(0, ["iperf3", "-c", links.address(1, i), "-B", links.address(0, i), "-t", seconds, "-J"])
               for i in range(links.count)]
    total = 0.0
    for child in clients:
        out, _ = finish(child, seconds + 60, "iperf3")
        try:
            total += json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9
        except (ValueError, KeyError):
            raise Failed("iperf3: " + out[-200:])
    for child in servers:
        finish(child, 20, "iperf3 -s")
    return total


def measured(options, case, links, line, run):
    """Alternates rounds of weft and iperf3; returns their utilisation."""
    found = {"weft": [], "iperf3": []}
    for _ in range(options.rounds):
        found["weft"].append(run()["gbps"] / line)
        if shutil.which("iperf3"):
            found["iperf3"].append(run_iperf3(links, max(2, round(options.seconds))) / line)
    weft = statistics.median(found["weft"])
    other = statistics.median(found["iperf3"]) if found["iperf3"] else None
    return {"measure": "links, " + case, "provider": "tcp", "links": links.count, "rate_mbit": links.rate,
            "line_gbps": line, "weft": round(weft, 4), "other": other and round(other, 4), "other_name": "iperf3",
            "ratio": other and round(weft / other, 3), "spread": [round(min(found["weft"]), 4), round(max(found["weft"]), 4)]}


def full(options):
    with Links(options.links, options.rate) as links:
        line = links.count * links.rate / 1000
        result = measured(options, "all at full rate", links, line, lambda: run_weft(links, options.build, options.seconds))
        return dict(result, goal=0.971, met=result["weft"] >= 0.971)


def half(options):
    with Links(min(8, options.links), options.rate) as links:
        links.shape(links.count - 1, links.rate / 2)
        line = (links.count - 0.5) * links.rate / 1000
        result = measured(options, "one at half rate", links, line, lambda: run_weft(links, options.build, options.seconds))
        return dict(result, goal=0.95, met=result["weft"] >= 0.95)


def cut(options):
    """Cuts one link: the other links' rate remains, and weft must end with every byte in place."""
    with Links(min(8, options.links), options.rate) as links:
        line = links.count * links.rate / 1000

        def unplug():
            time.sleep(1.5 + options.seconds / 2)
            links.set(links.count - 1, "down")

        result = run_weft(links, options.build, options.seconds, unplug)
        share = result["gbps"] / (line * (1 - 0.5 / links.count))
        lost = result.get("error")
        return {"measure": "links, one cut in the middle", "provider": "tcp", "links": links.count,
                "rate_mbit": links.rate, "line_gbps": line, "weft": round(share, 4), "other": None, "other_name": None,
                "ratio": None, "verified": result.get("verified"), "error": lost, "goal": None,
                "met": not lost and result.get("verified") is True}


def ladder(options):
    """Runs weft ladder between the namespaces, a NIC for each link, and returns what it printed."""
    with Links(options.links, options.rate) as links:
        ours = [os.path.join(options.build, "weft"), "ladder", "--rounds", options.rounds]
        listener = links.start(1, ours + ["--listen", PORT, "--from", links.rails(1)])
        driver = links.start(0, ours + ["--connect", "%s:%d" % (links.address(1, 0), PORT), "--from", links.rails(0)]
                             + (["--json"] if options.json else []))
        out, err = finish(driver, 60 + 60 * options.rounds, "weft ladder")
        said = finish(listener, 30, "weft ladder --listen")[1]
        if driver.returncode or listener.returncode:
            raise Failed((err + said).strip())
        return out.rstrip()


def show(result):
    other = "" if result["other"] is None else "   iperf3 %.2f %%" % (100 * result["other"])
    goal = "" if result["goal"] is None else "   goal %.1f %%: %s" % (100 * result["goal"], "met" if result["met"] else "NOT met")
    print("%-28s %2d x %g Mbit/s   weft %.2f %%%s%s" % (result["measure"], result["links"], result["rate_mbit"],
                                                       100 * result["weft"], other, goal))
    if "verified" in result:
        print("    every byte verified: %s%s" % ("yes" if result["verified"] else "NO",
                                               "; " + result["error"] if result["error"] else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--links", type=int, default=32)
    parser.add_argument("--rate", type=float, default=100, help="Mbit/s of each link (default 100)")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default 10)")
    parser.add_argument("--rounds", type=int, default=2, help="of weft and iperf3 in turn (default 2)")
    parser.add_argument("--case", choices=["all", "full", "half", "cut", "ladder"], default="all")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build directory (default build)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("links: needs root, for network namespaces and shaping: sudo bench/links.py")
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            sys.exit("links: needs %s: apt-get install iproute2" % tool)
    if options.case != "ladder" and not shutil.which("iperf3"):
        print("links: iperf3 is not installed, so it is not compared: apt-get install iperf3", file=sys.stderr)
    # A signal ends the program through the clean-up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    if options.case == "ladder":
        try:
            print(ladder(options))
        except Failed as error:
            sys.exit("links: %s" % error)
        return 0
    failed = False
    for name, case in (("full", full), ("half", half), ("cut", cut)):
        if options.case not in ("all", name):
            continue
        try:
            result = case(options)
        except Failed as error:
            print("links: %s: %s" % (name, error), file=sys.stderr)
            failed = True
            continue
        print(json.dumps(result)) if options.json else show(result)
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
