/** The link to the desk: one address, one key, one spool, and the policy last fetched. */
import { setTimeout as sleep } from "node:timers/promises";
import { DeskUnreachable, KeyRefused, NotTheDesk, Refused, WrongSpool, } from "./errors.js";
import { statement } from "./events.js";
import { Gate, inTurn, trying } from "./gate.js";
import { keepsSnapshots, maskPaths, showsLast4 } from "./policy.js";
import { compact, isObject } from "./protocol/canonical.js";
import { sha256 } from "./protocol/digests.js";
import { masked, MaskingKey } from "./protocol/masking.js";
import { Sender, setAside } from "./sender.js";
import { CannotUse, Spool } from "./spool.js";
import { plainObject } from "./values.js";
import { Wire } from "./wire.js";
// How old the policy may grow before a run or a call fetches it again.
const POLICY_SECONDS = 60;
export const FLUSH_SECONDS = 2;
const MASKING_FORM = "v1";
const NOT_FOUND = 404;
const KEY_DIGEST_HEX_DIGITS = 16;
const NOBODYS = "keeps what was not sent under another key before the desk was ever met, so nobody knows" +
    " whether it is this agent's. Send it with that key, or name another file with AMENDS_SPOOL";
/** What runs and their calls need of the desk: to ask, to say, and to know its policy. */
export class Link {
    waitSeconds;
    spool;
    wire;
    sender;
    gate;
    log;
    #workspace;
    #keyDigest;
    #isClaimed = false;
    #policyAt = -Infinity;
    #known;
    /** The shape of arguments that the desk has heard of each tool, by digest. */
    announced = new Map();
    constructor(url, key, options) {
        const { log, onParked } = options;
        this.log = log;
        this.waitSeconds = options.waitSeconds;
        this.#workspace = options.workspace;
        this.#keyDigest = sha256(key).slice(0, KEY_DIGEST_HEX_DIGITS);
        this.wire = new Wire(url, key);
        this.spool = new Spool(options.spool);
        this.sender = new Sender(this.spool, this.wire, { log, onParked, before: () => this.claim() });
        this.gate = new Gate(this.spool, this.sender, this.wire, options);
        const known = this.spool.recall("policy");
        this.#known = isObject(known) ? known : {};
        if (this.spool.countParked() > 0)
            log("warn", setAside(this.spool));
    }
    /** The workspace of the key; fetched once and then known over restarts. */
    async workspace() {
        if (this.#workspace !== undefined)
            return this.#workspace;
        if (!("workspace" in this.#known))
            await this.fetchPolicy();
        return String(this.#known["workspace"]);
    }
    /** The agent of the key, or null before the desk was ever reached. */
    get agent() {
        const { agent } = this.#known;
        return typeof agent === "string" ? agent : null;
    }
    /** The last policy document fetched, or null if there was never one. */
    get policy() {
        const { document } = this.#known;
        return isObject(document) ? document : null;
    }
    /** The workspace's, or null before the desk was ever reached. */
    get maskingKey() {
        const { masking } = this.#known;
        if (!isObject(masking) || masking["form"] !== MASKING_FORM)
            return null;
        const secret = Buffer.from(String(masking["key"]), "hex");
        return new MaskingKey(secret, { showsLast4: showsLast4(this.policy) });
    }
    /**
     * Fetch the key with the policy where it never was: without it nothing can be compared. Gives
     * what kept it from being fetched.
     */
    async needMaskingKey() {
        if (this.maskingKey !== null)
            return null;
        this.#policyAt = -Infinity;
        return this.freshen();
    }
    /**
     * Fetch the policy where there never was one, as patiently as a call is asked for.
     *
     * A client that is new knows neither its workspace nor the masking key. Whoever cannot go on
     * without them finds out next.
     */
    async meet(signal) {
        if ("workspace" in this.#known)
            return;
        const once = async () => {
            await this.claim();
            await this.fetchPolicy();
        };
        try {
            await inTurn(() => trying(once, signal), signal);
        }
        catch (error) {
            if (error instanceof WrongSpool || !isNoAnswer(error))
                throw error;
            this.log("info", `the policy cannot be fetched (${error.message})`);
        }
    }
    /** Fetch the policy now, and keep it on disk. Throws DeskUnreachable or KeyRefused. */
    async fetchPolicy() {
        this.#known = await this.#policyNow();
        this.#policyAt = performance.now();
        this.spool.remember("policy", this.#known);
    }
    /** What is nobody's policy must not take the place of the last one, which may forbid. */
    async #policyNow() {
        const found = await this.wire.get("policy");
        const isNamed = ["workspace", "agent"].every((name) => typeof found[name] === "string");
        const document = found["document"] ?? null;
        if (!isNamed || !(document === null || isObject(document))) {
            throw new NotTheDesk("the answer is not the desk's: it is no policy");
        }
        return found;
    }
    /**
     * Throw WrongSpool where another agent keeps this spool; its agent's new key may go on.
     *
     * Each would send what is the other's, and it would be set aside, or be taken for its own.
     */
    async claim() {
        if (this.#isClaimed)
            return;
        const keeper = this.spool.recall("key");
        if (keeper !== null && keeper !== this.#keyDigest) {
            const recalled = this.spool.recall("policy");
            const isLeft = this.spool.waiting().length > 0 || this.spool.countParked() > 0;
            if (recalled === null && isLeft)
                throw new WrongSpool(`${this.spool.path} ${NOBODYS}`);
            const was = isObject(recalled) ? recalled : {};
            const now = await this.#policyNow();
            const isKnown = (name) => (was[name] ?? null) !== null;
            if (["workspace", "agent"].some((name) => isKnown(name) && was[name] !== now[name])) {
                throw new WrongSpool(`${this.spool.path} keeps what ${String(was["agent"])} has not sent yet, and this key` +
                    ` is ${String(now["agent"])}'s. Name another file with AMENDS_SPOOL`);
            }
        }
        this.spool.remember("key", this.#keyDigest);
        this.#isClaimed = true;
    }
    /**
     * The policy decides what may be done while the desk is away, so it should be a new one. Gives
     * what kept it from being fetched.
     */
    async freshen() {
        try {
            await this.claim();
            if (performance.now() - this.#policyAt >= POLICY_SECONDS * 1000)
                await this.fetchPolicy();
        }
        catch (error) {
            if (error instanceof WrongSpool || !isNoAnswer(error))
                throw error;
            this.log("info", `the policy cannot be fetched (${error.message}); the last one holds`);
            this.#policyAt = performance.now();
            return error;
        }
        return null;
    }
    /** What the desk wants of a run: `stop`, or `resume` from a checkpoint; null for nothing. */
    async directive(run, { waitSeconds = 0 } = {}) {
        try {
            const path = `runs/${encodeURIComponent(run)}/directive`;
            const { directive } = await this.wire.get(path, { waitSeconds });
            if (directive === undefined) {
                throw new NotTheDesk("the answer is not the desk's: it says nothing of the run");
            }
            return isObject(directive) ? directive : null;
        }
        catch (error) {
            if (!(error instanceof Refused) || error.status !== NOT_FOUND)
                throw error;
            return null; // The desk has not heard of the run yet, so it wants nothing of it.
        }
    }
    /** Say that a run of this agent did wrong; it opens a case, whose number is returned. */
    async report(run, text) {
        await this.flush();
        const said = compact({ text: masked(text, [], this.maskingKey) });
        const answer = await this.wire.post(`runs/${encodeURIComponent(run)}/report`, said);
        if (!Number.isSafeInteger(answer["case"])) {
            throw new NotTheDesk("the answer is not the desk's: it names no case");
        }
        return Number(answer["case"]);
    }
    build(type, run, data, about) {
        const { maskingKey } = this;
        const [mask, withSnapshots] = [maskPaths(this.policy), keepsSnapshots(this.policy)];
        return statement(type, run, data, { ...about, mask, maskingKey, withSnapshots });
    }
    /** The data of an event as it would be told, whole. */
    masked(data) {
        return masked(plainObject(data, "data"), maskPaths(this.policy), this.maskingKey);
    }
    /**
     * Put a statement in the spool; the sender does the rest.
     *
     * Where the disk is full it goes to the desk at once: what has happened must be told.
     */
    async send(told, key) {
        try {
            this.spool.write(told.event, { blobs: told.blobs, key });
        }
        catch (full) {
            if (!(full instanceof CannotUse))
                throw full;
            this.log("error", `${full.message}; the desk is told at once`);
            try {
                await this.sender.tell(told);
            }
            catch (unheard) {
                if (!isNoAnswer(unheard))
                    throw unheard;
                const words = `${full.message}, and the desk could not be told: ${unheard.message}`;
                throw new CannotUse(words, { cause: full });
            }
        }
        this.sender.wake();
    }
    /** Events that were refused and are set aside, each with the problem that was named. */
    parked() {
        return this.spool.parked();
    }
    /** Send again what is set aside, or the events of these ids; how many are in line again. */
    retryParked(ids) {
        const found = this.spool.unpark(ids);
        this.sender.wake();
        return found;
    }
    /**
     * Send what a run has said, for so long at most: a process may end as soon as its run has, and
     * leave no time. What is not sent by then stays in the spool; nothing is thrown.
     */
    async deliver(run, seconds = FLUSH_SECONDS) {
        const sent = this.sender.flush(seconds, run).catch((error) => {
            const why = error instanceof Error ? error.message : String(error);
            this.log("warn", `${run} stays in ${this.spool.path}: ${why}`);
        });
        await Promise.race([sent, sleep(seconds * 1000, undefined, { ref: false })]);
    }
    /** Try for so long to send what waits; whether all of it is sent. */
    flush(seconds = FLUSH_SECONDS) {
        return this.sender.flush(seconds);
    }
}
function isNoAnswer(error) {
    return [DeskUnreachable, KeyRefused, Refused].some((kind) => error instanceof kind);
}
