"""What the adapters share, with a framework of a few lines: that of docs/frameworks.md."""

import asyncio
import contextlib
import gc
import hashlib

import pytest

import amends
from amends.adapters import NOT_MADE, GatedTools
from amends.protocol.canonical import canonical
from tests.sdk.conftest import KEY
from tests.sdk.test_docs import blocks

CARD = {"card_number": "4111 1111 1111 1111", "amount": 5}


def test_the_lines_of_the_guide_work_with_any_framework_until_it_is_stopped(desk, small_desk):
    made = list[str]()

    def update_flight(reservation, flight):
        made.append(reservation)
        return flight

    names = {"desk": desk, "amends": amends, "TOOLS": {"update_flight": update_flight}}
    [lines] = [one for one in blocks("frameworks.md") if "def call_tool" in one]
    exec(lines, names)  # noqa: S102
    call_tool = names["call_tool"]
    asked = {"reservation": "XEHM4B", "flight": "HAT019"}

    with desk.run("Move it"):
        assert call_tool("update_flight", asked, "call_1") == "HAT019"
        assert call_tool("update_flight", asked, "call_2") == "HAT019"
        small_desk.control(modes={"update_flight": "denied"})
        refused = call_tool("update_flight", asked | {"flight": "HAT777"}, "call_3")
    small_desk.control(modes={"update_flight": "denied"}, code="recovery")
    with pytest.raises(amends.Stopped), desk.run("Move it again"):
        call_tool("update_flight", asked, "call_4")

    assert made == ["XEHM4B"]
    assert desk.flush(60)
    assert refused == "This call was NOT made: not allowed, and not done: not on Fridays"
    assert small_desk.types() == [
        "run.started", "action.succeeded", "run.completed", "run.started", "run.cancelled",
    ]  # fmt: skip


def test_the_name_of_a_call_does_not_tell_its_arguments(desk, small_desk):
    """Whoever reads the ledger could else try all cards until one fits."""
    with desk.run("Pay it"):
        GatedTools(desk).call("note.pay", CARD, "call_1", lambda _: "paid")

    [begun] = small_desk.journal("begin")
    assert begun["data"]["op"].startswith("note.pay ")
    for args in (CARD, {"args": CARD}):
        assert hashlib.sha256(canonical(args)).hexdigest()[:32] not in begun["data"]["op"]


def test_a_tool_that_the_catalogue_says_only_reads_is_run_each_time(desk, small_desk):
    small_desk.control(safety={"tools": {"crm.*": {"class": "read_only"}}})
    tools, read = GatedTools(desk), list[str]()

    with desk.run("Look"):
        for call in ("call_1", "call_2"):
            tools.call("crm.find", {"name": "mia"}, call, lambda _: read.append("mia"))

    assert read == ["mia", "mia"]


def test_a_tool_that_may_be_called_twice_alike_is_named(desk):
    tools, made = GatedTools(desk, repeatable=frozenset({"note.add"})), list[str]()

    with desk.run("Note it twice"):
        for call in ("call_1", "call_2"):
            tools.call("note.add", {"text": "x"}, call, lambda _: made.append("x"))

    assert made == ["x", "x"]


def test_of_calls_that_a_framework_does_not_name_only_what_reads_is_done_anew(desk, small_desk):
    small_desk.control(safety={"tools": {"crm.*": {"class": "read_only"}}})
    tools, made = GatedTools(desk, repeatable=frozenset({"note.add"})), list[str]()

    with desk.run("Look twice, and note it twice"):
        for tool in ("crm.find", "crm.find", "note.add", "note.add"):
            tools.call(tool, {"of": tool}, None, lambda now: made.append(now["of"]))

    assert made == ["crm.find", "crm.find", "note.add"]


@pytest.mark.parametrize("declared", [["update_flight"], {"update_flight": {"target": ("a", "b")}}])
def test_what_could_never_be_found_of_a_tool_is_refused_before_any_call(desk, declared):
    with pytest.raises(TypeError, match=r"a mapping from names of tools to amends.declare"):
        GatedTools(desk, declared)


def test_a_declared_name_that_is_nearly_a_tools_is_told_once(desk, small_desk, caplog):
    """Nothing of what was declared was told of any call, in silence."""
    declared = {"updateflight": amends.declare(target=("reservation", "{id}"))}
    with desk.run("Move it"):
        tools = GatedTools(desk, declared)
        for name in ("update_flight", "update_flight", "note.add"):
            tools.call(name, {}, None, lambda _: None)

    told = [one.message for one in caplog.records if "declared" in one.message]
    assert told == ["nothing is declared of update_flight: is it 'updateflight', misspelled?"]


