/**
 * Amends for agents: act through the desk, and what went wrong can be made good.
 *
 * `connect()` gives the desk, `desk.run(...)` opens a run, `run.action(...)` or `desk.tool(...)`
 * makes one call. docs/agents.md tells the rest.
 */
export { Action } from "./actions.ts";
export { connect, type ConnectOptions, Desk } from "./client.ts";
export { AmendsError, ApprovalTimeout, ArgumentsChanged, Compensated, Denied, DeskUnreachable, InDoubt, InProgress, KeyRefused, KeyReused, MissingOutcome, NoEffect, NoRun, NotTheDesk, Refused, SpoolFull, Stopped, Terminated, Throttled, TimedOut, TooLarge, Unfit, WrongSpool, } from "./errors.ts";
export type { Approval } from "./gate.ts";
export type { Args, Check, Effect, Plan, Told, Undo } from "./plans.ts";
export type { Json, JsonObject } from "./protocol/canonical.ts";
export { LogKey, NotProven, type Reason, verify, type Verified } from "./protocol/proofs.ts";
export { type Assertion, verifySigned } from "./protocol/signatures.ts";
export type { EffectClass, Risk } from "./protocol/vocabulary.ts";
export { type About, type Checkpoint, currentRun, Run } from "./runs.ts";
export { CannotUse } from "./spool.ts";
export { type Declaration, GatedTools, isNotMade, isOver, notMade, noUndo, undo } from "./tools.ts";
export { type KeyStore, SqliteKeys, type Twin, type TwinKey, Twins } from "./twins.ts";
export type { Target, Targets } from "./values.ts";
export * as webhooks from "./webhooks.ts";
