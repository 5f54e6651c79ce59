#!/usr/bin/env python3
"""Prints how many instructions a server of the benchmarks takes for a request, by callgrind.

    benches/instructions.py PROGRAM [STORE [KIND...]]

PROGRAM is the benchmark that `cargo bench -p benches --no-run` names, STORE the URL of a store,
`memory:` by default, and KIND a contestant, `bare` and `layer` by default. The instructions of a
short run are subtracted from those of a long one, so that the start does not count. Those of the
kernel and of a database do not count either. A store that is not in FOLDER is not emptied.
"""

import itertools
import re
import socket
import subprocess
import sys
import tempfile
import time

BODY = b'{"amount":1200,"currency":"eur","to":"' + b"x" * 150 + b'"}'
SHORT, LONG = 500, 8000


def send(port, keys):
    """Sends a request with each key over one connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        responses = connection.makefile("rb")
        for key in keys:
            head = "POST /work HTTP/1.1\r\nhost: a\r\nauthorization: Bearer alice\r\n"
            head += f"content-type: application/json\r\nidempotency-key: key-{key}\r\n"
            head += f"content-length: {len(BODY)}\r\n\r\n"
            connection.sendall(head.encode() + BODY)
            status = responses.readline()
            assert status.startswith(b"HTTP/1.1 2"), status
            length = 0
            while (line := responses.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            responses.read(length)


def instructions(program, kind, store, keys):
    """All instructions of a server that gets a request with each of these keys."""
    with tempfile.TemporaryDirectory() as folder:
        url = store.replace("FOLDER", folder)
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [program, "serve", "--kind", kind, "--store", url]
        pipe = subprocess.PIPE
        server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        send(int(re.search(rb":(\d+)", server.stdout.readline())[1]), keys)
        server.stdin.close()
        server.wait()
        with open(f"{folder}/out") as out:
            return int(re.findall(r"^(?:summary|totals): (\d+)", out.read(), re.M)[-1])


def main(program, store="memory:", *kinds):
    # So that a store that is not emptied has none of the keys.
    runs = itertools.count(time.time_ns(), LONG)
    for kind in kinds or ["bare", "layer"]:
        for name, keys in [
            ("first request", lambda number: range(start := next(runs), start + number)),
            ("replay", lambda number: [n % 100 for n in range(number)]),
        ]:
            short, long = [instructions(program, kind, store, keys(n)) for n in (SHORT, LONG)]
            print(f"{kind}, {name}: {(long - short) / (LONG - SHORT):,.0f}", flush=True)


main(*sys.argv[1:])
