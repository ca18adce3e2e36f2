// Talking to the console's own server. A failure is said at the top of the page, and taken back when it is over.

const gone = () => document.getElementById("gone");

export class Refused extends Error {}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    say("This page's server does not answer: the local stack was stopped. Start it again with “make run”; this page goes on by itself.");
    throw new Refused("The local stack does not answer.");
  }
  const value = await answer.json();
  if (answer.status === 503) {
    say(value.error);
    throw new Refused(value.error);
  }
  say(null);
  if (!answer.ok) throw new Refused(value.error ?? `HTTP ${answer.status}`);
  return value;
}

function say(text) {
  const element = gone();
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
  element.hidden = text === null;
}

export const read = (name, query) => ask(`api/${name}${query ? `?${new URLSearchParams(query)}` : ""}`, { cache: "no-store" });
export const act = (name, body) =>
  ask(`api/${name}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
