/** The desk as an agent sees it: one address, one key, one spool. */

import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

import { AmendsError, Terminated } from "./errors.ts";
import { shortId } from "./events.ts";
import type { Replies, Waits } from "./gate.ts";
import { FLUSH_SECONDS, Link } from "./link.ts";
import { type Args, mustBeKnown } from "./plans.ts";
import { isObject } from "./protocol/canonical.ts";
import { sha256 } from "./protocol/digests.ts";
import { type About, Run, withoutEmpty } from "./runs.ts";
import type { Log, Parked } from "./sender.ts";
import { type Call, type Declaration, tool } from "./tools.ts";
import { plainObject } from "./values.ts";
import { trimmed } from "./wire.ts";

// How long a call waits for people, unless it says otherwise.
const WAIT_SECONDS = 3600;
// No address holds “.” or “..” between slashes: the desk could not be asked about such a run.
const RUN_ID = /^(?!(?:.*\/)?\.\.?(?:\/|$))[\x21-\x7e]{1,120}$/;
// The exit status of a process that a signal has ended, less the signal's number.
const SHELL_SIGNAL = 128;
const SIGTERM = 15;
const SPOOL_NAME_HEX_DIGITS = 16;
// The last three are taken out of it before.
const ABOUT = ["goal", "model", "labels", "onBehalfOf", "run", "trace"];
// What the desk reads of the person for whom a run acts; `contact` is a mail address, `language` a
// tag as browsers send it (de-AT).
const PERSON = ["id", "name", "contact", "language"];

export type ConnectOptions = {
  /** Else AMENDS_URL and AMENDS_KEY: Settings → Agents and keys. */
  url?: string | undefined;
  key?: string | undefined;
  /** The file that keeps what is not sent yet; by default one per address and key. */
  spool?: string | undefined;
  /** Needed only where the very first call may come while the desk is away. */
  workspace?: string | undefined;
  waitSeconds?: number | undefined;
  /** Hears of approvals that are waited for. */
  onWait?: Waits | undefined;
  /** Is given what a person asks back before deciding, and returns an answer. */
  onQuestion?: Replies | undefined;
  /** Hears of events that were refused. */
  onParked?: Parked | undefined;
  /**
   * Where nobody else handles SIGTERM, it ends the process, and open calls and runs are told as
   * ended instead of falling silent. True unless said otherwise.
   */
  heedsSigterm?: boolean | undefined;
  /** By default warnings and errors go to the console. */
  log?: Log | undefined;
};

/** A connection to the recovery desk, for one agent. Make one per process, with `connect`. */
export class Desk extends Link {
  readonly #openRuns = new Set<Run>();
  readonly heedsSigterm: boolean;
  #isClosed = false;

  constructor(url: string, key: string, options: Omit<ConnectOptions, "url" | "key"> = {}) {
    const { spool = defaultSpool(url, key), waitSeconds = WAIT_SECONDS, log = toConsole } = options;
    super(url, key, { ...options, spool, waitSeconds, log });
    this.heedsSigterm = options.heedsSigterm ?? true;
    open(this);
    this.sender.wake();
  }

  /** A run of `body`, for what the user said in their words. Inside it is the current run. */
  async run<T>(
    request: string,
    about: About,
    body: (run: Run) => T | PromiseLike<T>,
  ): Promise<T> {
    if (typeof body !== "function") {
      throw new AmendsError("desk.run(request, about, body): the body is missing; about may be {}");
    }
    return (await this.open(request, about)).within(body);
  }

  /** The same in two halves: `await using run = await desk.open(...)`, and end it yourself. */
  async open(request: string, { run: id, trace, onBehalfOf, ...about }: About = {}): Promise<Run> {
    if (id !== undefined && !RUN_ID.test(id)) {
      const fits = "1 to 120 printable ASCII characters without spaces, no part “.” or “..”";
      throw new AmendsError(`a run's id is ${fits}`);
    }
    if (onBehalfOf && !isObject(onBehalfOf)) {
      throw new AmendsError('onBehalfOf is an object, such as { id: "mia", name: "Mia Li" }');
    }
    mustBeKnown(about, "what is said of a run", ABOUT);
    mustBeKnown(onBehalfOf ?? {}, "onBehalfOf", PERSON);
    const told = withoutEmpty({ request, on_behalf_of: onBehalfOf, ...about });
    const run = new Run(this, id ?? `run_${shortId()}`, plainObject(told, "run"), { trace });
    return this.#started(run);
  }

