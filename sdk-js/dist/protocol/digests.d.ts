/** Digests over canonical JSON, and the keys that are built of them. */
import { type Json } from "./canonical.ts";
export declare function sha256(bytes: string | Uint8Array): string;
/** `sha256:<hex>` over the canonical bytes of a JSON value. */
export declare function digest(value: Json): string;
/**
 * The key of one logical operation: the same however often and however worded it is tried.
 *
 * The arguments are not in it, on purpose: a model that words its request anew after a restart
 * meets its first call again instead of paying twice. A second operation of one tool on one target
 * in one run needs its own `op`.
 */
export declare function idempotencyKey(named: {
    workspace: string;
    run: string;
    tool: string;
    targets: readonly {
        type: string;
        id: string;
    }[];
    op: string;
}): string;