def test_outside_a_run_nothing_is_called(desk):
    with pytest.raises(amends.NoRun):
        GatedTools(desk).call("note.add", {}, "call_1", lambda _: pytest.fail("it was called"))


def test_a_call_whose_event_loop_is_gone_is_left_without_noise(desk, small_desk):
    """An abandoned coroutine cannot say how it went; the desk notices the silence."""

    async def hangs():
        await asyncio.sleep(60)

    async def story():
        run = await desk.run("Note it").astart()
        async with run.action("note.add", target=("note", "n1")) as act:
            await act.aperform(hangs)

    loop = asyncio.new_event_loop()
    task = loop.create_task(story())
    loop.call_later(1.0, loop.stop)
    loop.run_forever()
    loop.run_until_complete(desk.async_driver.close())
    coroutine = task.get_coro()
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine.close()
    del task
    gc.collect()
    assert desk.flush(60)

    assert "action.succeeded" not in small_desk.types()


@pytest.mark.parametrize("read", [False, True])
def test_what_a_tool_asks_of_the_desk_in_vain_is_not_said_of_its_call(desk, small_desk, read):
    """It has done something by then, or what is read after it has; no call was refused."""
    made = list[str]()

    def report(*_, **__):
        made.append("reported")
        raise amends.DeskUnreachable("the desk is away")

    def book(_):
        made.append("paid")
        return None if read else report()

    tools = GatedTools(desk, {"note.book": amends.declare(after=report if read else None)})
    with pytest.raises(amends.AmendsError) as said, desk.run("Book it"):
        tools.call("note.book", {}, "call_1", book)

    assert made == ["paid", "reported"]
    assert not isinstance(said.value, NOT_MADE)
    assert str(said.value) == "note.book was called, and then: the desk is away"


def test_a_no_to_what_a_tool_calls_is_not_said_of_the_tool(desk, small_desk):
    """The model would read that nothing was done, and do it in another way."""
    small_desk.control(modes={"note.seat": "denied"})
    choose_seat, made = desk.tool("note.seat")(lambda: None), list[str]()

    def book(_):
        made.append("paid")
        choose_seat()

    with desk.run("Book it"), pytest.raises(amends.AmendsError) as said:
        GatedTools(desk).call("note.book", {}, "call_1", book)

    assert made == ["paid"]
    assert not isinstance(said.value, NOT_MADE)
    assert str(said.value).startswith("note.book was called, and then: not allowed")


@pytest.mark.parametrize("audit", [{"mask": ["args.account"]}, {"showLast4": True}])
def test_a_call_keeps_its_name_whatever_the_policy_masks_meanwhile(desk, small_desk, audit):
    """Under another key the same call would be another one, and be made again."""
    small_desk.control(masking={"form": "v1", "key": bytes(range(32)).hex()})
    tools, pays = GatedTools(desk), {"account": "DE1", "card": "4242 4242 4242 4242"}

    with desk.run("Pay it"):
        tools.call("note.pay", pays, "call_1", lambda _: "paid")
        small_desk.control(safety={"audit": audit})
        desk.fetch_policy()
        with contextlib.suppress(amends.KeyReused):  # this desk compares as it is told
            tools.call("note.pay", pays, "call_2", lambda _: pytest.fail("it was paid twice"))
        tools.call("note.pay", pays | {"account": "DE2"}, "call_3", lambda _: "paid")

    first, second, other = [one["data"]["key"] for one in small_desk.journal("begin")]
    assert first == second != other


def test_before_the_desk_was_ever_reached_nothing_is_called(small_desk, spool_file):
    """The same call would have another name as soon as the workspace's key is had."""
    small_desk.stop()
    declared = {"note.write": amends.declare(effect_class="internal_update")}
    with amends.connect(
        small_desk.url, KEY, workspace="northwind", spool=spool_file, wait_seconds=1
    ) as desk:
        tools = GatedTools(desk, declared)
        with desk.run("Write it"), pytest.raises(amends.DeskUnreachable, match="never reached"):
            tools.call("note.write", {"text": "x"}, "call_1", lambda _: pytest.fail("it ran"))


