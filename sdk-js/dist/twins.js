/**
 * Twins: the undo of a tool, living in the engineer's own service and called by the desk.
 *
 * Serve `Twins.fetch` or `Twins.listener` under one address and give that address and the signing
 * secret to a `webhook` connection. Each key is done once, whatever the desk repeats.
 * docs/twins.md has the protocol.
 */
import { readFileSync } from "node:fs";
import { AmendsError, asError, NoEffect } from "./errors.js";
import { compact, isObject, parseJson } from "./protocol/canonical.js";
import { digest } from "./protocol/digests.js";
import { connect } from "./sqlite.js";
import { plain } from "./values.js";
import { BadSignature, check, secretBytes } from "./webhooks.js";
/** Longer than a ledger keeps keys, so that no undo is ever repeated because it was forgotten. */
const KEEP_SECONDS = 400 * 24 * 3600;
// By the clock of a machine that may be years ahead: "long ago" is long before the last key, too.
const FORGET = "DELETE FROM keys WHERE began < (SELECT min(?, max(began)) FROM keys) - ? AND answer IS NOT NULL";
// After so long a process that is there counts as another one, with the number of one that was
// killed; unless the kernel says that it is the same, which may have been stopped for long.
const RUNNING_SECONDS_MAX = 15 * 60;
/** The largest request that is read; snapshots above 64 KiB travel by reference. */
const BODY_BYTES_MAX = 1024 * 1024;
/** An operation, a key, the type or id of a target. */
const TEXT_MAX = 400;
/** The default store: one SQLite file, for all processes of a service on one machine. */
export class SqliteKeys {
    #database;
    constructor(path) {
        this.#database = connect(path, "CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, asked TEXT NOT NULL," +
            " answer TEXT, began REAL NOT NULL);" +
            "CREATE TABLE IF NOT EXISTS running (key TEXT PRIMARY KEY, process INTEGER NOT NULL);" +
            "CREATE TABLE IF NOT EXISTS since (key TEXT PRIMARY KEY, started TEXT);");
        this.#database.prepare(FORGET).run(Date.now() / 1000, KEEP_SECONDS);
    }
    start(key, asked) {
        const run = (sql, ...values) => Number(this.#database.prepare(sql).run(...values).changes);
        this.#database.exec("BEGIN IMMEDIATE");
        try {
            const insert = "INSERT INTO keys (key, asked, began) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
            const added = run(insert, key, asked, Date.now() / 1000);
            if (added > 0) {
                run("INSERT OR REPLACE INTO running VALUES (?, ?)", key, process.pid);
                run("INSERT OR REPLACE INTO since VALUES (?, ?)", key, started(process.pid));
            }
            this.#database.exec("COMMIT");
            return added > 0 ? null : this.find(key);
        }
        catch (error) {
            if (this.#database.isTransaction)
                this.#database.exec("ROLLBACK");
            throw error;
        }
    }
    /** This process is no longer at it, however that went. */
    ended(key) {
        for (const table of ["running", "since"]) {
            this.#database.prepare(`DELETE FROM ${table} WHERE key = ?`).run(key);
        }
    }
    /** Whether another process of this machine may still be at it. */
    isElsewhere(key) {
        const sql = "SELECT process, began > ? AS isRecent, started FROM running JOIN keys USING (key)" +
            " LEFT JOIN since USING (key) WHERE key = ?";
        const row = this.#database.prepare(sql).get(Date.now() / 1000 - RUNNING_SECONDS_MAX, key);
        const pid = Number(row?.["process"]);
        if (row === undefined || pid === process.pid || !isAlive(pid))
            return false;
        const since = row["started"] ?? null;
        return Boolean(row["isRecent"]) || (since !== null && since === started(pid));
    }
    find(key) {
        const row = this.#database.prepare("SELECT asked, answer FROM keys WHERE key = ?").get(key);
        if (row === undefined)
            return null;
        const answer = row["answer"] ? parseJson(String(row["answer"])) : null;
        return { asked: String(row["asked"]), answer };
    }
    finish(key, answer) {
        const written = compact(answer);
        this.#database.prepare("UPDATE keys SET answer = ? WHERE key = ?").run(written, key);
    }
    forget(key) {
        this.#database.prepare("DELETE FROM keys WHERE key = ? AND answer IS NULL").run(key);
    }
    close() {
        this.#database.close();
    }
}
/** Whether there is such a process. */
function isAlive(pid) {
    try {
        return process.kill(pid, 0);
    }
    catch (error) {
        return error.code !== "ESRCH"; // it is somebody else's
    }
}
/**
 * Since when the kernel has it, in ticks since its own start; null where it does not say (proc(5):
 * field 22, and the name before it may hold anything).
 */
function started(pid) {
    try {
        const fields = readFileSync(`/proc/${pid}/stat`, "latin1");
        return fields.slice(fields.lastIndexOf(")") + 2).split(" ")[19] ?? null;
    }
    catch {
        return null;
    }
}
/**
 * The twins of one service behind one address. `secrets` are `whsec_…`, several while they are
 * changed; `store` remembers keys: the path of a SQLite file, or a store for several machines.
 */
export class Twins {
    #secrets;
    #store;
    #twins = new Map();
    #running = new Set();
    constructor(secrets, { store = "twins.sqlite" } = {}) {
        this.#secrets = [secrets].flat();
        this.#secrets.forEach(secretBytes);
        this.#store = typeof store === "string" ? new SqliteKeys(store) : store;
    }
    /** Register the undo of this name. */
    undo(name, twin) {
        if (this.#twins.has(name))
            throw new AmendsError(`there is an undo ${name} already`);
        this.#twins.set(name, twin);
        return this;
    }
    /** The whole protocol: HTTP status and JSON answer for one signed request. */
    async answer(headers, body) {
        try {
            check(this.#secrets, headers, body);
        }
        catch (error) {
            if (!(error instanceof BadSignature))
                throw error;
            return [401, { detail: error.message }];
        }
        let asked;
        try {
            asked = read(body);
        }
        catch (error) {
            const detail = `the request is malformed: ${asError(error).message}`;
            return [400, { outcome: "no_effect", detail }];
        }
        const twin = this.#twins.get(asked.operation);
        if (twin === undefined) {
            return [404, { outcome: "no_effect", detail: `no undo ${asked.operation}` }];
        }
        try {
            return [200, await this.#do(twin, asked)];
        }
        catch (error) {
            // The edge of the service: whatever it was, we do not know.
            console.error(`the twin ${asked.operation} failed`, error);
            return [200, said("unknown", null, asError(error).name)];
        }
    }
    /** Serve it wherever requests are those of the web: Hono, Next, Deno, Bun. */
    fetch = async (request) => {
        if (request.method !== "POST")
            return respond(405, ONLY);
        const chunks = [];
        let size = 0;
        for await (const chunk of request.body ?? []) {
            size += chunk.length;
            if (size > BODY_BYTES_MAX)
                return respond(413, ONLY);
            chunks.push(chunk);
        }
        const [status, answer] = await this.answer(Object.fromEntries(request.headers), Buffer.concat(chunks));
        return respond(status, answer);
    };
    /** Serve it with `node:http`, Express or whatever else has its requests; before any parser. */
    listener = async (request, response) => {
        const give = (status, answer) => {
            response.writeHead(status, { "Content-Type": "application/json" });
            response.end(compact(answer));
        };
        if (request.method !== "POST")
            return give(405, ONLY);
        const chunks = [];
        let size = 0;
        for await (const chunk of request) {
            size += chunk.length;
            if (size > BODY_BYTES_MAX)
                return give(413, ONLY);
            chunks.push(chunk);
        }
        give(...(await this.answer(request.headers, Buffer.concat(chunks))));
    };
    async #do(twin, asked) {
        if (asked.do === "observe")
            return said("no_effect", await observed(twin, asked));
        return asked.do === "probe" ? this.#probe(twin, asked) : this.#apply(twin, asked);
    }
    async #apply(twin, asked) {
        const { operation, args, target, key } = asked;
        const bound = digest({ operation, args, target });
        const row = await this.#store.start(key, bound);
        if (row !== null && row.asked !== bound) {
            return said("unknown", null, "this key was used for another request");
        }
        if (row !== null)
            return row.answer ?? this.#probe(twin, asked);
        this.#running.add(key);
        try {
            return await this.#applied(twin, asked);
        }
        finally {
            this.#running.delete(key);
            if (this.#store instanceof SqliteKeys)
                this.#store.ended(key);
        }
    }
    async #applied(twin, asked) {
        const { args, target, key, recorded } = asked;
        let left;
        try {
            left = await twin.apply(args, target, key, recorded);
        }
        catch (error) {
            if (!(error instanceof NoEffect))
                throw error;
            await this.#store.forget(key);
            return said("no_effect", null, error.message);
        }
        const now = await observed(twin, asked);
        const told = isObject(left) ? { found: true, state: plain(left) } : null;
        const answer = said("applied", now ?? told);
        await this.#store.finish(key, answer);
        return answer;
    }
    #isRunning(key) {
        const store = this.#store;
        return this.#running.has(key) || (store instanceof SqliteKeys && store.isElsewhere(key));
    }
    /** A key never seen is absent; one that began and did not end is for `probe` to find out. */
    async #probe(twin, asked) {
        const { args, target, key } = asked;
        const row = await this.#store.find(key);
        if (row === null)
            return said("no_effect", await observed(twin, asked));
        if (row.answer !== null)
            return row.answer;
        const mayAsk = twin.probe !== undefined && !this.#isRunning(key);
        const tookEffect = mayAsk ? await twin.probe(args, target, key) : null;
        if (tookEffect !== true && tookEffect !== false) {
            return said("unknown", await observed(twin, asked), "begun, its end is not known");
        }
        if (!tookEffect) {
            await this.#store.forget(key);
            return said("no_effect", await observed(twin, asked));
        }
        const answer = said("applied", await observed(twin, asked));
        await this.#store.finish(key, answer);
        return answer;
    }
}
const ONLY = { detail: "POST, up to 1 MiB" };
function respond(status, answer) {
    const headers = { "Content-Type": "application/json" };
    return new Response(compact(answer), { status, headers });
}
function said(outcome, observed = null, detail = "") {
    return { outcome, observed, detail };
}
async function observed(twin, { args, target }) {
    if (twin.observe === undefined)
        return null;
    const state = (await twin.observe(args, target)) ?? null;
    return { found: state !== null, state: plain(state) };
}
/** The request, checked; throws where it is not as it must be. */
function read(body) {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body);
    const asked = parseJson(text);
    if (!isObject(asked) || asked["v"] !== 1)
        throw new AmendsError("v must be 1");
    const { do: act, operation, target, args } = asked;
    if (act !== "observe" && act !== "apply" && act !== "probe") {
        throw new AmendsError("do must be one of observe, apply, probe");
    }
    // Looking is done under no key: whoever tries a connection has none yet.
    const key = act === "observe" ? asked["key"] || "none" : asked["key"];
    const { type, id } = isObject(target) ? target : {};
    if (!isText(operation) || !isText(key) || !isText(type) || !isText(id)) {
        throw new AmendsError("operation, key and target must be texts");
    }
    if (!isObject(args))
        throw new AmendsError("args must be an object");
    const recorded = Object.fromEntries(RECORDED.flatMap((name) => given(name, asked[name])));
    return { do: act, operation, key, target: { type, id }, args, recorded };
}
const RECORDED = ["before", "expected"];
function given(name, value) {
    return value === undefined ? [] : [[name, value]];
}
function isText(value) {
    return typeof value === "string" && value.length > 0 && value.length <= TEXT_MAX;
}
