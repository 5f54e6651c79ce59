// Builds the page and connects its parts.

import { byId, make, setText } from "./dom.js";
import { apply, onEvent } from "./model.js";
import { follow } from "./server.js";
import { buildColumns, renderColumns } from "./columns.js";
import { animateBars, renderKey } from "./key.js";
import { connectButtons, press, renderButtons } from "./buttons.js";
import { play, stop } from "./player.js";
import { stories } from "./stories.js";

function addStory(story) {
  const button = make("button", { type: "button", "data-story": story.id },
    make("span", { class: "title" },
      make("span", { textContent: story.title }),
      make("span", { class: "sign", textContent: "▶\u00a0Play" })),
    make("span", { class: "teaser", textContent: story.teaser }));
  button.addEventListener("click", () => {
    last = story;
    play(story);
  });
  byId("stories").append(make("li", {}, button));
}

function addTry() {
  const button = make("button", { type: "button", class: "own" },
    make("span", { class: "title", textContent: "Try it yourself" }),
    make("span", { class: "teaser", textContent: "Press the buttons as you like." }));
  button.addEventListener("click", () => {
    stop();
    byId("try").open = true;
    byId("try").scrollIntoView({ block: "start" });
    byId("try").querySelector("summary").focus();
  });
  byId("stories").append(make("li", {}, button));
}

let last = stories[0];

buildColumns(press);
stories.forEach(addStory);
addTry();
connectButtons();
byId("replay").addEventListener("click", () => play(last));

function render() {
  renderColumns();
  renderKey();
  renderButtons();
}

onEvent(render);
render();
animateBars();
follow(apply, (problem) => {
  byId("connection").hidden = problem === null;
  setText(byId("connection"), problem ?? "");
  document.documentElement.dataset.connected = problem === null;
});
