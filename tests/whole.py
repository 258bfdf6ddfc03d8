"""What a run of the tests does not say by itself: what was skipped, and what was not there at all.

A skip that nobody expects fails the run. A run of everything also fails where a folder has fewer
tests than are pinned for it in `pinned.json`: a file that is no longer found, or a parametrisation
that has become empty, is green otherwise. More tests than are pinned are only told, so that adding
one is no edit of the pins; `make test ARGS=--pin` pins what there is. Lower a pin by hand, in the
commit that merges tests, and say why there.

`make long` is a whole run of its own, with pins of its own. A run of a part (a path, `-k`, another
`-m`, only what failed before) has no number to be held against.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

PINS = Path(__file__).with_name("pinned.json")
LONG = "long"
"""The mark of the other whole run, and how its pins begin."""

SKIPS = {
    r"the recorded runs are not at": "the recordings are not in the repository",
    r"No PostgreSQL with TLS is on this machine": "the embedded server's wheel is built without",
    r"PgBouncer is not installed": "it comes from the system's packages",
    r"PgBouncer before 1.21 keeps no prepared": "Debian 12 has 1.18; the story runs unprepared",
    r"HAProxy is not installed": "it comes from the system's packages",
    r"RabbitMQ is not installed": "it comes from the system's packages",
    r"no network can be made here": "namespaces need root",
    r"nginx is not installed": "it comes from the system's packages",
    r"systemd-analyze is not installed": "not every system has systemd",
    r"only root needs a way not to be root": "whoever runs the tests is a common user already",
    r"only root may mount a small file system": "the disk of F17 is a mount",
    r"no file system can be mounted here": "nor may root, in most containers",
    r"There is no version \S+ here": "a shallow clone has no history to roll over from",
    r"nothing forks here": "Windows",
}
"""What may be skipped: how its reason reads, and why the run says enough without it."""


class Whole:
    """Counts what each folder of tests has run, and judges it at the end.

    Raises pytest.UsageError where pins are to be written from a run of a part.
    """

    def __init__(self, config: pytest.Config, pins: Path = PINS) -> None:
        self._pins = pins
        self._is_worker = hasattr(config, "workerinput")
        self._is_whole = is_whole(config)
        self._of = f"{LONG} " if config.option.markexpr == LONG else ""
        self._writes = config.getoption("pin", default=False)
        self._outcomes: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._found: list[str] = []
        self._told: list[str] = []
        if self._writes and not self._is_whole:
            raise pytest.UsageError("Only a run of all tests can be pinned.")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.skipped or report.failed:
            self._outcomes[report.nodeid] = report.outcome
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[report.nodeid] = reason_of(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:  # a whole module
            self._skipped[report.nodeid] = reason_of(report.longrepr)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_worker:
            return
        self._found = unexpected(self._skipped)
        if self._is_whole:
            ran = Counter(self._of + folder_of(one) for one in self._outcomes)
            pinned = json.loads(self._pins.read_text())
            others = {folder: pinned[folder] for folder in pinned if not self._is_ours(folder)}
            if self._writes and not self._found and not session.testsfailed:
                pinned = others | ran
                self._pins.write_text(json.dumps(dict(sorted(pinned.items())), indent=2) + "\n")
            self._compare(ran, {one: pinned[one] for one in pinned if one not in others})
        if self._found and session.exitstatus in {pytest.ExitCode.OK, 0}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_ours(self, folder: str) -> bool:
        return folder.startswith(f"{LONG} ") == bool(self._of)

    def _compare(self, ran: Counter[str], pinned: dict[str, int]) -> None:
        self._found += [
            f"{folder}: {ran[folder]} tests ran, {count} are pinned"
            for folder, count in sorted(pinned.items())
            if ran[folder] < count
        ]
        more = sum(ran.values()) - sum(pinned.values())
        if more > 0 and not self._found:
            self._told.append(f"{more} tests more than are pinned; ARGS=--pin pins them")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for words, lines in (("did not run as expected", self._found), ("pins", self._told)):
            if lines:
                terminalreporter.section(words, red=lines is self._found)
                for line in lines:
                    terminalreporter.line(line)


def is_whole(config: pytest.Config) -> bool:
    """Whether every test was asked for: no path, no words, no other marks than the project's."""
    option = config.option
    asked = option.keyword or option.deselect or option.ignore or option.ignore_glob
    narrowed = getattr(option, "lf", False) or getattr(option, "stepwise", False)
    given = list(config.getini("addopts"))
    marks = given[given.index("-m") + 1] if "-m" in given else ""
    return not (
        asked
        or narrowed
        or option.collectonly
        or config.args_source != pytest.Config.ArgsSource.TESTPATHS
        or option.markexpr not in (marks, LONG)
    )


def folder_of(nodeid: str) -> str:
    """`tests/ledger` of `tests/ledger/test_seal.py::test_x`; a file of its own is itself."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def reason_of(longrepr: object) -> str:
    """Why it was skipped: pytest gives (file, line, "Skipped: why")."""
    if isinstance(longrepr, tuple):
        return str(longrepr[2]).removeprefix("Skipped: ")
    return str(longrepr)


def unexpected(skipped: dict[str, str]) -> list[str]:
    """The skips that no known reason fits."""
    return [
        f"{nodeid}: skipped, and nobody expects it: {why}"
        for nodeid, why in sorted(skipped.items())
        if not any(re.search(known, why) for known in SKIPS)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The conftest has it from here."""
    parser.addoption("--pin", action="store_true", help="Pin the number of tests of each folder")
