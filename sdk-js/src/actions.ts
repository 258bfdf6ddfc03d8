/** An action: one call of one tool, announced before and recorded after. */

import { randomBytes } from "node:crypto";

import {
  AmendsError,
  ArgumentsChanged,
  asError,
  Compensated,
  InDoubt,
  isAnothers,
  MissingOutcome,
  moment,
  NoEffect,
  Refused,
  saidBy,
  TooLarge,
  Unfit,
} from "./errors.ts";
import { cut, newId, said, type Statement } from "./events.ts";
import { type Approval, type Asked, type BeginRequest, isLate } from "./gate.ts";
import {
  type Args,
  bitByBit,
  type CallOptions,
  callWithin,
  type Check,
  check,
  type EffectWords,
  leavesSomething,
  MASKED_KEY,
  mustBeTold,
  type Outcome,
  type Plan,
  type Retry,
  shapeOf,
  type Told,
  type Undo,
} from "./plans.ts";
import { cataloguedClass, isGated, isPivot, keepsOrder } from "./policy.ts";
import { canonical, isObject, type Json, type JsonObject } from "./protocol/canonical.ts";
import { idempotencyKey, sha256 } from "./protocol/digests.ts";
import { holdsBare, holdsMask, withoutLast4 } from "./protocol/masking.ts";
import { type EffectClass, WITHOUT_EFFECT } from "./protocol/vocabulary.ts";
import type { Record as RunRecord } from "./record.ts";
import type { KeyRow, KeyState } from "./spool.ts";
import {
  asTargets,
  isJson,
  mustBeShown,
  type NamedTarget,
  perTarget,
  plain,
  plainObject,
  withOwnSecrets,
} from "./values.ts";

const CHANGED = "the arguments were changed while the desk was asked: the call is not made";
const NOT_TAKEN =
  "an approver changed the arguments, and this call takes none but its own (see" +
  " `acceptsChangedArguments`): it is not made";
const NOT_USED =
  "an approver changed the arguments, and the call does not look at those that it is handed: it" +
  " is not made";
const ABORTED = "the signal of this call was aborted: it was not made";
const ABANDONED = "the run ended before the call was made";
const RECORDED = "the outcome of this call is recorded already";
const MADE = "this call was made: another one is an action of its own, with an `op` of its own";

/**
 * Made by `run.action(tool, plan, body)`, which begins it and leaves it, or by `run.begin`.
 *
 * `replayed` is true if this call was made before: then `result` is what it answered, and the body
 * should do nothing. `perform` keeps that rule by itself. `args` are the arguments to make the
 * call with: those that were given, or what an approver has made of them.
 */
export class Action<A extends object = Args> {
  readonly run: RunRecord;
  readonly tool: string;
  readonly targets: NamedTarget[];
  effectClass: EffectClass;
  readonly #plan: Plan<A>;
  readonly #planned: JsonObject;
  readonly #retry: Retry | undefined;
  #begun: Asked | null = null;
  #changed: JsonObject | null = null;
  #approved: JsonObject | null = null;
  readonly #shape: { digest: string; schema: JsonObject } | null;
  #returned: { result: unknown } | null = null;
  #failure: Error | null = null;
  #began = 0;
  #isMade = false;
  #isSettled = false;

