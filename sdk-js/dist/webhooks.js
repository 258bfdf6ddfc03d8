/**
 * Standard Webhooks signatures (standardwebhooks.com, version 1): HMAC-SHA256, symmetric keys only.
 *
 * Signed is `<webhook-id>.<webhook-timestamp>.<body>`, byte for byte: check the body as it came,
 * before it is parsed.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import { AmendsError } from "./errors.js";
/** How far the sender's clock may be off; older messages could be replayed. */
const TOLERANCE_SECONDS = 300;
/** A header may carry several signatures while secrets are changed. */
const SIGNATURES_MAX = 8;
const TIMESTAMP = /^[0-9]{1,12}$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2,3})?$/;
/** We stopped because nobody who holds the secret has signed this message, or not lately. */
export class BadSignature extends AmendsError {
    name = "BadSignature";
}
/** The key in `whsec_<base64>`. Throws AmendsError if it is empty or not base64. */
export function secretBytes(secret) {
    const text = secret.replace(/^whsec_/, "").replace(/={0,2}$/, "");
    if (text === "" || !BASE64.test(text)) {
        throw new AmendsError("a webhook secret is whsec_ and base64");
    }
    return Buffer.from(text, "base64");
}
/** The value of the header `webhook-signature` for one secret. */
export function sign(secret, { messageId, timestamp, body }) {
    const mac = createHmac("sha256", secretBytes(secret));
    return `v1,${mac.update(`${messageId}.${timestamp}.`).update(body).digest("base64")}`;
}
/** Throws BadSignature unless one of the secrets signed this body within the tolerance. */
export function check(secrets, headers, body, nowSeconds = Date.now() / 1000) {
    const named = new Map(Object.entries(headers).map(([name, one]) => [name.toLowerCase(), one]));
    const of = (name) => [named.get(name) ?? ""].flat().join(" ");
    const [messageId, sent] = [of("webhook-id"), of("webhook-timestamp")];
    const given = of("webhook-signature").split(" ").slice(0, SIGNATURES_MAX);
    if (messageId === "" || !TIMESTAMP.test(sent)) {
        const words = "the headers webhook-id and webhook-timestamp are missing or malformed";
        throw new BadSignature(words);
    }
    const timestamp = Number(sent);
    if (Math.abs(nowSeconds - timestamp) > TOLERANCE_SECONDS) {
        throw new BadSignature("the message is too old or its sender's clock is ahead");
    }
    for (const secret of [secrets].flat()) {
        // The text of the timestamp as it was signed: `007` is not `7`.
        const mac = createHmac("sha256", secretBytes(secret)).update(`${messageId}.${sent}.`);
        const wanted = Buffer.from(`v1,${mac.update(body).digest("base64")}`);
        if (given.some((one) => isSame(wanted, Buffer.from(one))))
            return;
    }
    throw new BadSignature("no signature fits a known secret");
}
function isSame(one, other) {
    return one.length === other.length && timingSafeEqual(one, other);
}
