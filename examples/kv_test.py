#!/usr/bin/env python3
"""kv: a server killed in the middle and started again; every layer arrives, in order.

usage: kv_test.py KV
"""
import socket
import subprocess
import sys

KV, LAYERS, RESTARTS = sys.argv[1], 400, 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def serve(port):
    server = subprocess.Popen([KV, "serve", port, "tcp", "127.0.0.1"], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "serving\n"
    return server


def main():
    port = free_port()
    server = serve(port)
    client = subprocess.Popen([KV, "push", "127.0.0.1", port, str(LAYERS), "tcp", "127.0.0.1"], stdout=subprocess.PIPE,
                              text=True)
    there, looked = [], 0
    for line in client.stdout:
        looked += "looking for" in line
        if not line.endswith("is there\n"):
            continue
        there.append(int(line.split()[1]))
        if len(there) % (LAYERS // (RESTARTS + 1)) == 0 and len(there) < LAYERS:
            server.kill()
            server.wait()
            server = serve(port)
    server.kill()
    server.wait()
    assert client.wait(timeout=60) == 0
    assert looked >= RESTARTS, looked
    assert there == list(range(LAYERS)), there


main()
