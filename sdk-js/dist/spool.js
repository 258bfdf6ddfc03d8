/**
 * The spool: what happened is on disk before it is sent, and stays there until the desk has it.
 *
 * One SQLite file per API key, of the same form as the Python client's. Every write is durable when
 * it returns. Beside the events it keeps what this agent knows of its own keys, so that a call is
 * not made twice while the desk is away.
 */
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { AmendsError, SpoolFull } from "./errors.js";
import { compact, parseJson } from "./protocol/canonical.js";
import { connect } from "./sqlite.js";
// Above this no new call is begun; outcomes of calls already made are always written.
const BYTES_MAX = 512 * 1024 * 1024;
// The limits of one POST /api/v1/events, with some room for the brackets.
const BATCH_EVENTS_MAX = 1000;
const BATCH_BYTES_MAX = 8 * 1024 * 1024 - 64 * 1024;
const PARKED_SHOWN_MAX = 1000;
// As long as the ledger keeps keys.
const KEEP_SECONDS = 400 * 24 * 3600;
const TABLES = `
CREATE TABLE IF NOT EXISTS events (place INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE, body TEXT NOT NULL, blobs TEXT NOT NULL, problem TEXT);
CREATE INDEX IF NOT EXISTS waiting ON events (place) WHERE problem IS NULL;
CREATE INDEX IF NOT EXISTS waiting_of_run ON events (run, place) WHERE problem IS NULL;
CREATE TABLE IF NOT EXISTS blobs (sha256 TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, run TEXT NOT NULL, action TEXT NOT NULL,
    n INTEGER NOT NULL, asked TEXT NOT NULL, attempt TEXT NOT NULL, fence INTEGER,
    state TEXT NOT NULL, result TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS pivots (run TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (run, key));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
`;
// By the clock of a machine that may be years ahead, so never what only this file can tell: how a
// call stands of which the outcome, or anything of its run, was not heard yet. And "long ago" is
// long before the last call, too.
const FORGET = `
DELETE FROM keys WHERE at < (SELECT min(?, max(at)) FROM keys) - ?
    AND state NOT IN ('running', 'unknown') AND run NOT IN (SELECT run FROM events)`;
// How one try has ended says little of another at the same key: only that the call was made, or, of
// one that is at it still, that nobody knows.
const END = `
INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    run = excluded.run, action = excluded.action, n = excluded.n, asked = excluded.asked,
    attempt = excluded.attempt, fence = excluded.fence, state = excluded.state,
    result = excluded.result, at = excluded.at
WHERE attempt = excluded.attempt OR state = 'no_effect' OR excluded.state = 'succeeded'
    OR (state = 'running' AND excluded.state = 'unknown')`;
