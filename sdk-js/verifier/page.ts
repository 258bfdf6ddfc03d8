/**
 * The page of the verifier: takes a record and a key, asks the client's own check, says what came.
 *
 * It asks nobody: the page's policy refuses every request. Whatever stands in a file becomes text
 * of the page and never markup, and shows only once it is proven.
 */

import { isObject, type Json, type JsonObject } from "../src/protocol/canonical.ts";
import {
  download,
  FILE_BYTES_MAX,
  hex,
  linesOfKeys,
  LogKey,
  NotProven,
  type Reason,
  type Verified,
} from "../src/protocol/proofs.ts";
import { type Assertion, verifySigned } from "../src/protocol/signatures.ts";
import WORDS from "./words.json" with { type: "json" };

type Words = typeof WORDS.en & { reasons: { [reason in Reason]: string } };
type Sentence = Exclude<keyof Words, "reasons">;
/** `key` is the line that was given of it, `unproven` the members of which nothing is known. */
type Proven = { found: Verified; signed: Assertion | null; key: string; unproven: string[] };
type Outcome =
  | Proven
  | { reason: Reason; technical: string }
  | { stopped: Sentence; technical?: string };

const LANGUAGES: { [code: string]: Words } = WORDS;
const NAMES = { en: "English", de: "Deutsch", fr: "Français", es: "Español" };
// A line of log.pub; a file of nothing else is the key, wherever it was dropped.
const KEY_LINE = /^[^+\s{}"]+\+[0-9a-f]{8}\+\S+$/;
// Members of a download that are proven, or by which it is.
const PROVEN = ["event", "salt", "proof", "facts", "words", "facts_salt"];
const DECISION = ["enrolment", "question"];
// Of all types only the desk writes this one; an agent's event may hold such digests, too.
const CORRECTION = "correction.published";
// Characters that hide, reorder or strike out what stands beside them, as the desk's own pages show
// them; but for the end of a line, the tab, and the selectors of a picture behind its sign.
const SEEN = String.raw`[\n\t]|(?<=[\p{So}\p{Sm}])[\ufe0e\ufe0f]`;
const HIDES =
  String.raw`\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800`;
const OVERLAID =
  String.raw`\u0334-\u0338\u0488\u0489\u1abe\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2` +
  String.raw`\u20e4-\u20e6\u20ea\u20eb\ua670-\ua672`;
const HIDDEN = new RegExp(`(?!${SEEN})[${HIDES}${OVERLAID}]`, "gu");

// RFC 8032, section 7.1, test 1: a signature over nothing by a key that everybody knows.
const TRIED_KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
const TRIED_SIGNATURE =
  "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==";

/** We stopped because something is missing, or cannot be read; the sentence says how to go on. */
class NotChecked extends Error {
  readonly sentence: Sentence;

  constructor(sentence: Sentence) {
    super(sentence);
    this.sentence = sentence;
  }
}

let language = startLanguage();
let record: File | null = null;
let outcome: Outcome | null = null;
let taken: Promise<void> = Promise.resolve();

const form = byId<HTMLFormElement>("asked");
const recordInput = byId<HTMLInputElement>("record");
const keyInput = byId<HTMLInputElement>("key-file");
const keyLines = byId<HTMLTextAreaElement>("key");
const verdict = byId("verdict");
const told = byId("told");

// What was asked.

async function check(): Promise<void> {
  await taken; // what was chosen a moment ago
  const [file, lines] = [record, keyLines.value];
  let came: Outcome;
  try {
    came = await found();
  } catch (error) {
    came = refusal(error);
  }
  if (file !== record || lines !== keyLines.value) return; // it was of something else
  if ("stopped" in came && came.stopped === "unreadable") {
    recordInput.value = ""; // so that choosing the same file again is noticed
  }
  outcome = came;
  show();
}

async function found(): Promise<Outcome> {
  if (record === null) throw new NotChecked("needsRecord");
  const keys = linesOfKeys(keyLines.value);
  if (keys.length === 0) throw new NotChecked("needsKey");
  const text = await textOf(record);
  const { found, signed } = await verifySigned(text, await Promise.all(keys.map(LogKey.parse)));
  const members = found.event === null ? [] : Object.keys(download(text));
  const proven = signed === null ? PROVEN : [...PROVEN, ...DECISION];
  const unproven = members.filter((name) => !proven.includes(name));
  const { name, keyId } = found.signer;
  const key = keys.find((line) => line.trim().startsWith(`${name}+${hex(keyId)}+`)) ?? "";
  return { found, signed, key, unproven };
}

function refusal(error: unknown): Outcome {
  if (error instanceof NotProven) return { reason: error.reason, technical: error.message };
  if (error instanceof NotChecked) return { stopped: error.sentence };
  return { stopped: "failed", technical: String(error) };
}

async function textOf(file: File): Promise<string> {
  if (file.size > FILE_BYTES_MAX) throw new NotChecked("tooLarge");
  let bytes: ArrayBuffer;
  try {
    bytes = await file.arrayBuffer();
  } catch {
    throw new NotChecked("unreadable");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new NotChecked("noText");
  }
}

/** What was said of something else is said no more. */
function forget(): void {
  outcome = null;
  show();
}

/** Files that were chosen or dropped; once record and key are there, they are checked. */
async function take(files: readonly File[]): Promise<void> {
  forget();
  taken = taken.then(() => sort(files));
  await taken;
  if (record === null || keyLines.value.trim() === "") return;
  await check();
  verdict.scrollIntoView({ block: "nearest" });
}

/** A file goes where it belongs, wherever it was chosen or dropped. */
async function sort(files: readonly File[]): Promise<void> {
  for (const file of files) {
    const text = await textOf(file).catch(() => "");
    const lines = linesOfKeys(text).map((line) => line.trim());
    if (lines.length > 0 && lines.every((line) => KEY_LINE.test(line))) {
      keyLines.value = `${lines.join("\n")}\n`;
      hold(keyInput, file);
    } else {
      record = file;
      hold(recordInput, file);
    }
  }
}

function hold(input: HTMLInputElement, file: File): void {
  const held = new DataTransfer();
  held.items.add(file);
  input.files = held.files;
}

/** Whether this browser knows Ed25519, and reads the digits of a number beyond 2^53. */
async function isAble(): Promise<boolean> {
  try {
    const [raw, signature] = [TRIED_KEY, TRIED_SIGNATURE].map((text) =>
      Uint8Array.from(atob(text), (one) => one.charCodeAt(0)),
    ) as [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];
    const key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
    const isSigned = await crypto.subtle.verify("Ed25519", key, signature, new Uint8Array());
    return isSigned && "rawJSON" in JSON; // came with `context.source` (canonical.ts)
  } catch {
    return false;
  }
}

// What is said.

function show(): void {
  const words = LANGUAGES[language]!;
  verdict.replaceChildren();
  told.replaceChildren();
  if (outcome === null) return;
  if ("found" in outcome) {
    const { found } = outcome;
    verdict.className = "proven";
    const sentence = found.event === null ? words.provenEntry : words.provenEvent;
    verdict.append(element("h2", `✓ ${words.proven}`), element("p", sentence));
    told.append(...recordSaid(outcome.found, words), proven(outcome, words));
    return;
  }
  const isStopped = "stopped" in outcome;
  verdict.className = isStopped ? "stopped" : "not";
  const title = isStopped ? words.stopped : `✕ ${words.notProven}`;
  const sentence = "stopped" in outcome ? words[outcome.stopped] : words.reasons[outcome.reason];
  verdict.append(element("h2", title), element("p", sentence));
  if (!isStopped) verdict.append(element("p", words.next));
  if (outcome.technical) verdict.append(technical(outcome.technical, words));
}

function technical(said: string, words: Words): HTMLElement {
  const line = element("p", `${words.technical} `, "muted");
  const code = element("code", visible(said));
  code.lang = "en";
  line.append(code);
  return line;
}

/** What a person looks for first: of a correction its words, of another event its data. */
function* recordSaid({ leaf, event, beside }: Verified, words: Words): Generator<HTMLElement> {
  if (event === null) return;
  const said = section(words.says);
  const { facts, words: written } = beside;
  if (leaf["type"] === CORRECTION && isObject(facts) && isObject(written)) {
    said.append(...correction(facts, written, words));
  } else {
    const data = isObject(event) ? event["data"] : event;
    said.append(letterByLetter(data ?? null));
  }
  said.append(element("p", words.inEnglish, "muted"));
  yield said;
}

function* correction(
  facts: JsonObject,
  written: JsonObject,
  words: Words,
): Generator<HTMLElement> {
  yield asWritten(element("h3", textOfMember(written, "title")));
  yield asWritten(element("p", textOfMember(written, "lead")));
  const request = textOfMember(facts, "request");
  if (request !== "") {
    yield element("p", words.asked, "muted");
    yield asWritten(element("blockquote", request));
  }
  const edited = isObject(written["wording"]) ? written["wording"] : {};
  const list = asWritten(element("ul", "", "steps"));
  for (const one of [...objectsOf(facts["items"]), ...objectsOf(facts["unchanged"])]) {
    const line = element("li", textOfMember(one, "what"));
    const word = textOfMember(one, "word");
    if (word !== "") line.append(" ", element("span", word, "word"));
    const did = textOfMember(edited, textOfMember(one, "id")) || textOfMember(one, "did");
    if (did !== "") line.append(element("p", did));
    list.append(line);
  }
  yield list;
}

function proven(outcome: Proven, words: Words): HTMLElement {
  const { found, signed, key, unproven } = outcome;
  const { leaf, index, size, origin } = found;
  const entry = words.entryOf.replace("{index}", String(index)).replace("{size}", String(size));
  const rows: [string, string | Node][] = [
    [words.received, moment(textOfMember(leaf, "received"))],
    [words.origin, code(origin)],
    [words.entry, entry],
    [words.type, code(textOfMember(leaf, "type"))],
    [words.workspace, code(textOfMember(leaf, "workspace"))],
    [words.actor, code(textOfMember(leaf, "actor"))],
    [words.signedWith, code(key)],
  ];
  if (signed !== null) {
    rows.push([words.signed, words.signedOn.replace("{origin}", () => visible(signed.origin))]);
  }
  const list = element("dl");
  for (const [name, value] of rows) {
    const cell = element("dd");
    cell.append(value);
    list.append(element("dt", name), cell);
  }
  const all = section(words.what);
  all.append(list);
  const whole: JsonObject = { ...(found.event === null ? {} : { event: found.event }), leaf };
  const fold = element("details");
  fold.append(element("summary", words.everything));
  fold.append(letterByLetter({ ...whole, ...found.beside }));
  all.append(fold);
  if (unproven.length > 0) {
    const names = visible(unproven.join(", "));
    all.append(element("p", words.unproven.replace("{names}", () => names), "muted"));
  }
  return all;
}

/** In the reader's zone, which is named, and as the log has it. */
function moment(received: string): Node {
  const at = new Date(received);
  if (Number.isNaN(at.getTime())) return document.createTextNode(visible(received));
  const shown = new Intl.DateTimeFormat(language, { dateStyle: "long", timeStyle: "long" });
  const both = document.createDocumentFragment();
  const time = element("time", shown.format(at)) as HTMLTimeElement;
  time.dateTime = received;
  both.append(time, element("br"), code(received));
  return both;
}

function letterByLetter(value: Json): HTMLElement {
  // A BigInt is written with all its digits, as it stands in the file.
  const raw = (_name: string, one: Json): unknown =>
    typeof one === "bigint" ? (JSON as unknown as RawJson).rawJSON(String(one)) : one;
  const block = asWritten(element("pre", visible(JSON.stringify(value, raw, 2))));
  block.tabIndex = 0;
  return block;
}
type RawJson = { rawJSON(text: string): unknown };

// Elements.

function byId<Kind extends HTMLElement>(id: string): Kind {
  return document.getElementById(id) as Kind;
}

function element(name: string, text = "", className = ""): HTMLElement {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function section(title: string): HTMLElement {
  const made = element("section");
  made.append(element("h2", title));
  return made;
}

function code(text: string): HTMLElement {
  return element("code", visible(text));
}

/** Words of the record itself, which are English whatever the page is. */
function asWritten(made: HTMLElement): HTMLElement {
  made.lang = "en";
  made.dir = "auto";
  return made;
}

function textOfMember(from: JsonObject, name: string): string {
  const found = Object.hasOwn(from, name) ? from[name] : undefined;
  return typeof found === "string" ? visible(found) : "";
}

function objectsOf(value: Json | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** With what hides or reorders shown by its number: no file says one thing and shows another. */
function visible(text: string): string {
  const number = (one: string): string => one.codePointAt(0)!.toString(16).toUpperCase();
  return text.replace(HIDDEN, (one) => `⟦U+${number(one).padStart(4, "0")}⟧`);
}

// The page.

function startLanguage(): string {
  const wanted = navigator.languages.map((one) => one.split("-")[0]!.toLowerCase());
  return wanted.find((one) => Object.hasOwn(NAMES, one)) ?? "en";
}

function speak(code: string): void {
  language = code;
  const words = LANGUAGES[code]!;
  document.documentElement.lang = code;
  document.title = `Amends: ${words.title}`;
  for (const one of document.querySelectorAll<HTMLElement>("[data-word]")) {
    one.textContent = words[one.dataset["word"] as Sentence];
  }
  const list = byId("languages");
  list.ariaLabel = words.languages;
  for (const button of list.querySelectorAll("button")) {
    button.ariaPressed = String(button.lang === code);
  }
  sayNetwork();
  show();
}

function sayNetwork(): void {
  const words = LANGUAGES[language]!;
  const line = byId("network");
  line.textContent = navigator.onLine ? words.online : words.offline;
  line.className = navigator.onLine ? "muted on" : "muted";
}

function listen(): void {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await check();
    verdict.focus();
  });
  for (const input of [recordInput, keyInput]) {
    input.addEventListener("change", () => take([...(input.files ?? [])]));
  }
  keyLines.addEventListener("input", (event) => {
    const isWhole = (event as InputEvent).inputType === "insertFromPaste";
    void (isWhole ? take([]) : forget());
  });
  for (const name of ["dragenter", "dragover"]) {
    addEventListener(name, (event) => {
      event.preventDefault();
      document.body.classList.add("over");
    });
  }
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("over");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("over");
    void take([...(event.dataTransfer?.files ?? [])]);
  });
  for (const name of ["online", "offline"]) addEventListener(name, sayNetwork);
}

for (const [code, name] of Object.entries(NAMES)) {
  const button = element("button", name) as HTMLButtonElement;
  [button.type, button.lang] = ["button", code];
  button.addEventListener("click", () => speak(code));
  const line = element("li");
  line.append(button);
  byId("languages").append(line);
}
speak(language);
if (await isAble()) {
  form.hidden = false;
  listen();
} else {
  outcome = { stopped: "unable" };
  show();
}
