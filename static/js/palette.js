// Palette: Ctrl/Cmd K. Goes to places and does what the page can do now, on what is selected now.
// It only presses what stands in the page: nothing here can do what a click could not. What the desk
// knows by that name (people, pauses, views, …) is asked while somebody types, and is links alone.
import { entries, register } from "./keys.js";

const dialog = document.getElementById("palette");
const input = dialog?.querySelector("input");
const list = dialog?.querySelector("[role='listbox']");
const none = dialog?.querySelector("[data-none]");
const CHOICES_MAX = 40;
const ASK_AFTER_MILLISECONDS = 150;

let choices = [];
let known = [];
let asking = null;
let timer = 0;
let at = 0;

// What acts on the selection or on this page comes first; then places, then moving about.
const LATER = { "Go to": 2, List: 3, Everywhere: 4 };

function rank(entry) {
  return entry.element?.closest("[data-selection]") ? 0 : (LATER[entry.group] ?? 1);
}

function available() {
  const selected = document.querySelectorAll(".row-pick:checked").length;
  const offered = entries().filter((entry) => entry.label && entry.key !== "Mod+k" && (entry.when?.() ?? true));
  const named = new Map(offered.map((entry) => [entry.label, entry]));
  for (const link of document.querySelectorAll(".side .places a")) {
    const label = link.querySelector(".place").textContent;
    if (!named.has(label)) named.set(label, { label, group: "Go to", key: "", run: () => link.click() });
  }
  return [...named.values()].sort((one, other) => rank(one) - rank(other)).map((entry) => ({
    ...entry,
    label: selected && entry.element?.closest("[data-selection]") ? `${entry.label} (${selected} selected)` : entry.label,
  }));
}

function matches(label, words) {
  const text = label.toLowerCase();
  return words.every((word) => text.includes(word));
}

function mark() {
  [...list.children].forEach((option, index) => {
    option.setAttribute("aria-selected", String(index === at));
    if (index === at) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    }
  });
  if (!choices.length) input.removeAttribute("aria-activedescendant");
}

function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  choices = available().filter((entry) => matches(`${entry.label} ${entry.group}`, words)).slice(0, CHOICES_MAX);
  choices.push(...known);
  const jump = dialog.dataset.jump;
  if (jump && /^\S{6,}$/.test(input.value.trim())) {
    const id = input.value.trim();
    choices.push({ label: `Open ${id}`, group: "By its id", run: () => location.assign(jump + encodeURIComponent(id)) });
  }
  at = 0;
  list.replaceChildren(
    ...choices.map((entry, index) => {
      const option = document.createElement("div");
      option.setAttribute("role", "option");
      option.id = `choice-${index}`;
      const label = document.createElement("span");
      label.textContent = entry.label;
      const group = document.createElement("span");
      group.className = "muted small";
      group.textContent = entry.key ? `${entry.group} · ${entry.key}` : entry.group;
      option.append(label, group);
      option.addEventListener("click", () => choose(index));
      return option;
    }),
  );
  none.hidden = choices.length > 0;
  mark();
}

// The answer to what was typed before is thrown away; without one the page's own choices remain.
function ask() {
  clearTimeout(timer);
  asking?.abort();
  known = [];
  const words = input.value.trim();
  if (words.length < 2 || !dialog.dataset.find) return;
  timer = setTimeout(async () => {
    const mine = (asking = new AbortController());
    try {
      const answer = await fetch(`${dialog.dataset.find}?q=${encodeURIComponent(words)}`, { signal: mine.signal });
      const { found } = answer.ok ? await answer.json() : { found: [] };
      if (mine.signal.aborted) return;
      const before = choices[at];
      known = found.map(({ label, kind, url }) => ({ label, group: kind, run: () => location.assign(url) }));
      show();
      const same = choices.findIndex((one) => one.label === before?.label && one.group === before?.group);
      at = Math.max(same, 0);
      mark();
    } catch (failure) {
      if (failure.name !== "AbortError") known = [];
    }
  }, ASK_AFTER_MILLISECONDS);
}

function choose(index) {
  const entry = choices[index];
  if (!entry) return;
  dialog.close();
  entry.run();
}

function open() {
  if (!dialog || dialog.open) return;
  const before = document.activeElement;
  input.value = "";
  ask();
  dialog.showModal();
  show();
  dialog.addEventListener("close", () => before?.focus?.({ preventScroll: true }), { once: true });
}

if (dialog) {
  input.addEventListener("input", () => {
    ask();
    show();
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && choices.length) {
      at = (at + step + choices.length) % choices.length;
      mark();
    } else if (event.key === "Enter") choose(at);
    else return;
    event.preventDefault();
  });
  register({ key: "Mod+k", label: "Go anywhere, do anything", group: "Everywhere", run: open });
  for (const opener of document.querySelectorAll("[data-opens='palette']")) opener.addEventListener("click", open);
}
