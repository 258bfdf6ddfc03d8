/**
 * Decisions that a person signed: WebAuthn assertions over what they decided, checked offline.
 *
 * A yes that is only a row is worth what the database is worth. One that is signed is believed
 * because a key said it whose enrolment stood in the log before the question was asked.
 * docs/proofs.md says which bytes are signed.
 */
import { canonical, compact, isObject, parseJson, } from "./canonical.js";
import { checkNote, download, equal, hash, hex, NotProven, utf8, verify as verifyDownload, } from "./proofs.js";
const DECISION_FORM = "amends decision 1";
const ENROLMENT_FORM = "amends signing key 1";
const YES = "granted";
// WebAuthn Level 2: section 6.1 (authenticator data), 5.8.1 (client data).
const RP_ID_BYTES = 32;
const COUNT_END = 37;
const PRESENT_AND_VERIFIED = 0x01 | 0x04;
const CEREMONY = "webauthn.get";
const FIELD_CHARACTERS_MAX = 8_192;
// An origin as browsers write it (RFC 6454, section 6.2), of a host with a name.
const ORIGIN = /^(https?):\/\/([a-z0-9._-]+)(?::[0-9]{1,5})?$/;
// COSE algorithms (RFC 9053 and RFC 8812) that are taken.
const ES256 = -7;
const EDDSA = -8;
const RS256 = -257;
const ALGORITHMS = [ES256, EDDSA, RS256];
const P256_BYTES = 32; // of each of the two numbers of a signature
// A decision, the enrolment of the key that signed it, and the question that it answers.
const TYPES = ["approval.granted", "signing_key.enrolled", "approval.requested"];
const ENROLLED = ["workspace", "person", "credential", "public_key", "alg", "rp_id"];
/**
 * As `verify` of proofs.ts; where the download is a signed decision, its signature, too.
 *
 * Such a one holds `enrolment` and `question`, each a download of its own.
 */
