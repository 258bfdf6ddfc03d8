// Keep: nothing that was typed is lost. If a form's answer is a conflict (409) or a complaint (422),
// the text is put back into the same fields; it is forgotten once it has been accepted.

const typed = 'textarea[name], input[name][type="text"], input[name]:not([type])';
// Not form.action: a field of that name would stand in its place.
const address = (form) => new URL(form.getAttribute("action") || location.href, location.href).pathname;
// By the field's id, which no other on the page has: two forms of one address may have fields of one name.
const slot = (form, field) => `amends.kept:${address(form)}:${field.id || field.name}`;
// Between what was typed and what stood there before; no field holds it. Pages of an older version kept the first alone.
const APART = "\0";

function fields(form) {
  return [...form.querySelectorAll(typed)].filter((field) => field.value && !field.readOnly);
}

function keep(form, wanted = () => true) {
  if (form.method !== "post" || form.hasAttribute("data-keep-nothing")) return;
  for (const field of fields(form).filter(wanted)) {
    sessionStorage.setItem(slot(form, field), field.value + APART + field.defaultValue);
  }
}

document.addEventListener("submit", (event) => keep(event.target), true);

// A page that is loaded anew by itself, as once a plan is over: half a sentence is put back after it.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  const { xhr, requestConfig } = event.detail;
  if (requestConfig.verb !== "get" || !xhr.getResponseHeader("HX-Refresh")) return;
  for (const form of document.forms) keep(form, (field) => field.value !== field.defaultValue);
});

// Into an empty field, or one in which stands what stood there when it was changed: what is new is not typed over.
function restore(root) {
  for (const form of root.querySelectorAll('form[method="post"]')) {
    for (const field of form.querySelectorAll(typed)) {
      const [text, before] = (sessionStorage.getItem(slot(form, field)) ?? "").split(APART);
      if (text && (!field.value || (field.value === before && text !== before))) field.value = text;
    }
  }
}

const KEEPER = "amends.keeper";

function forget() {
  for (const name of Object.keys(sessionStorage)) {
    if (name.startsWith("amends.kept:")) sessionStorage.removeItem(name);
  }
}

// A whole page: the server marks a refusal on <main>. Who comes from the log-in may have sent a form after the
// session had ended, and who loads a page again, or is led back to it (#typed, 403_csrf.html), one that came to
// nothing: what was typed is put back where it stood, and is not sent by itself.
// It is theirs alone who typed it: another person who logs in here is given none of it.
const { person } = document.body.dataset;
if ((sessionStorage.getItem(KEEPER) ?? person) !== person) forget();
sessionStorage.setItem(KEEPER, person);
const before = document.referrer ? new URL(document.referrer) : null;
const loggedIn = before?.origin === location.origin && before.pathname.startsWith("/accounts/");
const again = performance.getEntriesByType("navigation")[0]?.type === "reload" || location.hash === "#typed";
if (loggedIn || again || document.querySelector("main[data-refused]")) restore(document);
else forget();
// Once: with it in the address, what was sent since would be put back as well.
if (location.hash === "#typed") history.replaceState(history.state, "", location.pathname + location.search);

// With the swap, not after it has settled: what is typed at once would stand in a field's way.
document.addEventListener("htmx:afterSwap", (event) => {
  const { xhr, requestConfig } = event.detail;
  if (!xhr || requestConfig?.verb === "get") return;
  if (xhr.status >= 400) restore(document);
  else forget();
});