def test_a_call_too_large_to_be_asked_about_was_not_made_and_the_agent_goes_on(desk):
    """A model writes a whole file; the error ended its agent."""
    with desk.run("Write it"), pytest.raises(NOT_MADE, match="more than the 61440"):
        GatedTools(desk).call(
            "file.write", {"text": "x" * 70_000}, "call_1", lambda _: pytest.fail("it was made")
        )


class Account:
    pass


CIRCULAR: dict[str, object] = {}
CIRCULAR["itself"] = CIRCULAR


def test_what_would_be_approved_as_something_else_is_refused_and_the_model_reads_why(
    desk, small_desk
):
    """Two files whose names are no UTF-8 were one text: the second was answered as deleted."""
    made = list[object]()
    paths = "a\udcff", "a\udcfe", "a\x00", CIRCULAR, Account()
    unfit = [{"path": path} for path in paths] + [{"paths": {"a\udcff": 1}}]

    with desk.run("Clean up") as run:
        for args in unfit:
            with pytest.raises(NOT_MADE, match=r"NUL or half|recursion|tells nothing of itself"):
                GatedTools(desk).call("delete", args, "call_1", made.append)
        with pytest.raises(ValueError, match="is no id of a target"):
            run.action("close", target=("account", Account()))
        with pytest.raises(ValueError, match="is no id of a target"):
            run.action("close", target=("account", f"eve-{'*' * 10}"))
        run.action("close", target=("card", f"{'*' * 12}4242"))

    assert made == []
    assert small_desk.journal("begin") == []


def test_what_a_tool_leaves_behind_asks_for_the_call_anew(desk, small_desk):
    """Its context said that the call was under way still, and it was made once more, unasked."""
    calls: list[str] = []
    left: list[asyncio.Task[str]] = []

    @desk.tool("update_flight")
    async def update_flight(to):
        calls.append(to)
        if not left:
            left.append(asyncio.create_task(later()))
        return to

    async def later():
        await asyncio.wait_for(is_over.wait(), 10)
        return await update_flight("KL1")

    async def story():
        async with desk.run("Move it"):
            await update_flight("KL1")
            is_over.set()
            assert await left[0] == "KL1"
        await desk.async_driver.close()

    is_over = asyncio.Event()
    asyncio.run(story())

    assert calls == ["KL1"]
    assert len(small_desk.journal("begin")) == 2


def test_a_call_within_a_call_with_what_that_has_changed_is_another(desk, small_desk):
    """It was taken for the same: both had the list as it was by then."""
    calls: list[str] = []

    @desk.tool("cancel", target=lambda flights: ("flight", flights[-1]))
    def cancel(flights):
        calls.append(flights.pop())
        if flights:
            cancel(flights)

    with desk.run("Cancel them"):
        cancel(["KL1", "KL2"])
    desk.flush()

    asked = [one["data"]["targets"][0]["id"] for one in small_desk.journal("begin")]
    assert (calls, asked) == (["KL2", "KL1"], ["KL2", "KL1"])


def test_the_same_call_within_a_call_is_made_once(desk, small_desk):
    """The second one was made, too, under the one yes, and nobody was told of it."""
    calls: list[str] = []
    busy = amends.NoEffect("the line is busy")

    @desk.tool("pay")
    @desk.tool("pay")
    def pay(to):
        calls.append(to)
        if len(calls) < 3:
            raise busy  # the same one, of which an earlier call has told

    @desk.tool("pay")
    def patient(to):
        with contextlib.suppress(amends.NoEffect):
            pay(to)
        pay(to)
        with pytest.raises(amends.InProgress):
            pay(to)

    with pytest.raises(amends.NoEffect), desk.run("Pay her"):
        pay("mia")
    with desk.run("Pay her"):
        patient("mia")

    assert calls == ["mia"] * 3
    assert len(small_desk.journal("begin")) == 3


def test_a_function_may_have_an_argument_that_is_called_as_a_class(desk, small_desk):
    """It was hidden from whoever approves the call."""
    book = desk.tool("book")(_book)

    class Airline:
        @desk.tool("upgrade")
        def upgrade(self, cls):
            return cls

        seat = desk.tool("seat")(staticmethod(_book))

    with desk.run("Book it"):
        assert book("first", seat=3) == Airline.seat(cls="first", seat=3) == "first 3"
        assert Airline().upgrade("first") == "first"
    desk.flush()

    first = {"cls": "first", "seat": 3}
    told = [one["data"]["args"] for one in small_desk.journal("begin")]
    assert told == [first, first, {"cls": "first"}]


def _book(cls, seat):
    return f"{cls} {seat}"
