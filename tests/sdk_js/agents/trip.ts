/** An agent that moves a flight, charges a card and writes a letter; a second process goes on. */

import { appendFileSync } from "node:fs";

import { connect, NoEffect, type Run } from "../../../sdk-js/src/index.ts";

const [url, key, spool, outside, how] = process.argv.slice(2) as [string, ...string[]];
const desk = connect({ url, key: key!, spool: spool!, waitSeconds: 60 });
const done = (what: string) => appendFileSync(outside!, `${what}\n`);
const flight = ["reservation", "XEHM4B"] as const;

const move = (run: Run) =>
  run.action(
    "update_flight",
    { target: flight, args: { flight: "HAT019" }, before: { flight: "HAT001" } },
    async (act) => {
      const now = await act.perform(() => (done("moved"), { flight: "HAT019" }));
      await act.succeeded(now, { after: now });
      if (act.replayed) done("moved before");
    },
  );
const mail = (run: Run, isThere: boolean) =>
  run.action("send_mail", { target: ["mail", "mia"], effectClass: "internal_update" }, (act) =>
    act.perform(() => {
      if (!isThere) throw new NoEffect("the gateway is closed");
      done("mailed");
      return { sent: true };
    }),
  );

if (how === "charges") {
  const args = { amount: 9007199254740993n, card: "4242 4242 4242 4242" };
  const target = ["card", "tok_4421"] as const;
  const plan = { target, args, effectClass: "external_irreversible" } as const;
  await desk.run("Charge it", { run: "run_4" }, (run) =>
    run.action("charge_card", plan, async (act) => {
      await act.perform(({ amount }) => (done(`charged ${amount}`), { charged: amount }));
    }),
  );
} else if (how === "pays") {
  await desk.fetchPolicy();
  const { maskingKey } = desk; // as whoever holds an API key of the workspace has it
  const allowed = "DE89370400440532013000";
  const others = [
    "de89 3704 0044 0532 0130 00", "GB33BUKB20201555555555", "DE89370400440532013O00",
    "\u0661E89370400440532013000", `${allowed}\u200b`, 89370400440532013000n, [allowed],
    maskingKey!.placeholder("iban", "GB33BUKB20201555555555"), "\u27e6masked:iban\u27e7",
  ]; // prettier-ignore
  await desk.run("Pay it", { run: "run_5" }, async (run) => {
    for (const iban of [allowed, ...others]) {
      const args = { to: [{ iban }], amount: 9007199254740993n };
      const target = ["invoice", "7"] as const;
      const plan = { target, args, effectClass: "external_irreversible" } as const;
      await run
        .action("pay_invoice", plan, (act) => act.perform(() => (done(`paid ${iban}`), { ok: 1 })))
        .then(() => done("told that it was paid"))
        .catch((error: Error) => done(error.name));
    }
  });
} else if (how === "fails") {
  await desk
    .run("Move my flight", { run: "order-4711" }, async (run) => {
      await move(run);
      await run.checkpoint("flights_moved", { state: { next: "mail" }, pending: ["send_mail"] });
      await mail(run, false);
    })
    .catch((error: Error) => done(error.name));
} else {
  await desk.resume("order-4711", { waitSeconds: 20 }, async (run) => {
    done(`goes on with ${JSON.stringify(run.state)}`);
    await move(run);
    await mail(run, true);
  });
}
await desk.close({ seconds: 30 });
