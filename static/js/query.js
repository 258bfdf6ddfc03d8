// Query: the tokens of the query language get a ground of their own behind the text, and words of the
// language are offered while typing. The field stays an ordinary text field.

import { whisper } from "./say.js";

// Its keys are the server's: the field names them in data-query.
function tokenOf(field) {
  const keys = field.dataset.query.split(" ").join("|");
  return new RegExp(`(-?)\\b(?:${keys}):(?:"[^"]*"|\\S+)`, "g");
}

function paint(field, mirror, token) {
  mirror.replaceChildren();
  let done = 0;
  for (const found of field.value.matchAll(token)) {
    mirror.append(field.value.slice(done, found.index));
    const mark = document.createElement("mark");
    mark.textContent = found[0];
    if (found[1]) mark.className = "not";
    mirror.append(mark);
    done = found.index + found[0].length;
  }
  mirror.append(field.value.slice(done));
  mirror.scrollLeft = field.scrollLeft;
}

function start(field) {
  const mirror = document.createElement("div");
  mirror.className = "query-mirror";
  mirror.setAttribute("aria-hidden", "true");
  field.before(mirror);
  const token = tokenOf(field);
  const again = () => paint(field, mirror, token);
  field.addEventListener("input", again);
  field.addEventListener("scroll", () => {
    mirror.scrollLeft = field.scrollLeft;
  });
  again();
}

// The list below the field, filled by the server: arrows choose, Enter or Tab takes, Escape shuts it.
function suggest(field) {
  const list = document.getElementById("suggestions");
  if (!list) return;
  let at = -1;
  let marked = ""; // the text of the choice: a list that comes late does not put another in its place
  let shutAt = null; // what the field said when the list was shut: what was asked before stays shut
  const options = () => [...list.children];
  const mark = (to) => {
    at = to;
    marked = options()[at]?.dataset.text ?? "";
    options().forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    if (at < 0) field.removeAttribute("aria-activedescendant");
    else field.setAttribute("aria-activedescendant", options()[at].id);
  };
  const open = (isOpen) => {
    list.hidden = !isOpen;
    field.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) mark(-1);
  };
  const take = (option) => {
    const { text, start } = option.dataset;
    const after = field.value.slice(field.selectionStart);
    const whole = text.endsWith(":") ? text : `${text} `;
    field.setRangeText(whole + after.trimStart(), Number(start), field.value.length, "end");
    field.setSelectionRange(Number(start) + whole.length, Number(start) + whole.length);
    open(false);
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", list.id], ["aria-expanded", "false"]]) {
    field.setAttribute(name, value);
  }
  field.addEventListener("htmx:configRequest", (event) => {
    event.detail.parameters.cursor = field.selectionStart;
  });
  list.addEventListener("htmx:afterSwap", () => {
    mark(marked ? options().findIndex((option) => option.dataset.text === marked) : -1);
    open(list.children.length > 0 && document.activeElement === field && field.value !== shutAt);
    whisper(list.children.length ? `${list.children.length} suggestions` : "");
  });
  list.addEventListener("mousedown", (event) => {
    event.preventDefault(); // the field keeps the focus
    const option = event.target.closest("[role='option']");
    if (option) take(option);
  });
  field.addEventListener("blur", () => open(false));
  field.addEventListener("input", () => {
    shutAt = null;
    mark(-1); // who types on has not chosen: Enter sends what was typed
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (list.hidden) return;
    if (step) mark((Math.max(at, step < 0 ? 0 : -1) + step + options().length) % options().length);
    else if (event.key === "Escape") {
      shutAt = field.value;
      open(false);
    }
    else if (["Enter", "Tab"].includes(event.key) && at >= 0) take(options()[at]);
    else return;
    event.preventDefault();
  });
}

for (const field of document.querySelectorAll("input[data-query]")) {
  start(field);
  suggest(field);
}
