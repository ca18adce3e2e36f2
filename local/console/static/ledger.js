// Ledger: a conversation's items as they lie in the table, what its turns cost, and the envelope they make.

import { read } from "./api.js";
import { empty, h, json, show, showList, units } from "./dom.js";
import { drawConversations } from "./picker.js";
import { plot } from "./plot.js";

const parts = {};
let refresh = () => {};
let raw = false;

function build(again) {
  refresh = again;
  parts.list = h("div", { class: "list" });
  parts.head = h("div", { class: "head" });
  parts.cost = h("div", { class: "cost" });
  parts.items = h("div", { class: "items" });
  parts.envelope = h("div", { class: "envelope" });
  const choose = (value) => h("label", null, h("input", { type: "radio", name: "form", value, checked: (value === "raw") === raw, onchange: () => ((raw = value === "raw"), refresh()) }), ` ${value}`);
  parts.form = h("fieldset", { class: "form" }, h("legend", null, "Items"), choose("decoded"), choose("raw"));
  return h(
    "div",
    { class: "view ledger" },
    h("aside", { "aria-label": "Conversations" }, parts.list),
    h("section", { "aria-label": "Ledger" }, parts.head, parts.cost, parts.form, parts.items, parts.envelope),
  );
}

async function load(query) {
  const { conversations } = await read("conversations");
  drawConversations(parts.list, conversations, "ledger", query.c);
  if (!query.c) {
    show(parts.head, "none", () => (conversations.length ? empty("Pick a conversation to see how it lies in the table.") : empty("The ledger is empty. ", h("a", { href: "#chat" }, "Send a message"), " first.")));
    for (const part of [parts.cost, parts.items, parts.envelope]) show(part, null, () => []);
    parts.form.hidden = true;
    return;
  }
  const found = await read("items", { pk: query.c });
  parts.form.hidden = !found.items.length;
  const bytes = found.items.reduce((sum, item) => sum + item.bytes, 0);
  show(parts.head, [found.conversationId, found.items.length, bytes], () => [
    h("h2", null, found.conversationId),
    h("p", { class: "dim breakable" }, h("code", null, `pk = ${found.pk}`), ` · ${found.items.length} items · ${bytes} bytes`),
    !found.items.length && empty("Nothing is stored of this conversation (any more)."),
  ]);
  show(parts.cost, found.costs, () => costs(found.costs));
  showList(parts.items, found.items.map((item) => ({ ...item, shown: raw ? "raw" : "decoded" })), (item) => item.decoded.sk, (item) => card(item));
  await drawEnvelope(query.c, found.items.length > 0);
}

function costs(rows) {
  if (!rows.length) return empty("What turns cost is known from when this stack was started; send one to see it.");
  const writes = rows.map((row) => row.write);
  return [
    h("h3", null, "What each turn cost"),
    plot(rows),
    h("p", { class: "dim" }, `Writes: ${units(Math.min(...writes))} to ${units(Math.max(...writes))} units a turn, over ${rows.length} turns. A turn writes what it adds, however long the conversation is: turns alike cost alike. One that acts once, waits for a person or is taken over writes more. Reckoned by DynamoDB’s rule from the sizes on the wire.`),
    h(
      "details",
      { "data-keep": "cost-table" },
      h("summary", { "data-focus": "cost-table" }, "As a table"),
      h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, ["turn", "store calls", "write units", "read units"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows.map((row) => h("tr", null, h("td", null, row.turn), h("td", null, row.store), h("td", null, units(row.write)), h("td", null, units(row.read))))))),
    ),
  ];
}

function card(item) {
  const rest = item.shown === "raw" ? Object.entries(item.raw).map(([name, value]) => [name, JSON.stringify(value)]) : Object.entries(item.decoded);
  return h(
    "details",
    { class: "item", "data-keep": item.decoded.sk },
    h("summary", { "data-focus": item.decoded.sk }, h("code", null, item.decoded.sk), h("span", { class: "dim" }, ` ${item.decoded.status ?? item.decoded.kind ?? ""} · ${item.bytes} bytes`)),
    h("dl", null, rest.filter(([name]) => name !== "pk" && name !== "sk").map(([name, value]) => [h("dt", null, name), h("dd", null, nice(name, value, item.shown))])),
  );
}

function nice(name, value, shown) {
  if (shown === "decoded" && /^[[{]/.test(value)) {
    try {
      return json(JSON.parse(value));
    } catch {
      return value;
    }
  }
  if (/(At|Until)$/.test(name) && /^\d{13}$/.test(value)) return `${value} (${new Date(Number(value)).toISOString()})`;
  return value;
}

async function drawEnvelope(pk, exists) {
  if (!exists) return show(parts.envelope, null, () => []);
  let found;
  try {
    found = await read("envelope", { pk });
  } catch (error) {
    return show(parts.envelope, error.message, () => [h("h3", null, "The envelope"), h("p", { class: "reply bad" }, error.message)]);
  }
  return show(parts.envelope, found, () => [
    h("h3", null, "The envelope, as a reader assembles it"),
    h("p", null, h("a", { class: "button", id: "export", href: `api/export?${new URLSearchParams({ pk })}`, download: "" }, "Export as JSON")),
    h("details", { "data-keep": "envelope" }, h("summary", { "data-focus": "envelope" }, found.envelope?.format ?? "nothing"), json(found.envelope)),
  ]);
}

export const ledger = { build, refresh: load };
