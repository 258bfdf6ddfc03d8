// Live: the page learns of news within two seconds, and never moves under the reader's hand.
//
//   <div data-fresh="/w/air/queue/fresh/?q=…&since=…">   answers 204, or JSON
//     {"new": 2, "heard": "…", "counts": {"queue": 23}, "gone": {"41": "Approved"}, "back": ["7"]}
//     "new" shows the pill inside ([data-pill], a link that loads them), "counts" the side badges,
//     "gone" greys rows (data-id) and says what became of them; they keep their place until the
//     list is loaded anew, since a row that leaves would move the others under the reader's hand;
//     "back" says which of those are there again.
//     "heard" is sent back with the next question: what was told once is not told again.
//
//   <section data-poll="/w/air/cases/7/progress/" id="progress">   answers this section anew;
//     without data-poll in the answer the asking ends.
import { say, whisper } from "./say.js";

const EVERY_SECONDS = 2;
const SLOWEST_SECONDS = 30;
const LEAVING_SECONDS_MAX = 15; // a file that is fetched leaves the page where it is
const DEAF_AFTER = 3; // times in a row without an answer; a desk that starts anew is back before

let wait = EVERY_SECONDS;
let failed = 0;
let deaf = null; // the note that says so

// Typing or choosing: news would move what the reader is about to send.
function isBusy() {
  const active = document.activeElement;
  const typing = active?.closest("form[method='post'], dialog[open]") && active.matches("input, textarea, select");
  return Boolean(typing || document.querySelector(".row-pick:checked, dialog[open]"));
}

// What one does oneself is no news: its own answer tells it, and what was asked meanwhile would tell it as another's.
let [sending, sent] = [0, 0];
document.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (detail.requestConfig.verb === "get") return;
  [sending, sent] = [sending + 1, sent + 1];
  detail.xhr.addEventListener("loadend", () => { sending -= 1; }); // which no element has to be there for
});

// Nor is the page loaded anew under it, where somebody began while the answer was on its way: it is asked again.
// Nor while it is being left, which that would call off: a form that was sent, a link that was followed.
let left = -Infinity;
addEventListener("beforeunload", () => { left = performance.now(); });
addEventListener("pageshow", () => { left = -Infinity; });
const isLeaving = () => performance.now() - left < LEAVING_SECONDS_MAX * 1000;
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.getResponseHeader("HX-Refresh") && (isBusy() || isLeaving())) event.preventDefault();
});

function show(place, news) {
  const pill = place.querySelector("[data-pill]") ?? document.querySelector("[data-pill]");
  if (pill && "new" in news) {
    const text = `+${news.new} new`;
    if (news.new && (pill.hidden || pill.firstChild?.textContent !== text)) whisper(`${news.new} new, press n to load`);
    pill.querySelector("[data-pill-text]").textContent = text;
    pill.hidden = !news.new; // what was new may be over by now
  }
  for (const [name, number] of Object.entries(news.counts ?? {})) {
    for (const badge of document.querySelectorAll(`[data-count="${CSS.escape(name)}"]`)) {
      badge.textContent = number;
      if (badge.matches(".count")) badge.hidden = number === "0";
    }
  }
  for (const id of news.back ?? []) comeBack(id);
  for (const [id, words] of Object.entries(news.gone ?? {})) leave(id, words);
  if (news.since) place.dataset.since = news.since;
  if (news.heard) place.dataset.heard = news.heard;
  for (const updated of place.querySelectorAll("[data-updated]")) {
    updated.dateTime = new Date().toISOString();
  }
}

// The row stays where it is, says what became of it, and is chosen no more.
function leave(id, words) {
  const row = document.querySelector(`[data-list] [data-id="${CSS.escape(id)}"]:not(.gone)`);
  if (!row) return;
  row.classList.add("gone");
  for (const box of row.querySelectorAll(".row-pick")) {
    const wasChosen = box.checked;
    [box.checked, box.disabled] = [false, true];
    if (wasChosen) box.dispatchEvent(new Event("change", { bubbles: true }));
  }
  const place = row.querySelector("[data-became]");
  if (place) place.textContent = words;
  // What is open beside the list still offers an answer; a phone shows no list at all.
  if (row.querySelector("[aria-current]") && document.querySelector("#card [data-commits]")) {
    say(`${words} meanwhile: what is open here is as it was before. Load the page again.`, { seconds: 0 });
  }
}

function comeBack(id) {
  const row = document.querySelector(`[data-list] [data-id="${CSS.escape(id)}"].gone`);
  if (!row) return;
  row.classList.remove("gone");
  for (const box of row.querySelectorAll(".row-pick")) box.disabled = false;
  const place = row.querySelector("[data-became]");
  if (place) place.textContent = "";
}

async function ask(place) {
  const url = new URL(place.dataset.fresh, location.href);
  if (place.dataset.since) url.searchParams.set("since", place.dataset.since);
  if (place.dataset.heard) url.searchParams.set("heard", place.dataset.heard);
  const before = sent;
  const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  if (before !== sent) return; // the next question hears of it
  if (answer.redirected) throw new Error("fresh: led to the log-in"); // which answers 200, in JSON
  if (answer.status === 200) show(place, await answer.json());
  else if (answer.status !== 204) throw new Error(`fresh: ${answer.status}`);
}

async function renew(section) {
  if (section.contains(document.activeElement) && section.querySelector("details[open] textarea, dialog[open]")) return;
  const open = Array.from(section.querySelectorAll("[data-fold][open]"), (fold) => fold.dataset.fold);
  let isAnswered = true;
  const refused = (event) => {
    if (event.detail.target === section) isAnswered = false;
  };
  document.addEventListener("htmx:responseError", refused);
  try {
    await window.htmx.ajax("GET", section.dataset.poll, { target: section, swap: "outerHTML" });
  } finally {
    document.removeEventListener("htmx:responseError", refused);
  }
  if (!isAnswered) throw new Error(`poll: ${section.dataset.poll}`);
  for (const fold of open) { // what somebody unfolded stays so
    document.getElementById(section.id)?.querySelector(`[data-fold="${CSS.escape(fold)}"]`)?.setAttribute("open", "");
  }
}

// A page that is no longer told (the session is over, a right is gone, the desk is away) says so: without
// a word “nothing new” would be believed.
function heard() {
  [wait, failed] = [EVERY_SECONDS, 0];
  deaf?.remove();
  deaf = null;
}

function unheard() {
  wait = Math.min(wait * 2, SLOWEST_SECONDS); // a desk in trouble is not asked harder
  failed += 1;
  if (failed === DEAF_AFTER) {
    deaf = say("This page hears of nothing new any more: what it shows may be over by now. Load it again.", { seconds: 0 });
  }
}

async function round() {
  const places = document.querySelectorAll("[data-fresh]");
  const sections = document.querySelectorAll("[data-poll]");
  if (!document.hidden && (places.length || sections.length) && !isBusy() && !sending) {
    try {
      for (const place of places) await ask(place);
      for (const section of sections) await renew(section);
      heard();
    } catch {
      unheard();
    }
  }
  setTimeout(round, wait * 1000);
}

setTimeout(round, wait * 1000);
document.addEventListener("visibilitychange", () => {
  wait = EVERY_SECONDS;
});
