// Selection: moving in a list, choosing rows, and the bar that says what is chosen.
//
//   <form data-list> … <tr data-id="7"> <input class="row-pick" type="checkbox" name="case" value="7">
//   … <a class="row-link">, <a data-peek> … <div class="actionbar" data-selection hidden>
//       <b data-selection-count></b>
// A row may carry data-customer, data-minor, data-currency and data-digits, data-irreversible, data-eligible="no":
// the bar sums them up. The server counts again at the dry run; this is only a glance.
import { register } from "./keys.js";
import { whisper } from "./say.js";

const list = () => document.querySelector("[data-list]");
const rows = () => [...(list()?.querySelectorAll("[data-id]") ?? [])].filter((row) => row.offsetParent);
const picked = () => [...(list()?.querySelectorAll(".row-pick:checked") ?? [])];

let anchor = null;

function current() {
  return document.activeElement?.closest?.("[data-id]") ?? null;
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  // Beside an open card the list goes on from the row of that card.
  const at = all.indexOf(current() ?? list().querySelector("[data-id]:is(.here, :has([aria-current]))"));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next.querySelector(".row-link")?.focus();
  next.scrollIntoView({ block: "nearest" });
}

// Whoever shuts the peek stands in the list again where it was opened.
let peeked = "";
document.addEventListener("htmx:beforeRequest", (event) => {
  peeked = event.detail.elt.closest("#peek") ? list()?.querySelector(".here[data-id]")?.dataset.id ?? "" : "";
});
document.addEventListener("htmx:afterSwap", () => {
  if (peeked) list()?.querySelector(`[data-id="${CSS.escape(peeked)}"] .row-link`)?.focus();
  peeked = "";
});

// What is chosen stays so where the list comes anew, as beside a card that opens or shuts.
let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  const isList = event.detail.shouldSwap && list() !== null && event.detail.target === list();
  kept = isList ? { boxes: picked().map((box) => box.value), anchor: anchor?.dataset.id } : null;
});
document.addEventListener("htmx:afterSwap", () => {
  if (!kept) return;
  for (const box of list()?.querySelectorAll(".row-pick") ?? []) box.checked = kept.boxes.includes(box.value);
  anchor = kept.anchor ? list()?.querySelector(`[data-id="${CSS.escape(kept.anchor)}"]`) : null;
  kept = null;
});

function pick(row, on) {
  const box = row?.querySelector(".row-pick");
  if (!box || box.disabled) return;
  box.checked = on ?? !box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
}

function pickRange() {
  const all = rows();
  const to = all.indexOf(current());
  const from = anchor ? all.indexOf(anchor) : to;
  if (to < 0) return;
  const [low, high] = from < to ? [from, to] : [to, from];
  for (const row of all.slice(Math.max(low, 0), high + 1)) pick(row, true);
}

function money(sums, digitsOf) {
  return [...sums].map(([currency, minor]) => {
    const digits = digitsOf.get(currency); // the desk's: a browser has fewer for some currencies
    const shown = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    const format = new Intl.NumberFormat("en", { style: "currency", currency, ...shown });
    return format.format(minor / 10 ** digits).replaceAll(",", "\u00a0");
  });
}

export function summary(boxes) {
  const chosen = boxes.map((box) => box.closest("[data-id]")).filter(Boolean);
  const customers = new Set(chosen.map((row) => row.dataset.customer).filter(Boolean));
  const sums = new Map();
  const digitsOf = new Map();
  for (const { dataset } of chosen) {
    if (!dataset.minor) continue;
    digitsOf.set(dataset.currency, Number(dataset.digits));
    sums.set(dataset.currency, (sums.get(dataset.currency) ?? 0) + Number(dataset.minor));
  }
  const final = chosen.filter((row) => row.dataset.irreversible).length;
  const not = chosen.filter((row) => row.dataset.eligible === "no").length;
  return [
    customers.size && `${customers.size} ${customers.size === 1 ? "customer" : "customers"}`,
    ...money(sums, digitsOf),
    `${final} irreversible`,
    not && `${not} not eligible`,
  ].filter(Boolean).join(" · ");
}

function tell() {
  const bar = document.querySelector("[data-selection]");
  if (!bar) return;
  const boxes = picked();
  bar.hidden = boxes.length === 0;
  const count = `${boxes.length} selected`;
  bar.querySelector("[data-selection-count]").textContent = count;
  const more = bar.querySelector("[data-selection-summary]");
  if (more) more.textContent = summary(boxes);
  const all = document.querySelector("[data-pick-all]");
  if (all) {
    const boxesHere = list().querySelectorAll(".row-pick:not(:disabled)").length;
    all.checked = boxes.length > 0 && boxes.length === boxesHere;
    all.indeterminate = boxes.length > 0 && boxes.length < boxesHere;
  }
  whisper(count);
}

document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-pick-all]")) {
    for (const row of rows()) pick(row, event.target.checked);
  }
  if (event.target.matches?.(".row-pick")) tell();
});

document.addEventListener("click", (event) => {
  if (event.shiftKey && event.target.matches?.(".row-pick")) pickRange();
  if (event.target.matches?.(".row-pick")) anchor = event.target.closest("[data-id]");
});

document.addEventListener("htmx:afterSettle", tell);
if (list()) tell();

const here = () => list() !== null;
const inRow = () => here() && current() !== null;
const picks = () => inRow() && current().querySelector(".row-pick") !== null;
register({ key: "j", label: "Next row", group: "List", when: here, run: () => move(1) });
register({ key: "k", label: "Previous row", group: "List", when: here, run: () => move(-1) });
register({
  key: "Space",
  label: "Peek: open beside the list",
  group: "List",
  when: () => inRow() && current().querySelector("[data-peek]") !== null,
  shown: () => document.querySelector("[data-peek]") !== null,
  run: () => current().querySelector("[data-peek]").click(),
});
register({
  key: "x",
  label: "Select the row",
  group: "List",
  when: picks,
  shown: () => document.querySelector(".row-pick") !== null,
  run: () => {
    anchor = current();
    pick(anchor);
  },
});
register({
  key: "Shift+X",
  label: "Select up to here",
  group: "List",
  when: picks,
  shown: () => document.querySelector(".row-pick") !== null,
  run: pickRange,
});
