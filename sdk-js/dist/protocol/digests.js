/** Digests over canonical JSON, and the keys that are built of them. */
import { createHash } from "node:crypto";
import { canonical } from "./canonical.js";
export function sha256(bytes) {
    return createHash("sha256").update(bytes).digest("hex");
}
/** `sha256:<hex>` over the canonical bytes of a JSON value. */
export function digest(value) {
    return `sha256:${sha256(canonical(value))}`;
}
/**
 * The key of one logical operation: the same however often and however worded it is tried.
 *
 * The arguments are not in it, on purpose: a model that words its request anew after a restart
 * meets its first call again instead of paying twice. A second operation of one tool on one target
 * in one run needs its own `op`.
 */
export function idempotencyKey(named) {
    const target = named.targets.map(({ type, id }) => ({ type, id }));
    const { workspace, run, tool, op } = named;
    return digest({ workspace, run, tool, op, target });
}
