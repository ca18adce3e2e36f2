// Chat: a conversation's turns, the message that continues it, and two ways to make trouble.

import { act, read } from "./api.js";
import { askCard, replyLine } from "./ask.js";
import { at, badge, empty, h, json, show, showList, span, ticking, units } from "./dom.js";
import { me, nameOf } from "./people.js";
import { drawConversations, link } from "./picker.js";

const parts = {};
let refresh = () => {};
let current = null; // the conversation that is shown, or null for a new one
let atTurn = ""; // the newest turn that was drawn
let wanted = null; // the message that a link led to

function build(again) {
  refresh = again;
  atTurn = "";
  parts.list = h("div", { class: "list" });
  parts.head = h("div", { class: "head" });
  parts.turns = h("div", { class: "turns", id: "turns" });
  parts.told = h("div", { class: "told", "aria-live": "polite", id: "told" });
  parts.message = h("textarea", {
    id: "message",
    name: "message",
    rows: 2,
    required: true,
    placeholder: "Where is order A-100?   ·   Refund order B-200, please",
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) parts.composer.requestSubmit();
    },
  });
  parts.newId = h("input", { id: "new-id", placeholder: "minted for you", autocomplete: "off", maxlength: 200 });
  parts.newRow = h("label", { class: "new-id" }, "Its id ", parts.newId);
  parts.composer = h(
    "form",
    { class: "composer", onsubmit: submit },
    h("label", { for: "message" }, "Message"),
    parts.message,
    h(
      "div",
      { class: "buttons" },
      h("button", { class: "main", value: "send", id: "send" }, "Send"),
      h("button", { value: "contest", id: "contest", title: "The same turn, ten requests side by side" }, "Send ten times at once"),
      h("button", { value: "kill", id: "kill", title: "SIGKILL to the process, once its claim stands" }, "Kill it mid-turn"),
      parts.newRow,
    ),
  );
  return h(
    "div",
    { class: "view chat" },
    h("aside", { "aria-label": "Conversations" }, h("a", { href: "#chat", class: "button", id: "new" }, "New conversation"), parts.list),
    h("section", { class: "talk", "aria-label": "Conversation" }, parts.head, parts.turns, parts.told, parts.composer),
  );
}

function enter(query) {
  if (current !== (query.c ?? null)) atTurn = "";
  if (current !== (query.c ?? null)) parts.told.replaceChildren();
  current = query.c ?? null;
  wanted = query.m ?? null;
  parts.newRow.hidden = current !== null;
}

let conversation = null;

async function load(query) {
  const { conversations } = await read("conversations");
  drawConversations(parts.list, conversations, "chat", query.c);
  conversation = query.c ? await read("conversation", { pk: query.c }) : null;
  if ((query.c ?? null) !== current) return;
  // Who reads at the end stays there while it grows.
  const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
  draw(conversation);
  if (atEnd && !document.activeElement?.closest?.(".answer-form")) toTheEnd();
}

function draw(found) {
  show(parts.head, found && [found.conversationId, found.owner, found.tenant, found.exists, found.turns.length], () => {
    if (!found) return h("h2", null, "A new conversation");
    return [
      h("h2", null, found.conversationId),
      h(
        "p",
        { class: "dim" },
        found.owner ? ["belongs to ", h("strong", null, found.owner)] : "belongs to nobody",
        found.tenant && ` at ${found.tenant}`,
        found.erasing && " · is being erased",
        " · ",
        h("a", { href: link("ledger", found.pk) }, "ledger"),
      ),
    ];
  });
  if (!found || !found.turns.length) {
    const steps = [
      ["Choose who you are, at the top.", "“Where is order A-100?” is answered at once."],
      ["“Refund order B-200, please” asks a supervisor first:", "answer it here as sam, or under Paused."],
    ];
    showList(parts.turns, [{ turn: "none", steps }], () => "none", () =>
      h("div", { class: "empty" }, found ? "No turns yet. Say something below." : "Say something below to start a conversation.", h("ol", null, steps.map(([one, two]) => h("li", null, one, " ", two)))),
    );
    return;
  }
  showList(parts.turns, found.turns, (turn) => turn.turn, (turn) => turnCard(turn, found));
  const newest = `${found.pk} ${found.turns.at(-1).turn}`;
  if (newest !== atTurn && !wanted) toTheEnd();
  atTurn = newest;
  if (wanted) {
    const message = document.getElementById(wanted);
    if (message) {
      wanted = null;
      message.scrollIntoView({ block: "center" });
      message.focus({ preventScroll: true });
    }
  }
}

