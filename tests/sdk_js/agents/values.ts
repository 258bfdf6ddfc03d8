/** What the client makes of values: one JSON question per line in, one answer per line out. */

import { createInterface } from "node:readline";

import { LogKey, NotProven, Unfit, verifySigned } from "../../../sdk-js/src/index.ts";
import { canonical, parseJson } from "../../../sdk-js/src/protocol/canonical.ts";
import { idempotencyKey } from "../../../sdk-js/src/protocol/digests.ts";
import type { Json } from "../../../sdk-js/src/protocol/canonical.ts";
import { masked, MaskingKey } from "../../../sdk-js/src/protocol/masking.ts";
import { isGated } from "../../../sdk-js/src/policy.ts";
import { mustBeShown, plain } from "../../../sdk-js/src/values.ts";
import { defaultSpool } from "../../../sdk-js/src/client.ts";
import { Wire } from "../../../sdk-js/src/wire.ts";

const answers: { [name: string]: (asked: any) => unknown } = {
  canonical: ({ value }) => canonical(value),
  key: (asked) => idempotencyKey(asked),
  masked({ value, paths = [], key, last4 = false }) {
    const made = key ? new MaskingKey(Buffer.from(key, "hex"), { showsLast4: last4 }) : null;
    const found = masked(value as Json, paths, made);
    return { found: canonical(found), again: canonical(masked(found, paths, made)) };
  },
  mark: ({ key, value }) => new MaskingKey(Buffer.from(key, "hex")).mark("arguments", value),
  gated: ({ document, tool, effectClass, risk }) => isGated(document, { tool, effectClass, risk }),
  async proven({ text, keys }) {
    const { found, signed } = await verifySigned(text, await Promise.all(keys.map(LogKey.parse)));
    const { index, size, leaf, event } = found;
    return { index: String(index), size: String(size), leaf, hasEvent: event !== null, signed };
  },
  plain({ script }) {
    return canonical(plain(new Function(`return ${script}`)()));
  },
  shown({ script }) {
    mustBeShown(new Function(`return ${script}`)(), "pay.args");
    return "shown";
  },
  spool: ({ url }) => defaultSpool(url, "amends_x"),
  put: ({ url, body, answerSeconds }) =>
    new Wire(url, "amends_x").send("x", { method: "PUT", body, answerSeconds }),
  address: ({ url, key = "amends_x" }) => new Wire(url, key).address,
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = parseJson(line) as any;
  try {
    console.log(JSON.stringify({ answer: await answers[asked.do]!(asked) }));
  } catch (error) {
    const { name, message } = error as Error;
    const reason = error instanceof NotProven ? error.reason : null;
    const isUnfit = error instanceof Unfit;
    console.log(JSON.stringify({ error: name, words: message, isUnfit, reason }));
  }
}
