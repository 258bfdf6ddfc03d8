/**
 * Standard Webhooks signatures (standardwebhooks.com, version 1): HMAC-SHA256, symmetric keys only.
 *
 * Signed is `<webhook-id>.<webhook-timestamp>.<body>`, byte for byte: check the body as it came,
 * before it is parsed.
 */
import { AmendsError } from "./errors.ts";
export type Headers = {
    readonly [name: string]: string | readonly string[] | undefined;
};
/** We stopped because nobody who holds the secret has signed this message, or not lately. */
export declare class BadSignature extends AmendsError {
    readonly name = "BadSignature";
}
/** The key in `whsec_<base64>`. Throws AmendsError if it is empty or not base64. */
export declare function secretBytes(secret: string): Buffer;
/** The value of the header `webhook-signature` for one secret. */
export declare function sign(secret: string, { messageId, timestamp, body }: {
    messageId: string;
    timestamp: number;
    body: Uint8Array;
}): string;
/** Throws BadSignature unless one of the secrets signed this body within the tolerance. */
export declare function check(secrets: string | readonly string[], headers: Headers, body: Uint8Array, nowSeconds?: number): void;
