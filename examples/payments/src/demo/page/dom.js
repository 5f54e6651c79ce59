// Small helpers around the document.

export const byId = (id) => document.getElementById(id);

/** Makes an element with properties and children. Text is always text, never HTML. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.includes("-") || name === "scope" || name === "role") {
      element.setAttribute(name, value);
    } else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Sets the text of an element, if it is another one. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const money = (cents) => `€${(cents / 100).toFixed(2)}`;

export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export const seconds = (millis) => `${(millis / 1000).toFixed(2)} s`;

/** How often a card was charged, in words. */
export function times(charges) {
  return ["not charged", "charged once", "charged twice"][charges] ?? `charged ${charges} times`;
}
