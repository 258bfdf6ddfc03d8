/**
 * The sender: takes events from the spool to the desk, in order, until each is there.
 *
 * One bad event never holds up the others: it is set aside with the reason and reported, whether
 * the desk refuses it or something on the way does. What is set aside stays on disk and can be sent
 * again.
 */

import { setTimeout as sleep } from "node:timers/promises";

import {
  asError,
  DeskUnreachable,
  KeyRefused,
  NotTheDesk,
  type Problem,
  Refused,
} from "./errors.ts";
import type { Event, Statement } from "./events.ts";
import { compact, isObject, type Json, type JsonObject, parseJson } from "./protocol/canonical.ts";
import { CannotUse, type Spool, type Waiting } from "./spool.ts";
import type { Wire } from "./wire.ts";

export type Parked = (event: Event, problem: Problem) => void;
/** Who hears what an operator of the agent should know. */
export type Log = (level: "info" | "warn" | "error", text: string) => void;

const IDLE_SECONDS = 5;
// After this many seconds without success the pause between tries grows no more.
const PAUSE_SECONDS_MAX = 30;
const PAUSE_SECONDS_MIN = 0.5;
// An API key that is refused will not be accepted in the next second.
const REFUSED_PAUSE_SECONDS = 60;
const FLUSH_PAUSE_SECONDS = 0.2;
// Answers that blame what was sent. Others must cost no event its place, such as a proxy's 404. A
// proxy's 400 or 422 may be about this event, or about every request where it is asked wrongly: the
// first, if the desk can be heard through it otherwise. So may 406 and 451, words of filters, and a
// page of theirs with 200.
const ITS_OWN_FAULT: ReadonlySet<number> = new Set([400, 406, 413, 422, 451]);
const TOO_LARGE = 413; // which may be a proxy's word as well
const OK = 200;
const FORBIDDEN = 403;
const ITS_STATUS = 422; // of one event in an answer
const THE_DESK = "the desk";
const NOT_THE_DESK = "not the desk, but something on the way to it,";
/** A batch without events, which the desk answers, and whoever stands before it lets through. */
const NOTHING = "[]";

/** Works in the background from the first event until `close`; a process may end meanwhile. */
export class Sender {
  readonly #spool: Spool;
  readonly #wire: Wire;
  readonly #log: Log;
  readonly #onParked: Parked | undefined;
  readonly #before: () => Promise<void>;
  #turn: Promise<void> = Promise.resolve();
  #over = new AbortController();
  #bell: (() => void) | null = null;
  #isRung = false;
  #isWorking = false;

  /** `before` is called before anything is sent, and throws where nothing may be. */
  constructor(
    spool: Spool,
    wire: Wire,
    how: { log: Log; onParked?: Parked | undefined; before: () => Promise<void> },
  ) {
    this.#spool = spool;
    this.#wire = wire;
    this.#log = how.log;
    this.#onParked = how.onParked;
    this.#before = how.before;
  }

  /** Say that something waits; returns at once. */
  wake(): void {
    this.#isRung = true;
    this.#bell?.();
    if (!this.#isWorking && !this.#over.signal.aborted) {
      this.#isWorking = true;
      void this.#work();
    }
  }

