// Keys: what the page declares, and nothing else. An element says which key stands for it:
//
//   <a href="…" data-key="r" data-key-label="Resume preview" data-key-group="Case">
//   <textarea data-key="m" data-key-label="Comment">         a field is focused, the rest is clicked
//   <form data-key="Mod+Enter" data-key-label="Commit">      a form is sent by a press of its button
//
// Names: a character, Enter, Space, Escape, "Shift+A", "Mod+k" (Ctrl or Cmd), or a pair: "g q".
// No single key commits: a button that sends a form answers to no single key, it is only focused.
// Single keys can be switched off in the help dialog (WCAG 2.1.4); Mod keys stay.

const SWITCH = "amends.keys";
const PAIR_SECONDS = 1.2;
const extra = [];

export function register(entry) {
  extra.push(entry);
}

// What was chosen in this browser, else what the person chose in the settings.
export const areOff = () => (localStorage.getItem(SWITCH) ?? document.documentElement.dataset.keys) === "off";

const reachable = (element) => element.offsetParent !== null || element.getClientRects().length > 0;

// A form is as usable as the button that sends it.
function isUsable(element) {
  const target = element.matches("form") ? element.querySelector("[data-commits]") : element;
  return Boolean(target) && reachable(target) && !target.disabled && target.ariaDisabled !== "true";
}

// A button that sends a form is pressed by its key only where it says that it is harmless.
function sends(element) {
  return element.matches("button:is(:not([type]), [type='submit'])") && element.form?.method === "post";
}

function act(element) {
  if (element.matches("input, textarea, select, [data-key-does='focus']")) {
    element.focus();
    if (element.matches("textarea, [type='search'], [type='text']")) {
      element.setSelectionRange(element.value.length, element.value.length);
    }
  } else if (element.matches("form")) element.querySelector("[data-commits]").click();
  else if (sends(element) && !element.hasAttribute("data-harmless")) element.focus();
  else element.click();
}

export function entries() {
  const declared = [...document.querySelectorAll("[data-key]")]
    .filter((element) => !element.closest("dialog:not([open])"))
    .map((element) => ({
      key: element.dataset.key,
      label: element.dataset.keyLabel ?? element.textContent.trim(),
      group: element.dataset.keyGroup ?? document.body.dataset.keyGroup ?? "This page",
      when: () => isUsable(element),
      run: () => act(element),
      element,
    }));
  return [...extra, ...declared];
}

function nameOf(event) {
  const key = event.key === " " ? "Space" : event.key;
  if (event.ctrlKey || event.metaKey) return `Mod+${key}`;
  if (event.altKey) return "";
  if (event.shiftKey && /^[A-Z]$/.test(key)) return `Shift+${key}`;
  return key;
}

let pending = "";
let pendingUntil = 0;

function isTyping(target) {
  return target.isContentEditable ||
    (target.matches("input, textarea, select") && !["checkbox", "radio", "button", "submit"].includes(target.type));
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.repeat && event.key !== "j" && event.key !== "k") return;
  const name = nameOf(event);
  const withModifier = name.startsWith("Mod+");
  // Escape leaves a field, so that the keys work again; one that offers a list shuts that first.
  if (name === "Escape" && isTyping(event.target) && !event.target.matches("[role='combobox']") &&
    !document.querySelector("dialog[open]")) {
    event.target.blur();
    return;
  }
  if (!name || (!withModifier && (areOff() || isTyping(event.target)))) return;
  if (document.querySelector("dialog[open]") && !withModifier) return;
  if (["Space", "Enter"].includes(name) && event.target.matches("button, summary, input")) return;
  const pair = pending && event.timeStamp < pendingUntil ? `${pending} ${name}` : "";
  const all = entries();
  const found = all.find((entry) => pair && entry.key === pair && (entry.when?.() ?? true)) ??
    all.find((entry) => entry.key === name && (entry.when?.() ?? true));
  pending = !pair && all.some((entry) => entry.key.startsWith(`${name} `)) ? name : "";
  pendingUntil = event.timeStamp + PAIR_SECONDS * 1000; // when it was pressed: a page may be busy
  if (!found) return;
  pending = "";
  event.preventDefault();
  found.run(event);
});

// The help dialog, made of what is declared now.
function line(entry) {
  const term = document.createElement("dt");
  for (const part of entry.key.split(" ")) {
    const key = document.createElement("kbd");
    key.textContent = part.replace("Mod+", "Ctrl ").replace("Shift+", "⇧ ").replace("Enter", "↵");
    term.append(key, " ");
  }
  const meaning = document.createElement("dd");
  meaning.textContent = entry.label;
  return [term, meaning];
}

function fill(place) {
  const groups = new Map();
  const seen = new Set();
  for (const entry of entries()) {
    const shown = entry.shown?.() ?? (entry.element ? true : entry.when?.() ?? true);
    if (!shown || seen.has(entry.key + entry.label)) continue;
    seen.add(entry.key + entry.label);
    groups.set(entry.group, [...(groups.get(entry.group) ?? []), entry]);
  }
  place.replaceChildren(
    ...[...groups].map(([group, list]) => {
      const section = document.createElement("section");
      const title = document.createElement("h3");
      title.textContent = group;
      const table = document.createElement("dl");
      table.append(...list.flatMap(line));
      section.append(title, table);
      return section;
    }),
  );
}

function help() {
  const dialog = document.getElementById("keys-help");
  if (!dialog) return;
  fill(dialog.querySelector("[data-keys]"));
  dialog.showModal();
}

function apply() {
  document.documentElement.classList.toggle("keys-off", areOff());
  const box = document.getElementById("keys-switch");
  if (box) box.checked = !areOff();
}

document.getElementById("keys-switch")?.addEventListener("change", (event) => {
  localStorage.setItem(SWITCH, event.target.checked ? "on" : "off");
  apply();
});
for (const opener of document.querySelectorAll("[data-opens='keys-help']")) {
  opener.addEventListener("click", help);
}
for (const shut of document.querySelectorAll("dialog [data-shut]")) {
  shut.addEventListener("click", () => shut.closest("dialog").close());
}
register({ key: "?", label: "What works here", group: "Everywhere", run: help });
register({
  key: "Escape",
  label: "Back",
  group: "Everywhere",
  when: () => document.querySelector("[data-back]") !== null,
  run: () => document.querySelector("[data-back]").click(),
});
apply();

// The field that an act asks for first has the focus, of several choices the one that is made; the
// page stays where it is.
const firsts = [...document.querySelectorAll("[data-first]")];
(firsts.find((one) => one.checked) ?? firsts[0])?.focus({ preventScroll: true });
// Of a form that somebody unfolds, its first field.
for (const form of document.querySelectorAll("details:has(> form)")) {
  form.addEventListener("toggle", () => {
    if (form.open && !form.contains(document.activeElement?.closest("form"))) {
      form.querySelector("select, textarea, input:not([type='hidden'], [type='radio'])")?.focus();
    }
  });
}
