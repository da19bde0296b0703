// The page: text on one side, its translation on the other as one types. The worker has the engine and the model.
const STRINGS = {
  en: {
    to: "Translate into", source: "Text", translation: "Translation", copy: "Copy", copied: "Copied", loading: "Loading the model …",
    working: "Translating …", ready: "Ready.", done: (n) => `Translated in ${n} ms.`, privacy: "Nothing leaves this machine: the model runs in this page, which cannot use the network.",
    placeholders: "Placeholders such as {name}, %s and <b> stay as they are.", old: "This browser is too old for this page",
  },
  zh: {
    to: "译成", source: "原文", translation: "译文", copy: "复制", copied: "已复制", loading: "正在载入模型……", working: "正在翻译……", ready: "就绪。",
    done: (n) => `翻译用时 ${n} 毫秒。`, privacy: "任何内容都不会离开这台机器：模型就在本页中运行，本页无法使用网络。",
    placeholders: "{name}、%s、<b> 之类的占位符保持不变。", old: "浏览器版本太旧，无法使用本页",
  },
};
const PAUSE = 200; // milliseconds after the last key
const language = navigator.language.startsWith("zh") ? "zh" : "en", words = STRINGS[language];
const element = (id) => document.getElementById(id);
const [text, made, status, message, target, copy] = ["text", "made", "status", "message", "target", "copy"].map(element);
const data = JSON.parse(element("page-data").textContent), { settings } = data;
let number = 0, timer = 0, worker;

document.documentElement.lang = language;
for (const each of document.querySelectorAll("[data-t]")) each.textContent = words[each.dataset.t];
element("name").textContent = settings.name;
element("languages").textContent = settings.directions;
for (const name of settings.targets) target.append(new Option(name, name));
element("choice").hidden = settings.targets.length < 2;

function busy(what) {
  document.body.toggleAttribute("aria-busy", Boolean(what));
  if (what) status.textContent = what;
}

function complain(problem) {
  busy("");
  status.textContent = "";
  message.textContent = problem;
  message.hidden = !problem;
}

function translate() {
  clearTimeout(timer);
  number += 1;
  made.lang = target.value;
  if (text.value.trim()) {
    busy(words.working);
    worker.postMessage({ number, text: text.value, into: target.value });
  } else {
    made.value = "";
    copy.disabled = true;
    complain("");
  }
}

function receive({ data: answer }) {
  if (answer.ready) {
    busy("");
    status.textContent = words.ready;
    document.body.dataset.ready = "1";
  } else if (answer.number && answer.number !== number) {
    return; // of an older text
  } else if (answer.error) {
    complain(answer.error);
  } else if (answer.done) {
    message.hidden = true;
    busy("");
    status.textContent = words.done(Math.round(answer.milliseconds).toLocaleString(language));
    document.body.dataset.milliseconds = String(answer.milliseconds);
    document.body.dataset.done = String(number);
  } else {
    made.value = answer.made;
    copy.disabled = false;
  }
}

text.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
});
target.addEventListener("change", translate);
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(made.value);
  } catch {
    made.select();
    document.execCommand("copy");
  }
  copy.textContent = words.copied;
  setTimeout(() => (copy.textContent = words.copy), 1500);
});

busy(words.loading);
try {
  if (typeof DecompressionStream === "undefined") throw new Error(words.old);
  worker = new Worker(URL.createObjectURL(new Blob([element("page-worker").textContent], { type: "text/javascript" })));
  worker.onmessage = receive;
  worker.onerror = (event) => complain(`${words.old} (${event.message})`);
  worker.postMessage(data);
  if (text.value.trim()) translate(); // what a browser keeps when a page is loaded again
} catch (error) {
  complain(error.message);
}
