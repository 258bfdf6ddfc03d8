/**
 * Canonical JSON (RFC 8785), as a browser runs it, too: the verifier is made of this module.
 *
 * Two programs that mean the same value write the same bytes, so the same digest. An integer that
 * no double holds is a BigInt here, so that none is silently another number.
 */
const INTEGER_DIGITS_MAX = 1_000; // more than any money, id or key has
/** The RFC 8785 text of a JSON value. RangeError for what is not JSON (NaN, a lone surrogate). */
export function canonical(value) {
    if (Array.isArray(value))
        return `[${value.map(canonical).join(",")}]`;
    if (isObject(value)) {
        const names = Object.keys(value).sort(); // by UTF-16 code units, as RFC 8785 wants it
        return `{${names.map((name) => `${string(name)}:${canonical(value[name])}`).join(",")}}`;
    }
    return typeof value === "string" ? string(value) : scalar(value);
}
/** JSON text, with the members in their own order. */
export function compact(value) {
    if (Array.isArray(value))
        return `[${value.map(compact).join(",")}]`;
    if (isObject(value)) {
        const members = Object.entries(value);
        return `{${members.map(([name, one]) => `${JSON.stringify(name)}:${compact(one)}`).join(",")}}`;
    }
    return typeof value === "string" ? JSON.stringify(value) : scalar(value);
}
/** JSON text as a value; an integer beyond 2^53 is a BigInt, digit by digit. SyntaxError else. */
export function parseJson(text) {
    return JSON.parse(text, reviveInteger);
}
function reviveInteger(_name, value, context) {
    const source = context?.source;
    const isWide = typeof value === "number" && !Number.isSafeInteger(value);
    if (!isWide || source === undefined || !/^-?[0-9]+$/.test(source))
        return value;
    if (source.replace("-", "").length > INTEGER_DIGITS_MAX)
        throw new SyntaxError("too many digits");
    return BigInt(source);
}
export function isObject(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
function string(value) {
    if (!value.isWellFormed())
        throw new RangeError("a text holds half a character");
    return JSON.stringify(value);
}
function scalar(value) {
    if (typeof value === "bigint")
        return integer(value);
    if (typeof value === "number") {
        if (!Number.isFinite(value))
            throw new RangeError(`${value} is no number of JSON`);
        return String(value === 0 ? 0 : value);
    }
    return String(value);
}
/** As a double of this very value is written, if there is one; else all its digits. */
function integer(value) {
    const written = String(Number(value));
    const found = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:e\+([0-9]+))?$/.exec(written);
    if (found === null)
        return String(value); // larger than any double
    const [, sign, whole, fraction = "", exponent = "0"] = found;
    const digits = `${whole}${fraction}`.padEnd(whole.length + Number(exponent), "0");
    return BigInt(`${sign}${digits}`) === value ? written : String(value);
}
