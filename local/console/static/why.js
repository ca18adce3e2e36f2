// Why: what led to an answer, step by step, each step a link to the message that it is about.

import { read } from "./api.js";
import { badge, empty, h, json, show, showList } from "./dom.js";
import { drawConversations, link } from "./picker.js";

const parts = {};

function build() {
  parts.list = h("div", { class: "list" });
  parts.turns = h("nav", { class: "turn-picks", "aria-label": "Turns" });
  parts.trail = h("div", { class: "trail" });
  return h("div", { class: "view why" }, h("aside", { "aria-label": "Conversations" }, parts.list), h("section", { "aria-label": "Why" }, parts.turns, parts.trail));
}

async function load(query) {
  const { conversations } = await read("conversations");
  drawConversations(parts.list, conversations, "why", query.c);
  if (!query.c) {
    showList(parts.turns, [], () => "", () => h("span"));
    show(parts.trail, "none", () => (conversations.length ? empty("Pick a conversation, then one of its turns: its answer is explained here.") : empty("Nothing was answered yet. ", h("a", { href: "#chat" }, "Send a message"), " first.")));
    return;
  }
  const { turns } = await read("conversation", { pk: query.c });
  const turn = Number(query.t ?? turns.at(-1)?.turn ?? 0);
  showList(parts.turns, turns.map((each) => ({ turn: each.turn, status: each.status, current: each.turn === turn })), (each) => each.turn, (each) =>
    h("a", { href: link("why", query.c, { t: each.turn }), "aria-current": each.current ? "true" : null, "data-focus": each.turn }, `Turn ${each.turn}`),
  );
  if (!turns.some((each) => each.turn === turn)) {
    show(parts.trail, "no turn", () => empty("This conversation has no such turn."));
    return;
  }
  try {
    const found = await read("evidence", { pk: query.c, turn });
    show(parts.trail, found, () => trail(found));
  } catch (error) {
    show(parts.trail, error.message, () => h("p", { class: "reply bad" }, error.message));
  }
}

function trail(found) {
  const evidence = found.evidence;
  const texts = new Map(found.messages.map((message) => [message.id, message]));
  const steps = [
    ...(evidence.modelCalls ?? []).map((call) => ({ ...call, kind: "model", order: 0 })),
    ...(evidence.toolCalls ?? []).map((call) => ({ ...call, kind: "tool", order: 1 })),
  ].sort((a, b) => a.iteration - b.iteration || a.order - b.order);
  const ref = (id, words) => id && h("a", { href: link("chat", found.pk, { m: id }), class: "ref" }, words ?? id);
  const said = (id) => {
    const message = texts.get(id);
    return message?.content ? h("blockquote", null, String(message.content)) : null;
  };
  const draw = (step) => (step.kind === "model" ? modelStep(step, ref, said) : toolStep(step, ref));
  // A person's decision stands before the call that waited for it.
  const waited = steps.findLastIndex((step) => typeof step.approved === "boolean");
  const decided = waited < 0 ? steps.length : waited;
  const complete = found.status === "complete";
  return [
    h("h2", null, `Why turn ${found.turn} ended as it did `, badge(found.status)),
    evidence.cut && h("p", { class: "dim" }, String(evidence.cut)),
    !steps.length && !evidence.question && empty("Nothing is recorded of what led here: the turn did not come so far."),
    h(
      "ol",
      { class: "steps" },
      evidence.question && h("li", { class: "step question" }, h("h3", null, "What was asked"), said(evidence.question), h("p", { class: "dim" }, ref(evidence.question))),
      evidence.window && h("li", { class: "step" }, h("h3", null, "What the agent had before it"), h("p", null, windowText(evidence.window)), evidence.system && h("p", { class: "dim breakable" }, `System prompt “${evidence.system.name}”, ${evidence.system.characters} characters, sha256 `, h("code", null, evidence.system.sha256))),
      steps.slice(0, decided).map(draw),
      found.ask && h("li", { class: "step" }, h("h3", null, "What a person was asked"), h("p", null, found.ask.question ?? "", h("span", { class: "dim" }, ` for ${found.ask.audience}`))),
      found.decision && h("li", { class: "step" }, h("h3", null, "What the person decided"), json(found.decision.value), h("p", { class: "dim" }, `answered by ${found.decision.answeredBy ?? "anonymous"}`)),
      steps.slice(decided).map(draw),
      evidence.answer && h("li", { class: "step answer" }, h("h3", null, complete ? "The answer" : "What was said last"), said(evidence.answer), h("p", { class: "dim" }, ref(evidence.answer))),
    ),
    h("details", { "data-keep": "evidence" }, h("summary", { "data-focus": "evidence" }, "The evidence as it is stored"), json(evidence)),
  ];
}

function windowText(window) {
  if (!window.turns) return "Nothing: this was the conversation’s beginning.";
  const which = window.firstTurn === window.lastTurn ? `turn ${window.firstTurn}` : `turns ${window.firstTurn} to ${window.lastTurn}`;
  const left = window.leftOut?.turns ? `; ${window.leftOut.turns} earlier turns were left out` : "; nothing was left out";
  return `${window.messages} messages of ${which}${left}.`;
}

function modelStep(step, ref, said) {
  const usage = step.usage ? `${step.usage.inputTokens} tokens in, ${step.usage.outputTokens} out` : "";
  return h("li", { class: "step model" }, h("h3", null, step.stopReason === "tool_use" ? "The model called a tool" : "The model answered"), h("p", { class: "dim" }, `iteration ${step.iteration} · ${usage} · ${step.durationMs} ms · `, ref(step.message)), step.stopReason === "tool_use" ? said(step.message) : null);
}

function toolStep(step, ref) {
  const verdict = step.approved === true ? " · approved by a person" : step.approved === false ? " · declined by a person" : "";
  return h(
    "li",
    { class: `step tool${step.isError ? " bad" : ""}` },
    h("h3", null, h("code", null, `${step.name}(${JSON.stringify(step.args ?? {})})`)),
    h("blockquote", null, typeof step.result === "string" ? step.result : JSON.stringify(step.result ?? null)),
    h("p", { class: "dim" }, `${step.durationMs ?? 0} ms${verdict} · `, ref(step.message)),
  );
}

export const why = { build, refresh: load };