export async function verifySigned(text, keys) {
    const found = await verifyDownload(text, keys);
    if (found.event === null)
        return { found, signed: null };
    const document = download(text);
    if (!("enrolment" in document) && !("question" in document))
        return { found, signed: null };
    const parts = [];
    for (const name of ["enrolment", "question"]) {
        const part = document[name];
        if (part === undefined)
            throw no(`the download of a signed decision has no ${name}`);
        parts.push(await verifyDownload(written(part, name), keys));
    }
    return { found, signed: await checkDecision(found, parts[0], parts[1], keys) };
}
/** A part as the download that it is; none that a number beyond all doubles stands in. */
function written(part, name) {
    try {
        return compact(part);
    }
    catch (cause) {
        throw new NotProven("form", `the ${name} holds what no ledger can hold`, { cause });
    }
}
async function checkDecision(decision, enrolment, question, keys) {
    const all = [decision, enrolment, question];
    if (!all.every((one, place) => isOfType(one, TYPES[place]))) {
        throw no("these are not a decision, an enrolment and a question");
    }
    if (new Set(all.map((one) => canonical([one.origin, workspaceOf(one)]))).size !== 1) {
        throw no("decision, enrolment and question are of different logs");
    }
    if (!(enrolment.index < question.index && question.index < decision.index)) {
        throw no("the key was not on record before the question was asked");
    }
    const [said, enrolled, asked] = all.map(dataOf);
    const person = String(enrolled["person"]);
    if ([decision, enrolment].some((one) => one.leaf["actor"] !== `person:${person}`)) {
        throw no("the key is not of the person who decided");
    }
    const { approval = null, digest = null } = said;
    if (approval !== (asked["approval"] ?? null) || digest !== (asked["digest"] ?? null)) {
        throw no("the decision answers another question");
    }
    const workspace = workspaceOf(decision);
    const facts = { ...enrolled, workspace };
    const key = keyOf(facts);
    await checkEnrolment(facts, enrolled["desk"], keys);
    const named = { workspace, approval, digest: String(digest), decision: YES, person };
    const challenge = await hash(utf8(canonical({ form: DECISION_FORM, ...named })));
    return await checkAssertion(said["signature"], key, challenge);
}
function isOfType({ leaf, event }, wanted) {
    return leaf["type"] === wanted && isObject(event) && event["type"] === wanted;
}
function workspaceOf({ leaf }) {
    return String(leaf["workspace"]);
}
function dataOf({ event }) {
    return isObject(event) && isObject(event["data"]) ? event["data"] : {};
}
/** The key from the data of its enrolment; its public half is base64 of SubjectPublicKeyInfo. */
function keyOf(enrolled) {
    const { credential, public_key: publicKey, rp_id: rpId, alg } = enrolled;
    const isWhole = [credential, publicKey, rpId].every((one) => typeof one === "string" && one);
    if (!ALGORITHMS.includes(alg) || !isWhole) {
        throw no("the enrolment names no key that can be checked");
    }
    return {
        credential: credential,
        publicKey: publicKey,
        algorithm: alg,
        rpId: rpId,
    };
}
/** Throws NotProven unless the desk signed this enrolment with a key of its log. */
async function checkEnrolment(facts, note, keys) {
    const named = Object.fromEntries(ENROLLED.map((name) => [name, facts[name] ?? null]));
    const challenge = hex(await hash(utf8(canonical({ form: ENROLMENT_FORM, ...named }))));
    const text = `${ENROLMENT_FORM}\n${challenge}\n`;
    if (typeof note !== "string" || !note.startsWith(`${text}\n`)) {
        throw no("the desk did not sign this enrolment");
    }
    await checkNote(note, keys);
}
/** Throws NotProven unless `key` signed `challenge` with its person present and verified. */
async function checkAssertion(assertion, key, challenge) {
    if (!isObject(assertion))
        throw no("there is no signature");
    if (assertion["credential"] !== key.credential)
        throw no("another key has signed");
    const authenticator = bytesOf(assertion["authenticator"]);
    const client = bytesOf(assertion["client"]);
    const signature = bytesOf(assertion["signature"]);
    const origin = checkClient(client, challenge, key.rpId);
    if (authenticator.length < COUNT_END)
        throw no("the authenticator's data are too short");
    if (!equal(authenticator.slice(0, RP_ID_BYTES), await hash(utf8(key.rpId)))) {
        throw no("it was signed for another host");
    }
    if ((authenticator[RP_ID_BYTES] & PRESENT_AND_VERIFIED) !== PRESENT_AND_VERIFIED) {
        throw no("the key did not verify its person");
    }
    const signed = new Uint8Array([...authenticator, ...(await hash(client))]);
    if (!(await isSigned(key, signature, signed)))
        throw no("the signature is not of that key");
    return { credential: key.credential, origin };
}
/** The origin of the page on which it was signed. */
function checkClient(raw, challenge, rpId) {
    let client = null;
    try {
        client = parseJson(new TextDecoder("utf-8", { fatal: true }).decode(raw));
    }
    catch {
        // told below
    }
    if (!isObject(client) || typeof client["origin"] !== "string") {
        throw no("the browser's part of the signature cannot be read");
    }
    if (client["type"] !== CEREMONY)
        throw no("this is not a signature of a decision");
    if (!equal(bytesOf(client["challenge"]), challenge))
        throw no("something else was signed");
    const origin = client["origin"];
    const page = ORIGIN.exec(origin);
    if (page === null)
        throw no("the page's address cannot be read");
    const [, scheme, host] = page;
    const isOurs = host === rpId || host.endsWith(`.${rpId}`);
    const isLocal = host === "localhost" || host.endsWith(".localhost");
    if (!isOurs || !(scheme === "https" || isLocal) || client["crossOrigin"]) {
        throw no("it was signed on a page of another host");
    }
    return origin;
}
async function isSigned(key, signature, signed) {
    const { subtle } = globalThis.crypto;
    const hash = "SHA-256";
    const how = {
        [ES256]: { name: "ECDSA", namedCurve: "P-256", hash },
        [EDDSA]: { name: "Ed25519" },
        [RS256]: { name: "RSASSA-PKCS1-v1_5", hash },
    }[key.algorithm];
    const spki = bytesOf(key.publicKey);
    try {
        const publicKey = await subtle.importKey("spki", spki, how, false, ["verify"]);
        const given = key.algorithm === ES256 ? plainSignature(signature) : signature;
        return await subtle.verify(how, publicKey, given, signed);
    }
    catch (error) {
        const why = "the key is of another kind than its enrolment says";
        throw new NotProven("person", why, { cause: error });
    }
}
/** A signature of ECDSA as two numbers of one length, which WebAuthn sends as DER (RFC 3279). */
function plainSignature(der) {
    const plain = new Uint8Array(2 * P256_BYTES);
    let at = 2;
    if (der[0] !== 0x30 || der[1] !== der.length - at)
        return plain; // which is none
    for (const end of [P256_BYTES, 2 * P256_BYTES]) {
        const length = der[at + 1] ?? 0;
        const number = der.slice(at + 2, at + 2 + length);
        const [first = 0x80, second = 0] = number;
        const isShortest = first < 0x80 && (first > 0 || second >= 0x80); // and not below nought
        const digits = first === 0 ? number.slice(1) : number;
        const isWhole = number.length === length && digits.length <= P256_BYTES;
        if (der[at] !== 0x02 || !isShortest || !isWhole)
            return plain;
        plain.set(digits, end - digits.length);
        at += 2 + length;
    }
    return at === der.length ? plain : plain.fill(0);
}
/** base64, in either alphabet, with or without padding. */
function bytesOf(text) {
    if (typeof text !== "string" || text.length > FIELD_CHARACTERS_MAX) {
        throw no("a part of the signature is missing");
    }
    try {
        const found = atob(text.replace(/=+$/, "").replaceAll("-", "+").replaceAll("_", "/"));
        return Uint8Array.from(found, (one) => one.charCodeAt(0));
    }
    catch {
        throw no("a part of the signature is not base64");
    }
}
function no(why) {
    return new NotProven("person", why);
}
