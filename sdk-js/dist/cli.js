#!/usr/bin/env node
/** `npx amends`: `verify` checks a proof offline, `aside` shows what could not be sent. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { parseArgs } from "node:util";
import { defaultSpool } from "./client.js";
import { inWords } from "./errors.js";
import { FILE_BYTES_MAX, linesOfKeys, LogKey, NotProven } from "./protocol/proofs.js";
import { verifySigned } from "./protocol/signatures.js";
import { Spool } from "./spool.js";
const USAGE = `amends verify FILE --key KEY_OR_FILE [--key …]
  check a proof or a downloaded correction offline
amends aside [ID …] [--spool FILE] [--retry]
  show events that were refused and are kept on disk, or send them again
`;
/** 0 if proven or nothing is set aside, 1 if not, 2 if it could not be checked. */
async function main(words) {
    const [command, ...rest] = words;
    try {
        if (command === "verify")
            return await verifyFile(rest);
        if (command === "aside")
            return aside(rest);
        process.stderr.write(USAGE);
    }
    catch (error) {
        process.stderr.write(`Could not check: ${error instanceof Error ? error.message : error}\n`);
    }
    return 2;
}
async function verifyFile(words) {
    const options = { key: { type: "string", multiple: true } };
    const { values, positionals } = parseArgs({ args: words, options, allowPositionals: true });
    if (positionals.length !== 1 || values.key === undefined)
        throw new Error(`use it so:\n${USAGE}`);
    try {
        const keys = await Promise.all(values.key.flatMap(keyLines).map(LogKey.parse));
        say(...report(await verifySigned(textOf(positionals[0]), keys)));
        return 0;
    }
    catch (error) {
        if (!(error instanceof NotProven))
            throw error;
        say(`NOT PROVEN: ${error.message}`);
        return 1;
    }
}
/** Show what is set aside, or put it back in line: the agent sends it, now or when it starts. */
function aside(words) {
    const options = { spool: { type: "string" }, retry: { type: "boolean" } };
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
    }
    finally {
        spool.close();
    }
}
function keyLines(given) {
    const text = given.includes("+") && !existsSync(given) ? given : textOf(given);
    return linesOfKeys(text);
}
function textOf(path) {
    if (statSync(path).size > FILE_BYTES_MAX) {
        throw new Error(`${path} is larger than ${FILE_BYTES_MAX} bytes`);
    }
    return new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
}
function report({ found, signed }) {
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
function say(...lines) {
    for (const line of lines)
        process.stdout.write(`${seen(line)}\n`);
}
/**
 * In one line, with what a terminal would obey or hide shown by its number: a file that proves
 * nothing must not write “Proven” over what is said of it.
 */
function seen(text) {
    const number = (one) => one.codePointAt(0).toString(16).toUpperCase();
    return text.replace(/(?! )[\p{C}\p{Z}]/gu, (one) => `⟦U+${number(one).padStart(4, "0")}⟧`);
}
process.exitCode = await main(process.argv.slice(2));
