#!/usr/bin/env node
/**
 * `npx amends`: `verify` checks a proof offline, `aside` shows what could not be sent, `policy`
 * checks a policy's file and puts it in force, by a person's token (docs/policy-api.md).
 */

import { existsSync, readFileSync, statSync } from "node:fs";
import { parseArgs } from "node:util";

import { defaultSpool } from "./client.ts";
import { inWords, Refused } from "./errors.ts";
import { isObject, type JsonObject } from "./protocol/canonical.ts";
import { FILE_BYTES_MAX, linesOfKeys, LogKey, NotProven } from "./protocol/proofs.ts";
import { verifySigned } from "./protocol/signatures.ts";
import { Spool } from "./spool.ts";
import { Wire } from "./wire.ts";

const POLICY_BYTES_MAX = 1024 * 1024;
// A month's calls and each open question are judged before the desk answers.
const POLICY_SECONDS_MAX = 60;
// A comment of a pull request has an end.
const DIFF_LINES_MAX = 200;
const USAGE = `amends verify FILE --key KEY_OR_FILE [--key …]
  check a proof or a downloaded correction offline
amends aside [ID …] [--spool FILE] [--retry]
  show events that were refused and are kept on disk, or send them again
amends policy check FILE
  what is wrong with a policy's file, or what it would have said
amends policy apply FILE [--over FILE] [--note WHY]
  save it as a version and put that in force, in the place of that file
`;

/** 0 if proven, so or nothing is set aside, 1 if not, 2 if it could not be checked. */
async function main(words: string[]): Promise<number> {
  const [command, ...rest] = words;
  try {
    if (command === "verify") return await verifyFile(rest);
    if (command === "aside") return aside(rest);
    if (command === "policy") return await policy(rest);
    process.stderr.write(USAGE);
  } catch (error) {
    process.stderr.write(`Could not check: ${error instanceof Error ? error.message : error}\n`);
  }
  return 2;
}

async function verifyFile(words: string[]): Promise<number> {
  const options = { key: { type: "string", multiple: true } } as const;
  const { values, positionals } = parseArgs({ args: words, options, allowPositionals: true });
  if (positionals.length !== 1 || values.key === undefined) throw new Error(`use it so:\n${USAGE}`);
  try {
    const keys = await Promise.all(values.key.flatMap(keyLines).map(LogKey.parse));
    say(...report(await verifySigned(textOf(positionals[0]!), keys)));
    return 0;
  } catch (error) {
    if (!(error instanceof NotProven)) throw error;
    say(`NOT PROVEN: ${error.message}`);
    return 1;
  }
}

/** Show what is set aside, or put it back in line: the agent sends it, now or when it starts. */
function aside(words: string[]): number {
  const options = { spool: { type: "string" }, retry: { type: "boolean" } } as const;
  const { values, positionals } = parseArgs({ args: words, options, allowPositionals: true });
  const { AMENDS_URL = "", AMENDS_KEY = "" } = process.env;
  const path = values.spool ?? defaultSpool(AMENDS_URL, AMENDS_KEY);
  if (!existsSync(path)) {
    throw new Error(`there is no spool at ${path}. Name it with --spool or AMENDS_SPOOL`);
  }
  const spool = new Spool(path);
  try {
    if (values.retry) {
      const found = spool.unpark(positionals.length > 0 ? positionals : undefined);
      say(`${found} events are in line again, and sent by the agent that keeps ${path}.`);
      return 0;
    }
    for (const { event, problem } of spool.parked()) {
      say(`${event.id}  ${event.type}  ${event.run}  ${inWords(problem)}`);
    }
    const found = spool.countParked();
    say(found > 0 ? `${found} events are set aside in ${path}.` : "Nothing is set aside.");
    return found > 0 ? 1 : 0;
  } finally {
    spool.close();
  }
}

