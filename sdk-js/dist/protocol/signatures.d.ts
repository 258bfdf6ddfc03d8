/**
 * Decisions that a person signed: WebAuthn assertions over what they decided, checked offline.
 *
 * A yes that is only a row is worth what the database is worth. One that is signed is believed
 * because a key said it whose enrolment stood in the log before the question was asked.
 * docs/proofs.md says which bytes are signed.
 */
import { type LogKey, type Verified } from "./proofs.ts";
/** What a key said: `origin` is that of the page on which it was signed. */
export type Assertion = {
    credential: string;
    origin: string;
};
/**
 * As `verify` of proofs.ts; where the download is a signed decision, its signature, too.
 *
 * Such a one holds `enrolment` and `question`, each a download of its own.
 */
export declare function verifySigned(text: string, keys: readonly LogKey[]): Promise<{
    found: Verified;
    signed: Assertion | null;
}>;
