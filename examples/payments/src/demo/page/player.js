// Plays a story: step by step, at a speed that eyes can follow.

import { byId, setText } from "./dom.js";
import { call } from "./server.js";
import { findRequest, numbers, run, until } from "./model.js";
import { enableCheckouts, setAmount, showPress, sides, verdict } from "./columns.js";

/** `?pace=fast` shortens the pauses between steps, and nothing else. */
const hurried = new URLSearchParams(location.search).get("pace") === "fast";

let playing = null;

/** What a story can do. Every action ends when its effect is visible, or when it is aborted. */
class Stage {
  constructor(signal) {
    this.signal = signal;
    this.until = (holds) => until(holds, signal);
  }

  async call(action, fields = {}) {
    this.signal.throwIfAborted();
    return call(action, { run: this.run, ...fields });
  }

  async start() {
    const { run: number } = await call("start");
    this.run = number;
    await this.until((state) => state.run === number);
  }

  bank(mode) {
    return this.call("bank", { mode });
  }

  /** Sends a request, and returns its number. */
  async send(side, label, { amount = 4900, lost = false } = {}) {
    showPress(side);
    const { request } =
      await this.call("pay", { side, amount, label, loses_response: lost });
    return request;
  }

  /** Sends a request on each side, and returns their numbers. */
  sendBoth(label, options) {
    return Promise.all(sides.map((side) => this.send(side, label, options)));
  }

  /** Waits until requests have ended. */
  async ended(requests) {
    await this.until(() => requests.every((number) => findRequest(number)?.seen));
    return requests.map(findRequest);
  }

  async pay(label, options) {
    return this.ended(await this.sendBoth(label, options));
  }

  /** Waits until both banks have booked this many charges. */
  charged(bare, guarded = bare) {
    return this.until((state) =>
      state.bare.charges.length >= bare && state.guarded.charges.length >= guarded);
  }

  key(state) {
    return this.until(({ record }) => record.state === state);
  }

  /** Waits as long as a 409 asks for, since it arrived. */
  async retryAfter({ response }, since) {
    await this.pause(response.retryAfter * 1000 - (performance.now() - since));
  }

  /** Waits for a time that the speed stretches, or for the visitor. */
  async pause(millis) {
    const factor = hurried ? 0.02 : Number(byId("pace").value) || 1;
    if (millis <= 0) return;
    await sleep(millis * factor, this.signal);
  }
}

function sleep(millis, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, millis);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** Waits until the button is pressed. */
function pressed(button, signal) {
  return new Promise((resolve, reject) => {
    const done = new AbortController();
    const end = (finish, value) => {
      done.abort();
      button.hidden = true;
      finish(value);
    };
    button.hidden = false;
    button.addEventListener("click", () => end(resolve), { signal: done.signal });
    signal.addEventListener("abort", () => end(reject, signal.reason), { signal: done.signal });
  });
}

/** The time that a sentence takes to read. */
const readingTime = (text) => 1000 + 45 * text.length;

async function playSteps(story, stage) {
  for (const [place, [text, act]] of story.steps.entries()) {
    setText(byId("step"), `Step ${place + 1} of ${story.steps.length}`);
    setText(byId("told"), text);
    const began = performance.now();
    await act?.(stage);
    if (byId("pace").value === "step") await pressed(byId("next"), stage.signal);
    else await stage.pause(readingTime(text) - (performance.now() - began) / 2);
  }
}

/** Whether both sides have the numbers that the story leads to. */
function isAsTold({ ends }) {
  return sides.every((side) => {
    const { requests, runs, charges } = numbers(side);
    return `${requests} ${runs} ${charges}` === ends[side];
  });
}

function showResult(story) {
  const asTold = isAsTold(story);
  const result = byId("result");
  result.hidden = false;
  result.replaceChildren(...verdict(asTold
    ? `; ${story.because}`
    : ". This run went differently than expected: play it again."));
}

/** Hides what is left of the last story. */
export function clearStory() {
  for (const id of ["result", "replay"]) byId(id).hidden = true;
  setText(byId("step"), "");
}

/** Stops the story that is played, if there is one. */
export function stop() {
  playing?.abort(new DOMException("stopped", "AbortError"));
}

function showPlaying(story, isPlaying) {
  const { dataset } = document.documentElement;
  byId("stop").hidden = !isPlaying;
  byId("replay").hidden = isPlaying;
  byId("switches").disabled = isPlaying;
  enableCheckouts(!isPlaying);
  for (const button of document.querySelectorAll("[data-story]")) {
    const current = button.dataset.story === story.id;
    if (current) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  if (isPlaying) dataset.playing = story.id;
  else delete dataset.playing;
}

/** Plays a story from its beginning. */
export async function play(story) {
  stop();
  const mine = new AbortController();
  playing = mine;
  const { dataset } = document.documentElement;
  delete dataset.played;
  clearStory();
  setText(byId("story-title"), story.title);
  setText(byId("told"), "The server starts.");
  setAmount(4900);
  showPlaying(story, true);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || hurried;
  byId("narration").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  const stage = new Stage(mine.signal);
  try {
    await stage.start();
    await playSteps(story, stage);
    setText(byId("step"), "");
    setText(byId("told"), story.end);
    showResult(story);
    dataset.played = story.id;
  } catch (error) {
    if (playing !== mine) return;
    const text = error.name === "AbortError" ? "Stopped." : `It did not work: ${error.message}.`;
    setText(byId("told"), text);
  } finally {
    if (playing === mine) {
      playing = null;
      showPlaying(story, false);
    }
  }
}

export const isPlaying = () => playing !== null;

/** The run that is shown, for buttons. */
export const currentRun = () => run.run;
