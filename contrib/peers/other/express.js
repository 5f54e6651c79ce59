// `express-idempotency` on Express, with its Redis adapter: one process, one thread.

const express = require('express');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');
const RedisAdapter = require('express-idempotency-redis-adapter').default;

function read(words) {
  const read = { store: 'memory', port: 0 };
  while (words.length > 0) {
    const [name, value] = [words.shift(), words.shift()];
    if (name === '--store' && value) read.store = value;
    else if (name === '--port' && value) read.port = Number(value);
    else refuse('usage: --store memory|redis://… [--port N]');
  }
  return read;
}

function refuse(what) {
  console.error(what);
  process.exit(2);
}

function responseBody(received) {
  const head = `{"status":"succeeded","received":${received},"receipt":"`;
  return `${head}${'x'.repeat(1024 - head.length - 2)}"}`;
}

async function main() {
  const { store, port } = read(process.argv.slice(2));
  const options = {};
  if (store.startsWith('redis://')) {
    options.dataAdapter = new RedisAdapter({ connectionConfig: { url: store } });
    await options.dataAdapter.connect();
  } else if (!['memory', 'memory:'].includes(store)) {
    refuse(`this contestant has no store for ${store}`);
  }
  let runs = 0;
  const app = express();
  app.disable('x-powered-by').disable('etag');
  app.get('/runs', (_, response) => response.send(String(runs)));
  app.use(express.json());
  app.post('/work', idempotency(options), (request, response) => {
    // The documentation asks every handler to check this.
    if (getSharedIdempotencyService().isHit(request)) return;
    runs += 1;
    const received = Number(request.headers['content-length'] ?? 0);
    response.status(201).set('content-type', 'application/json').set('x-run', String(runs)).send(responseBody(received));
  });
  const server = app.listen(port, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
}

main().catch((error) => refuse(error.stack));
