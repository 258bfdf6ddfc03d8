/**
 * Makes static/verifier.html, the one file that people save, out of this folder and of the modules
 * of the client which it needs. They stand in it as they are, without types: whoever opens the file
 * reads them. `make verifier` runs this, and puts the file's digest into docs/proofs.md; with
 * `--print` it only shows the file.
 */

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join, relative, resolve } from "node:path";

const HERE = import.meta.dirname;
const MADE = join(HERE, "../../static/verifier.html");
const GUIDE = join(HERE, "../../docs/proofs.md");
const TOLD = /(?<=SHA-256 of `static\/verifier\.html`: `)[0-9a-f]*(?=`)/;
const IMPORT = /^import\s+(?:(\w+)|(\{[^}]*\}))\s+from\s+"([^"]+)"[^;]*;$/gm;
const EXPORT = /^export (?=(?:async function|function|class|const)\*? (\w+))/gm;

/** A module, and before it those that it imports, each as a constant of what it exports. */
function modules(path: string, seen = new Map<string, string>()): Map<string, string> {
  if (seen.has(path)) return seen;
  const text = readFileSync(path, "utf8");
  if (path.endsWith(".json")) {
    const value = JSON.stringify(JSON.parse(text), null, 1);
    return seen.set(path, `const ${nameOf(path)} = ${value};`);
  }
  const exported: string[] = [];
  const body = tidy(stripTypeScriptTypes(text))
    .replace(IMPORT, (_all, whole, named, from) => {
      const there = resolve(dirname(path), from);
      modules(there, seen);
      return `const ${whole ?? asPattern(named)} = ${nameOf(there)};`;
    })
    .replace(EXPORT, (_all, name) => {
      exported.push(name);
      return "";
    })
    .trim();
  const isLast = exported.length === 0;
  const title = `// ${relative(join(HERE, ".."), path)}`;
  const inside = `${body}\nreturn { ${exported.join(", ")} };`;
  const whole = isLast ? body : `const ${nameOf(path)} = (() => {\n${inside}\n})();`;
  return seen.set(path, `${title}\n${whole}`);
}

/** `canonical_module` of `…/canonical.ts`. */
function nameOf(path: string): string {
  return `${path.replace(/^.*\//, "").replace(/\..*$/, "")}_module`;
}

/** `{ a, b as c }` of an import as what takes an object apart. */
function asPattern(named: string): string {
  const names = named.slice(1, -1).split(",").map((one) => one.trim()).filter((one) => one !== "");
  return `{ ${names.map((one) => one.replace(/ as /, ": ")).join(", ")} }`;
}

/** Without the holes that types leave: no text of these modules has two spaces together. */
function tidy(text: string): string {
  return text
    .replace(/(?<=\S) {2,}(?=[),;\]])/g, "")
    .replace(/(?<=\S) {2,}/g, " ")
    .replace(/(?<=[\])]) (?=[)\],;.])/g, "")
    .replace(/ +$/gm, "")
    .replace(/\n{3,}/g, "\n\n");
}

function digestOf(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

const style = `\n${readFileSync(join(HERE, "page.css"), "utf8")}`;
const script = `\n${[...modules(join(HERE, "page.ts")).values()].join("\n\n")}\n`;
if (script.includes("</script")) throw new Error("the script would end in its own middle");
const parts: { [name: string]: string } = {
  "style digest": digestOf(style),
  "script digest": digestOf(script),
  style,
  script,
};
const template = readFileSync(join(HERE, "page.html"), "utf8");
const page = template.replace(/\{\{([a-z ]+)\}\}/g, (_all, name: string) => parts[name]!);
if (process.argv.includes("--print")) process.stdout.write(page);
else {
  writeFileSync(MADE, page);
  const digest = createHash("sha256").update(page).digest("hex");
  writeFileSync(GUIDE, readFileSync(GUIDE, "utf8").replace(TOLD, digest));
}
