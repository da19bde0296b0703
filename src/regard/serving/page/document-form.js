/** A file: chosen or dropped, sent, translated and fetched. */

import { chosen } from "./languages.js";
import { Problem, complain, keyWorks, problem, withKey } from "./server-requests.js";
import { number, t } from "./strings.js";

const find = (selector) => document.querySelector(selector);
const [choose, drop, job, message] = ["#choose", "#drop", "#job", "#file-message"].map(find);
const [send, stop, result, progress, status] = ["#send", "#stop", "#result", "#progress", "#file-status"].map(find);

let [file, sending, formats, most] = [null, null, [], Infinity];

/** Begins to listen; `opened` is called when a file is dropped, wherever on the page. */
export function begin(settings, opened) {
  formats = settings.supportedFilesFormat ?? [];
  most = settings.uploadLimit ?? Infinity;
  choose.accept = formats.join(",");
  find("#formats").textContent = t("formats", { list: formats.join(" ") });
  choose.addEventListener("click", () => (choose.value = "")); // the same file, changed, is a new one
  choose.addEventListener("change", () => choose.files[0] && chose(choose.files[0]));
  send.addEventListener("click", upload);
  stop.addEventListener("click", () => sending?.abort());
  const has = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => has(event) && (event.preventDefault(), drop.classList.add("over")));
  addEventListener("dragleave", (event) => event.relatedTarget || drop.classList.remove("over"));
  addEventListener("drop", (event) => {
    drop.classList.remove("over");
    if (!has(event)) return;
    event.preventDefault();
    opened();
    if (event.dataTransfer.files[0]) chose(event.dataTransfer.files[0]);
  });
}

/** Another language was chosen: what was made is of the one before. */
export function changed() {
  if (file && !sending) take(file);
}

function chose(given) {
  take(given);
  if (file) send.focus();
}

function take(given) {
  sending?.abort();
  complain(message, null);
  result.hidden = true;
  status.textContent = "";
  const fits = formats.some((suffix) => given.name.toLowerCase().endsWith(suffix));
  file = fits && given.size <= most ? given : null;
  job.hidden = !file;
  send.hidden = false;
  find("#file-name").textContent = given.name;
  find("#file-size").textContent = size(given.size);
  if (!fits) complain(message, new Problem(t("fileFormat", { name: given.name, list: formats.join(" ") })));
  else if (!file) complain(message, new Problem(t("fileBig", { name: given.name, size: size(given.size), limit: size(most) })));
}

function upload() {
  complain(message, null);
  let values;
  try {
    values = withKey(chosen());
  } catch (error) {
    return complain(message, error);
  }
  const form = new FormData();
  for (const [name, value] of Object.entries(values)) form.append(name, value);
  form.append("file", file);
  const request = (sending = new XMLHttpRequest()); // fetch does not tell how much is sent
  request.upload.addEventListener("progress", (event) => event.lengthComputable && moved(event.loaded / event.total));
  request.upload.addEventListener("load", () => moved(1));
  request.addEventListener("load", () => arrived(request));
  request.addEventListener("error", () => complain(message, new Problem(t("offline"), { again: true }), upload));
  request.addEventListener("abort", () => (status.textContent = t("fileStopped")));
  request.addEventListener("loadend", () => request === sending && working(false));
  request.open("POST", "translate_file");
  request.send(form);
  working(true);
  moved(0);
}

function arrived(request) {
  status.textContent = "";
  if (request.status !== 200) {
    const error = problem(request.status, request.responseText, request.getResponseHeader("Retry-After"));
    if (error.seconds) error.message = t("busyLong", { seconds: number(error.seconds) });
    return complain(message, error, upload);
  }
  keyWorks();
  // The server may not know by which address it is reached: only the name of the file is taken.
  const name = new URL(JSON.parse(request.responseText).translatedFileUrl).pathname.split("/").pop();
  const shown = decodeURIComponent(name).replace(/^[0-9a-f-]{36}\./, "");
  Object.assign(result, { href: `download_file/${name}`, download: shown, textContent: t("download", { name: shown }), hidden: false });
  send.hidden = true;
  status.textContent = t("fileDone");
  result.focus();
}

function moved(share) {
  if (share < 1) progress.value = share;
  else progress.removeAttribute("value"); // how long the translation takes is not known
  status.textContent = share < 1 ? t("sending", { share: number(share, { style: "percent" }) }) : t("fileWorking");
}

function working(is) {
  if (is) document.body.setAttribute("aria-busy", "true");
  else document.body.removeAttribute("aria-busy");
  progress.hidden = stop.hidden = !is;
  send.hidden = is || !result.hidden;
  if (is) stop.focus();
  else {
    sending = null;
    if (!send.hidden) send.focus();
  }
}

const size = (bytes) =>
  bytes < 1e6 ? number(bytes / 1e3, { style: "unit", unit: "kilobyte", maximumFractionDigits: 1 }) : number(bytes / 1e6, { style: "unit", unit: "megabyte", maximumFractionDigits: 1 });
