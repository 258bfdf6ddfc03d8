// Current: where views or tabs do not fit beside one another, the one that is open is in sight.
for (const one of document.querySelectorAll(":is(.tabs, .chips) [aria-current]")) {
  const row = one.closest("ul");
  if (row.scrollWidth > row.clientWidth) row.scrollLeft = one.offsetLeft - row.offsetLeft - 16;
}
