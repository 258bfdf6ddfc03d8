/**
 * Masking: secrets never leave the process that holds them, and never enter the ledger.
 *
 * One rule, applied by the client before sending and once more when events come in. Masking what is
 * masked changes nothing, so that digests agree on both sides. The vectors that every client runs
 * are tests/data/masking.json.
 */

import { createHmac } from "node:crypto";

import { Unfit } from "../errors.ts";
import { canonical, isObject, type Json, type JsonObject } from "./canonical.ts";

export const DEPTH_MAX = 32;
const CARD_DIGITS_MIN = 13;
const CARD_MIN = 10 ** (CARD_DIGITS_MIN - 1);

// Compared with a value's whole name, in lower case, with everything but letters and digits
// removed: `API-Key`, `api_key` and `apiKey` are one name, `token_count` is another.
const SECRET_NAMES: ReadonlySet<string> = new Set(
  `password passwd pwd passphrase secret clientsecret secretkey
  token accesstoken refreshtoken idtoken authtoken bearertoken
  sessiontoken apikey apitoken apisecret accesskey secretaccesskey
  privatekey signingkey authorization proxyauthorization cookie setcookie
  cvv cvv2 cvc cvc2 cardnumber creditcardnumber iban`.split(/\s+/),
);

// A payment card: 13 to 19 digits that start with an issuer's digit, in groups or not, with a valid
// check digit (Luhn, ISO/IEC 7812-1). Millisecond clocks start with 1 and are left alone.
const CARD = "(?<![0-9A-Za-z])[2-6](?:[ -]?[0-9]){12,18}(?![0-9A-Za-z])";
const CARD_ALONE = new RegExp(`^(?:${CARD})$`);
// An id in the form of a UUID (RFC 9562) is no card, whatever digits chance has put into it.
const UUID =
  "(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[1-8][0-9A-Fa-f]{3}" +
  "-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])";
// So is a Message-ID (RFC 5322) of several parts, as mail libraries make them: `<1.2.3@host>`.
const MESSAGE_ID = "<[0-9A-Za-z_=+-]+(?:\\.[0-9A-Za-z_=+-]+){2,}@[0-9A-Za-z.-]+>";
const ID_OR_CARD = new RegExp(`${UUID}|${MESSAGE_ID}|${CARD}`, "g");
// A card among other digits ("4242 4242 4242 4242 12/27", "2026-11-23 4242…"): as it is printed, in
// one piece, four groups of four, or 4-6-5 and 4-6-4. Any other grouping has to stand by itself.
const PRINTED = new RegExp(
  `${UUID}|${MESSAGE_ID}|` +
    "(?<card>(?<![0-9A-Za-z])(?=[2-6])(?:[0-9]{13,19}|[0-9]{4}(?:[ -][0-9]{4}){3}" +
    "|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5})(?![0-9A-Za-z]))",
  "g",
);

const OPENING = "⟦masked:";
const SECRET_BYTES_MIN = 32;
const MARK_HEX_DIGITS = 32; // 128 bits
const MARK_FORM = "amends mask 1";
const MARKED = "[a-z0-9]{1,32}:v1:[0-9a-f]{32}(?::[0-9A-Z]{4})?⟧";
const PLACEHOLDER = new RegExp(`^⟦masked:(?:[a-z0-9]{1,32}⟧|${MARKED})$`);
const BARE = new RegExp(`⟦masked:(?!${MARKED})`);
const LAST4 = /(⟦masked:[a-z0-9]{1,32}:v1:[0-9a-f]{32}):[0-9A-Z]{4}(?=⟧)/g;
const CARD_TAGS: ReadonlySet<string> = new Set(["card", "cardnumber", "creditcardnumber"]);
const CARD_FORM = /^[0-9](?:[ -]?[0-9]){11,18}$/;
const IBAN_FORM = /^[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}$/;
// What Unicode calls white space, and the separators of ASCII.
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;

