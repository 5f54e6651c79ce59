// Shows the OpenAPI document of this server: each operation with its parameters, its responses and
// its idempotency policy.

const METHODS = ["get", "post", "put", "patch", "delete"];

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

/** What a value is, or refers to. */
function resolved(api, value) {
  const reference = value?.$ref;
  if (!reference?.startsWith("#/")) return value;
  const names = reference.slice(2).split("/");
  const plain = (name) => name.replaceAll("~1", "/").replaceAll("~0", "~");
  return resolved(api, names.reduce((found, name) => found?.[plain(name)], api));
}

function table(title, rows) {
  const caption = element("caption", title);
  const lines = rows.map(([name, text]) => {
    const head = element("th", name);
    head.scope = "row";
    return element("tr", "", head, element("td", text));
  });
  return element("table", "", caption, ...lines);
}

function parameters(api, item, operation) {
  const all = [...(item.parameters ?? []), ...(operation.parameters ?? [])];
  return all.map((entry) => {
    const found = resolved(api, entry);
    const required = found.required ? "required" : "optional";
    return [found.name, `${found.in}, ${required}. ${found.description ?? ""}`];
  });
}

function responses(api, operation) {
  return Object.entries(operation.responses).map(([status, entry]) => {
    const found = resolved(api, entry);
    const headers = Object.keys(found.headers ?? {});
    const listed = headers.length ? `\nHeaders: ${headers.join(", ")}` : "";
    return [status, found.description + listed];
  });
}

function section(api, path, item, method) {
  const operation = item[method];
  const heading = element("h2", `${method.toUpperCase()} ${path}`);
  const text = element("p", `${operation.summary}. ${operation.description ?? ""}`);
  const tables = [
    ["Parameters", parameters(api, item, operation)],
    ["Responses", responses(api, operation)],
    ["Idempotency", Object.entries(operation["x-idempotency"] ?? {})],
  ];
  const shown = tables.filter(([, rows]) => rows.length);
  return element("section", "", heading, text, ...shown.map(([title, rows]) => table(title, rows)));
}

const main = document.getElementById("operations");
try {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`the server responded with ${response.status}`);
  const api = await response.json();
  document.getElementById("title").textContent = api.info.title;
  document.getElementById("description").textContent = api.info.description;
  const sections = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => section(api, path, item, method)),
  );
  main.replaceChildren(...sections);
} catch (error) {
  main.replaceChildren(element("p", `The document could not be shown: ${error.message}.`));
}
