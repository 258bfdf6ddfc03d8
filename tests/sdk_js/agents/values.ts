/** What the client makes of values: one JSON question per line in, one answer per line out. */

import { createInterface } from "node:readline";

import { LogKey, Unfit, verify } from "../../../sdk-js/src/index.ts";
import { canonical, idempotencyKey, parseJson } from "../../../sdk-js/src/protocol/canonical.ts";
import type { Json } from "../../../sdk-js/src/protocol/canonical.ts";
import { masked, MaskingKey } from "../../../sdk-js/src/protocol/masking.ts";
import { isGated } from "../../../sdk-js/src/policy.ts";
import { plain } from "../../../sdk-js/src/values.ts";
import { Wire } from "../../../sdk-js/src/wire.ts";

const answers: { [name: string]: (asked: any) => unknown } = {
  canonical: ({ value }) => canonical(value),
  key: (asked) => idempotencyKey(asked),
  masked({ value, paths = [], key, last4 = false }) {
    const made = key ? new MaskingKey(Buffer.from(key, "hex"), { showsLast4: last4 }) : null;
    const found = masked(value as Json, paths, made);
    return { found: canonical(found), again: canonical(masked(found, paths, made)) };
  },
  gated: ({ document, tool, effectClass, risk }) => isGated(document, { tool, effectClass, risk }),
  proven({ text, keys }) {
    const { index, size, leaf, event } = verify(text, keys.map((key: string) => LogKey.parse(key)));
    return { index: String(index), size: String(size), leaf, hasEvent: event !== null };
  },
  plain({ script }) {
    return canonical(plain(new Function(`return ${script}`)()));
  },
  address: ({ url, key = "amends_x" }) => new Wire(url, key).address,
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = parseJson(line) as any;
  try {
    console.log(JSON.stringify({ answer: answers[asked.do]!(asked) }));
  } catch (error) {
    const { name, message } = error as Error;
    console.log(JSON.stringify({ error: name, words: message, isUnfit: error instanceof Unfit }));
  }
}
