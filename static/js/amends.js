// The one entry: every page of the desk loads this module, and each part starts by itself
// where the page has something for it to do.
import "./reports.js";
import "./moments.js";
import "./keep.js";
import "./live.js";
import "./query.js";
import "./selection.js";
import "./chosen.js";
import "./palette.js";
import "./keys.js";
import "./sign.js";

document.documentElement.classList.add("js");

// A no says why, and a yes may: the button that is pressed makes the reason one that is needed.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest?.("button");
    const reason = button?.form?.elements.reason;
    if (!reason || !button.form.querySelector("[data-needs-reason]")) return;
    reason.required = button.hasAttribute("data-needs-reason");
  },
  true,
);

// Where views or tabs do not fit beside one another, the one that is open is in sight.
for (const one of document.querySelectorAll(":is(.tabs, .chips) [aria-current]")) {
  const row = one.closest("ul");
  if (row.scrollWidth > row.clientWidth) row.scrollLeft = one.offsetLeft - row.offsetLeft - 16;
}
