// Copy: <button data-copy="text"> or, without a text, the address of the page.
import { say } from "./say.js";

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