  /**
   * Send all that waits (of one run) now.
   *
   * Throws DeskUnreachable, KeyRefused, or Refused where the desk itself will not say whose spool
   * this is: then nothing is done as if it were away.
   */
  async drain(run?: string): Promise<void> {
    try {
      await this.#before();
    } catch (error) {
      if (!(error instanceof Refused) || error.isTheDesks) throw error;
      const why = `this does not look like the desk: ${error.message}`;
      throw new DeskUnreachable(why, { cause: error });
    }
    // All of a run, or of all a batch, and then whoever is next: after an outage, what a run has to
    // say before its next call does not wait for all that the others have left.
    for (let isMore = true; isMore; ) {
      await this.#alone(async () => {
        do {
          const batch = this.#spool.waiting(run);
          isMore = batch.length > 0;
          if (isMore) await this.#send(batch);
        } while (isMore && run !== undefined);
      });
    }
  }

  /** Send one statement past the spool. Throws as `Wire` does; Refused if it is not taken. */
  async tell(told: Statement): Promise<void> {
    for (const [sha256, body] of told.blobs) await this.#wire.putBlob(sha256, body);
    const answer = await this.#wire.post("events", `[${compact(told.event)}]`);
    const results = Array.isArray(answer["results"]) ? answer["results"] : [{}];
    for (const result of results) {
      if (!isTaken(result)) throw new Refused(ITS_STATUS, problemOf(result));
    }
  }

  /** Try for so long; whether everything (of one run) is sent. What is not stays in the spool. */
  async flush(seconds: number, run?: string): Promise<boolean> {
    const end = performance.now() + seconds * 1000;
    for (;;) {
      try {
        await this.drain(run);
        return true;
      } catch (error) {
        if (error instanceof KeyRefused || error instanceof Refused) return false;
        if (error instanceof CannotUse) {
          this.#log("error", `what waits cannot be sent: ${error.message}`);
          return false;
        }
        if (!(error instanceof DeskUnreachable)) throw error;
        if (performance.now() >= end) return false;
        await sleep(Math.min(FLUSH_PAUSE_SECONDS, seconds) * 1000);
      }
    }
  }

  close(): void {
    this.#over.abort();
    this.#bell?.();
  }

  /**
   * Send the blobs of these hashes that are not there yet.
   *
   * One that the desk will not take is dropped: what happened matters more than its snapshot.
   */
  async upload(names: Iterable<string>): Promise<void> {
    try {
      await this.#upload(names);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw new DeskUnreachable(error.message, { cause: error });
    }
  }

  /** The same; Refused where it is not the desk that will not take one. */
  async #upload(names: Iterable<string>): Promise<void> {
    for (const sha256 of names) {
      const body = this.#spool.blob(sha256);
      if (body === null) continue;
      try {
        await this.#wire.putBlob(sha256, body);
      } catch (error) {
        if (!(error instanceof Refused) || !isItsOwnFault(error)) throw error;
        this.#log("error", `the desk refused a snapshot: ${error.message}`);
      }
      this.#spool.blobSent(sha256);
    }
  }

  /** One after the other: a batch that two would send is refused to nobody, but sent twice. */
  #alone(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  async #work(): Promise<void> {
    let pause = 0;
    let isAway = false;
    while (!this.#over.signal.aborted) {
      this.#isRung = false;
      try {
        await this.drain();
        if (isAway) this.#log("warn", "the desk is there again; what waited is sent");
        [pause, isAway] = [0, false];
      } catch (error) {
        if (this.#over.signal.aborted) return;
        if (error instanceof DeskUnreachable) {
          const longer = Math.max(2 * pause, PAUSE_SECONDS_MIN, error.retryAfterSeconds);
          pause = Math.min(longer, PAUSE_SECONDS_MAX);
          const kept = `What happens is kept in ${this.#spool.path} until then`;
          if (!isAway) this.#log("warn", `${error.message} ${kept}`);
          isAway = true;
        } else if (error instanceof KeyRefused) {
          pause = REFUSED_PAUSE_SECONDS;
          this.#log("error", `nothing is sent: ${error.message}`);
        } else {
          pause = PAUSE_SECONDS_MAX; // The edge of the loop: it must live on.
          const why = asError(error).stack;
          this.#log("error", `events could not be sent; they stay in the spool: ${why}`);
        }
      }
      await this.#rest(pause * (0.75 + Math.random() / 2));
    }
  }

  /** Wait for the bell, after a pause if one is due. It keeps no process alive. */
  async #rest(pauseSeconds: number): Promise<void> {
    const { signal } = this.#over;
    if (pauseSeconds > 0) await nap(pauseSeconds, signal);
    if (this.#isRung || signal.aborted) return;
    const woken = new AbortController();
    this.#bell = () => woken.abort();
    await nap(IDLE_SECONDS, woken.signal);
    this.#bell = null;
  }

  /** Send a batch; where it is refused whole, look for the event that is to blame. */
  async #send(batch: Waiting[]): Promise<void> {
    let results;
    try {
      for (const event of batch) await this.#upload(event.blobs);
      const body = `[${batch.map((event) => event.body).join(",")}]`;
      results = resultsOf(await this.#wire.post("events", body), batch.length);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return this.#lookForBlame(batch, error);
    }
    this.#settle(batch, results);
  }

  /** Throws DeskUnreachable, or KeyRefused, where it is not for what was sent. */
  async #lookForBlame(batch: Waiting[], refused: Refusal): Promise<void> {
    if (refused instanceof KeyRefused && !refused.bySomebodyElse) throw refused;
    if (refused instanceof Refused && !ITS_OWN_FAULT.has(refused.status)) throw away(refused);
    const [first, ...others] = batch as [Waiting, ...Waiting[]];
    if (others.length > 0) {
      const half = Math.floor(batch.length / 2);
      await this.#send(batch.slice(0, half));
      await this.#send(batch.slice(half));
    } else if (refused instanceof Refused && refused.isTheDesks) {
      this.#park(first, refused.problem, THE_DESK);
    } else if (await this.#isHeard()) {
      const status = refused instanceof KeyRefused ? FORBIDDEN : OK;
      const said = { title: refused.message, status };
      this.#park(first, refused instanceof Refused ? refused.problem : said, NOT_THE_DESK);
    } else {
      throw refused instanceof Refused ? away(refused) : refused;
    }
  }

  /** Whether the desk is there for a request that nobody can mind. */
  async #isHeard(): Promise<boolean> {
    try {
      const { results } = await this.#wire.post("events", NOTHING);
      return Array.isArray(results) && results.length === 0;
    } catch (error) {
      if (isRefusal(error)) return false;
      throw error;
    }
  }

  #settle(batch: Waiting[], results: Json[]): void {
    const taken = batch.filter((event, place) => {
      if (isTaken(results[place]!)) return true;
      this.#park(event, problemOf(results[place]!), THE_DESK);
      return false;
    });
    this.#spool.sent(taken.map((event) => event.place));
  }

  #park(waiting: Waiting, problem: Problem, who: string): void {
    this.#spool.park(waiting.place, problem);
    const event = parseJson(waiting.body) as Event;
    this.#log("error", `${who} refused ${event.type} ${event.id}: ${compact(problem)}`);
    this.#log("error", setAside(this.#spool));
    this.#onParked?.(event, problem);
  }
}

