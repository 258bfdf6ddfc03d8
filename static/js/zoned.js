// The times of a correction in the reader's own zone and language. Without this script they stand in
// the zone of whoever published it, which is named beside them.

const LONG = { year: "numeric", month: "long", day: "numeric", hour: "2-digit", minute: "2-digit" };
const here = new Intl.DateTimeFormat(document.documentElement.lang, { ...LONG, timeZoneName: "short" });

for (const time of document.querySelectorAll("time[data-zoned]")) {
  const when = new Date(time.dateTime);
  if (Number.isNaN(when.getTime())) continue;
  time.title = time.textContent;
  time.textContent = here.format(when);
}
