// Say: short notes to the reader. The live region stands in the page before anything is put in it,
// or screen readers would not speak it.

const region = () => document.getElementById("toasts");

export function whisper(text) {
  const quiet = document.getElementById("spoken");
  if (quiet) quiet.textContent = text;
}

export function say(text, { seconds = 8 } = {}) {
  const place = region();
  if (!place) return null;
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
  return note;
}

// Copy: <button data-copy="text"> or, without a text, the address of the page.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const text = button.dataset.copy || location.href;
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied: ${text.length > 60 ? `${text.slice(0, 57)}…` : text}`, { seconds: 4 });
  } catch {
    say("This browser does not let a page copy. Select the text and copy it yourself.");
  }
});
