/** What the server is asked, and what its refusals mean. */

import { t, number } from "./strings.js";

/** Something that did not work; `seconds` tells when to try again, `key` that the key is at fault. */
export class Problem extends Error {
  constructor(message, { seconds = 0, again = false, key = false } = {}) {
    super(message);
    Object.assign(this, { seconds, again, key });
  }
}

const field = document.querySelector("#key-value");
let required = false;

/** Shows the field for a key, with the one that was entered in this tab. */
export function wantKey(entered) {
  required = true;
  document.querySelector("#key").hidden = false;
  field.value = remembered("key");
  if (!field.value) field.focus();
  field.addEventListener("change", () => (remember("key", key()), entered()));
}

const key = () => field.value.trim();

/** What goes into each request; without a key where one is needed nothing is sent. */
export function withKey(values) {
  if (!required) return values;
  if (!key()) throw new Problem(t("keyMissing"), { key: true });
  return { ...values, api_key: key() };
}

/** The answer to a question: a GET without values, a POST of JSON with them. */
export async function ask(path, values, signal) {
  const post = values && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(withKey(values)) };
  let answer;
  try {
    answer = await fetch(path, { ...post, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(t("offline"), { again: true });
  }
  const body = await answer.text().catch(() => "");
  if (!answer.ok) throw problem(answer.status, body, answer.headers.get("Retry-After"));
  return JSON.parse(body);
}

/** What a refusal means. */
export function problem(status, body, retry) {
  if (status === 429) {
    const seconds = Math.max(1, Number(retry) || 5);
    return new Problem(t(seconds <= 60 ? "busy" : "busyLong", { seconds: number(seconds) }), { seconds, again: true });
  }
  if (status === 401 || status === 403) return new Problem(t("keyWrong"), { key: true });
  if (status >= 500 && status !== 504) return new Problem(t("fault", { status }), { again: true });
  return new Problem(t("refused", { message: told(body) || status }), { again: status === 504 });
}

function told(body) {
  try {
    return String(JSON.parse(body).error).replace(/^Invalid request: /, "");
  } catch {
    return "";
  }
}

/** Says what did not work, where it did not, with a button to try again if that may help. */
export function complain(place, error, again) {
  place.hidden = !error;
  place.replaceChildren();
  if (!error) return;
  place.append(error.message);
  if (error.again && again) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "plain", textContent: t(error.seconds ? "now" : "again"), onclick: again });
    place.append(" ", button);
  }
  if (error.key) field.setAttribute("aria-invalid", "true");
}

/** Forgets that a key was wrong. */
export const keyWorks = () => field.removeAttribute("aria-invalid");

/** Something that this tab remembers until it is closed; some browsers do not allow even that. */
export function remembered(name) {
  try {
    return sessionStorage.getItem(`regard.${name}`) ?? "";
  } catch {
    return "";
  }
}

export function remember(name, value) {
  try {
    sessionStorage.setItem(`regard.${name}`, value);
  } catch {
    // then it is not remembered
  }
}
