// Say: short notes to the reader. The live region stands in the page before anything is put in it,
// or screen readers would not speak it.

const region = () => document.getElementById("toasts");

export function whisper(text) {
  const quiet = document.getElementById("spoken");
  if (quiet) quiet.textContent = text;
}

export function say(text, { seconds = 8 } = {}) {
  const place = region();
  if (!place) return;
  const note = document.createElement("div");
  note.className = "toast";
  const words = document.createElement("span");
  words.textContent = text;
  const shut = document.createElement("button");
  shut.type = "button";
  shut.setAttribute("aria-label", "Dismiss this note");
  shut.textContent = "✕";
  shut.addEventListener("click", () => note.remove());
  note.append(words, shut);
  place.append(note);
  while (place.children.length > 3) place.firstElementChild.remove();
  if (seconds) setTimeout(() => note.remove(), seconds * 1000);
}
