// An open ask: its question, its component, and the form that answers it. The form of an ask stays the same element
// while the page around it is redrawn, so that nobody loses what they were typing.

import { act } from "./api.js";
import { h, json, ticking } from "./dom.js";
import { answerer, idOf, nameOf, options, personOf } from "./people.js";

const forms = new Map();

/** What the API said, in its own words. */
export function replyLine(reply) {
  const error = reply.body.error;
  const good = reply.status < 300;
  return h(
    "p",
    { class: `reply ${good ? "good" : "bad"}` },
    h("strong", null, reply.status),
    " ",
    error?.code ? [h("code", null, error.code), " ", error.message] : (reply.body.message ?? reply.body.status ?? "done"),
    reply.durationMs !== undefined && h("span", { class: "dim" }, ` · ${reply.durationMs} ms`),
  );
}

export function askCard(ask, { conversationId, owner, tenant, turn, after }) {
  const component = ask.pending?.component;
  const checkIn = ask.pending?.checkIn;
  return h(
    "section",
    { class: "ask", "aria-label": `Turn ${turn} asks` },
    h("p", { class: "question" }, ask.question ?? "The agent asks, without words."),
    h("p", { class: "dim" }, "for ", h("strong", null, ask.audience), " · asked ", ticking(ask.askedAt), " · expires ", ticking(ask.expiresAt, "now, it is over")),
    component && h("div", { class: "component" }, h("code", null, component.componentId), json(component.props ?? {})),
    checkIn && h("details", { "data-keep": `check-${ask.askId}` }, h("summary", null, "What the agent would do, and what it goes by"), json(checkIn)),
    form(ask, { conversationId, owner, tenant, turn, after }),
  );
}

function form(ask, context) {
  if (forms.has(ask.askId)) return forms.get(ask.askId);
  const { conversationId, owner, tenant, turn, after } = context;
  const as = h("select", { name: "as" }, options(answerer(ask.audience, owner, tenant)));
  const said = h("input", { name: "said", autocomplete: "off", placeholder: ask.gate ? "a note, if you like" : "your answer", required: !ask.gate });
  const told = h("div", { "aria-live": "polite" });
  const answer = async (decision) => {
    const person = personOf(as.value);
    try {
      const reply = await act("answer", { conversationId, askId: ask.askId, decision: decision(person), as: person });
      told.replaceChildren(h("p", { class: "dim" }, `As ${nameOf(person)}:`), replyLine(reply));
      if (reply.status < 300) forms.delete(ask.askId);
      after?.();
    } catch (error) {
      told.replaceChildren(h("p", { class: "reply bad" }, error.message));
    }
  };
  const decided = (approved) => () =>
    answer((person) => ({ approved, by: person.name ?? "anonymous", at: Date.now(), ...(said.value ? { note: said.value } : {}) }));
  const withdraw = async () => {
    const person = personOf(as.value);
    try {
      told.replaceChildren(replyLine(await act("withdraw", { conversationId, turn, as: person })));
      after?.();
    } catch (error) {
      told.replaceChildren(h("p", { class: "reply bad" }, error.message));
    }
  };
  const element = h(
    "form",
    {
      class: "answer-form",
      "data-ask": ask.askId,
      onsubmit: (event) => {
        event.preventDefault();
        if (!ask.gate) answer(() => said.value);
      },
    },
    h("label", null, "Answer as ", as),
    h("label", { class: "grow" }, ask.gate ? "Note " : "Answer ", said),
    ask.gate
      ? [h("button", { type: "button", class: "good", onclick: decided(true) }, "Approve"), h("button", { type: "button", class: "bad", onclick: decided(false) }, "Decline")]
      : h("button", null, "Answer"),
    h("button", { type: "button", class: "quiet", onclick: withdraw }, "Withdraw"),
    told,
  );
  // The list of people may grow while the form stands.
  as.addEventListener("focus", () => {
    const now = personOf(as.value);
    if (as.options.length !== options(now).length) as.replaceChildren(...options(now));
    as.value = idOf(now);
  });
  forms.set(ask.askId, element);
  return element;
}
