/**
 * Proofs: what the ledger hands out can be checked by anybody, offline, with only its public key.
 *
 * Read are C2SP `tlog-proof@v1` files around C2SP checkpoints (signed notes, Ed25519), and the
 * downloads of Amends that carry one. docs/proofs.md says which bytes are hashed.
 */

import { createHash, createPublicKey, timingSafeEqual, verify as isSigned } from "node:crypto";

import { AmendsError } from "../errors.ts";
import { canonical, isObject, type Json, type JsonObject, parseJson } from "./canonical.ts";

const HEADER = "c2sp.org/tlog-proof@v1";
const ED25519 = 1;
// What stands before the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410).
const ED25519_PREFIX = Buffer.from("302a300506032b6570032100", "hex");
export const FILE_BYTES_MAX = 16 * 1024 * 1024;
const PROOF_LENGTH_MAX = 63; // of a tree of 2^63 leaves: no honest proof is longer
const SIGNATURES_MAX = 32;
const HEAD_LINES_MIN = 3; // origin, size, root
const DIGITS_MAX = 19; // of a size or an index: 2^63
const HASH_BYTES = 32;
const KEY_ID_BYTES = 4;
const SHOWN_CHARACTERS_MAX = 80;
// Members of a download that stand beside its event, which holds their digests.
const SALTED = ["facts", "words"] as const;

/** We stopped because the file does not prove what it says; do not rely on it. */
export class NotProven extends AmendsError {}

/** What a file was found to prove. */
export type Verified = {
  leaf: JsonObject;
  index: bigint;
  size: bigint;
  origin: string;
  event: Json | null;
};

/** A log's public key, written `<name>+<key id in hex>+<base64 of 0x01 and 32 bytes>`. */
export class LogKey {
  readonly name: string;
  readonly keyId: Buffer;
  readonly bytes: Buffer;

  private constructor(name: string, keyId: Buffer, bytes: Buffer) {
    this.name = name;
    this.keyId = keyId;
    this.bytes = bytes;
  }

  static parse(text: string): LogKey {
    const found = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/.exec(text.trim());
    if (found === null) throw new NotProven("this is not a public key of a log");
    const [name, keyId, raw] = [found[1]!, Buffer.from(found[2]!, "hex"), base64(found[3]!)];
    // The first four bytes of SHA-256 over name, newline, 0x01 and key (C2SP signed-note).
    const wanted = hash(Buffer.from(`${name}\n`), raw).subarray(0, KEY_ID_BYTES);
    if (raw[0] !== ED25519 || raw.length !== HASH_BYTES + 1 || !keyId.equals(wanted)) {
      throw new NotProven("the public key is not Ed25519 or its id does not fit");
    }
    return new LogKey(name, keyId, raw.subarray(1));
  }

  /** Throws NotProven unless this key has signed the text. */
  check(text: Buffer, signature: Buffer): void {
    const der = Buffer.concat([ED25519_PREFIX, this.bytes]);
    const key = createPublicKey({ key: der, format: "der", type: "spki" });
    if (!isSigned(null, text, key, signature)) {
      throw new NotProven("the signature under the checkpoint is not of that key");
    }
  }
}

/**
 * Check a file and say what it proves, or throw NotProven.
 *
 * It is a tlog-proof, or a download: JSON with `event`, `salt` (hex) and `proof`.
 */
export function verify(text: string, keys: readonly LogKey[]): Verified {
  if (!text.trimStart().startsWith("{")) return proven(text, keys, null);
  const document = download(text);
  const { event = null, salt, proof } = document;
  if (!("event" in document) || typeof salt !== "string" || typeof proof !== "string") {
    throw new NotProven("the download has no event, salt and proof");
  }
  const verified = proven(proof, keys, event);
  const found = saltedDigest(salt, event, "the salt");
  same(found, verified.leaf["digest"], "the event is not the one");
  const data = isObject(event) && isObject(event["data"]) ? event["data"] : {};
  for (const name of SALTED) {
    if (!(name in document)) continue;
    const said = data[`${name}_digest`];
    if (said === undefined || typeof document["facts_salt"] !== "string") {
      throw new NotProven(`the event has no digest of the ${name}, or their salt is missing`);
    }
    const salted = saltedDigest(document["facts_salt"], document[name]!, `the salt of the ${name}`);
    same(salted, said, `the ${name} are not the ones`);
  }
  return verified;
}

function download(text: string): JsonObject {
  refuseNamesTwice(text);
  try {
    const document = parseJson(text);
    if (isObject(document)) return document;
  } catch {
    // told below
  }
  throw new NotProven("the download has no event, salt and proof");
}

/** What stands twice is read one way and checked another; `JSON.parse` keeps the last of them. */
function refuseNamesTwice(text: string): void {
  const open: (Set<string> | null)[] = [];
  for (const [token, name] of text.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*(:))?|[{}[\]]/gs)) {
    if (token === "{" || token === "[") open.push(token === "{" ? new Set() : null);
    else if (token === "}" || token === "]") open.pop();
    else if (name !== undefined) {
      const said = readName(token.replace(/\s*:$/, ""));
      if (open.at(-1)?.has(said)) {
        const shown = said.slice(0, SHOWN_CHARACTERS_MAX);
        throw new NotProven(`“${shown}” stands twice in the download`);
      }
      open.at(-1)?.add(said);
    }
  }
}

function readName(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token; // no JSON, which is found as it is parsed
  }
}

function proven(text: string, keys: readonly LogKey[], event: Json | null): Verified {
  const { index, path, note, extra } = parseProof(text);
  const { origin, size, root } = checkedHead(note, keys);
  if (!rootOf(extra, index, size, path)?.equals(root)) {
    throw new NotProven("the entry is not in the log where the proof says");
  }
  const leaf = leafOf(extra);
  return { leaf, index, size, origin, event };
}

