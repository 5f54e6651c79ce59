// The two sides: numbers, checkout, requests, and the bank's books.

import { byId, count, make, money, seconds, setText, times } from "./dom.js";
import { describe, numbers, run, stateName } from "./model.js";

const titles = { bare: "Without the attribute", guarded: "With #[idempotent]" };
export const sides = ["bare", "guarded"];
const parts = {};

/** Builds a side once. Later events change only what is in it. */
function build(side) {
  const badge = make("p", { class: "badge", id: `${side}-badge` });
  const tiles = make("dl", { class: "tiles" });
  const tile = (name, title) => {
    const value = make("dd", { id: `${side}-${name}`, textContent: "0" });
    tiles.append(make("div", {}, make("dt", { textContent: title }), value));
    return value;
  };
  const values = {
    requests: tile("requests", "requests sent"),
    runs: tile("runs", "handler runs"),
    charges: tile("charges", "charges"),
  };
  const amount = make("input", {
    id: `${side}-amount`, type: "number", min: "0.01", max: "999999.99", step: "0.01",
    value: "49.00", inputMode: "decimal",
  });
  const pay = make("button", { type: "button", class: "pay", textContent: "Pay" });
  pay.setAttribute("aria-describedby", `${side}-title`);
  const shopper = make("p", { class: "shopper", id: `${side}-shopper` });
  const strip = side === "bare"
    ? make("p", { class: "strip", textContent: "Key: ignored, each request runs the handler." })
    : keyStrip();
  const list = make("ol", { class: "requests", id: `${side}-list` });
  const rows = make("tbody");
  const total = make("td", { id: `${side}-total` });
  const heading = (text) => make("h3", { textContent: text });
  byId(side).append(
    make("div", { class: "side-head" },
      make("h2", { id: `${side}-title`, textContent: titles[side] }), badge),
    make("div", { class: "checkout" },
      make("p", { class: "amount" },
        make("label", { htmlFor: amount.id, textContent: "Tea set, €" }), amount, pay),
      shopper),
    tiles, strip,
    heading("Requests and responses"), list,
    heading("The bank’s books"),
    make("table", {},
      make("thead", {}, make("tr", {},
        make("th", { scope: "col", textContent: "charge" }),
        make("th", { scope: "col", textContent: "amount" }))),
      rows,
      make("tfoot", {}, make("tr", {},
        make("th", { scope: "row", textContent: "taken from the card" }), total))),
  );
  parts[side] = { badge, values, amount, pay, shopper, list, rows, total, shown: new Map() };
}

/** The state of the key in a line; the diagram further down says the same. */
function keyStrip() {
  const states = ["absent", "in_flight", "completed", "held"].map((state) =>
    make("span", { class: "state", "data-state": state, textContent: stateName(state) }));
  const lease = make("span", { class: "bar", id: "lease-strip" }, make("i"));
  return make("p", { class: "strip", "aria-hidden": "true" }, "Key:", ...states, lease);
}

/** Builds both sides. `press` is called with the side whose button is pressed. */
export function buildColumns(press) {
  for (const side of sides) {
    build(side);
    const { amount, pay } = parts[side];
    pay.addEventListener("click", () => press(side));
    amount.addEventListener("input", () => {
      for (const other of sides) parts[other].amount.value = amount.value;
    });
  }
  renderColumns();
}

export const amountInCents = (side) => Math.round(Number(parts[side].amount.value) * 100);

export function setAmount(cents) {
  for (const side of sides) parts[side].amount.value = (cents / 100).toFixed(2);
}

/** Shows a press of the button, as the visitor's own click would. */
export function showPress(side) {
  const { pay } = parts[side];
  pay.classList.remove("pressed");
  void pay.offsetWidth; // Restarts the animation.
  pay.classList.add("pressed");
}

export function enableCheckouts(enabled) {
  for (const side of sides) {
    parts[side].pay.disabled = !enabled;
    parts[side].amount.disabled = !enabled;
  }
}

export function renderColumns() {
  for (const side of sides) render(side);
}

