// Collect the options, send them to the server, put its HTML into the slots of the page.
"use strict";

const find = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const slot = (name) => find(`[data-slot="${name}"]`);

const first = find("#samples [aria-pressed=true]");
const state = { image: { sample: Number(first.dataset.sample) }, seed: 0 };
const running = {}; // requests under way, by name: an AbortController each

// Requests

function options() {
  const values = {};
  for (const input of all("input[data-option]")) values[input.dataset.option] = Number(input.value);
  return values;
}

function requestBody(more = {}) {
  return { model: find("#model").value, ...state, options: options(), ...more };
}

function cancel(name) {
  running[name]?.abort();
  delete running[name];
}

/** Send a request; it replaces an earlier one of the same name. */
async function send(name, body, progress = () => {}, address = name) {
  cancel(name);
  const control = (running[name] = new AbortController());
  const raw = body instanceof Blob;
  try {
    const response = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": raw ? "application/octet-stream" : "application/json" },
      body: raw ? body : JSON.stringify(body),
      signal: control.signal,
    });
    return await lines(response, progress);
  } catch (error) {
    if (error.name === "AbortError") return null;
    showError(error instanceof TypeError ? "No response from the server; is it still running?" : error.message);
    return null;
  } finally {
    if (running[name] === control) delete running[name];
  }
}

/** Read JSON lines as they arrive: reports of progress, then the result. */
async function lines(response, progress) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
    const parts = text.split("\n");
    text = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      if ("share" in message) progress(message.share);
      else return received(message);
    }
  }
  return received(text ? JSON.parse(text) : { error: "The server stopped before it finished." });
}

function received(message) {
  if (message.error) throw new Error(message.error);
  showError("");
  for (const [name, html] of Object.entries(message.html)) {
    slot(name).innerHTML = html;
    slot(name).classList.remove("stale");
  }
  return message;
}

function showError(text) {
  find("#error").textContent = text;
  find("#error").hidden = !text;
}

/** A button with a progress bar; pressing it again cancels. */
function worker(button, name, body, done = () => {}) {
  const title = button.textContent;
  const rest = () => {
    button.textContent = title;
    button.classList.remove("busy");
    button.style.removeProperty("--share");
  };
  button.addEventListener("click", async () => {
    if (button.classList.contains("busy")) return cancel(name);
    button.classList.add("busy");
    const answer = await send(name, body(), (share) => {
      button.textContent = `Cancel (${Math.floor(100 * share)} %)`;
      button.style.setProperty("--share", share);
    });
    rest();
    if (answer) done(answer);
  });
}

// One image

const LIVE = ["answer", "grid", "curve", "noisy", "draws", "votes", "several"];
let waiting = null;

/** An option changed: mark the results on the page as stale. */
function changed() {
  for (const name of ["look", "curve", "certify", "attack", "several"]) cancel(name);
  for (const name of ["certified", "attacked"]) slot(name).replaceChildren();
  for (const name of LIVE) slot(name)?.classList.add("stale"); // without h there are no draws
  clearTimeout(waiting);
  waiting = setTimeout(look, 60);
}

async function look() {
  if (find("#view-one").hidden) return several();
  const bar = (share) => find("#look-bar").style.setProperty("--share", share);
  const panels = { advanced: find("#advanced").open, paper: Boolean(find("#paper")?.open) };
  const answer = await send("look", requestBody(panels), bar);
  if (answer) await send("curve", requestBody(), bar);
  if (!running.look && !running.curve) bar(0);
}

async function several() {
  if (find("#view-several").hidden) return;
  const progress = find("#several-progress");
  const show = (share) => {
    progress.textContent = `Certifying these images: ${Math.floor(100 * share)} %`;
    progress.style.setProperty("--share", share);
  };
  show(0);
  await send("several", requestBody(), show);
  if (!running.several) progress.textContent = "";
}

function choose(image, source, caption) {
  state.image = image;
  find("#image").src = source;
  find("#caption").textContent = caption;
  for (const button of all("#samples button"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.sample) === image.sample));
  changed();
}

document.addEventListener("input", (event) => {
  const { option } = event.target.dataset;
  if (!option) return;
  for (const twin of all(`input[data-option="${option}"]`))
    if (twin !== event.target) twin.value = event.target.value;
  changed();
});

find("#samples").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  slot("note").replaceChildren();
  choose({ sample: Number(button.dataset.sample) }, button.firstChild.src, button.title);
});

find("#upload").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  if (file.size > Number(event.target.dataset.bytes)) return showError("That file is too large.");
  const query = new URLSearchParams({ name: file.name, model: find("#model").value });
  const answer = await send("upload", file.slice(), () => {}, `upload?${query}`);
  if (answer) choose({ picture: answer.picture }, `data:image/png;base64,${answer.picture}`, "your picture");
});

find("#fresh").addEventListener("click", () => {
  state.seed += 1;
  changed();
});

for (const panel of all("#view-one details")) panel.addEventListener("toggle", look);
find("#model").addEventListener("change", (event) => {
  location.search = new URLSearchParams({ model: event.target.value });
});

worker(find("#certify"), "certify", requestBody);
worker(find("#attack"), "attack", () => requestBody({ kind: find("#kind-of-attack").value }));

// Runs

function browse(more = {}) {
  return { folder: find("#folder").value, kind: find("#kind")?.value, ...more };
}

worker(find("#open"), "run", () => browse({ all: true, kind: undefined }), () => {
  slot("evidence").textContent = "Choose a line of the table to see its evidence.";
});
find("#folder").addEventListener("keydown", (event) => {
  if (event.key === "Enter") find("#open").click();
});
slot("kinds").addEventListener("change", () => send("run", browse()));
slot("table").addEventListener("click", (event) => {
  const start = event.target.closest("button")?.dataset.start;
  if (start !== undefined) return send("run", browse({ start: Math.max(0, Number(start)) }));
  const row = event.target.closest("tr[data-row]");
  if (row) evidence(row);
});
slot("table").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("tr[data-row]")) evidence(event.target);
});

function evidence(row) {
  for (const other of all("tr[aria-selected]")) other.removeAttribute("aria-selected");
  row.setAttribute("aria-selected", "true");
  send("evidence", browse({ row: Number(row.dataset.row) }));
}

// Views

for (const tab of all("[role=tab]"))
  tab.addEventListener("click", () => {
    for (const other of all("[role=tab]")) {
      other.setAttribute("aria-selected", String(other === tab));
      find(`#view-${other.dataset.view}`).hidden = other !== tab;
    }
    look();
  });

if (find("#view-run").hidden) look();
else find("#open").click();