const toTheEnd = () => window.scrollTo({ top: document.documentElement.scrollHeight });

function turnCard(turn, found) {
  const cost = turn.cost;
  return h(
    "article",
    { class: "turn", "data-turn": turn.turn, "data-status": turn.status, "aria-label": `Turn ${turn.turn}` },
    h(
      "header",
      null,
      h("strong", null, `Turn ${turn.turn}`),
      badge(turn.stalled ? "stalled" : turn.status),
      turn.attempt && h("span", { class: "fact attempt" }, `attempt ${turn.attempt}`),
      turn.durationMs !== null && turn.durationMs !== undefined && h("span", { class: "fact", title: "from its start to its last commit, waiting included" }, span(turn.durationMs)),
      cost && h("span", { class: "fact" }, `${cost.store} store call${cost.store === 1 ? "" : "s"}`),
      turn.leaseUntil && h("span", { class: "fact" }, "lease ends ", ticking(turn.leaseUntil, "over")),
      turn.evidence !== null && turn.status !== "queued" && h("a", { href: link("why", found.pk, { t: turn.turn }), class: "fact" }, "why?"),
    ),
    turn.messages.map(bubble),
    turn.decision && h("p", { class: "decision" }, "Decided by ", h("strong", null, turn.decision.answeredBy ?? "anonymous"), " ", at(turn.decision.answeredAt), json(turn.decision.value)),
    turn.status === "awaiting" && turn.ask && askCard(turn.ask, { ...found, turn: turn.turn, after: refresh }),
    turn.error && h("p", { class: "reply bad" }, h("code", null, turn.error.code ?? "error"), " ", turn.error.message ?? JSON.stringify(turn.error)),
    cost && h("details", { "data-keep": `calls-${turn.turn}` }, h("summary", { "data-focus": `calls-${turn.turn}` }, `Store calls: ${units(cost.write)} write and ${units(cost.read)} read units`), calls(cost.calls)),
  );
}

function calls(rows) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, ["who", "call", "answer", "ms", "write", "read"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        null,
        rows.map((call) =>
          h("tr", null, h("td", null, call.function || "state machine"), h("td", null, call.operation), h("td", null, call.error || call.status || "dropped", call.fault && ` (${call.fault})`), h("td", null, call.duration_ms), h("td", null, units(call.write)), h("td", null, units(call.read))),
        ),
      ),
    ),
  );
}

export function bubble(message) {
  const tools = (message.toolCalls ?? []).map((each) => h("code", { class: "call" }, `${each.name}(${JSON.stringify(each.args ?? {})})`));
  const text = typeof message.content === "string" ? message.content : JSON.stringify(message.content);
  const who = message.role === "tool" ? `tool ${message.toolName ?? ""}` : message.role;
  return h(
    "div",
    { class: `bubble from-${/^[a-z]+$/.test(message.role) ? message.role : "other"}`, id: message.id, tabindex: -1 },
    h("span", { class: "who" }, who),
    text && h("p", { class: "text" }, text),
    tools,
  );
}

async function submit(event) {
  event.preventDefault();
  const how = event.submitter?.value ?? "send";
  const message = parts.message.value;
  const said = { message, as: me(), conversationId: conversation?.conversationId ?? (parts.newId.value || null) };
  const buttons = parts.composer.querySelectorAll("button");
  buttons.forEach((button) => (button.disabled = true));
  parts.told.replaceChildren(h("p", { class: "dim" }, how === "contest" ? "Ten requests are under way…" : how === "kill" ? "Waiting for the claim…" : "Sending…"));
  try {
    const done = await act(how, said);
    const keep = { send: sent, contest: contested, kill: killed }[how](done, said);
    if (done.pk && done.pk !== current && (done.status ?? 200) < 300) {
      current = done.pk; // so that what was told stays
      location.hash = link("chat", done.pk);
    }
    if (keep !== false) parts.message.value = "";
  } catch (error) {
    parts.told.replaceChildren(h("p", { class: "reply bad" }, error.message));
  } finally {
    buttons.forEach((button) => (button.disabled = false));
    parts.message.focus({ preventScroll: true });
    await refresh();
    toTheEnd();
  }
}

