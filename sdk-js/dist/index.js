/**
 * Amends for agents: act through the desk, and what went wrong can be made good.
 *
 * `connect()` gives the desk, `desk.run(...)` opens a run, `run.action(...)` or `desk.tool(...)`
 * makes one call. docs/agents.md tells the rest.
 */
export { Action } from "./actions.js";
export { connect, Desk } from "./client.js";
export { AmendsError, ApprovalTimeout, ArgumentsChanged, Compensated, Denied, DeskUnreachable, InDoubt, InProgress, KeyRefused, KeyReused, MissingOutcome, NoEffect, NoRun, NotTheDesk, Refused, SpoolFull, Stopped, Terminated, Throttled, TimedOut, TooLarge, Unfit, WrongSpool, } from "./errors.js";
export { LogKey, NotProven, verify } from "./protocol/proofs.js";
export { verifySigned } from "./protocol/signatures.js";
export { currentRun, Run } from "./runs.js";
export { CannotUse } from "./spool.js";
export { GatedTools, isNotMade, isOver, notMade, noUndo, undo } from "./tools.js";
export { SqliteKeys, Twins } from "./twins.js";
export * as webhooks from "./webhooks.js";