/** The entry itself, which is trusted only because its hash leads to the signed root. */
function leafOf(extra: Buffer): JsonObject {
  try {
    const leaf = parseJson(extra.toString("utf8"));
    if (isObject(leaf) && isKnown(leaf) && Buffer.from(canonical(leaf)).equals(extra)) return leaf;
  } catch {
    // told below
  }
  throw new NotProven("the entry of the log is not one of Amends, version 1 or 2");
}

/** The second version says with which key its event came, and whether that key was trusted. */
function isKnown(leaf: JsonObject): boolean {
  const { v, key, trusted } = leaf;
  return v === 1 || (v === 2 && typeof key === "string" && typeof trusted === "boolean");
}

function parseProof(text: string): { index: bigint; path: Buffer[]; note: string; extra: Buffer } {
  const [head, note] = cutOnce(text, text.indexOf("\n\n"));
  const lines = head.split("\n");
  if (note === null || lines.shift() !== HEADER) {
    throw new NotProven(`the file does not start with ${HEADER}`);
  }
  const hasExtra = lines[0]?.startsWith("extra ");
  const extra = hasExtra ? base64(lines.shift()!.slice("extra ".length)) : Buffer.alloc(0);
  const index = lines.shift();
  if (!index?.startsWith("index ")) throw new NotProven("the line with the index is missing");
  const path = lines.map(base64);
  if (path.some((node) => node.length !== HASH_BYTES)) {
    throw new NotProven("a hash of the proof is not 32 bytes long");
  }
  return { index: number(index.slice("index ".length)), path, note, extra };
}

/** A signed head of a log: its name, how many entries it has and the root over all of them. */
function checkedHead(
  note: string,
  keys: readonly LogKey[],
): { origin: string; size: bigint; root: Buffer } {
  const [text, tail] = cutOnce(note, note.lastIndexOf("\n\n"));
  const lines = text.split("\n");
  if (!tail?.endsWith("\n") || lines.length < HEAD_LINES_MIN || lines.includes("")) {
    throw new NotProven("the checkpoint is not a signed note of at least three lines");
  }
  const signatures = tail.slice(0, -1).split("\n").map(signature);
  if (signatures.length > SIGNATURES_MAX) {
    throw new NotProven("the checkpoint has too many signatures");
  }
  const [origin, size, root] = [lines[0]!, number(lines[1]!), base64(lines[2]!)];
  if (root.length !== HASH_BYTES) {
    throw new NotProven("the root of the checkpoint is not 32 bytes long");
  }
  const signers = signatures.flatMap(({ name, bytes }) => {
    const [keyId, signed] = [bytes.subarray(0, KEY_ID_BYTES), bytes.subarray(KEY_ID_BYTES)];
    const known = keys.filter((key) => key.name === name && key.keyId.equals(keyId));
    for (const key of known) key.check(Buffer.from(`${text}\n`), signed); // one bad spoils the note
    return known;
  });
  if (!signers.some((key) => key.name === origin)) {
    throw new NotProven("no known key of this log has signed the checkpoint");
  }
  return { origin, size, root };
}

/** The root that this proof leads to (RFC 9162, section 2.1.3.2); null if it leads nowhere. */
function rootOf(leaf: Buffer, index: bigint, size: bigint, proof: Buffer[]): Buffer | null {
  if (index >= size || proof.length > PROOF_LENGTH_MAX) return null;
  let [node, last] = [index, size - 1n];
  let root = hash(Buffer.from([0]), leaf);
  for (const sibling of proof) {
    if (last === 0n) return null; // longer than the tree is deep
    if (node % 2n === 1n || node === last) {
      root = hash(Buffer.from([1]), sibling, root);
      while (node % 2n === 0n && node !== 0n) [node, last] = [node >> 1n, last >> 1n];
    } else {
      root = hash(Buffer.from([1]), root, sibling);
    }
    [node, last] = [node >> 1n, last >> 1n];
  }
  return last === 0n ? root : null;
}

/** `sha256:<hex>` over the salt and the canonical JSON of what it covers, in its masked form. */
function saltedDigest(salt: string, covered: Json, what: string): string {
  if (!/^[0-9a-fA-F]{64}$/.test(salt)) throw new NotProven(`${what} is not 32 bytes long`);
  try {
    const digest = hash(Buffer.from(salt, "hex"), Buffer.from(canonical(covered)));
    return `sha256:${digest.toString("hex")}`;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new NotProven("the download holds what no ledger can hold", { cause: error });
  }
}

function same(found: string, wanted: Json | undefined, what: string): void {
  const [one, other] = [Buffer.from(found), Buffer.from(String(wanted))];
  if (one.length !== other.length || !timingSafeEqual(one, other)) {
    throw new NotProven(`${what} whose digest is in the log`);
  }
}

function signature(line: string): { name: string; bytes: Buffer } {
  const found = /^— (\S+) (\S+)$/.exec(line);
  if (found === null) throw new NotProven("a signature line of the checkpoint is malformed");
  return { name: found[1]!, bytes: base64(found[2]!) };
}

function cutOnce(text: string, at: number): [string, string | null] {
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 2)];
}

function base64(text: string): Buffer {
  const found = Buffer.from(text, "base64");
  if (found.toString("base64") !== text) throw new NotProven("a line is not base64");
  return found;
}

function number(text: string): bigint {
  const isPlain = /^(0|[1-9][0-9]*)$/.test(text) && text.length <= DIGITS_MAX;
  if (!isPlain) throw new NotProven("a number is malformed");
  return BigInt(text);
}

function hash(...parts: Buffer[]): Buffer {
  const sum = createHash("sha256");
  for (const part of parts) sum.update(part);
  return sum.digest();
}
