// The list of conversations, as the ledger has them.

import { badge, empty, h, showList, ticking } from "./dom.js";

export const link = (view, pk, more = {}) => `#${view}?${new URLSearchParams({ c: pk, ...more })}`;

export function drawConversations(element, rows, view, current) {
  if (!rows.length) {
    element.replaceChildren(h("div", { "data-key": "none" }, empty("Nothing is kept yet. ", h("a", { href: "#chat" }, "Send a message"), " to start a conversation.")));
    return;
  }
  const marked = rows.map((row) => ({ ...row, current: row.pk === current }));
  showList(element, marked, (row) => row.pk, (row) =>
    h(
      "a",
      { href: link(view, row.pk), class: "pick", "aria-current": row.current ? "true" : null, "data-focus": row.pk },
      h("span", { class: "id" }, row.conversationId),
      h("span", { class: "dim" }, row.owner ?? "nobody’s", row.tenant ? ` at ${row.tenant}` : "", ` · ${row.turn} turn${row.turn === 1 ? "" : "s"} · `, ticking(row.at)),
      badge(row.status || "empty"),
    ),
  );
}
