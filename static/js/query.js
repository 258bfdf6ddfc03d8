// Query: the tokens of the query language get a ground of their own behind the text, and words of the
// language are offered while typing. The field stays an ordinary text field.

const token = /(-?)\b(?:is|has|risk|age|amount|tool|target|agent|model|customer|run|state|cause|claimed|connector|opened):(?:"[^"]*"|\S+)/g;

function paint(field, mirror) {
  mirror.replaceChildren();
  let done = 0;
  for (const found of field.value.matchAll(token)) {
    mirror.append(field.value.slice(done, found.index));
    const mark = document.createElement("mark");
    mark.textContent = found[0];
    if (found[1]) mark.className = "not";
    mirror.append(mark);
    done = found.index + found[0].length;
  }
  mirror.append(field.value.slice(done));
  mirror.scrollLeft = field.scrollLeft;
}

function start(field) {
  const mirror = document.createElement("div");
  mirror.className = "query-mirror";
  mirror.setAttribute("aria-hidden", "true");
  field.before(mirror);
  const again = () => paint(field, mirror);
  field.addEventListener("input", again);
  field.addEventListener("scroll", () => {
    mirror.scrollLeft = field.scrollLeft;
  });
  again();
}

for (const field of document.querySelectorAll("input[data-query]")) start(field);
