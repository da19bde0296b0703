/** The page: what the server offers, and the two ways to use it. */

import * as file from "./document-form.js";
import { offer } from "./languages.js";
import { Problem, ask, complain, wantKey } from "./server-requests.js";
import { speak, t } from "./strings.js";
import * as text from "./text-form.js";

const tabs = ["text", "file"].map((name) => document.querySelector(`#tab-${name}`));
const trouble = document.querySelector("#trouble");

async function start() {
  complain(trouble, null);
  try {
    const [settings, languages] = await Promise.all([ask("frontend/settings"), ask("languages")]);
    if (!languages.some((each) => each.targets.length > 1)) throw new Problem(t("nothing"));
    if (settings.keyRequired) wantKey(text.translate);
    offer(languages, settings.language?.target?.code, changed, () => (file.changed(), text.swapped()));
    text.begin(settings);
    if (settings.filesTranslation) {
      tabs[1].hidden = false;
      file.begin(settings, () => open(tabs[1]));
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    complain(trouble, error, start);
  }
  if (!document.querySelector("#text").value) document.body.removeAttribute("aria-busy");
  document.body.dataset.drawn = "1";
}

function changed() {
  file.changed();
  text.translate();
}

/** Shows a tab; arrows go from one to the other. */
function open(chosen) {
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    document.querySelector(`#${tab.getAttribute("aria-controls")}`).hidden = tab !== chosen;
  }
}

for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const other = tabs[1 - place];
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || other.hidden) return;
    open(other);
    other.focus();
  });
}

speak();
start();
