/** The one place that speaks HTTP with the desk, and tells "not reachable" from "refused". */
import { DeskUnreachable, inWords, KeyRefused, NotTheDesk, Refused, Throttled } from "./errors.js";
import { isObject, parseJson } from "./protocol/canonical.js";
const ANSWER_SECONDS_MAX = 10;
// What is sent may be large (a snapshot has up to 8 MiB), and has as long as it takes at this pace.
const BYTES_A_SECOND_MIN = 10_000;
// A long poll answers within the seconds asked for; this much later it is lost.
const POLL_GRACE_SECONDS = 10;
const RETRY_AFTER_SECONDS_MAX = 60;
// Answers that say "not now": the same request may succeed later.
const NOT_NOW = new Set([408, 425, 429, 500, 502, 503, 504]);
const UNAUTHORIZED = 401;
const FORBIDDEN = 403;
const TOO_MANY = 429;
const LOCATION_CHARACTERS_MAX = 200;
const CHECK = "Is AMENDS_URL right, and is the desk up?";
const NO_DESK = "this does not look like a desk: is AMENDS_URL right?";
/** The desk's address as people paste it, without what every request adds. */
export function trimmed(url) {
    return url.trim().replace(/\/*(\/api\/v1)?\/*$/, "");
}
/** A connection to one desk under one key. */
export class Wire {
    /** As it is told in errors and logs. */
    address;
    #headers;
    constructor(url, key) {
        const at = URL.parse(url);
        if (at === null || !["http:", "https:"].includes(at.protocol) || at.username || at.password) {
            throw new TypeError("the address of the desk starts with https:// or http://, and holds no name and password");
        }
        // Else an error would show it.
        if (!/^[\x21-\x7e]+$/.test(key)) {
            throw new TypeError("the API key holds a space or the end of a line: copy it anew");
        }
        if (/[?#]/.test(url)) {
            throw new TypeError("the address of the desk is https://, a host and nothing behind ? or #");
        }
        this.address = `${at.origin}${trimmed(at.pathname)}/api/v1/`;
        this.#headers = { Authorization: `Bearer ${key}`, Accept: "application/json" };
    }
    get(path, asked = {}) {
        return this.send(path, asked);
    }
    post(path, body, signal) {
        return this.send(path, { method: "POST", body, signal });
    }
    async putBlob(sha256, body) {
        await this.send(`blobs/${sha256}`, { method: "PUT", body });
    }
    /** One JSON object. Throws DeskUnreachable, KeyRefused, or Refused with status and problem. */
    async send(path, asked) {
        const { method = "GET", body, params = {}, waitSeconds = 0, signal } = asked;
        const { answerSeconds = ANSWER_SECONDS_MAX } = asked;
        signal?.throwIfAborted();
        const query = new URLSearchParams(params);
        if (waitSeconds)
            query.set("wait", String(Math.floor(waitSeconds)));
        const toSend = Buffer.byteLength(body ?? "") / BYTES_A_SECOND_MIN;
        const seconds = (waitSeconds ? waitSeconds + POLL_GRACE_SECONDS : answerSeconds) + toSend;
        const limit = AbortSignal.timeout(Math.ceil(seconds * 1000));
        let answer, text;
        try {
            answer = await fetch(`${this.address}${path}${query.size ? `?${query}` : ""}`, {
                method,
                headers: body === undefined ? this.#headers : { ...this.#headers, ...AS_JSON },
                body: body ?? null,
                redirect: "manual",
                signal: signal ? AbortSignal.any([signal, limit]) : limit,
            });
            text = await answer.text();
        }
        catch (error) {
            signal?.throwIfAborted();
            const why = reason(error, seconds);
            throw new DeskUnreachable(`no answer from ${this.address} (${why}). ${CHECK}`, {
                cause: error,
            });
        }
        return this.#read(answer, text);
    }
    #read(answer, text) {
        if (answer.status === TOO_MANY && answer.headers.has("Retry-After")) {
            const why = inWords(this.#object(answer, text));
            throw new Throttled(`${this.address} answers 429: ${why}`, {
                retryAfterSeconds: retryAfter(answer),
            });
        }
        if (NOT_NOW.has(answer.status)) {
            throw new DeskUnreachable(`${this.address} answers ${answer.status}: not now, try again.`, {
                retryAfterSeconds: retryAfter(answer),
            });
        }
        const content = this.#object(answer, text);
        if (answer.status === UNAUTHORIZED || answer.status === FORBIDDEN) {
            throw new KeyRefused(`${this.address} refuses this API key: ${inWords(content)}`, {
                bySomebodyElse: answer.status === FORBIDDEN && !("type" in content),
            });
        }
        if (!answer.ok)
            throw new Refused(answer.status, content);
        return content;
    }
    /** What came as JSON; of an answer that is no desk's it says so, and whose it is. */
    #object(answer, text) {
        let found;
        try {
            found = parseJson(text);
        }
        catch (error) {
            if (answer.ok) {
                throw new NotTheDesk(`${this.address} answers, but ${NO_DESK}`, { cause: error });
            }
            found = {};
        }
        const content = isObject(found) ? found : { items: found };
        if (!answer.ok && !("type" in content)) {
            const to = answer.headers.get("Location")?.slice(0, LOCATION_CHARACTERS_MAX);
            const said = "title" in content ? inWords(content) : answer.statusText;
            const at = `${this.address}${to ? `, which points to ${to}` : ""}`;
            content["title"] = `${said} (${at}); ${NO_DESK}`;
        }
        return content;
    }
}
const AS_JSON = { "Content-Type": "application/json" };
function retryAfter(answer) {
    const text = answer.headers.get("Retry-After") ?? "";
    return /^[0-9]+$/.test(text) ? Math.min(Number(text), RETRY_AFTER_SECONDS_MAX) : 0;
}
/** Why no answer came; `fetch` tells it of what stands behind its own error. */
function reason(error, seconds) {
    if (error instanceof DOMException && error.name === "TimeoutError") {
        return `no end within ${Math.ceil(seconds)} s`;
    }
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const code = cause instanceof Error && "code" in cause ? `${String(cause.code)}: ` : "";
    return `${code}${cause instanceof Error ? cause.message : String(cause)}`;
}
