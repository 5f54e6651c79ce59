"""`idemkit` on Starlette and uvicorn: one process, one thread."""

import argparse
import asyncio
import socket
import sys

import asyncpg
import uvicorn
from idemkit import HttpConfig, IdempotencyMiddleware, InMemoryBackend, RedisBackend
from idemkit.backends.postgres import PostgresBackend, init_pg
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

SCHEMA = "idempotent_peers"
EMPTY = f"""DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.effects (key text NOT NULL, body text NOT NULL)"""
EFFECT = "INSERT INTO effects (key, body) VALUES ($1, $2)"


def response_body(received):
    head = f'{{"status":"succeeded","received":{received},"receipt":"'
    return head + "x" * (1024 - len(head) - 2) + '"}'


class Work:
    """The handler, and how often it ran."""

    def __init__(self, url):
        self.url, self.pool, self.runs = url, None, 0

    async def run(self, request):
        body = await request.body()
        if self.url is not None:
            # Created here, so that the event loop that uses the pool opens it. Awaiting it again
            # has no effect.
            self.pool = self.pool or asyncpg.create_pool(self.url, min_size=1, max_size=10)
            await self.pool
            await self.pool.execute(EFFECT, request.headers["idempotency-key"], body.decode())
        self.runs += 1
        headers = {"content-type": "application/json", "x-run": str(self.runs)}
        return Response(response_body(len(body)), 201, headers)

    async def count(self, _):
        return PlainTextResponse(str(self.runs))


async def prepare(url):
    """Recreates the schema, and returns a URL whose search path is that schema."""
    connection = await asyncpg.connect(url)
    await connection.execute(EMPTY)
    await connection.close()
    schema_url = url + ("&" if "?" in url else "?") + f"search_path={SCHEMA}"
    await init_pg(schema_url)
    return schema_url


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--store", default="memory")
    arguments.add_argument("--port", type=int, default=0)
    arguments = arguments.parse_args()
    url = None
    if arguments.store in ("memory", "memory:"):
        # The default limit of 10,000 records would be reached within seconds.
        backend = InMemoryBackend(max_size=100_000_000)
    elif arguments.store.startswith("redis://"):
        backend = RedisBackend.from_url(arguments.store)
    elif arguments.store.startswith("postgres://"):
        url = asyncio.run(prepare(arguments.store))
        backend = PostgresBackend.from_url(url, max_size=10)
    else:
        sys.exit(f"this contestant has no store for {arguments.store}")
    work = Work(url)
    routes = [Route("/work", work.run, methods=["POST"]), Route("/runs", work.count)]
    app = Starlette(routes=routes)
    app.add_middleware(IdempotencyMiddleware, backend=backend, config=HttpConfig(scope_mode="single_tenant"))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", arguments.port))
    listener.listen(1024)
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, access_log=False, log_level="warning", loop="uvloop", http="httptools", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


main()