/**
 * Makes placeholders that tell secrets apart without telling them (docs/decisions/masking.md).
 *
 * A placeholder carries 128 bits of HMAC-SHA-256 over the secret's normal form: the same card is
 * the same mark, however it is grouped; a number and a text are two. `showsLast4` adds the last
 * four characters of cards and IBANs, for people to read; they bind nothing.
 */
export class MaskingKey {
  readonly #secret: Uint8Array;
  readonly showsLast4: boolean;

  constructor(secret: Uint8Array, { showsLast4 = false } = {}) {
    if (secret.length < SECRET_BYTES_MIN) {
      throw new RangeError(`a masking key has at least ${SECRET_BYTES_MIN} bytes`);
    }
    this.#secret = secret;
    this.showsLast4 = showsLast4;
  }

  /** What stands for `value` of the kind that `tag` names. */
  placeholder(tag: string, value: Json): string {
    const [family, normal] = normalForm(tag, value);
    const mark = this.#mark(family, normal);
    const isShown = this.showsLast4 && (family === "card" || family === "iban");
    return bare(isShown ? `${tag}:v1:${mark}:${normal.slice(-4)}` : `${tag}:v1:${mark}`);
  }

  /** The mark alone, by which equal values are known and no value is found. */
  mark(tag: string, value: Json): string {
    return this.#mark(...normalForm(tag, value));
  }

  #mark(family: string, normal: string): string {
    const told = `${MARK_FORM}\n${family}\n${normal}`;
    const mac = createHmac("sha256", this.#secret).update(told).digest("hex");
    return mac.slice(0, MARK_HEX_DIGITS);
  }
}

/** The family within which values are compared, and the text that is the same for the same. */
function normalForm(tag: string, value: Json): [string, string] {
  const text = isInteger(value) ? String(BigInt(value)) : value;
  if (typeof text === "string") {
    if (CARD_TAGS.has(tag) && CARD_FORM.test(text)) return ["card", text.replace(/[ -]/g, "")];
    if (tag === "iban") {
      const account = text.replace(SPACES, "").toUpperCase();
      if (IBAN_FORM.test(account)) return ["iban", account];
    }
  }
  return [`value of ${tag}`, withoutLast4(canonical(value))];
}

function isInteger(value: Json): value is number | bigint {
  return typeof value === "bigint" || Number.isInteger(value);
}

function bare(tag: string): string {
  return `${OPENING}${tag}⟧`;
}

/** The placeholder for a value; without a key a bare one, which compares with nothing. */
function madeBy(key: MaskingKey | null, tag: string, value: Json): string {
  return key === null ? bare(tag) : key.placeholder(tag, value);
}

/** The kind of a placeholder that is the whole text; null of any other text. */
export function kindOf(text: string): string | null {
  return PLACEHOLDER.test(text) ? text.slice(OPENING.length, -1).split(":")[0]! : null;
}

/** Whether something was masked without a mark: then nothing says which value it was. */
export function holdsBare(value: Json): boolean {
  return anyText(value, (text) => BARE.test(text));
}

/** Whether a placeholder stands anywhere in a value: then it cannot be restored from here. */
export function holdsMask(value: Json | undefined): boolean {
  return value !== undefined && anyText(value, (text) => text.includes(OPENING));
}

function anyText(value: Json, holds: (text: string) => boolean): boolean {
  if (typeof value === "string") return holds(value);
  if (Array.isArray(value)) return value.some((one) => anyText(one, holds));
  return isObject(value) && Object.values(value).some((one) => anyText(one, holds));
}

/** JSON text as digests cover it: what is shown to people may differ, the marks may not. */
export function withoutLast4(text: string): string {
  return text.includes("masked:") ? text.replace(LAST4, "$1") : text;
}

/**
 * A copy of `data` with names of the table, cards and policy paths replaced.
 *
 * A path is names joined by dots, `*` for any one name; lists are looked through. It starts at
 * `data`, and at each of `data.effects`, so that `before.ssn` finds every snapshot.
 */
