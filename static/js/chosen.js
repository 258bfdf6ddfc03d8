// A dry run: its title, its button and its sums speak of the lines that stay ticked.
//
//   <form data-chosen="case"> … <b data-chosen-count>5 cases</b> … <span data-chosen-summary>
//   … <tr data-id="7" data-customer data-minor …> <input type="checkbox" name="item">
import { summary } from "./selection.js";

function tell(form) {
  const boxes = [...form.querySelectorAll("[name=item]:checked")];
  const count = `${boxes.length} ${form.dataset.chosen}${boxes.length === 1 ? "" : "s"}`;
  for (const place of form.querySelectorAll("[data-chosen-count]")) place.textContent = count;
  const sums = form.querySelector("[data-chosen-summary]");
  if (sums) sums.textContent = (boxes.length ? `${boxes.length} chosen · ${summary(boxes)}` : "none is chosen") + " · ";
  const button = form.querySelector("[data-commits]:not([aria-describedby])");
  if (button) button.disabled = boxes.length === 0;
}

document.addEventListener("change", (event) => {
  const form = event.target.matches?.("[name=item]") && event.target.closest("[data-chosen]");
  if (form) tell(form);
});

// What a browser remembers of a page that somebody comes back to is ticked without a word.
for (const form of document.querySelectorAll("[data-chosen]")) tell(form);
