/** A run's record: what it and its calls say to the desk, each statement numbered and masked. */

import type { About, Statement } from "./events.ts";
import type { Link } from "./link.ts";
import type { Effect } from "./plans.ts";
import { isObject, type Json, type JsonObject } from "./protocol/canonical.ts";
import { holdsMask } from "./protocol/masking.ts";
import type { EventType } from "./protocol/vocabulary.ts";
import { CannotUse, type KeyRow } from "./spool.ts";

const ENDS: ReadonlySet<EventType> = new Set(["run.completed", "run.failed", "run.cancelled"]);

/** What is open and says, as the process ends, that nobody knows how it goes on. */
export type Open = { abandon: (why: Error) => void };

/** What a run and its calls write together. */
export class Record {
  readonly desk: Link;
  readonly id: string;
  /** What the desk wants of a resumed run. */
  directive: JsonObject | null = null;
  failedAction: string | null = null;
  lastAction: string | null = null;
  ended = false;
  readonly openActions = new Set<Open>();
  /** What is still to be said before the run ends. */
  readonly atEnd: (() => Promise<void>)[] = [];
  readonly #trace: JsonObject | null;

  constructor(desk: Link, id: string, trace: JsonObject | null) {
    this.desk = desk;
    this.id = id;
    this.#trace = trace;
  }

  /** Whether the desk has told this run to do an undone call anew, under a new key. */
  repeats(key: string): boolean {
    return this.steps.some((step) => step["key"] === key && step["label"] === "repeat_new_key");
  }

  /** What the desk says of the calls of a resumed run. */
  get steps(): JsonObject[] {
    const steps = this.directive?.["steps"];
    return Array.isArray(steps) ? steps.filter(isObject) : [];
  }

  /** Of a call that has succeeded: what fails after it is another's failure. */
  wentWell(action: string): void {
    if (this.failedAction === action) this.failedAction = null;
    if (this.lastAction === action) this.lastAction = null;
  }

  /**
   * What this agent knows of a key from this run: in another one a call is another action, with a
   * number of its own.
   */
  known(key: string): KeyRow | null {
    const row = this.desk.spool.find(key);
    return row?.run === this.id ? row : null;
  }

  /** Which arguments a tool takes, where the desk has not heard it from this process. */
  newsOf(tool: string, shape: { digest: string; schema: JsonObject } | null): object {
    const isNews = shape !== null && this.desk.announced.get(tool) !== shape.digest;
    return isNews ? { tool_schema: shape.schema } : {};
  }

  /** The next number in this run; a resumed one counts on from where the desk saw it. */
  nextN(): number {
    return this.desk.spool.nextN(this.id, Number(this.directive?.["n"] ?? 0));
  }

  /** A statement about this run, masked and ready to be sent; `more` where it can be told, too. */
  build(
    type: EventType,
    data: object,
    about: Omit<About, "trace"> = {},
    more?: object,
  ): Statement {
    if (more !== undefined) {
      try {
        return this.build(type, { ...data, ...more }, about);
      } catch {
        // Without it, then.
      }
    }
    return this.desk.build(type, this.id, data, { ...about, trace: this.#trace ?? currentSpan() });
  }

  /**
   * The effect as it may be told: a state that holds a masked field cannot be restored exactly.
   * Where it does not say what was there before, the plan has.
   */
  honest(effect: Effect, planned: Json | undefined): Effect {
    if (effect.reversibility !== "exact") return effect;
    const before = effect.before === undefined ? planned : effect.before;
    const shown = this.desk.masked({ effects: [{ ...effect, before }] });
    const [found] = shown["effects"] as [JsonObject];
    return holdsMask(found["before"]) ? { ...effect, reversibility: "unknown" } : effect;
  }

  /** Put a statement in the spool, under the run's next number if none is given. */
  async say(type: EventType, data: object, about: Omit<About, "trace"> = {}): Promise<void> {
    const n = about.n ?? this.#number(type);
    await this.desk.send(this.build(type, data, n === null ? about : { ...about, n }));
  }

  /** The next number; null where a full disk has none for the run's end: it comes last without. */
  #number(type: EventType): number | null {
    try {
      return this.nextN();
    } catch (error) {
      if (!ENDS.has(type) || !(error instanceof CannotUse)) throw error;
      return null;
    }
  }
}

// As @opentelemetry/api writes them down for all of its versions.
const OPEN_TELEMETRY = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

type Telemetry = {
  context?: { active(): { getValue(name: symbol): { spanContext(): SpanContext } | undefined } };
};
type SpanContext = { traceId: string; spanId: string };

/**
 * `trace_id` and `span_id` of the current span, in hex (W3C Trace Context), or null.
 *
 * OpenTelemetry is not needed: where the agent does not use it, there is no span.
 */
function currentSpan(): JsonObject | null {
  const telemetry = (globalThis as { [name: symbol]: Telemetry | undefined })[OPEN_TELEMETRY];
  const span = telemetry?.context?.active().getValue(SPAN)?.spanContext();
  return span && /[1-9a-f]/.test(span.traceId)
    ? { trace_id: span.traceId, span_id: span.spanId }
    : null;
}