export function masked<T extends Json>(
  data: T,
  paths: Iterable<string> = [],
  key: MaskingKey | null = null,
): T {
  const found = clean(data, 0, key);
  const effects = isObject(found) && Array.isArray(found["effects"]) ? found["effects"] : [];
  for (const path of paths) {
    for (const root of [found, ...effects]) maskPath(root, path.split("."), key);
  }
  return found as T;
}

function clean(value: Json, depth: number, key: MaskingKey | null): Json {
  if (typeof value === "string") return withoutCards(value, key);
  if (typeof value === "number" || typeof value === "bigint") return numberWithoutCard(value, key);
  if (value === null || typeof value === "boolean") return value;
  if (depth >= DEPTH_MAX && !isEmpty(value)) {
    throw new Unfit(`it is nested deeper than ${DEPTH_MAX} levels`);
  }
  if (Array.isArray(value)) return value.map((one) => clean(one, depth + 1, key));
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => {
      const cleaned = clean(one, depth + 1, key);
      const tag = name.toLowerCase().replace(/[^a-z0-9]/g, "");
      const isSecret = SECRET_NAMES.has(tag) && !isEmpty(one) && !isPlaceholder(one);
      // Of a whole object, what is compared has its own secrets masked.
      const compared = typeof one === "object" ? cleaned : one;
      return [name, isSecret ? madeBy(key, tag, compared) : cleaned];
    }),
  );
}

function numberWithoutCard(value: number | bigint, key: MaskingKey | null): Json {
  const isCandidate = value >= CARD_MIN && isInteger(value);
  return isCandidate && isCard(String(BigInt(value))) ? madeBy(key, "card", value) : value;
}

function maskPath(value: Json, names: string[], key: MaskingKey | null): void {
  if (Array.isArray(value)) {
    for (const one of value) maskPath(one, names, key);
  }
  if (!isObject(value)) return;
  const [first, ...rest] = names as [string, ...string[]];
  for (const name of first === "*" ? Object.keys(value) : [first]) {
    if (!Object.hasOwn(value, name)) continue;
    const one = value[name]!;
    if (rest.length > 0) maskPath(one, rest, key);
    else if (!isEmpty(one) && !isPlaceholder(one)) set(value, name, madeBy(key, "policy", one));
  }
}

/** Also where the name is `__proto__`. */
function set(object: JsonObject, name: string, value: Json): void {
  Object.defineProperty(object, name, { value, enumerable: true, writable: true });
}

/** Nothing, a yes or a no gives no secret away, and is worth knowing when one recovers. */
function isEmpty(value: Json): boolean {
  if (value === null || typeof value === "boolean" || value === "") return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}

function isPlaceholder(value: Json): boolean {
  return typeof value === "string" && PLACEHOLDER.test(value);
}

/** The text with each card number replaced, also where other numbers stand next to it. */
function withoutCards(text: string, key: MaskingKey | null): string {
  if (text.length < CARD_DIGITS_MIN) return text;
  const parts: string[] = [];
  let done = 0;
  PRINTED.lastIndex = 0;
  for (let found = PRINTED.exec(text); found !== null; found = PRINTED.exec(text)) {
    const card = found.groups?.["card"];
    if (card === undefined) continue;
    if (!isCard(card)) {
      PRINTED.lastIndex = found.index + 1; // the next group may be where the card begins
      continue;
    }
    parts.push(text.slice(done, found.index), madeBy(key, "card", card));
    done = PRINTED.lastIndex;
  }
  const whole = parts.length > 0 ? [...parts, text.slice(done)].join("") : text;
  return whole.replace(ID_OR_CARD, (one) => (isCard(one) ? madeBy(key, "card", one) : one));
}

/** Whether the text is one number of a card, with a valid check digit (Luhn). */
function isCard(text: string): boolean {
  if (!CARD_ALONE.test(text)) return false;
  const digits = Array.from(text.replace(/[ -]/g, ""), Number).reverse();
  const sum = digits.reduce((sum, digit, place) => {
    const doubled = place % 2 === 1 ? digit * 2 : digit;
    return sum + (doubled > 9 ? doubled - 9 : doubled);
  }, 0);
  return sum % 10 === 0;
}