type Refusal = Refused | KeyRefused | NotTheDesk;

function isRefusal(error: unknown): error is Refusal {
  return [Refused, KeyRefused, NotTheDesk].some((kind) => error instanceof kind);
}

function away(refused: Refused): DeskUnreachable {
  return new DeskUnreachable(refused.message, { cause: refused });
}

/**
 * What the desk says of each event. Throws NotTheDesk where it is nothing of the kind, and
 * DeskUnreachable where it is garbled.
 */
function resultsOf({ results }: JsonObject, asked: number): Json[] {
  if (!Array.isArray(results)) throw new NotTheDesk("the answer is not the desk's");
  if (results.length !== asked || !results.every(isObject)) {
    throw new DeskUnreachable("the answer is not about what was said");
  }
  return results;
}

/** How many events are set aside, and what to do about it. */
export function setAside(spool: Spool): string {
  const told = `${spool.countParked()} events are set aside in ${spool.path};`;
  return `${told} \`npx amends aside\` shows them and sends them again`;
}

function isTaken(result: Json): boolean {
  return isObject(result) && ["accepted", "duplicate"].includes(String(result["status"]));
}

function problemOf(result: Json): Problem {
  if (!isObject(result)) return { title: "the answer is not the desk's" };
  return isObject(result["problem"]) ? result["problem"] : result;
}

function isItsOwnFault(refused: Refused): boolean {
  const isAboutIt = ITS_OWN_FAULT.has(refused.status);
  return isAboutIt && (refused.isTheDesks || refused.status === TOO_LARGE);
}

async function nap(seconds: number, signal: AbortSignal): Promise<void> {
  await sleep(seconds * 1000, undefined, { ref: false, signal }).catch(() => undefined);
}
