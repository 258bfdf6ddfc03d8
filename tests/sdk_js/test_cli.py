"""`npx amends`: what is set aside by either client is shown and sent again; a proof is checked."""

import subprocess

import pytest

from amends.spool import Spool
from config.local.places import ROOT
from tests import npm
from tests.sdk.test_proofs import COMMENTED, EVENT, download, log, twice  # noqa: F401 - a fixture

WITHOUT_SQLITE = "data:text/javascript,process.getBuiltinModule=()=>undefined"


def amends(*words, flags=(), to=subprocess.PIPE):
    command = [npm.NODE, *flags, ROOT / "sdk-js" / "src" / "cli.ts", *words]
    done = subprocess.run(
        [str(word) for word in command], stdout=to, stderr=subprocess.PIPE, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    return done.returncode, (done.stdout or "") + done.stderr


@pytest.fixture
def spool(tmp_path):
    """As the Python client has left it, with one event set aside."""
    spool = Spool(tmp_path / "spool.sqlite")
    for name in ("0192f7", "0192f8"):
        spool.write({"id": name, "type": "run.checkpoint", "run": "run_1", "data": {}})
    spool.park(spool.waiting()[0].place, {"title": "poison", "status": 422})
    yield spool
    spool.close()


def test_an_older_node_is_told_which_one_is_needed(spool):
    code, said = amends("aside", "--spool", spool.path, flags=("--import", WITHOUT_SQLITE))

    assert (code, "@amends/client needs Node 22.16 or newer; this is v" in said) == (1, True)


def test_what_is_set_aside_is_shown_and_put_back_in_line(spool, read_by_nobody):
    code, said = amends("aside", "--spool", spool.path)
    assert (code, "0192f7  run.checkpoint  run_1  poison" in said) == (1, True)
    assert "1 events are set aside" in said
    assert amends("aside", "--spool", spool.path, to=read_by_nobody) == (1, "")

    code, said = amends("aside", "--spool", spool.path, "--retry", "0192f7")
    assert (code, "1 events are in line again" in said) == (0, True)
    assert len(spool.waiting()) == 2
    assert amends("aside", "--spool", spool.path) == (0, "Nothing is set aside.\n")


def test_a_spool_that_is_not_there_is_told(tmp_path):
    code, said = amends("aside", "--spool", tmp_path / "none")
    assert (code, "there is no spool at" in said) == (2, True)


def test_a_correction_is_proven_from_the_shell(log, tmp_path):  # noqa: F811
    file = tmp_path / "correction.json"
    file.write_text(download(log), "utf-8")
    code, said = amends("verify", file, "--key", log.key)
    assert (code, "Proven: entry 2 of 5" in said) == (0, True)
    kept = tmp_path / "log.pub"
    kept.write_text(COMMENTED.format(log.key), "utf-8")
    assert amends("verify", file, "--key", kept) == (code, said)
    kept.write_text(COMMENTED.format(f"# {log.key}"), "utf-8")
    assert amends("verify", file, "--key", kept)[0] == 1

    file.write_text(download(log, event={**EVENT, "type": "correction.edited"}), "utf-8")
    code, said = amends("verify", file, "--key", log.key)
    assert (code, said.startswith("NOT PROVEN: the event is not the one")) == (1, True)
    file.write_text(twice(download(log)), "utf-8")
    code, said = amends("verify", file, "--key", log.key)
    assert (code, said.count("\n"), said.strip().isprintable()) == (1, 1, True)
    assert "⟦U+001B⟧[2K⟦U+000D⟧Proven: entry 2 of 5⟦U+000A⟧" in said
    assert amends("verify", file)[0] == 2
    assert amends("nonsense")[0] == 2
