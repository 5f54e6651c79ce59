// Try it yourself: the buttons that do what the stories do.

import { byId, setText } from "./dom.js";
import { call, visit } from "./server.js";
import { findRequest, run, until } from "./model.js";
import { amountInCents, showPress, sides } from "./columns.js";
import { clearStory, isPlaying, stop } from "./player.js";

/** How long an impatient client waits, in milliseconds. */
const PATIENCE = 2000;

const checked = (id) => byId(id).checked;

/** Says what was done, or why it did not work. */
async function attempt(text, act) {
  clearStory();
  setText(byId("story-title"), "Try it yourself");
  setText(byId("told"), text);
  try {
    await act();
  } catch (error) {
    setText(byId("told"), `It did not work: ${error.message}.`);
  }
}

/** Starts a run, if there is none. */
async function ensureRun() {
  if (!run.run) await newRun();
}

async function newRun() {
  const mode = byId("bank").value;
  const { run: number } = await call("start");
  await until((state) => state.run === number);
  await call("bank", { run: number, mode });
}

async function send(side, label) {
  showPress(side);
  const { request } = await call("pay", {
    run: run.run, side, label, amount: amountInCents(side), loses_response: checked("lose"),
  });
  await until(() => findRequest(request));
  return request;
}

/** Gives up on a request that takes too long, and sends it again. */
function giveUpLater(side, request) {
  setTimeout(async () => {
    if (findRequest(request)?.seen !== null) return;
    await call("give_up", { run: run.run, request });
    await send(side, "retry");
  }, PATIENCE);
}

async function pay(side) {
  const labels = checked("tabs") ? ["tab A", "tab B"]
    : checked("double") ? ["first click", "second click"] : ["Pay"];
  const requests = await Promise.all(labels.map((label) => send(side, label)));
  if (checked("impatient")) requests.forEach((request) => giveUpLater(side, request));
}

/** Pays on the side whose button was pressed, or on both. */
export function press(side) {
  const pressed = checked("both") ? sides : [side];
  attempt("Paid. Open a request to see all of its bytes.", async () => {
    await ensureRun();
    await Promise.all(pressed.map(pay));
  });
}

/** Connects the buttons. */
export function connectButtons() {
  const on = (id, text, act) => byId(id).addEventListener("click", () => attempt(text, act));
  on("kill", "The server was killed. Requests are refused until you restart it.", async () => {
    await ensureRun();
    await call("kill");
  });
  on("restart", "The server runs again.", () => call("restart"));
  on("new-key", "A new checkout: it has a new key, and the books are empty.", newRun);
  byId("bank").addEventListener("change", () => {
    const { value, selectedOptions } = byId("bank");
    attempt(`The bank ${selectedOptions[0].textContent}.`, async () => {
      await ensureRun();
      await call("bank", { run: run.run, mode: value });
    });
  });
  byId("stop").addEventListener("click", stop);
  const second = new URL(location);
  second.searchParams.set("visit", visit);
  byId("second-tab").href = second;
  renderButtons();
}

/** Enables the buttons that have an effect now. */
export function renderButtons() {
  const { worker } = run;
  byId("kill").disabled = !worker.up;
  byId("restart").disabled = worker.up;
  const { bank } = run;
  if (!isPlaying() && ["fast", "slow", "down"].includes(bank)) byId("bank").value = bank;
}
