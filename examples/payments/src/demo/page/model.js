// What has happened in this run. Everything comes from the events of the front process.

const emptySide = () => ({ requests: [], runs: 0, charges: [] });

function emptyRun() {
  return {
    run: 0,
    key: null,
    worker: { up: true, process: null },
    bank: "fast",
    record: { state: "absent" },
    bare: emptySide(),
    guarded: emptySide(),
    timeline: [],
    changes: [],
  };
}

export let run = emptyRun();
let last = 0;
const listeners = new Set();

/** Calls a function after each event, with the event. */
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Applies an event. Events that were already applied are ignored. */
export function apply(event, id) {
  const { dataset } = document.documentElement;
  if (event.type === "run") {
    run = { ...emptyRun(), run: event.run, key: event.key };
    run.worker.process = event.worker;
    last = id;
    dataset.run = event.run;
  } else if (id <= last) {
    dataset.repeated = Number(dataset.repeated ?? 0) + 1;
    return;
  } else {
    if (id !== last + 1 && last > 0) dataset.missed = Number(dataset.missed ?? 0) + 1;
    last = id;
    handlers[event.type]?.(event);
  }
  dataset.event = id;
  for (const listener of listeners) listener(event);
}

/** Waits until a condition holds. Fails if the signal is aborted. */
export function until(holds, signal) {
  return new Promise((resolve, reject) => {
    const check = () => {
      if (signal?.aborted) finish(() => reject(signal.reason));
      else if (holds(run)) finish(resolve);
    };
    const stop = onEvent(check);
    const finish = (end) => {
      stop();
      signal?.removeEventListener("abort", check);
      end();
    };
    signal?.addEventListener("abort", check);
    check();
  });
}

/** The numbers of a side. */
export function numbers(side) {
  const { requests, runs, charges } = run[side];
  return { requests: requests.length, runs, charges: charges.length };
}

/** A request of a side by its number; undefined until its event has arrived. */
export function findRequest(number) {
  return [...run.bare.requests, ...run.guarded.requests].find((one) => one.number === number);
}

const note = (event, text) => run.timeline.push({ at: event.at, text });

const handlers = {
  request(event) {
    const { request, side, label, text, at } = event;
    run[side].requests.push({ number: request, label, text, at, seen: null });
    if (side === "guarded") note(event, `request ${run.guarded.requests.length}: ${label}`);
  },
  response(event) {
    const found = findRequest(event.request);
    if (!found) return;
    found.seen = event.seen;
    found.endedAt = event.at;
    found.response = parse(event.seen.text);
    if (event.side === "guarded") {
      const place = run.guarded.requests.indexOf(found) + 1;
      note(event, `request ${place}: ${describe(found)}`);
    }
  },
  handler(event) {
    run[event.side].runs = event.runs;
    if (event.side === "guarded") note(event, "the handler runs");
  },
  bank_called(event) {
    const { side, charge, amount, at } = event;
    if (charge) run[side].charges.push({ charge, amount, at });
    if (side === "guarded") {
      note(event, charge ? `the bank books ${charge}` : "the bank refuses the charge");
    }
  },
  key(event) {
    const before = run.record.state;
    run.record = { ...event, received: performance.now() };
    if (before !== event.state) {
      run.changes.push(`${before}-${event.state}`);
      note(event, `the key is ${stateName(event.state)}`);
    }
  },
  worker(event) {
    run.worker = { up: event.up, process: event.process };
    const what = event.up ? "is back" : "was killed";
    note(event, `the server ${what} (process ${event.process})`);
  },
  bank(event) {
    run.bank = event.mode;
  },
};

export const stateName = (state) => (state === "in_flight" ? "in flight" : state);

/** The parts of a response that the page shows. */
function parse(text) {
  if (!text) return null;
  const [head, body = ""] = text.split("\r\n\r\n", 2);
  const lines = head.split("\r\n");
  const header = (name) =>
    lines.find((line) => line.toLowerCase().startsWith(`${name}:`))?.slice(name.length + 1).trim();
  let json = {};
  try {
    json = JSON.parse(body);
  } catch {
    // Not every response has a body.
  }
  return {
    line: lines[0].replace("HTTP/1.1 ", ""),
    replayed: header("idempotency-replayed") === "true",
    retryAfter: Number(header("retry-after") ?? 0),
    code: json.code,
    charge: json.charge,
    amount: json.amount,
  };
}

const withoutResponse = {
  lost: "the connection broke, no response",
  closed: "the server closed the connection, no response",
  refused: "connection refused, the server is down",
  gave_up: "no response yet, the client gave up",
};

/** What came of a request, in a few words. */
export function describe({ seen, response }) {
  if (!seen) return "waits for a response";
  if (!response) return withoutResponse[seen.outcome];
  const detail = response.replayed ? "replayed" : response.code;
  return response.line + (detail ? `, ${detail}` : "");
}
