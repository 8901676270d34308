#!/usr/bin/env python3
"""kv: a server killed in the middle and started again; every layer arrives, in order.

usage: kv_test.py KV
"""
import fcntl
import os
import random
import socket
import subprocess
import sys

# What the client prints waits in a pipe of one page until it is read here: up to 220 layers. So far ahead of us, it is
# still at work when the last of the servers is killed.
KV, LAYERS, RESTARTS, EVERY = sys.argv[1], 400, 3, 50


def free_port():
    """None that a connection could get by chance while no server listens there."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return str(port)


def serve(port):
    server = subprocess.Popen([KV, "serve", port, "tcp", "127.0.0.1"], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "serving\n"
    return server


def lines(fd):
    """One by one: nothing is read ahead."""
    with open(fd, "rb", buffering=0) as file:
        for line in iter(file.readline, b""):
            yield line.decode()


def main():
    port = free_port()
    server = serve(port)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    client = subprocess.Popen([KV, "push", "127.0.0.1", port, str(LAYERS), "tcp", "127.0.0.1"], stdout=writing)
    os.close(writing)
    there, looked = [], 0
    for line in lines(reading):
        looked += "looking for" in line
        if not line.endswith("is there\n"):
            continue
        there.append(int(line.split()[1]))
        if len(there) % EVERY == 0 and len(there) <= RESTARTS * EVERY:
            server.kill()
            server.wait()
            server = serve(port)
    server.kill()
    server.wait()
    assert client.wait(timeout=60) == 0
    assert looked >= RESTARTS, looked
    assert there == list(range(LAYERS)), there


main()