function sent(reply, said) {
  parts.told.replaceChildren(h("p", { class: "dim" }, `As ${nameOf(said.as)}: ${reply.request}`), replyLine(reply));
  return reply.status < 300;
}

function contested({ replies }) {
  const won = replies.filter((reply) => reply.status < 300);
  parts.told.replaceChildren(
    h(
      "section",
      { class: "contest", "aria-label": "Ten at once" },
      h("h3", null, won.length === 1 ? "One of ten won" : `${won.length} of ten were taken`),
      h(
        "ol",
        { class: "lanes" },
        replies.map((reply) => h("li", { class: reply.status < 300 ? "won" : "lost" }, h("strong", null, reply.status), " ", reply.status < 300 ? `won turn ${reply.body.turn}` : (reply.body.error?.code ?? reply.body.message), h("span", { class: "dim" }, ` ${reply.durationMs} ms`))),
      ),
      refusal(replies.find((reply) => reply.status >= 300)),
      won.length > 0 && h("p", { class: "dim" }, "The winner was held at its commit until the others had their answers; the claim in the ledger had decided long before."),
    ),
  );
  return won.length > 0;
}

const refusal = (reply) => reply && [h("p", null, "What the others were told:"), replyLine(reply)];

function killed(done, said) {
  const { victim, reply, pk, key } = done;
  if (!victim) {
    parts.told.replaceChildren(h("p", null, "Nothing was killed: the turn never came as far as its claim."), reply && replyLine(reply));
    return false;
  }
  const told = h("div", { "aria-live": "polite" });
  const again = async (withKey) => {
    told.replaceChildren(h("p", { class: "dim" }, "Sending…"));
    try {
      const reply = await act("send", { ...said, conversationId: done.conversationId, key: withKey ? key : null });
      const what = withKey ? "The same request again, with its Idempotency-Key:" : "A new message:";
      told.replaceChildren(h("p", null, what), replyLine(reply));
    } catch (error) {
      told.replaceChildren(h("p", { class: "reply bad" }, error.message));
    }
    refresh();
  };
  const over = async () => {
    const turn = conversation?.turns.find((each) => each.turn === victim.turn);
    try {
      await act("lease", { pk, turn: victim.turn, runId: turn?.runId ?? "" });
      told.replaceChildren(h("p", null, "The lease is over: whoever comes next may take the turn over, or close it."));
    } catch (error) {
      told.replaceChildren(h("p", { class: "reply bad" }, error.message));
    }
    refresh();
  };
  parts.told.replaceChildren(
    h(
      "section",
      { class: "killed", "aria-label": "A killed turn" },
      h("h3", null, victim.killed ? `Process ${victim.pid} was killed in the middle of turn ${victim.turn}` : "The process had ended before it could be killed"),
      h(
        "ol",
        null,
        h("li", null, "Its claim had landed: turn ", victim.turn, " and the message were in the ledger."),
        h("li", null, "SIGKILL at ", at(victim.at), "; nothing of it could clean up."),
        h("li", null, "The caller heard this:", reply ? replyLine(reply) : " nothing."),
        h("li", null, "Nothing is lost. While the lease lasts nobody else may run the turn, because its holder might be alive. Then the same request takes it over, and a new message closes it as failed and goes on."),
      ),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => again(true), id: "same-again" }, "Same request again"),
        h("button", { type: "button", onclick: () => again(false), id: "new-message" }, "New message"),
        h("button", { type: "button", onclick: over, id: "lease-over" }, "Let the lease run out now"),
      ),
      told,
    ),
  );
  return true;
}

export const chat = { build, enter, refresh: load };
