/**
 * The words that are written down: types of events, classes and risks of actions, globs over tools.
 *
 * Their spelling is the wire's and the ledger's, and stays.
 */
/** What a call does to the world, from lax to strict. */
export const CLASSES = [
    "read_only",
    "draft",
    "internal_update",
    "external_reversible",
    "external_irreversible",
];
/** How much is at stake, from low to high. */
export const RISKS = ["low", "medium", "high", "critical"];
/** Classes of calls that leave nothing to undo. */
export const WITHOUT_EFFECT = new Set(["read_only", "draft"]);
export const RISK_OF_CLASS = {
    read_only: "low",
    draft: "low",
    internal_update: "medium",
    external_reversible: "medium",
    external_irreversible: "high",
};
export function isClass(value) {
    return CLASSES.includes(value);
}
/** `*` stands for any characters, `?` for one. */
export function globMatches(glob, tool) {
    const signs = Array.from(glob, (sign) => sign === "*" ? ".*" : sign === "?" ? "." : sign.replace(/[\\^$.|+()[\]{}/]/, "\\$&"));
    return new RegExp(`^(?:${signs.join("")})$`, "su").test(tool);
}
/** The greater, the more specific: no wildcard first, then more letters, then fewer `*`. */
export function globSpecificity(glob) {
    const signs = Array.from(glob);
    const stars = signs.filter((sign) => sign === "*").length;
    const wild = stars + signs.filter((sign) => sign === "?").length;
    return [wild === 0 ? 1 : 0, signs.length - wild, -stars];
}
/** Which of two specificities is the greater, as for `Array.sort`. */
export function compareSpecificity(one, other) {
    const at = one.findIndex((part, place) => part !== other[place]);
    return at < 0 ? 0 : one[at] - other[at];
}