  /**
   * Go on with a run as the desk says, from its `state`. Calls that are done answer their first
   * result, undone ones get a new key.
   *
   * Throws Stopped if the desk wants the run to stop, AmendsError if it wants nothing; it waits for
   * so long for the desk to want something.
   */
  async resume<T>(
    id: string,
    { waitSeconds = 0 }: { waitSeconds?: number },
    body: (run: Run) => T | PromiseLike<T>,
  ): Promise<T> {
    const run = new Run(this, id, null, { directiveSeconds: waitSeconds });
    return (await this.#started(run)).within(body);
  }

  async #started(run: Run): Promise<Run> {
    await run.start();
    for (const one of this.#openRuns) if (one.ended) this.#openRuns.delete(one);
    this.#openRuns.add(run);
    return run;
  }

  /** A function whose every call is an action of the current run; see `Declaration`. */
  tool<A extends object = Args, R = unknown>(
    name: string,
    declared: Declaration<A, R> & { tries?: number },
    call: Call<A, R>,
  ): (args: A) => Promise<R> {
    return tool(name, declared, call);
  }

  /**
   * Send what waits if the desk is there, and let go. The spool keeps the rest.
   *
   * A process that ends without it does the same at its end. Twice is once.
   */
  async close({ seconds = FLUSH_SECONDS } = {}): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closed(this);
    await this.sender.flush(seconds);
    this.sender.close();
    this.spool.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The process ends: say on disk, at once, that what is open is left. */
  abandon(why: Error): void {
    for (const run of this.#openRuns) {
      try {
        run.abandon(why);
      } catch (error) {
        this.log("error", `it could not be recorded that ${run.id} is left: ${String(error)}`);
      }
    }
  }
}

/** The desk at AMENDS_URL under AMENDS_KEY, or as the options say. */
export function connect(options: ConnectOptions = {}): Desk {
  const { url = process.env["AMENDS_URL"], key = process.env["AMENDS_KEY"], ...others } = options;
  if (!url || !key) {
    const where = "Settings → Agents and keys";
    throw new AmendsError(`set AMENDS_URL and AMENDS_KEY, or give url and key: ${where}`);
  }
  return new Desk(url, key, others);
}

/** One file per address, however that is written, and key, which does not tell either. */
export function defaultSpool(url: string, key: string): string {
  const given = process.env["AMENDS_SPOOL"];
  if (given) return given;
  const state = process.env["XDG_STATE_HOME"] || join(homedir(), ".local", "state");
  const [asGiven, found] = [url, trimmed(url)].map((address) => {
    const name = sha256(`${address}\n${key}`).slice(0, SPOOL_NAME_HEX_DIGITS);
    return join(state, "amends", `${name}.sqlite`);
  }) as [string, string];
  return existsSync(asGiven) ? asGiven : found; // which an older client may have named so
}

function toConsole(level: "info" | "warn" | "error", text: string): void {
  if (level !== "info") console[level](`amends: ${text}`);
}

// The end of the process, for all desks of it.

const desks = new Set<Desk>();

function open(desk: Desk): void {
  if (desks.size === 0) {
    process.on("SIGTERM", terminate);
    process.on("beforeExit", closeAll);
    process.on("exit", abandonAll);
  }
  desks.add(desk);
}

function closed(desk: Desk): void {
  desks.delete(desk);
  if (desks.size > 0) return;
  process.off("SIGTERM", terminate);
  process.off("beforeExit", closeAll);
  process.off("exit", abandonAll);
}

/** Nothing is left to do but what waits in the spools, and a run that nobody goes on with. */
async function closeAll(): Promise<void> {
  abandonAll();
  await Promise.all([...desks].map((desk) => desk.close()));
}

function abandonAll(): void {
  const why = new Terminated("the process ended before it was said how this went");
  for (const desk of desks) desk.abandon(why);
}

async function terminate(): Promise<void> {
  const isOthers = process.listenerCount("SIGTERM") > 1;
  if (isOthers || ![...desks].every((desk) => desk.heedsSigterm)) return;
  process.off("SIGTERM", terminate); // whoever asks twice is in a hurry
  for (const desk of desks) desk.abandon(new Terminated("the process was asked to end (SIGTERM)"));
  await Promise.all([...desks].map((desk) => desk.close()));
  process.exit(SHELL_SIGNAL + SIGTERM);
}