/** The desk judges, and says no in its own words: 0 where it is so, 1 where it says no. */
async function policy(words: string[]): Promise<number> {
  const options = { over: { type: "string" }, note: { type: "string" } } as const;
  const { values, positionals } = parseArgs({ args: words, options, allowPositionals: true });
  const [act, file = ""] = positionals;
  if (positionals.length !== 2 || !["check", "apply"].includes(act!)) {
    throw new Error(`use it so:\n${USAGE}`);
  }
  const { AMENDS_URL = "", AMENDS_TOKEN = "" } = process.env;
  if (!AMENDS_URL || !AMENDS_TOKEN) {
    throw new Error("set AMENDS_URL, and AMENDS_TOKEN to a person's token: Settings, API tokens");
  }
  const desk = new Wire(AMENDS_URL, AMENDS_TOKEN);
  try {
    if (act === "apply") return await apply(desk, file, values);
    say(...rehearsed(file, await lookAt(desk, file)));
    return 0;
  } catch (error) {
    if (!(error instanceof SaidNo)) throw error;
    say(...error.lines);
    return 1;
  }
}

/** We stopped because the desk says no; `lines` say why, and where in the file. */
class SaidNo extends Error {
  readonly lines: string[];

  constructor(lines: string[]) {
    super(lines.join("; "));
    this.lines = lines;
  }
}

type Applied = { over?: string | undefined; note?: string | undefined };

async function apply(desk: Wire, file: string, { over, note = "" }: Applied): Promise<number> {
  const found = await lookAt(desk, file);
  const { digest, in_force: seen, number, newest } = found;
  if (digest === seen) {
    say(`${file} is in force already: version ${number}.`);
    return 0;
  }
  const why = over === undefined ? "" : await whyNotOver(desk, over, found);
  if (why) {
    say(why);
    return 1;
  }
  const asked = { source: policyOf(file), note, after: newest };
  const saved = (await post(desk, "policies", asked, file))["number"];
  try {
    await post(desk, `policies/${saved}/activate`, { seen }, file);
  } catch (error) {
    if (error instanceof SaidNo) say(`Version ${saved} is saved, and not in force.`);
    throw error;
  }
  say(`Version ${saved} is in force.`);
  return 0;
}

/**
 * Why what is in force is not this document, empty where it is; by its text first, for the desk may
 * no longer take it: a team that it names has gone.
 */
async function whyNotOver(desk: Wire, over: string, found: JsonObject): Promise<string> {
  const { number, in_force: seen } = found;
  const now = await desk.get("policies/in-force");
  if (now["digest"] === seen && now["source"] === policyOf(over)) return "";
  const { digest } = await lookAt(desk, over);
  if (digest === seen) return "";
  if (!number) return `No version is in force, so ${over} is not: leave --over out this time.`;
  const { policies } = await desk.get("policies", { params: { limit: "1000" } });
  const alike = objects(policies).filter((one) => one["digest"] === digest);
  const saved = alike.find((one) => !one["activated_at"]);
  if (saved) {
    return (
      `Version ${number} is in force, and not ${over}, which was saved as version` +
      ` ${saved["number"]} and never put in force: an earlier apply was refused. Give --over the` +
      ` document that version ${number} is.`
    );
  }
  return (
    `Version ${number} is in force, and it is not ${over}: bring what was changed on the page` +
    " into the repository first."
  );
}

function lookAt(desk: Wire, file: string): Promise<JsonObject> {
  return post(desk, "policies/check", { source: policyOf(file) }, file);
}

async function post(desk: Wire, path: string, body: unknown, file: string): Promise<JsonObject> {
  try {
    const asked = { method: "POST", body: JSON.stringify(body) } as const;
    return await desk.send(path, { ...asked, answerSeconds: POLICY_SECONDS_MAX });
  } catch (error) {
    if (!(error instanceof Refused) || !error.isTheDesks) throw error;
    throw new SaidNo(mistakes(file, error.problem));
  }
}