const LEND = "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const ASIDE = `
SELECT 1 FROM events WHERE run = ? AND problem IS NOT NULL AND instr(body, ?) LIMIT 1`;
const PIVOT = `
SELECT 1 FROM pivots p JOIN keys k ON k.key = p.key
WHERE p.run = ? AND p.key <> ? AND k.state <> 'no_effect' LIMIT 1`;
/**
 * We stopped because the spool cannot be written or read: the disk is full, or fails. What was to
 * be kept is not.
 */
export class CannotUse extends AmendsError {
}
/** Safe to use from several processes that share the file. */
export class Spool {
    path;
    bytesMax;
    #database;
    constructor(path, { bytesMax = BYTES_MAX } = {}) {
        this.path = path;
        this.bytesMax = bytesMax;
        try {
            mkdirSync(dirname(path), { recursive: true });
            closeSync(openSync(path, "a", 0o600));
            this.#database = connect(path, TABLES);
            this.#database.prepare(FORGET).run(Date.now() / 1000, KEEP_SECONDS);
            this.#database.exec("DELETE FROM pivots WHERE key NOT IN (SELECT key FROM keys)");
        }
        catch (error) {
            const why = error.message;
            throw new AmendsError(`the spool ${path} cannot be opened: ${why}`, { cause: error });
        }
    }
    /** Put an event in line, with its blobs and how it ended the try of `key`, in one transaction. */
    write(event, { blobs = new Map(), key }) {
        this.#writing(() => {
            this.#put(event, blobs);
            if (key)
                this.#note(END, key);
        });
    }
    /**
     * Put both statements in line and lend the key, in one transaction; false where the key no longer
     * stands as it `was`: of all that share this file one may make the call.
     */
    begin(planned, started, { key, was, isPivot }) {
        return this.#writing(() => {
            if (!isDeepStrictEqual(this.find(key.key), was))
                return false;
            this.#put(planned.event, planned.blobs);
            this.#put(started.event, started.blobs);
            this.#lend(key, isPivot);
            return true;
        });
    }
    /** Keep blobs that are to be sent with a question instead of an event. */
    keep(blobs) {
        if (blobs.size > 0)
            this.#writing(() => this.#keepBlobs(blobs));
    }
    /**
     * Remember what the desk says of a key. Gives, and leaves, a row of which the desk cannot have
     * known: of a call that was made without it, since the key stood as it `was`, or of which
     * something is set aside.
     */
    note(key, { was, isPivot }) {
        return this.#writing(() => {
            const found = this.find(key.key);
            if (found !== null && found.attempt !== key.attempt && isMadeAlone(found)) {
                if (!isDeepStrictEqual(found, was) || this.#isAside(found))
                    return found;
            }
            this.#lend(key, isPivot);
            return null;
        });
    }
    /**
     * Whether a call of a run after which there is no way back may have been made, by whoever shares
     * this file; `but` the one of this key.
     */
    hasPivot(run, but) {
        return this.#rows(PIVOT, run, but).length > 0;
    }
    /** What this agent knows of a key. */
    find(key) {
        const [row] = this.#rows("SELECT key, run, action, n, asked, attempt, fence, state, result FROM keys WHERE key = ?", key);
        return row ? { ...row, result: row.result ? parseJson(row.result) : null } : null;
    }
    /** The next number in a run: counted from 1, never given twice, also after a crash. */
    nextN(run, above = 0) {
        const [row] = this.#rows("INSERT INTO runs (run, n) VALUES (?, ?)" +
            " ON CONFLICT (run) DO UPDATE SET n = max(n, ?) + 1 RETURNING n", run, above + 1, above);
        return row.n;
    }
    /** The oldest events that the desk does not have, as many as one request may carry. */
    waiting(run) {
        const rows = this.#rows(`SELECT place, body, blobs FROM events WHERE problem IS NULL ${run ? "AND run = ?" : ""}` +
            ` ORDER BY place LIMIT ${BATCH_EVENTS_MAX}`, ...(run ? [run] : []));
        const batch = [];
        let size = 0;
        for (const { place, body, blobs } of rows) {
            size += Buffer.byteLength(body) + 1;
            if (batch.length > 0 && size > BATCH_BYTES_MAX)
                break;
            batch.push({ place, body, blobs: JSON.parse(blobs) });
        }
        return batch;
    }
    /** Forget events that the desk has. */
    sent(places) {
        this.#writing(() => {
            for (const place of places)
                this.#run("DELETE FROM events WHERE place = ?", place);
        });
    }
    /** Set an event aside that would hold up the others, with why; it stays on disk. */
    park(place, problem) {
        this.#run("UPDATE events SET problem = ? WHERE place = ?", compact(problem), place);
    }
    /** How many events are set aside. */
    countParked() {
        const sql = "SELECT count(*) AS n FROM events WHERE problem IS NOT NULL";
        return this.#rows(sql)[0].n;
    }
    /**
     * Put events that were set aside back in line, each in its old place; how many. All of them, or
     * those of these ids.
     */
    unpark(ids) {
        const sql = "UPDATE events SET problem = NULL WHERE problem IS NOT NULL";
        if (ids === undefined)
            return this.#run(sql);
        return this.#writing(() => ids.reduce((found, id) => found + this.#run(`${sql} AND id = ?`, id), 0));
    }
    /** Events set aside, each with the problem, oldest first, at most a thousand. */
    parked() {
        const rows = this.#rows("SELECT body, problem FROM events WHERE problem IS NOT NULL" +
            ` ORDER BY place LIMIT ${PARKED_SHOWN_MAX}`);
        return rows.map(({ body, problem }) => ({
            event: parseJson(body),
            problem: parseJson(problem),
        }));
    }
    /** A blob that is still to be sent. */
    blob(sha256) {
        const sql = "SELECT body FROM blobs WHERE sha256 = ?";
        const [row] = this.#rows(sql, sha256);
        return row ? Buffer.from(row.body).toString("utf8") : null;
    }
    blobSent(sha256) {
        this.#run("DELETE FROM blobs WHERE sha256 = ?", sha256);
    }
    /** Keep a fact, such as the last policy fetched, over restarts. */
    remember(name, value) {
        this.#run("INSERT INTO facts (name, value) VALUES (?, ?)" +
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, compact(value));
    }
    recall(name) {
        const [row] = this.#rows("SELECT value FROM facts WHERE name = ?", name);
        return row ? parseJson(row.value) : null;
    }
    /** Throw SpoolFull if so much waits that another call could not be recorded. */
    needRoom() {
        const [row] = this.#rows("SELECT (c.page_count - f.freelist_count) * s.page_size AS used" +
            " FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s");
        if (row.used > this.bytesMax) {
            throw new SpoolFull(`${row.used} bytes wait in ${this.path}`);
        }
    }
    /** What `ask` gives; SpoolFull where the disk is to blame that it cannot be asked. */
    async needed(ask) {
        try {
            return await ask();
        }
        catch (error) {
            if (!(error instanceof CannotUse))
                throw error;
            throw new SpoolFull(`${error.message}, so the call was not made`, { cause: error });
        }
    }
    close() {
        this.#database.close();
    }
    #writing(write) {
        this.#used(() => this.#database.exec("BEGIN IMMEDIATE"));
        try {
            const found = write();
            this.#used(() => this.#database.exec("COMMIT"));
            return found;
        }
        catch (error) {
            // On a full disk SQLite has taken it back itself.
            if (this.#database.isTransaction)
                this.#database.exec("ROLLBACK");
            throw error;
        }
    }
    #rows(sql, ...values) {
        return this.#used(() => this.#database.prepare(sql).all(...values));
    }
    #run(sql, ...values) {
        return this.#used(() => Number(this.#database.prepare(sql).run(...values).changes));
    }
    #used(use) {
        try {
            return use();
        }
        catch (error) {
            if (!isDiskTrouble(error))
                throw error;
            const words = `the spool ${this.path} cannot be used (${error.message})`;
            throw new CannotUse(words, { cause: error });
        }
    }
    #put(event, blobs) {
        this.#keepBlobs(blobs);
        this.#run("INSERT INTO events (run, id, body, blobs) VALUES (?, ?, ?, ?)", event.run, event.id, compact(event), JSON.stringify([...blobs.keys()]));
    }
    #keepBlobs(blobs) {
        for (const [sha256, body] of blobs) {
            const sql = "INSERT INTO blobs (sha256, body) VALUES (?, ?) ON CONFLICT DO NOTHING";
            this.#run(sql, sha256, Buffer.from(body));
        }
    }
    #isAside({ run, action }) {
        return this.#rows(ASIDE, run, `"action":"${action}"`).length > 0;
    }
    #lend(row, isPivot) {
        this.#note(LEND, row);
        if (isPivot)
            this.#run("INSERT OR IGNORE INTO pivots VALUES (?, ?)", row.run, row.key);
    }
    #note(sql, row) {
        this.#run(sql, row.key, row.run, row.action, row.n, row.asked, row.attempt, row.fence, row.state, row.result === null ? null : compact(row.result), Date.now() / 1000);
    }
}
/** Whether it may have been made, and not as one that the desk has lent. */
function isMadeAlone({ fence, state }) {
    return fence === null && state !== "no_effect";
}
/** Whether the disk or the file is to blame, and not what was to be written. */
function isDiskTrouble(error) {
    return error instanceof Error && "code" in error && error.code === "ERR_SQLITE_ERROR";
}
