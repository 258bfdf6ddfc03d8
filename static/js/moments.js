// Moments: relative times go on counting. The server has written all of them by the page's clock
// (workspaces/pages.py), with UTC behind it. Where nobody chose one, it hears here in which zone the
// browser is, and until it has, this page is put into that zone.

const EVERY_SECONDS = 20;
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };
const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const { zone, zoneChosen } = document.documentElement.dataset;
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
const isElsewhere = Boolean(zone && here && here !== zone && zoneChosen === undefined);
const [day, clock, name, utc] = [DAY, CLOCK, { timeZoneName: "short" }, { ...CLOCK, timeZone: "UTC" }].map(
  (parts) => new Intl.DateTimeFormat("en-CA", parts),
);

if (isElsewhere) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `zone=${here}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
}

function exactly(when) {
  const called = name.formatToParts(when).find((part) => part.type === "timeZoneName").value;
  const own = `${day.format(when)} ${clock.format(when)} ${called}`;
  if (clock.format(when) === utc.format(when)) return own;
  const there = when.toISOString().slice(0, 10);
  return `${own} = ${there === day.format(when) ? "" : `${there} `}${utc.format(when)} UTC`;
}

function span(seconds) {
  const all = Math.floor(Math.abs(seconds));
  if (all < 60) return `${all} s`;
  const minutes = Math.floor(all / 60);
  const hours = Math.floor(all / 3600);
  const days = Math.floor(all / 86400);
  if (hours === 0) return `${minutes} min`;
  if (days === 0) {
    return minutes % 60 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${hours} h`;
  }
  return days < 14 && hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

function words(style, when, now) {
  const seconds = (now - when) / 1000;
  if (style === "ago") return seconds < 0 ? `in ${span(seconds)}` : `${span(seconds)} ago`;
  if (style === "span") return span(seconds);
  if (!isElsewhere) return undefined;
  if (style === "clock") return clock.format(when);
  if (style === "day") return day.format(when);
  return exactly(when);
}

export function refresh(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-moment]")) {
    const when = new Date(time.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    const text = words(time.dataset.moment, when, now);
    if (text && time.textContent !== text) time.textContent = text;
    if (isElsewhere) time.dataset.exact = exactly(when);
  }
}

refresh();
setInterval(() => document.hidden || refresh(), EVERY_SECONDS * 1000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
document.addEventListener("htmx:afterSettle", () => refresh());

// Escape puts the little tags away until the pointer or the focus moves on (WCAG 1.4.13).
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.documentElement.classList.add("hush");
});
for (const kind of ["pointermove", "focusin"]) {
  document.addEventListener(kind, () => document.documentElement.classList.remove("hush"));
}

// Paper says where it is from and when: parts of the page may be newer than the page, or have led on.
addEventListener("beforeprint", () => {
  const [address, printed] = ["[data-address]", "[data-printed]"].map((one) => document.querySelector(one));
  if (address) address.textContent = location.href;
  if (printed) printed.textContent = `, printed ${exactly(new Date())}`;
});