/** As compilers tell them, so that editors and CI find the place; else the problem in words. */
function mistakes(file: string, problem: JsonObject): string[] {
  const found = objects(problem["problems"]).map(({ line, column, path, message }) => {
    const at = line ? `${file}:${line}:${column}` : file;
    return `${at}: ${path ? `${path}: ` : ""}${message}`;
  });
  const lines = found.length > 0 ? found : [inWords(problem)];
  const { approvals } = problem;
  if (Array.isArray(approvals)) lines.push(`Approvals that wait: ${approvals.join(", ")}`);
  return lines;
}

function rehearsed(file: string, found: JsonObject): string[] {
  const { number, diff } = found;
  if (found["digest"] === found["in_force"]) return [`${file} is in force: version ${number}.`];
  const instead = number ? `version ${number}` : "the defaults";
  const lines = strings(diff).map((line) => `  ${line}`);
  const rest = lines.splice(DIFF_LINES_MAX).length;
  if (rest > 0) lines.push(`  and ${rest} lines more`);
  return [
    `${file} is a policy. It would take the place of ${instead}.`,
    ...tried(found["dry_run"]),
    ...(number ? ["The difference:", ...lines] : []),
  ];
}

/** What a dry run says; of none, why there is none. */
function tried(found: unknown): string[] {
  if (!isObject(found)) return ["The policy in force cannot be read, so there is no dry run."];
  const changes = objects(found["changes"]).map(
    ({ tool, run, was, becomes, why }) => `- ${tool} in ${run}: ${was} becomes ${becomes}. ${why}`,
  );
  const told = [...strings(found["open_questions"]), ...strings(found["cannot_run"])];
  return [String(found["words"]), ...changes, ...told.map((words) => `- ${words}`)];
}

const objects = (found: unknown): JsonObject[] =>
  Array.isArray(found) ? found.filter((one) => isObject(one)) : [];

const strings = (found: unknown): string[] => (Array.isArray(found) ? found.map(String) : []);

function policyOf(file: string): string {
  if (statSync(file).size > POLICY_BYTES_MAX) {
    throw new Error(`${file} is larger than ${POLICY_BYTES_MAX} bytes`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(readFileSync(file));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Error(`${file} is no text in UTF-8`, { cause: error });
  }
}

function keyLines(given: string): string[] {
  const text = given.includes("+") && !existsSync(given) ? given : textOf(given);
  return linesOfKeys(text);
}

function textOf(path: string): string {
  if (statSync(path).size > FILE_BYTES_MAX) {
    throw new Error(`${path} is larger than ${FILE_BYTES_MAX} bytes`);
  }
  return new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
}

function report({ found, signed }: Awaited<ReturnType<typeof verifySigned>>): string[] {
  const { leaf } = found;
  const lines = [
    `Proven: entry ${found.index} of ${found.size} in the log ${found.origin}.`,
    `  event      ${String(leaf["event"])} (${String(leaf["type"])})`,
    `  workspace  ${String(leaf["workspace"])}`,
    `  received   ${String(leaf["received"])}`,
    `  actor      ${String(leaf["actor"])}`,
    `  digest     ${String(leaf["digest"])}`,
  ];
  if (found.event !== null) {
    lines.push("What the file says is what was recorded: its digest is in the log.");
  }
  if (signed !== null) {
    const when = "with a key that was on record before it was asked.";
    lines.push(`Its person signed it on ${signed.origin}, ${when}`);
  }
  return lines;
}

function say(...lines: string[]): void {
  for (const line of lines) process.stdout.write(`${seen(line)}\n`);
}

/**
 * In one line, with what a terminal would obey or hide shown by its number: a file that proves
 * nothing must not write “Proven” over what is said of it.
 */
function seen(text: string): string {
  const number = (one: string): string => one.codePointAt(0)!.toString(16).toUpperCase();
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, (one) => `⟦U+${number(one).padStart(4, "0")}⟧`);
}

// Who has read enough of it (`| head`) changes nothing of what is done, nor of what is found.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
});
process.exitCode = await main(process.argv.slice(2));
