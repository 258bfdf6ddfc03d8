// Moments: relative times go on counting, and the exact time behind each is in the reader's own zone.
// The server has already written both; without this script they stand still in the workspace's zone.

const EVERY_SECONDS = 20;
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };
const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const exactly = new Intl.DateTimeFormat(undefined, { ...DAY, ...CLOCK, timeZoneName: "short" });
const clock = new Intl.DateTimeFormat(undefined, CLOCK);
const day = new Intl.DateTimeFormat(undefined, DAY);

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
  if (style === "clock") return clock.format(when);
  if (style === "day" || style === "date") return day.format(when);
  return exactly.format(when);
}

export function refresh(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-moment]")) {
    const when = new Date(time.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    const text = words(time.dataset.moment, when, now);
    if (time.textContent !== text) time.textContent = text;
    time.dataset.exact = exactly.format(when);
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
