/** An agent that ends in the way that is asked for, in the middle of a call. */

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import {
  connect,
  type Declaration,
  DeskUnreachable,
  GatedTools,
  InDoubt,
  isNotMade,
  NoEffect,
  undo,
} from "../../../sdk-js/src/index.ts";

const [url, key, spool, outside, how] = process.argv.slice(2) as [string, ...string[]];
const over = new AbortController();
const timeIsOver = () => over.abort(new DOMException("", "TimeoutError"));
const options: { [how: string]: object } = {
  works_beside_another: { workspace: "northwind", log: () => {} },
  is_aborted_while_it_waits: { onWait: () => void setTimeout(timeIsOver, 100) },
};
const desk = connect({ url, key: key!, spool: spool!, ...options[how] });
const said = (text: string) => appendFileSync(outside!, `${text}\n`);

const moves = (then: () => void) =>
  desk.run("Move it", { run: "run_1" }, async (run) => {
    await run.action("update_flight", { target: ["reservation", "XEHM4B"] }, (act) =>
      act.perform(() => ({ flight: "HAT019" })),
    );
    then();
  });

const stories: { [how: string]: () => Promise<unknown> } = {
  async exits() {
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.action("update_flight", { target: ["reservation", "XEHM4B"] }, (act) =>
        act.perform(() => process.exit(3)),
      ),
    );
  },
  async exits_after_its_run() {
    await moves(() => undefined);
    process.exit(0);
  },
  async names_an_undo_that_is_too_large() {
    const note = "x".repeat(70_000);
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.action("update_flight", { target: ["reservation", "XEHM4B"] }, (act) =>
        act.succeeded({ flight: "HAT019" }, { undo: undo("airline.restore", { note }) }),
      ),
    );
  },
  async drafts_with_an_undo_and_a_mistake() {
    const draft = { target: ["mail", "m-1"], effectClass: "draft" } as const;
    await desk.run("Write it", { run: "run_1" }, (run) =>
      run.action("write_mail", draft, (act) =>
        act
          .succeeded({}, { undo: undo("mail.discard", { id: "m-1" }), before: ["a", "b"] })
          .catch(() => undefined),
      ),
    );
  },
  async has_large_snapshots() {
    const rows = { text: "x".repeat(70_000), password: "canary" };
    const move = { target: ["reservation", "XEHM4B"], before: rows } as const;
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.action("update_flight", move, (act) =>
        act.succeeded({}, { after: rows, reversibility: "exact" }),
      ),
    );
  },
  async throws_and_nobody_catches() {
    await moves(() => {
      throw new RangeError("the model gave up");
    });
  },
  async is_told_to_end() {
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.action("update_flight", { target: ["reservation", "XEHM4B"] }, (act) =>
        act.perform(async () => {
          process.kill(process.pid, "SIGTERM");
          await sleep(20_000);
          said("went on");
        }),
      ),
    );
  },
  async handles_the_signal_itself() {
    process.on("SIGTERM", () => said("handled"));
    await desk.run("Move it", { run: "run_1" }, async () => {
      process.kill(process.pid, "SIGTERM");
      await sleep(300);
    });
  },
  async waits_for_people() {
    const plan = { target: ["reservation", "XEHM4B"], waitSeconds: 0.1 } as const;
    const moving = desk.run("Move it", {}, (run) => run.action("update_flight", plan, () => 0));
    await moving.catch(() => undefined);
  },
  async forgets_its_endings() {
    const run = await desk.open("Move it", { run: "run_1" });
    await run.begin("update_flight", { target: ["reservation", "XEHM4B"] });
  },
  async uses_blocks() {
    await using run = await desk.open("Move it", { run: "run_1" });
    {
      await using act = await run.begin("update_flight", { target: ["reservation", "XEHM4B"] });
      await act.perform(() => ({ flight: "HAT019" }));
      await act.succeeded({ flight: "HAT019" });
    }
    await using lost = await run.begin("send_mail", { target: ["mail", "mia"] });
    said(lost.id);
  },
  async works_beside_another() {
    const run = await desk.open("Note them");
    const one = (key: string) =>
      run.action("note", { key, effectClass: "internal_update" }, (act) =>
        act.perform(() => said(key)),
      );
    const keys = Array.from({ length: 60 }, (_, number) => `k-${number}`);
    const ended = await Promise.allSettled(keys.map(one));
    const why = ended.flatMap((it) => (it.status === "rejected" ? [it.reason] : []));
    const others = why.filter((error) => !(error instanceof InDoubt));
    if (others.length > 0) console.error(others);
  },
  async takes_long() {
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.action("update_flight", { target: ["reservation", "XEHM4B"] }, async (act) => {
        await act.perform(() => sleep(2_500));
      }),
    );
  },
  async is_aborted_while_it_waits() {
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const plan = { target: ["reservation", "XEHM4B"] as const, signal: over.signal };
      await run.action("update_flight", plan, (act) => act.perform(() => said("made")));
    });
  },
  async was_aborted_and_nobody_said_why() {
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const signal = AbortSignal.abort(null);
      const plan = { target: ["reservation", "XEHM4B"] as const, signal };
      await run.action("update_flight", plan, (act) => act.perform(() => said("made")));
    });
  },
  async is_aborted_before_it_performs() {
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const over = new AbortController();
      const plan = { target: ["reservation", "XEHM4B"] as const, signal: over.signal };
      await run.action("update_flight", plan, (act) => {
        over.abort(new RangeError("the user has gone"));
        return act.perform(() => said("made"));
      });
    });
  },
  async is_wrapped_twice() {
    const move = async ({ to }: { to: string }) => said(`made ${to}`);
    const once = desk.tool("update_flight", { target: ["flight", "{to}"] }, move);
    const tools = new GatedTools(desk);
    await desk.run("Move it", { run: "run_1" }, async () => {
      await desk.tool("update_flight", {}, once)({ to: "KL1" });
      await tools.call("update_flight", { to: "KL2" }, "call_1", once);
    });
    const gone = new AbortController();
    const cancel = desk.tool("cancel", {}, async (_: object, { signal }) => {
      signal.onabort = () => said("heard of it");
      gone.abort();
    });
    await desk.run("Cancel it", { run: "run_2" }, async () => {
      await desk.tool("cancel", { signal: gone.signal }, cancel)({});
    });
  },
  async calls_the_same_twice_within() {
    let tries = 0;
    const busy = new NoEffect("the line is busy"); // of which an earlier call has told
    const pay = desk.tool("pay", {}, async ({ to }: { to: string }) => {
      said(`paid ${to}`);
      if ((tries += 1) < 3) throw busy;
    });
    const patient = desk.tool("pay", {}, async (args: { to: string }) => {
      await pay(args).catch(() => undefined);
      await pay(args);
      await pay(args);
    });
    await desk.run("Pay them", { run: "run_1" }, async () => {
      await pay({ to: "ada" }).catch(() => undefined);
      await patient({ to: "mia" });
    });
  },
  async leaves_a_timer_behind() {
    let left: Promise<unknown> | undefined;
    const move = desk.tool("update_flight", {}, async ({ to }: { to: string }) => {
      left ??= sleep(100).then(() => move({ to }));
      said(`made ${to}`);
      return to;
    });
    const cancel = desk.tool("cancel", {}, async ({ flights }: { flights: string[] }) => {
      said(`cancelled ${flights.pop()}`);
      if (flights.length > 0) await cancel({ flights });
    });
    await desk.run("Move it", { run: "run_1" }, async () => {
      await move({ to: "KL1" });
      await left;
      await cancel({ flights: ["KL1", "KL2"] });
    });
  },
  async performs_again() {
    const target = ["reservation", "XEHM4B"] as const;
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const late = await run.begin("update_flight", { target });
      const why = (error: Error) => said(error.name);
      const tries = [() => Promise.reject(new RangeError(said("late") ?? "")), () => said("late")];
      for (const call of tries) await late.perform<unknown>(call).catch(why);
      await late.failed("it took too long");
      await late.perform(() => said("late")).catch(why);
      const act = await run.begin("update_flight", { target, op: "other" });
      const lazily = function* () {
        yield said("lazily");
      };
      await act.perform(lazily).catch(why);
      await act.within(() => act.perform(() => said("made")));
      await act.begin();
      await act.within(() => act.perform(() => said("made again")));
    });
  },
  async answers_bit_by_bit() {
    const bits = async function* () {
      yield "a";
      yield "b";
    };
    const stream = () => bits();
    const why = (error: Error) => said(`${error.name} ${error.message.includes("bit by bit")}`);
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      await run.action("update_flight", {}, (act) => act.perform(stream)).catch(why);
      await desk.tool("update_flight", { op: "other" }, stream)({}).catch(why);
      const lazily = () => (["a"].values() as any).map(said);
      await desk.tool("update_flight", { op: "lazily" }, lazily)({}).catch(why);
      await run.action("look_up", {}, async (act) => {
        let text = "";
        for await (const bit of await act.perform(stream)) text += bit;
        await act.succeeded(text);
      });
    });
  },
  async changes_its_arguments() {
    const args = { flight: "HAT019" };
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const plan = { target: ["reservation", "XEHM4B"] as const, args };
      await run.action("update_flight", plan, async (act) => {
        args.flight = "HAT777";
        await act.perform(() => said("made"));
      });
    });
  },
  async changes_what_an_approver_made_of_them() {
    await desk.run("Send it", { run: "run_1" }, async (run) => {
      const plan = { args: { to: ["mia", "eve"] }, acceptsChangedArguments: true };
      await run
        .action("send", { ...plan, op: "before" }, async (act) => {
          act.args.to.push("eve");
          await act.perform(({ to }) => said(to.join()));
        })
        .catch((error: Error) => said(error.name));
      await run.action("send", { ...plan, op: "within" }, (act) =>
        act.perform(({ to }) => said(`${to.pop()} alone`)),
      );
    });
  },
  async is_approved_with_a_wide_number() {
    await desk.run("Pay it", { run: "run_1" }, (run) =>
      run.action("pay", { args: { wei: 1 }, acceptsChangedArguments: true }, (act) =>
        act.perform(({ wei }) => said(String(wei))),
      ),
    );
  },
  async is_approved_with_too_much_to_be_told() {
    await desk.run("Write it", { run: "run_1" }, () =>
      new GatedTools(desk)
        .call("write", { text: "x" }, "call_1", ({ text }) => said(String(text.length)))
        .catch((error: Error) => said(`${isNotMade(error)} ${error.message}`)),
    );
  },
  async keeps_a_map() {
    await desk.run("Move it", { run: "run_1" }, (run) =>
      run.checkpoint("half", { state: new Map([["next", "mail"]]), summary: "" }),
    );
  },
  async misspells() {
    const wrong = [{ onBehalfOf: { id: "mia", mail: "mia@home.example" } }, { gaol: "to fly" }];
    for (const about of wrong) {
      await desk
        .run("Move it", about, () => undefined)
        .catch((error: Error) => said(`${error.name}: ${error.message}`));
    }
  },
  async misspells_a_call() {
    const told = (error: Error) => said(`${error.name}: ${error.message}`);
    const untyped = (value: unknown) => value as never;
    await desk.run("Move it", untyped({ onBehalfOf: "mia" }), () => undefined).catch(told);
    await desk.run("Move it", untyped(() => undefined), untyped(undefined)).catch(told);
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      const wrong = [
        { effect_class: "external_irreversible" },
        { undo: "airline.restore" },
        { args: ["HAT019"] },
      ];
      for (const plan of wrong) {
        await run.action("update_flight", untyped(plan), () => said("called")).catch(told);
      }
      const body = () => said("called");
      await run.action("update_flight", untyped(body), untyped(undefined)).catch(told);
    });
    const misspelt = untyped({ undo_of_result: () => null });
    const loose = desk.tool("update_flight", misspelt, () => said("called"));
    await desk.run("Move it", { run: "run_2" }, () => loose({})).catch(told);
  },
  async misspells_a_success() {
    await desk.run("Move it", { run: "run_1" }, async (run) => {
      for (const id of ["X1", "X2"]) {
        const target = ["reservation", id] as const;
        const wrong = { X1: { aftr: {} }, X2: { effects: [{ target, aftr: {} }] } }[id];
        await run
          .action("update_flight", { target }, (act) => act.succeeded("moved", wrong as never))
          .catch((error: Error) => said(`${error.name}: ${error.message}`));
      }
    });
  },
  async knows_of_no_undo() {
    const declared = { undo: () => null } as unknown as Declaration;
    const move = desk.tool("update_flight", declared, () => said("called"));
    await desk.run("Move it", {}, () => move({}));
  },
  async is_refused_after_the_call() {
    const refuse = () => {
      throw new NoEffect("busy", { retryable: true });
    };
    const declared = { target: ["hotel", "H1"] as const, tries: 3, after: refuse };
    const book = desk.tool("book_hotel", declared, () => said("books"));
    await desk.run("Book it", { run: "run_1" }, async (run) => {
      await book({}).catch((error: Error) => said(`${error.name} ${error.message}`));
      await run.action("book_taxi", {}, async (act) => {
        await act.perform(() => said("calls a taxi"));
        refuse();
      });
    });
  },
  async calls_a_tool_in_a_tool() {
    const seat = desk.tool("choose_seat", {}, () => {
      throw new NoEffect("busy", { retryable: true });
    });
    const book = desk.tool("book_hotel", { tries: 3 }, async () => {
      said("books");
      await seat({});
    });
    const gated = new GatedTools(desk);
    await desk.run("Book it", { run: "run_1" }, async () => {
      await book({}).catch((error: Error) => said(`${error.name} ${error.message}`));
      await gated
        .call("book_taxi", {}, "call_1", () => book({}))
        .catch((error: Error) => said(`${isNotMade(error)} ${error.message}`));
      const why = (error: Error) => said(`${isNotMade(error)} ${error.message}`);
      const away = () => {
        said("pays");
        throw new DeskUnreachable("the desk is away");
      };
      await gated.call("pay", {}, "call_3", away).catch(why);
      const tells = { verify: () => [["price", 1, 9007199254740993]] as const };
      await new GatedTools(desk, { book_bus: tells })
        .call("book_bus", {}, "call_2", () => said("books a bus"))
        .catch((error: Error) => said(`${isNotMade(error)} ${error.message}`));
    });
  },
  async has_tools() {
    let tries = 0;
    const book = desk.tool(
      "book_hotel",
      {
        target: ["hotel", "{hotel}"],
        tries: 2,
        undoOfResult: (result: { id: string }) => undo("hotel.cancel", { booking: result.id }),
        verify: (result) => [["id", "B-1", result.id]],
      },
      async ({ hotel }: { hotel: string }) => {
        said(`books ${hotel}`);
        tries += 1;
        if (tries === 1) throw new NoEffect("busy", { retryable: true });
        return { id: "B-1", price: 9007199254740993 };
      },
    );
    await desk.run("Book it", { run: "run_1" }, () => book({ hotel: "H1" }));
  },
};

try {
  await stories[how!]!();
} catch (error) {
  if (how === "throws_and_nobody_catches") throw error;
  said(`${(error as Error).name}: ${(error as Error).message}`);
}
