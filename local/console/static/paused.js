// Paused sessions: what waits for a person, and the state machine it waits in.

import { read } from "./api.js";
import { askCard } from "./ask.js";
import { at, badge, empty, h, json, on, show, showList, ticking } from "./dom.js";
import { drawMachine } from "./machine.js";
import { link } from "./picker.js";

const parts = {};
let refresh = () => {};
let drawing = null;

function build(again) {
  refresh = again;
  parts.waiting = h("div", { class: "list" });
  parts.ended = h("div", { class: "list" });
  parts.detail = h("section", { class: "detail", "aria-label": "Execution" });
  return h(
    "div",
    { class: "view paused" },
    h("section", { "aria-label": "Waiting" }, h("h2", null, "Waiting for a person"), parts.waiting, h("h2", null, "Ended lately"), parts.ended),
    parts.detail,
  );
}

async function load(query) {
  const { waiting, ended } = await read("executions");
  const all = [...waiting, ...ended];
  const ofConversation = all.find((row) => query.c && row.pk === query.c);
  const selected = query.x ?? (ofConversation ?? all[0])?.arn ?? null;
  const mark = (row) => ({ ...row, current: row.arn === selected });
  const turns = await asks(waiting);
  if (waiting.length) showList(parts.waiting, waiting.map((row) => ({ ...mark(row), ...turns.get(row.arn) })), (row) => row.arn, card);
  else
    showList(parts.waiting, [{}], () => "none", () =>
      empty("Nothing waits for a person. Send ", h("code", null, "Refund order B-200, please"), " in the ", h("a", { href: "#chat" }, "chat"), ": the agent asks a supervisor before it pays that much."),
    );
  if (ended.length) showList(parts.ended, ended.map(mark), (row) => row.arn, line);
  else showList(parts.ended, [{}], () => "none", () => empty("No execution has ended yet."));
  drawing ??= await read("drawing");
  drawDetail(selected ? await read("execution", { arn: selected }) : null);
}

/** The open ask of each waiting execution, as the ledger has it. */
async function asks(waiting) {
  const found = new Map();
  const read_ = new Map();
  for (const row of waiting) {
    if (!row.pk) continue;
    if (!read_.has(row.pk)) read_.set(row.pk, await read("conversation", { pk: row.pk }));
    const conversation = read_.get(row.pk);
    const turn = conversation.turns.find((each) => each.turn === row.turn);
    found.set(row.arn, { owner: conversation.owner, ask: turn?.status === "awaiting" ? turn.ask : null, turnStatus: turn?.status });
  }
  return found;
}

function heading(row) {
  return h(
    "a",
    { class: "pick", href: `#paused?${new URLSearchParams({ ...(row.pk && { c: row.pk }), x: row.arn })}`, "aria-current": row.current ? "true" : null, "data-focus": row.arn },
    h("span", { class: "id" }, row.conversationId ?? row.name),
    h("span", { class: "dim" }, `turn ${row.turn} · ${row.audience ?? ""} · `, ticking(row.startedAt)),
    badge(row.status),
  );
}

const line = (row) => heading(row);

function card(row) {
  return h(
    "article",
    { class: "waiting", "data-conversation": row.conversationId },
    heading(row),
    row.ask
      ? askCard(row.ask, { conversationId: row.conversationId, owner: row.owner, tenant: row.tenant, turn: row.turn, after: refresh })
      : h("p", { class: "dim" }, row.question ?? "", ` · the turn is ${row.turnStatus ?? "gone"}`),
    row.pk && h("p", null, h("a", { href: link("chat", row.pk) }, "Open the conversation")),
  );
}

function drawDetail(found) {
  show(parts.detail, [found, drawing.start], () => {
    const machine = h("figure", { class: "machine" }, drawMachine(drawing, found), legend());
    if (!found) return [h("h2", null, "The state machine of a paused turn"), machine];
    return [
      h("h2", null, "Execution"),
      h("p", { class: "dim breakable" }, found.name, " ", badge(found.status), " started ", on(found.startedAt), found.stoppedAt && [", ended ", at(found.stoppedAt)]),
      found.error && h("p", { class: "reply bad" }, h("code", null, found.error), " ", found.cause ?? ""),
      h("div", { class: "columns" }, machine, h("div", { class: "history" }, h("h3", null, "Event history"), events(found.events))),
      h("h3", null, "Each state’s input and output"),
      found.visits.map((visit, index) =>
        h(
          "details",
          { "data-keep": `visit-${index}-${visit.exitedAt}`, open: index === found.visits.length - 1 },
          h("summary", { "data-focus": `visit-${index}` }, visit.state, " ", at(visit.enteredAt), visit.exitedAt === null && found.active === visit.state ? " · here now" : ""),
          h("h4", null, "Input"),
          json(visit.input),
          h("h4", null, "Output"),
          visit.exitedAt === null ? h("p", { class: "dim" }, "none yet") : json(visit.output),
        ),
      ),
    ];
  });
}

const legend = () =>
  h("figcaption", { class: "legend" }, h("span", { class: "key active" }, "active"), h("span", { class: "key taken" }, "path taken"), h("span", { class: "key" }, "not visited"));

function events(rows) {
  return h(
    "ol",
    { class: "events" },
    rows.map((event) => h("li", { value: event.id }, at(event.at), " ", h("strong", null, event.type), event.state && ` ${event.state}`, event.said && h("span", { class: "dim" }, ` ${event.said}`))),
  );
}

export const paused = { build, refresh: load };
