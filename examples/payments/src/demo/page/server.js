// The connection to the front process: calls, and the stream of events.

/** Names this visit. A second tab with the same address in its bar shares it. */
function visitId() {
  const shared = new URLSearchParams(location.search).get("visit");
  if (shared) return shared;
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const visit = visitId();

/** Calls the front process. Fails with its message if it refuses. */
export async function call(action, fields = {}) {
  const response = await fetch(`/demo/control/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ visit, ...fields }),
  });
  const result = await response.json();
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

/**
 * Follows the events. The browser reconnects by itself, and the server continues after the last
 * event that has arrived. `lost` is called with a message, and with null once the stream is back.
 */
export function follow(receive, lost) {
  const events = new EventSource(`/demo/control/events?visit=${encodeURIComponent(visit)}`);
  events.onopen = () => lost(null);
  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.type === "refused") return lost(`This page is not connected: ${event.error}.`);
    return receive(event, Number(message.lastEventId.split("-").pop()));
  };
  events.onerror = () =>
    lost("The connection to the server is lost. The page reconnects by itself; if it does not, " +
      "start the server again.");
  addEventListener("pagehide", () => events.close());
}
