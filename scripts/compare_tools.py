"""The tools that scripts/compare.py compares: how to run each and how to read its output. Every run is bounded in time."""
import json
import os
import shutil
import subprocess
import time

LIMIT_S = 60
REGION = 64 << 20
_port = 20000 + os.getpid() % 20000


class Failed(Exception):
    pass


def run(command, env=None, limit=LIMIT_S):
    """Returns the standard output of a command that must succeed in time."""
    full = dict(os.environ, **env) if env else None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=full)
    except subprocess.TimeoutExpired:
        raise Failed("%s took longer than %d s" % (command[0], limit))
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "exit status %d" % done.returncode).splitlines()[-1]
        raise Failed("%s: %s" % (os.path.basename(command[0]), said[:200]))
    return done.stdout


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def next_port():
    global _port
    _port += 1
    return str(_port)


def served(server, client, env=None):
    """Returns a client's output while its server runs; ends the server by its process id."""
    full = dict(os.environ, **env) if env else None
    child = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=full)
    try:
        for attempt in range(20):
            time.sleep(0.1)
            try:
                return run(client, env)
            except Failed:
                if attempt == 19 or child.poll() is not None:
                    raise
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Tools:
    """One method per tool; each returns a dictionary with gbps, or p50_us and p99_us."""

    def __init__(self, build, seconds):
        self.build, self.seconds = build, seconds
        self.round, self.kept = 0, {}
        self.missing = {}
        self.need("ucx_perftest", "UCX", "ucx-utils")
        self.need("iperf3", "iperf3", "iperf3")
        if not shutil.which("mpirun") or not os.path.exists(self.path("bench", "mpi_put")):
            self.missing["MPI"] = "mpirun or bench/mpi_put (apt-get install openmpi-bin libopenmpi-dev, then build again)"

    def need(self, program, name, package):
        if not shutil.which(program):
            self.missing[name] = "%s (apt-get install %s)" % (program, package)

    def once(self, *key):
        """Runs a method once per round: one run gives several quantiles."""
        at = (self.round,) + key
        if at not in self.kept:
            self.kept[at] = getattr(self, key[0])(*key[1:])
        return self.kept[at]

    def path(self, *parts):
        return os.path.join(self.build, *parts)

    def where(self, provider):
        if provider.startswith("sim:"):
            return ["--sim", provider[4:]]
        return ["--provider", provider]

    def weft(self, provider, *arguments):
        command = [self.path("weft"), "bench", "--json", "--quiet", "--duration", "%dms" % (self.seconds * 1000)]
        if provider.startswith("sim:"):
            command.append("--no-verify")  # and as much in flight as the command takes by itself: 32 NICs share it
        elif "call" not in arguments and "send" not in arguments and "--region" not in arguments:
            command += ["--region", str(REGION)]
        if provider != "local" and "--memory" not in arguments:  # of the same kind as that of the others
            command += ["--memory", "own"]
        return last_json(run(command + self.where(provider) + list(arguments)))

    def bench(self, program, provider, *arguments):
        command = [self.path("bench", program), "--json", "--seconds", str(self.seconds)]
        if "--region" not in arguments:
            command += ["--region", str(REGION)]
        return last_json(run(command + self.where(provider) + list(arguments)))

    def piece(self, provider, size, *arguments):
        count = str(int(max(0.1, self.seconds) * 3e6 * 65536 / size))
        command = [self.path("bench", "piece"), "--json", "--pieces", count, "--page-size", str(size)]
        return last_json(run(command + self.where(provider) + list(arguments)))

    def ucx(self, provider, size, test="ucp_put_bw"):
        env = {"UCX_TLS": "tcp,self" if provider == "tcp" else "shm,self", "UCX_LOG_LEVEL": "error"}
        if provider == "tcp":
            env["UCX_NET_DEVICES"] = "lo"
        guess = 4e8 if provider == "tcp" else 8e9  # bytes a second, to end in about the time asked for
        rate = min(guess / size, 1e5 if provider == "tcp" else 1e7)
        if test == "tag_lat":
            rate = 3e4 if provider == "tcp" else 1e6
        count = str(max(200, int(rate * self.seconds)))
        common = ["ucx_perftest", "-p", next_port()]
        text = served(common, common + ["127.0.0.1", "-t", test, "-s", str(size), "-n", count, "-w", "100", "-f", "-v"], env)
        line = text.strip().splitlines()[-1].split(",")
        # UCX reports one-way latencies, and megabytes of 1048576 bytes.
        return {"gbps": float(line[5]) * 1048576 * 8 / 1e9, "p50_us": 2 * float(line[1]), "p99_us": None}

    def mpi(self, provider, size):
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = ["mpirun", "--oversubscribe", "-np", "2", "--mca", "pml", "ob1", "--mca", "btl"]
        command += ["tcp,self", "--mca", "osc", "pt2pt"] if provider == "tcp" else ["vader,self", "--mca", "osc", "rdma"]
        command += ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]
        command += [self.path("bench", "mpi_put"), str(size), str(self.seconds)]
        return last_json(run(command, env))

    def iperf3(self, size):
        port = next_port()
        client = ["iperf3", "-c", "127.0.0.1", "-p", port, "-J", "-t", str(max(1, round(self.seconds))), "-l", str(size)]
        report = json.loads(served(["iperf3", "-s", "-1", "-p", port], client))
        return {"gbps": report["end"]["sum_received"]["bits_per_second"] / 1e9}

    def memcpy(self, size, *arguments, region=REGION):
        command = [self.path("bench", "memcpy"), "--json", "--page-size", str(size), "--seconds", str(self.seconds)]
        return last_json(run(command + ["--region", str(region), *arguments]))


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return (done.stdout or done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None


def read_first(path, key=None):
    try:
        with open(path) as file:
            for line in file:
                if key is None or line.startswith(key):
                    return line.split(":", 1)[1].strip() if key else line.strip()
    except OSError:
        pass
    return None


def machine(build, congestion):
    """Facts about the machine and the software that the figures depend on."""
    fabric = (first_line(["fi_info", "--version"]) or "unknown").replace("fi_info:", "libfabric")
    return {"cpu": read_first("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "kernel": os.uname().release, "load": os.getloadavg()[0], "libfabric": fabric,
            "weft": first_line([os.path.join(build, "weft"), "--version"]),
            "ucx": first_line(["ucx_info", "-v"]), "mpi": first_line(["mpirun", "--version"]),
            "iperf3": first_line(["iperf3", "--version"]), "tcp_congestion_control": congestion}
