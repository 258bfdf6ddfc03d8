/** Each error finishes the sentence "we stopped because ..." and says what to do about it. */

import { isObject, type JsonObject } from "./protocol/canonical.ts";

export type Problem = JsonObject;

/** A problem (RFC 9457) as one line: what it is, and what the desk says of this case. */
export function inWords(problem: Problem): string {
  const parts = [problem["title"], problem["detail"]].filter((part) => !!part);
  const said = parts.map((part) => String(part).replace(/\.+$/, ""));
  return said.join(": ") || "the desk refused the request";
}

/** The parent of everything this package throws, but for NotProven of protocol/proofs.ts. */
export class AmendsError extends Error {
  constructor(message = "", options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

let moments = 0;
const told = new WeakMap<AmendsError, number>();
const passed = new WeakSet<AmendsError>();

/** Later than every one before it in this process. */
export function moment(): number {
  return (moments += 1);
}

/**
 * An action that began at `began` ends in the error, and says it of itself; where it is another
 * action's, asked for within this one, or this one was made, it has passed it. Whether that is so.
 */
export function saidBy(error: unknown, began: number, isMade = false): boolean {
  if (!(error instanceof AmendsError)) return false;
  const isOther = isMade || isAnothers(error, began);
  if (isOther) passed.add(error);
  else passed.delete(error);
  told.set(error, moment());
  return isOther;
}

/** Whether another action has said it of itself since then: of this one it says nothing. */
export function isAnothers(error: AmendsError, began: number): boolean {
  return (told.get(error) ?? 0) > began;
}

/** Whether it has gone through an action of which it says nothing. */
export function hasPassed(error: AmendsError): boolean {
  return passed.has(error);
}

/**
 * Throw it in a tool where it *knows* that nothing happened: a documented refusal.
 *
 * Everything else that goes wrong, a time-out above all, counts as an unknown outcome.
 */
export class NoEffect extends AmendsError {
  readonly retryable: boolean;

  constructor(message = "", { retryable = false, ...options }: NoEffectOptions = {}) {
    super(message, options);
    this.retryable = retryable;
  }
}
type NoEffectOptions = ErrorOptions & { retryable?: boolean };

/** The arguments are no longer those that were asked for. The call was not made; ask anew. */
export class ArgumentsChanged extends NoEffect {}

/** The desk does not allow the call. Do not make it; `reason` is for the model or a person. */
export class Denied extends AmendsError {
  readonly reason: string;
  readonly answer: JsonObject;

  constructor(reason: string, answer: JsonObject = {}, happened = "not allowed, and not done") {
    super(`${happened}: ${reason}`);
    this.reason = reason;
    this.answer = answer;
  }
}

/** The desk has told this run to stop. Leave the run; its work is recovered by the desk. */
export class Stopped extends Denied {
  constructor(reason: string, answer: JsonObject = {}) {
    super(reason, answer, "the desk has stopped this run, leave it");
  }
}

/** Nobody has decided within the caller's deadline. Ask again later under the same key. */
export class ApprovalTimeout extends AmendsError {
  readonly approval: string;
  readonly url: string;

  constructor(approval: string, url: string) {
    super(
      "nobody has decided yet, and the call was not made. It can be decided at" +
        ` ${url || approval}; then make the same call in the same run again`,
    );
    this.approval = approval;
    this.url = url;
  }
}

/** An earlier try of this call may have happened. A probe or a person settles it; wait. */
export class InDoubt extends AmendsError {
  constructor(action: string, options?: ErrorOptions) {
    super(
      `an earlier try of this call (${action}) may have happened, so it was not made again.` +
        " Do not repeat it elsewhere: the desk finds out, or asks a person; then make it again",
      options,
    );
  }
}

/** This call succeeded once and was undone since. Its key is dead; `nextKey` is a new one. */
export class Compensated extends AmendsError {
  readonly nextKey: string;

  constructor(message: string, nextKey: string) {
    super(message);
    this.nextKey = nextKey;
  }
}

/** Another try of this call is under way. Wait for it, or until its lease is over. */
export class InProgress extends AmendsError {}

/** Other arguments were sent under a used key. A second operation needs an `op` of its own. */
export class KeyReused extends AmendsError {}

/** The desk cannot be reached and the call needs it. Try again when it is back. */
export class DeskUnreachable extends AmendsError {
  readonly retryAfterSeconds: number;

  constructor(message: string, { retryAfterSeconds = 0, ...options }: AwayOptions = {}) {
    super(message, options);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
type AwayOptions = ErrorOptions & { retryAfterSeconds?: number };

/**
 * Something else answers in the desk's place, such as a network's log-in page or a filter. No call
 * is made that would have to ask. Is AMENDS_URL right, and the way to it open?
 */
export class NotTheDesk extends DeskUnreachable {}

/**
 * The desk is there, and this agent asks faster than it may. Ask less often, or have the operator
 * of the desk raise the limit: it stands on the page *Agents and keys*.
 */
export class Throttled extends DeskUnreachable {}

/** The desk does not know this API key, or it lacks the scope. Make a new one in the console. */
export class KeyRefused extends AmendsError {
  /** It is a 403 that does not read like the desk's, such as a proxy's. */
  readonly bySomebodyElse: boolean;

  constructor(message: string, { bySomebodyElse = false } = {}) {
    super(message);
    this.bySomebodyElse = bySomebodyElse;
  }
}

/** The spool is another agent's. Give each agent a file of its own, with `AMENDS_SPOOL`. */
export class WrongSpool extends KeyRefused {}

/** The desk does not accept what was sent (RFC 9457). `problem` says which part and why. */
export class Refused extends AmendsError {
  readonly status: number;
  readonly problem: Problem;

  constructor(status: number, problem: Problem) {
    super(`${status}: ${inWords(problem)}`);
    this.status = status;
    this.problem = problem;
  }

  /** Whether the desk itself says so: a proxy's page names no kind of problem. */
  get isTheDesks(): boolean {
    return isObject(this.problem) && "type" in this.problem;
  }
}

/** A statement is above the limits of the wire format. Name large values by reference. */
export class TooLarge extends AmendsError {}

/** The value is none that the ledger keeps; the text says why. Give it as a text or a BigInt. */
export class Unfit extends AmendsError {}

/** Too much waits to be sent. Nothing more is done, since it could not be recorded. */
export class SpoolFull extends AmendsError {}

/** The body of an action ended without saying how it went. Call `succeeded` or `failed`. */
export class MissingOutcome extends AmendsError {}

/** A tool was called outside any run, or in one that has ended. Open one with `desk.run(...)`. */
export class NoRun extends AmendsError {}

/** The call has taken longer than its limit. Its outcome is unknown: it may still happen. */
export class TimedOut extends AmendsError {}

/** The process ends: open calls and runs say so on their way out. */
export class Terminated extends AmendsError {}

/** What somebody threw, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