  constructor(run: RunRecord, tool: string, plan: Plan<A>) {
    this.run = run;
    this.tool = tool;
    this.targets = asTargets(plan.target);
    this.effectClass = plan.effectClass ?? "external_reversible";
    this.#plan = plan;
    this.#retry = plan.retry ?? (run.directive ? "workflow" : undefined);
    const before = perTarget(plan.before, this.targets.length, "before");
    // People may take an hour to decide, and the agent goes on working with what it gave us.
    mustBeShown(plan.args, `${tool}.args`);
    this.#planned = plainObject(
      {
        tool,
        targets: this.targets,
        args: plan.args ?? {},
        op: plan.op ?? tool,
        before: plan.before === undefined || before.length === 0 ? undefined : before,
        saga: plan.saga,
        risk: plan.risk,
        intent: plan.intent,
        compensation: plan.undo ?? undefined,
      },
      tool,
    );
    if (!isObject(this.#planned["args"])) throw new AmendsError(`${tool}.args is no object`);
    this.#shape = shapeOf(plan.schema);
    // What is no JSON (a date, bytes) could not be given back as what it was.
    if (plan.acceptsChangedArguments && isJson(plan.args ?? {})) {
      this.#planned["accepts_changed_arguments"] = true;
    }
  }

  /** What is known of the call: its key, id, number, attempt and state. */
  get row(): KeyRow {
    if (this.#begun === null) throw new AmendsError("this action has not begun");
    return this.#begun.row;
  }

  get id(): string {
    return this.row.action;
  }

  get args(): A {
    return (this.#changed as A | null) ?? this.#plan.args ?? ({} as A);
  }

  /** Whether an approver has changed the arguments. */
  get isChanged(): boolean {
    return this.#changed !== null;
  }

  /** The yes that let it proceed; null where nobody was asked. */
  get approval(): Approval | null {
    return this.#begun?.approval ?? null;
  }

  get settled(): boolean {
    return this.#isSettled;
  }

  get replayed(): boolean {
    return this.row.state === "succeeded" && !this.#isSettled;
  }

  /** What the call answered, in its masked form. */
  get result(): Json {
    return this.row.result;
  }

  /** Ask whether the call may be made. See `Gate.begin` for what it throws; and SpoolFull. */
  async begin(): Promise<this> {
    return this.run.desk.spool.needed(() => this.#asked());
  }

  /** What the desk would answer now, and under `explain` why; it begins nothing. */
  async explain(): Promise<JsonObject> {
    return this.run.desk.gate.explain(await this.#ask(await this.#prepared()));
  }

  /** The key of the call, whose class is known then. */
  async #prepared(): Promise<string> {
    await this.run.desk.meet(this.#plan.signal);
    const known = cataloguedClass(this.run.desk.policy, this.tool);
    this.effectClass = this.#plan.effectClass ?? known ?? this.effectClass;
    this.#planned["class"] = this.effectClass;
    return this.#plan.key ?? (await this.#ownKey());
  }

  async #asked(): Promise<this> {
    let key = await this.#prepared();
    this.run.lastAction = null;
    for (let tries = 0; tries < 2; tries += 1) {
      const ask = await this.#ask(key);
      this.run.lastAction = ask.planned.event.action ?? null;
      try {
        this.#begun = { ask, ...(await this.run.desk.gate.begin(ask)) };
        this.#beginsAnew();
        if (this.#shape) this.run.desk.announced.set(this.tool, this.#shape.digest);
      } catch (error) {
        if (!(error instanceof Compensated) || !this.run.repeats(key)) throw error;
        key = error.nextKey; // The desk has told this run to do it anew.
        continue;
      }
      this.run.lastAction = this.row.action;
      if (this.row.state === "succeeded") this.run.wentWell(this.row.action);
      if (this.row.state === "running") await this.#mayBeMade(ask, this.#begun.changed ?? null);
      return this;
    }
    throw new AmendsError("the desk has undone this call twice while it was asked for");
  }

  /** Nothing was made or said yet; also where the same object is begun a second time. */
  #beginsAnew(): void {
    this.#changed = this.#approved = this.#returned = this.#failure = null;
    this.#isMade = this.#isSettled = false;
    this.#began = moment();
  }

  /** Throws, and records that nothing happened, where the call is not to be made after all. */
  async #mayBeMade(ask: BeginRequest, changed: Json): Promise<void> {
    let why: unknown = null;
    if (this.#begun?.unkept) why = this.#begun.unkept;
    else if (this.#hasChanged()) why = new ArgumentsChanged(CHANGED);
    else if (this.run.ended) why = new NoEffect(ABANDONED);
    else if (this.#plan.signal?.aborted) why = this.#plan.signal.reason ?? new NoEffect(ABORTED);
    else if (changed !== null) why = this.#heed(ask, changed);
    if (why !== null) await this.#isNotMade(why);
    this.run.openActions.add(this);
  }

  async #isNotMade(why: unknown): Promise<never> {
    await this.failed(asError(why), { outcome: "no_effect" });
    throw why;
  }

  /**
   * Make the call, unless it was made before: then give its first (masked) result. `call` is handed
   * the arguments, which an approver may have changed, and a signal for the time limit.
   *
   * If nothing else is said before the body ends, what it returns is recorded as the result. Throws
   * TimedOut where it takes longer than `timeLimitSeconds`.
   */
  async perform<T>(call: (args: A, options: CallOptions) => T | PromiseLike<T>): Promise<T> {
    if (this.replayed) return this.result as T;
    const begun = this.#begun;
    if (begun === null || this.run.ended) throw new NoEffect(ABANDONED);
    if (this.#isSettled || this.#returned) throw new AmendsError(this.#isSettled ? RECORDED : MADE);
    if (this.#isMade) throw new InDoubt(this.id);
    if (this.#hasChanged()) throw new ArgumentsChanged(CHANGED);
    if (this.isChanged && call.length === 0) throw new ArgumentsChanged(NOT_USED);
    const { signal } = this.#plan;
    if (signal?.aborted) return this.#isNotMade(signal.reason ?? new NoEffect(ABORTED));
    const lazy = bitByBit(call);
    if (lazy !== null) throw lazy;
    this.#isMade = true;
    if (isLate(begun)) {
      const again = this.run.desk.gate.renewed(begun).finally(() => (this.#isMade = false));
      this.#begun = await again.catch((no) => {
        throw (this.#failure = asError(no));
      });
      return this.perform(call); // much may have happened meanwhile
    }
    const over = new AbortController();
    void this.run.desk.gate.renewing(begun.ask, begun.leaseUntil, over.signal);
    try {
      const result = await callWithin(this.#plan, this.args, call);
      this.#returned = { result };
      return result;
    } catch (error) {
      this.#failure = asError(error);
      this.#isMade = !(error instanceof NoEffect) || isAnothers(error, this.#began);
      throw error;
    } finally {
      over.abort();
    }
  }

  /**
   * Record the success. `before` and `after` are snapshots of the target, one per target.
   *
   * A call that was made before has been recorded already.
   */
  async succeeded(result?: unknown, told: Told = {}): Promise<void> {
    if (this.replayed) return;
    const { before, after, effects, undo, ...words } = told;
    let statement: Statement;
    try {
      mustBeTold(told);
      const data: { [name: string]: unknown } = { result, ...(undo && { compensation: undo }) };
      if (effects !== undefined) {
        data["effects"] = effects.map((one) => ({ ...one, target: asTargets(one.target)[0] }));
      } else if (this.targets.length > 0 && this.#leaves(after, undo, ...Object.keys(words))) {
        data["effects"] = this.#effects(before, after, words);
      }
      statement = this.#outcome("action.succeeded", data);
    } catch (error) {
      return this.#succeededBare(asError(error), undo);
    }
    await this.#settle(statement, "succeeded");
  }

  /**
   * Record the failure. Say `no_effect` only where you know that nothing happened.
   *
   * A call that was made before has been recorded already, and what fails now is not it.
   */
  async failed(
    error: unknown,
    { outcome = "unknown", retryable = false }: { outcome?: Outcome; retryable?: boolean } = {},
  ): Promise<void> {
    if (this.replayed) return;
    this.run.failedAction = this.id;
    const data = { error: said(error, retryable), outcome };
    await this.#settle(this.#outcome("action.failed", data), outcome);
  }

  /** Record a read-back. Whether all of the checks hold. */
  async verified(checks: readonly Check[]): Promise<boolean> {
    const told = checks.map(check);
    const ok = told.every((one) => one["ok"] === true);
    const about = { n: this.row.n, action: this.id };
    await this.run.say("action.verified", { ok, checks: told }, about);
    return ok;
  }

  /** `body` makes the call and says how it went; what it leaves unsaid is said when it is over. */
  async within<T>(body: (act: this) => T | PromiseLike<T>): Promise<T> {
    let found: T;
    try {
      found = await body(this);
    } catch (error) {
      await this.leave(error ?? new Error("nothing was thrown"));
      throw error;
    }
    await this.leave();
    return found;
  }

  /** What is left to say when the body of the action is over. `within` does it for you. */
  async leave(error?: unknown): Promise<void> {
    try {
      await this.#leave(error);
    } catch (untold) {
      saidBy(untold, this.#began, this.#isMade); // it has passed this call, where that was made
      throw untold;
    }
  }

  async #leave(error: unknown): Promise<void> {
    this.run.openActions.delete(this);
    const isOther = saidBy(error, this.#began, this.#isMade);
    if (this.#isSettled || this.replayed) return;
    const lazy = bitByBit(this.#returned?.result);
    // What comes after a call that was made is another's word, and so is what another action said.
    if (error instanceof NoEffect && !isOther) {
      await this.failed(error, { outcome: "no_effect", retryable: error.retryable });
    } else if (error !== undefined) {
      await this.failed(error);
    } else if (this.#returned !== null && lazy === null) {
      await this.succeeded(this.#returned.result);
    } else {
      const words = `${this.tool} ended without succeeded(...) or failed(...)`;
      const missing = lazy ?? new MissingOutcome(words);
      await this.failed(missing);
      throw missing;
    }
  }

  /**
   * For `await using act = await run.begin(...)`. What was thrown is not told to it: a call that
   * ended without a word of yours has failed as `perform` did, or its outcome is unknown.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    const missing = new MissingOutcome(`${this.tool} was left without succeeded(...)`);
    await this.leave(this.#failure ?? missing);
  }

  /** The process ends: say on disk, at once, that nobody knows how the call goes on. */
  abandon(why: Error): void {
    if (this.#begun === null || this.#isSettled || this.replayed) return;
    const told = this.#outcome("action.failed", { error: said(why, false), outcome: "unknown" });
    this.run.failedAction = this.id;
    this.run.desk.spool.write(told.event, { key: { ...this.row, state: "unknown" } });
    this.#isSettled = true;
  }

  /** Whether the arguments were changed since they were put to the desk, or approved. */
  #hasChanged(): boolean {
    try {
      if (canonical(plain(this.#changed)) !== canonical(this.#approved)) return true;
      return canonical(plain(this.#plan.args ?? {})) !== canonical(this.#planned["args"]!);
    } catch {
      return true; // They are no longer such as could be put to anybody.
    }
  }

  /** Take the arguments that an approver has changed; an error where the call cannot be so. */
  #heed(ask: BeginRequest, changed: Json): ArgumentsChanged | null {
    if (!this.#planned["accepts_changed_arguments"] || !isObject(changed)) {
      return new ArgumentsChanged(NOT_TAKEN);
    }
    const [own, told] = [this.#planned["args"], ask.planned.event.data["args"]];
    try {
      const now = withOwnSecrets(changed, own, told, this.run.desk.maskingKey) as JsonObject;
      [this.#changed, this.#approved] = [now, structuredClone(now)]; // the one may be mutated
      return null;
    } catch (error) {
      if (error instanceof ArgumentsChanged) return error;
      throw error;
    }
  }

  async #ownKey(): Promise<string> {
    const workspace = await this.run.desk.workspace();
    const { run, tool, targets } = this;
    const op = String(this.#planned["op"]);
    return idempotencyKey({ workspace, run: run.id, tool, targets, op });
  }

  /** A planned action with a number of its own; a known key keeps its first number. */
  async #ask(key: string): Promise<BeginRequest> {
    const { desk } = this.run;
    await desk.needMaskingKey();
    await desk.freshen(); // a run may last for days, and the desk be away at their end
    const known = this.run.known(key);
    const n = known?.n ?? this.run.nextN();
    const action = known?.action ?? `act_${n}_${randomBytes(3).toString("hex")}`;
    const [attempt, about, retry] = [newId(), { n, action }, this.#retry];
    const news = this.run.newsOf(this.tool, this.#shape);
    const planned = this.run.build("action.planned", { ...this.#planned, ...news, key }, about);
    const started = this.run.build("action.started", { attempt, retry }, about);
    const { tool, targets, args, risk, key: shown } = planned.event.data;
    // Two such keys would be one, and the second call never made.
    if (holdsMask(shown)) throw new Refused(Number(MASKED_KEY["status"]), MASKED_KEY);
    const asked: JsonObject = { tool: tool!, targets: targets!, args: args! };
    const call = { tool: this.tool, effectClass: this.effectClass, risk };
    return {
      planned,
      started,
      key,
      asked: `sha256:${sha256(withoutLast4(canonical(asked)))}`, // as the desk digests it
      attempt,
      retry,
      isGated: isGated(desk.policy, call) || (keepsOrder(desk.policy) && this.#breaksOrder(key)),
      isComparable: !holdsBare(asked),
      isPivot: isPivot(desk.policy, this, this.#planned["saga"]),
      waitSeconds: this.#plan.waitSeconds ?? desk.waitSeconds,
      signal: this.#plan.signal,
    };
  }

  /** Whether this comes after the run's pivot and is not such as can be retried. */
  #breaksOrder(key: string): boolean {
    const isBound = this.#planned["saga"] !== "retriable" && !WITHOUT_EFFECT.has(this.effectClass);
    return isBound && this.run.desk.spool.hasPivot(this.run.id, key);
  }

  /** What is said of how this try went. */
  #outcome(type: "action.succeeded" | "action.failed", data: object, more?: object): Statement {
    if (this.#isSettled) throw new AmendsError(RECORDED);
    const { attempt, fence, n } = this.row;
    const tried = fence === null ? { attempt } : { attempt, fence };
    const made = this.#approved && { args: this.#approved };
    return this.run.build(type, { ...tried, ...made, ...data }, { n, action: this.id }, more);
  }

  async #settle(told: Statement, state: KeyState): Promise<void> {
    const row = { ...this.row, state, result: told.event.data["result"] ?? null };
    await this.run.desk.send(told, row);
    this.#begun = { ...this.#begun!, row };
    this.#isSettled = true;
    if (state === "succeeded") this.run.wentWell(row.action);
  }

  /**
   * The call was made, so that much is recorded, whatever is wrong with what was said of it.
   *
   * What is too large, too deep or rounded is left out and logged; a mistake in the code is thrown.
   */
  async #succeededBare(error: Error, undo: Undo | undefined): Promise<void> {
    const data: { [name: string]: unknown } = { result: { not_recorded: cut(error.message) } };
    if (this.targets.length > 0 && this.#leaves(undo)) {
      data["effects"] = this.targets.map((target) => ({ target }));
    }
    const told = this.#outcome("action.succeeded", data, undo && { compensation: undo });
    await this.#settle(told, "succeeded");
    if (!(error instanceof TooLarge) && !(error instanceof Unfit)) throw error;
    const words = `${this.id} succeeded, but its result or snapshots are not kept`;
    this.run.desk.log("warn", `${words}: ${error.message}`);
  }

  #leaves(...said: unknown[]): boolean {
    return leavesSomething(this.effectClass, [...said, this.#planned["compensation"]]);
  }

  #effects(before: unknown, after: unknown, words: EffectWords): object[] {
    const befores = perTarget(before, this.targets.length, "before");
    const afters = perTarget(after, this.targets.length, "after");
    const planned = this.#planned["before"] as Json[] | undefined;
    return this.targets.map((target, place) => {
      const told = { target, before: befores[place], after: afters[place], ...words };
      return this.run.honest(told, planned?.[place]);
    });
  }
}