function render(side) {
  const { badge, values, shopper, rows, total } = parts[side];
  const { charges, requests } = run[side];
  for (const [name, value] of Object.entries(numbers(side))) setText(values[name], String(value));
  values.charges.parentElement.classList.toggle("bad", charges.length > 1);
  values.charges.parentElement.classList.toggle("good", charges.length === 1);
  badge.className = `badge ${["none", "good"][charges.length] ?? "bad"}`;
  const sign = ["", "✓ ", "✕ "][Math.min(charges.length, 2)];
  setText(badge, sign + (charges.length ? count(charges.length, "charge") : "no charge yet"));
  byId(`${side}-score`).className = badge.className.replace("badge ", "");
  setText(byId(`${side}-score`), badge.textContent);
  const [kind, text] = shopperSees(requests);
  shopper.className = `shopper ${kind}`;
  setText(shopper, text);
  renderRequests(side, requests);
  while (rows.children.length > charges.length) rows.lastChild.remove();
  for (const [place, { charge, amount }] of charges.entries()) {
    const again = place > 0 && amount === charges[0].amount;
    rows.children[place] ?? rows.append(make("tr", { class: again ? "again" : "" },
      make("td", {}, make("code", { textContent: charge }), again ? " again" : null),
      make("td", { textContent: money(amount) })));
  }
  setText(total, money(charges.reduce((sum, { amount }) => sum + amount, 0)));
}

/** What the shopper sees: the newest response, or that there is none. */
function shopperSees(requests) {
  if (!requests.length) return ["idle", "Ready to pay."];
  if (requests.some(({ seen }) => !seen)) return ["waits", "Paying…"];
  const { response, seen } = requests.at(-1);
  if (!response) {
    const why = seen.outcome === "gave_up" ? "Gave up waiting" : "No response";
    return ["unknown", `${why}. Did the payment go through?`];
  }
  if (seen.status === 201) {
    const again = response.replayed ? " (the first response, replayed)" : "";
    return ["paid", `Paid ${money(response.amount)}, charge ${response.charge}${again}.`];
  }
  const problems = {
    in_flight: "The first request is still in progress.",
    outcome_unknown: "The outcome is unknown; support will find out.",
    key_reused: "Refused: this key belongs to another request.",
  };
  return ["refused", problems[response.code] ?? "The bank is down, nothing was charged."];
}

function renderRequests(side, requests) {
  const { list, shown } = parts[side];
  for (const number of shown.keys()) {
    if (requests.some((one) => one.number === number)) continue;
    shown.get(number).item.remove();
    shown.delete(number);
  }
  for (const [place, request] of requests.entries()) {
    if (!shown.has(request.number)) {
      shown.set(request.number, addRequest(side, list, place, request));
    }
    const { item, outcome, time, body } = shown.get(request.number);
    item.className = `request ${kindOf(request)}`;
    setText(outcome, describe(request));
    setText(time, request.seen ? seconds(request.endedAt - request.at) : "…");
    setText(body, request.seen?.text ?? `(${describe(request)})`);
  }
}

function addRequest(side, list, place, request) {
  const outcome = make("span", { class: "outcome" });
  const time = make("span", { class: "time" });
  const id = `${side}-body-${request.number}`;
  const body = make("pre", { id });
  const sent = make("pre", { textContent: request.text });
  const item = make("li", {}, make("details", {},
    make("summary", {},
      make("span", { class: "label", textContent: `${place + 1}. ${request.label}` }),
      outcome, time),
    make("div", { class: "bytes" },
      make("p", { textContent: "Request" }), sent, make("p", { textContent: "Response" }), body)));
  list.append(item);
  return { item, outcome, time, body };
}

/** The colour of a request; the words say the same. */
function kindOf({ seen, response }) {
  if (!seen) return "waits";
  if (!response) return "unknown";
  if (response.replayed) return "replayed";
  return seen.status < 300 ? "paid" : "refused";
}

/** What the numbers of both sides mean, in a sentence for each. */
export function verdict(because) {
  const part = (side, text) => make("span", {
    class: ["", "good"][run[side].charges.length] ?? "bad", textContent: text,
  });
  const [bare, guarded] = sides.map((side) => times(run[side].charges.length));
  return [
    part("bare", `Without the attribute: ${bare}.`), " ",
    part("guarded", `With it: ${guarded}${because}`),
  ];
}
