#!/usr/bin/env python3
"""weft topo and weft doctor as a user meets them: test_topo.py WEFT TOPOLOGY_DIR"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

weft, topologies = sys.argv[1:3]
os.environ.pop("WEFT_TOPOLOGY_XML", None)
p5 = os.path.join(topologies, "p5.xml")


def run(*arguments, status=0):
    done = subprocess.run([weft, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (arguments, done.returncode, done.stdout[-500:], done.stderr[-500:])
    assert status == 0 or arguments[0] == "doctor" or done.stderr, arguments
    return done


def topo_json():
    plan = json.loads(run("topo", "--xml", p5, "--json").stdout)
    groups = plan["groups"]
    assert len(groups) == 8 and len(plan["nics"]) == 32 and len(plan["gpus"]) == 8
    assert groups[0]["rails"] == ["rdmap79s0", "rdmap80s0", "rdmap81s0", "rdmap82s0"]
    assert groups[0]["memory"] == {"type": "gpu", "gpus": ["0000:53:00.0"], "numa": 0}
    assert groups[0]["cores"] == list(range(12)) and groups[0]["worker"] == 1
    assert groups[7]["cores"] == list(range(84, 96)) and groups[7]["worker"] == 84
    merged = json.loads(run("topo", "--xml", p5, "--json", "--max-groups", "1", "--cpus", "4-5").stdout)["groups"]
    assert len(merged) == 1 and len(merged[0]["rails"]) == 32 and merged[0]["worker"] == 4


def topo_simulated():
    """Through the library and the simulated NICs: the same groups, and rates as well."""
    plan = json.loads(run("topo", "--sim", "p5", "--json").stdout)
    saved = json.loads(run("topo", "--xml", p5, "--json").stdout)
    for ours, theirs in zip(plan["groups"], saved["groups"], strict=True):
        assert ours["bits_per_second"] == 400_000_000_000 and theirs["bits_per_second"] is None
        for key in ("memory", "rails", "cores", "worker", "reason"):
            assert ours[key] == theirs[key], (key, ours, theirs)
    assert plan["bits_per_second"] == 3_200_000_000_000
    assert plan["simulated"] is True and saved["simulated"] is False
    for form in ([], ["--svg", "-"]):
        assert "simulated" in run("topo", "--sim", "p5", *form).stdout
        assert "simulated" not in run("topo", "--xml", p5, *form).stdout.replace(topologies, "")
    run("topo", "--sim", "p55", status=2)


def topo_pictures():
    for machine in sorted(os.listdir(topologies)):
        if not machine.endswith(".xml"):
            continue
        path = os.path.join(topologies, machine)
        svg = run("topo", "--xml", path, "--svg", "-").stdout
        assert xml.etree.ElementTree.fromstring(svg).tag.endswith("svg")
        assert "group 0" in run("topo", "--xml", path).stdout
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "p5.svg")
        assert run("topo", "--xml", p5, "--svg", picture).stdout == ""
        xml.etree.ElementTree.parse(picture)
        run("topo", "--xml", p5, "--svg", os.path.join(folder, "no", "such", "folder.svg"), status=1)


def topo_from_environment():
    os.environ["WEFT_TOPOLOGY_XML"] = p5
    assert json.loads(run("topo", "--json").stdout)["this_host"] is False
    os.environ.pop("WEFT_TOPOLOGY_XML")
    ours = json.loads(run("topo", "--json").stdout)
    assert ours["this_host"] is True and ours["simulated"] is False and ours["machine"] != ""


def topo_groups_file():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as groups:
        groups.write("group numa=1 rails=* worker=50\n")
        groups.flush()
        plan = json.loads(run("topo", "--xml", p5, "--groups", groups.name, "--json").stdout)
        assert len(plan["groups"]) == 1 and plan["groups"][0]["worker"] == 50
        groups.write("gruop rails=x\n")
        groups.flush()
        assert ":2:" in run("topo", "--xml", p5, "--groups", groups.name, status=1).stderr
        groups.truncate(0)
        groups.seek(0)
        groups.write("\x1b[2Jgroup rails=*\n")
        groups.flush()
        assert "not '?[2Jgroup'" in run("topo", "--xml", p5, "--groups", groups.name, status=1).stderr


def topo_misuse():
    assert "--json" in run("topo", "--jsn", status=2).stderr
    run("topo", "extra", status=2)
    run("topo", "--max-groups", "0", status=2)
    run("topo", "--xml", p5, "--sim", "p5", status=2)
    run("topo", "--xml", "/nonexistent.xml", status=1)
    run("topo", "--xml", __file__, status=1)
    run("topo", "--xml", p5, "--cpus", "9-1", status=2)
    assert "weft topo --sim p5" in run("topo", "--help").stdout


def doctor():
    with tempfile.TemporaryDirectory() as root:
        report = json.loads(run("doctor", "--root", root, "--json").stdout)
        checks = {check["id"]: check for check in report["checks"]}
        assert checks["rdma-device"]["result"] == "warn" and checks["rdma-device"]["mend"]
        assert report["blocks"] == 0 and len(checks) == len(report["checks"])
        report = json.loads(run("doctor", "--root", root, "--json", "--require", "efa", status=1).stdout)
        assert report["blocks"] == 1
        assert "BLOCKS" in run("doctor", "--root", root, "--require", "verbs", status=1).stdout
    json.loads(subprocess.run([weft, "doctor", "--json"], capture_output=True, text=True).stdout)
    run("doctor", "--require", "infiniband", status=2)
    run("doctor", "--root", "/nonexistent", status=2)
    assert "1.17" in run("doctor", "--libfabric", "xyz", status=2).stderr
    assert "--require" in run("doctor", "--requir", "efa", status=2).stderr
    assert "Examples" in run("doctor", "--help").stdout


# A set of CPUs that starts with a comma, on which hwloc 2.9 aborts; and an element without an end, on which its own XML
# parser crashes. A later hwloc may refuse them instead: either way the command stays alive and says which file it was.
BROKEN = {
    "comma.xml": '<topology version="2.0"><object type="Machine" os_index="0" cpuset=",0x1" nodeset="0x1"/></topology>',
    "no-end.xml": '<topology version="2.0"',
    "no-topology.xml": "<html><body/></html>",
}


def broken_files():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in BROKEN.items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            for arguments in (["topo"], ["info"], ["bench", "--duration", "1s"]):
                if arguments == ["topo"]:
                    said = run("topo", "--xml", path, status=1).stderr
                else:
                    os.environ["WEFT_TOPOLOGY_XML"] = path
                    said = run(*arguments, status=1).stderr
                    os.environ.pop("WEFT_TOPOLOGY_XML")
                assert said.startswith(f"weft {arguments[0]}: ") and path in said and said.count("\n") == 1, said
                assert "crashes on this topology file" in said or "cannot read it as a topology" in said, said
            report = json.loads(run("doctor", "--json", "--xml", path, status=1).stdout)
            checks = {check["id"]: check for check in report["checks"]}
            assert checks["topology"]["result"] == "blocks" and path in checks["topology"]["seen"], checks["topology"]
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        assert "not a file" in run("topo", "--xml", pipe, status=1).stderr
    report = json.loads(subprocess.run([weft, "doctor", "--json", "--xml", p5], capture_output=True, text=True).stdout)
    assert {check["id"]: check for check in report["checks"]}["topology"]["result"] == "ok"


for test in (topo_json, topo_simulated, topo_pictures, topo_from_environment, topo_groups_file, topo_misuse, broken_files,
             doctor):
    test()
    print("ok", test.__name__)
