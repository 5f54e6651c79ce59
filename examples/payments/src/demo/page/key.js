// The key: its state as a diagram, its lease and its ttl as bars, and its timeline.

import { byId, make, seconds, setText } from "./dom.js";
import { run } from "./model.js";

const sentences = {
  absent: "The key is absent: the next request runs the handler.",
  in_flight: "The key is in flight: one attempt owns it, a duplicate gets 409.",
  completed: "The key is completed: a retry gets the recorded response.",
  held: "The key is held: its outcome is unknown, so the handler does not run again.",
};

let shownChanges = 0;

/** Shows the key as the last event has left it. */
export function renderKey() {
  const { record, key, changes } = run;
  setText(byId("key-text"), key ?? "none yet");
  for (const node of document.querySelectorAll("[data-state]")) {
    node.classList.toggle("current", node.dataset.state === record.state);
  }
  if (changes.length < shownChanges) shownChanges = 0;
  if (changes.length === 0) markEdge(null);
  for (; shownChanges < changes.length; shownChanges += 1) markEdge(changes[shownChanges]);
  setText(byId("state-text"), sentences[record.state]);
  byId("operator").hidden = record.state !== "held" || !record.console;
  if (record.console) byId("console").href = record.console;
  renderTimeline();
  renderBars();
}

/** Highlights the transition that was taken last. */
function markEdge(edge) {
  for (const path of document.querySelectorAll("#machine [data-edge]")) {
    path.classList.toggle("taken", path.dataset.edge === edge);
  }
}

function renderTimeline() {
  const list = byId("timeline");
  const entries = run.timeline.slice(-60);
  while (list.children.length > entries.length) list.lastChild.remove();
  for (const [place, { at, text }] of entries.entries()) {
    const item = list.children[place] ?? list.appendChild(make("li", {},
      make("span", { class: "time" }), make("span")));
    setText(item.firstChild, seconds(at));
    setText(item.lastChild, text);
  }
}

/** Sets both bars to the time that is left now. */
function renderBars() {
  const { record } = run;
  const passed = record.received ? performance.now() - record.received : 0;
  const left = (name) => Math.max(0, (record[`${name}_left`] ?? 0) - passed);
  const lease = record.state === "in_flight" ? left("lease") : 0;
  const none = record.state === "held" ? "expired" : "none";
  show("lease", lease, record.lease, lease
    ? `${(lease / 1000).toFixed(1)} s of ${record.lease / 1000} s` : none);
  const ttl = record.state === "absent" ? 0 : left("ttl");
  show("ttl", ttl, record.ttl, ttl ? `${clock(ttl)} of ${clock(record.ttl)} min` : "none");
}

function show(name, left, whole, text) {
  const width = `${whole ? (100 * left) / whole : 0}%`;
  byId(`${name}-bar`).firstElementChild.style.width = width;
  if (name === "lease") byId("lease-strip").firstElementChild.style.width = width;
  setText(byId(`${name}-text`), text);
}

function clock(millis) {
  const all = Math.ceil(millis / 1000);
  return `${Math.floor(all / 60)}:${String(all % 60).padStart(2, "0")}`;
}

/** Lets the bars run down. */
export function animateBars() {
  setInterval(renderBars, 100);
}
