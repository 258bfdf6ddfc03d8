// Touch: a key that did not answer says so, where allauth's script leaves it to the console.
document.addEventListener("allauth.error", () => {
  document.querySelector("[data-untouched]").hidden = false;
});
document.addEventListener("click", () => {
  document.querySelector("[data-untouched]").hidden = true;
}, true);
