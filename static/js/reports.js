// Reports: that an answer is on its way, what to tell when none came, and where the focus goes when
// one did.
import { say } from "./say.js";

// “Loading…” stands on top once an answer takes longer than a blink, but not for what the page asks
// by itself (data-poll). A file that is fetched leaves the page, and the sign, so that ends by time.
const BLINK = 300;
const FILE_SECONDS_MAX = 15;
let waiting = [];

function begin() {
  end();
  const { classList } = document.documentElement;
  waiting = [
    setTimeout(() => classList.add("waiting"), BLINK),
    setTimeout(end, FILE_SECONDS_MAX * 1000),
  ];
}

function end() {
  waiting.forEach(clearTimeout);
  document.documentElement.classList.remove("waiting");
}

const isAsked = (event) => !event.detail.target?.dataset?.poll;
addEventListener("beforeunload", begin);
addEventListener("pageshow", end);
document.addEventListener("htmx:beforeRequest", (event) => isAsked(event) && begin());
document.addEventListener("htmx:afterRequest", (event) => isAsked(event) && end());

const kept = "Your text is kept. Nothing was sent twice.";

// What the page asks by itself fails without a word here: live.js tells when it hears nothing for long.
let away = null;
document.addEventListener("htmx:sendError", (event) => {
  if (!isAsked(event)) return;
  away?.remove();
  away = say(`The desk cannot be reached from here. ${kept} Try again when the connection is back.`, {
    seconds: 0,
  });
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) away?.remove(); // it is back
});

document.addEventListener("htmx:timeout", (event) => {
  if (!isAsked(event)) return;
  say(`No answer yet, so it is not known whether this was done. ${kept} Reload to see.`, {
    seconds: 0,
  });
});

document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  if (status < 500 || !isAsked(event)) return;
  say(`The desk answered with an error (${status}). ${kept} Reload to see what stands.`, {
    seconds: 0,
  });
});

// An answer that is a page of its own (a form too old, a right that is gone) has no place in a part of
// this one, nor is it a reason to lose what was typed: its words are told.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { status, responseText, responseURL } = event.detail.xhr;
  // What is only looked at is led to the log-in once the session is over.
  const isOver = status < 400 && new URL(responseURL || location.href).pathname.startsWith("/accounts/");
  if (status >= 500 || (status < 400 && !isOver)) return;
  const page = new DOMParser().parseFromString(responseText, "text/html");
  if (!page.body.matches(".entrance")) return;
  [event.detail.shouldSwap, event.detail.isError] = [false, true];
  if (!isAsked(event)) return;
  if (isOver) {
    say("You are logged out. Load the page again to log in; what is chosen and typed here is as it was.", { seconds: 0 });
    return;
  }
  // Who was taken out of every team is told no more than a stranger; what they sent came to nothing.
  if (status === 404 && event.detail.requestConfig.verb !== "get") {
    say(`Nothing was done: this is not here for you any more. ${kept} Perhaps you were taken out of a team: ask whoever administers the workspace.`, { seconds: 0 });
    return;
  }
  const told = [...page.querySelectorAll("h1, h1 + p")].map((one) => one.textContent.trim());
  say(told.join(". "), { seconds: 0 });
});

// After a decision the focus goes to the result, which the server marks; else it stays. It goes
// there with the swap: settling comes 20 ms later, and a key pressed between would start elsewhere.
document.addEventListener("htmx:afterSwap", (event) => {
  const result = event.detail.elt.querySelector?.("[data-focus]") ??
    (event.detail.elt.matches?.("[data-focus]") ? event.detail.elt : null);
  if (result) goTo(result);
  else if (held && document.activeElement === document.body) stay(event.detail.elt);
  held = null;
});

// It stays also where what had it was swapped for its like, as a plan under way is every two seconds.
let held = null;
const likeness = (one) =>
  [one.tagName, one.id, one.name, one.getAttribute("href"), one.form?.getAttribute("action")].join("|");
const alike = (part, like) => [...part.querySelectorAll("a, button, input, select, textarea, summary")]
  .filter((one) => likeness(one) === like);

document.addEventListener("htmx:beforeSwap", (event) => {
  const { target } = event.detail;
  const active = document.activeElement;
  if (target === active) {
    held = target.id ? { id: target.id } : null;
    return;
  }
  const like = target?.contains?.(active) ? likeness(active) : "";
  held = like ? { like, at: alike(target, like).indexOf(active) } : null;
});

function stay(part) {
  const itself = held.id && document.getElementById(held.id);
  if (itself) {
    goTo(itself, { preventScroll: true });
    return;
  }
  const same = part.querySelectorAll ? alike(part, held.like)[held.at] : null;
  if (same) same.focus({ preventScroll: true });
  else goTo(part, { preventScroll: true }); // it is gone: Tab goes on from here, not from the top
}

function goTo(place, how = { preventScroll: false }) {
  if (place.tabIndex < 0) place.setAttribute("tabindex", "-1"); // a field or a button has its own
  place.focus(how);
}

// A page that came back whole after a POST (no htmx) does the same; a form that was refused has the
// focus where it has to be mended, however far down the page that is.
const told = document.querySelector("main [data-focus]") ??
  document.querySelector('main [aria-invalid="true"]');
if (told) goTo(told);
