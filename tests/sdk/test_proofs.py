"""Eve downloads a correction and checks it on her own machine, with nothing but the public key."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from amends.protocol import exports, proofs
from amends.protocol.canonical import canonical
from tests.sdk import trees
from tests.sdk.conftest import ENVIRONMENT

# The leaves and roots that implementations of Certificate Transparency test with.
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                 "606162636465666768696a6b6c6d6e6f")
]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
EVENT: dict[str, Any] = {
    "id": "0192f7",
    "type": "correction.published",
    "data": {"changed": "T-182 from high back to normal", "reviewed_by": "an approver"},
}
SALT = bytes(range(32))


@pytest.fixture
def log():
    facts = proofs.event_digest(SALT, EVENT)
    leaf = {"v": 1, "workspace": "northwind", "event": "0192f7", "type": EVENT["type"],
            "received": "2026-11-21T10:02:15.120034Z", "actor": "ada", "digest": facts}  # fmt: skip
    return trees.Log("desk.example/northwind", [b"one", b"two", canonical(leaf), b"four", b"five"])


COMMENTED = "# Told on the telephone, too.\n{}\n\n  # The end.\n"
"""A file of a key, as somebody keeps it."""


def download(log, **changes):
    document = {"event": EVENT, "salt": SALT.hex(), "proof": log.proof(2), **changes}
    return json.dumps(document, ensure_ascii=False)


def verify_from_the_shell(tmp_path, text, key):
    file = tmp_path / "correction.json"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "amends", "verify", str(file), "--key", str(key)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env=ENVIRONMENT
    )


@pytest.mark.parametrize("proof", [None, 5, [], {"extra": 1}, "c2sp.org/\ud800"])
def test_a_proof_that_is_no_text_proves_nothing(log, proof):
    """A file from a stranger ends in the one refusal, and not in an error of ours."""
    text = json.dumps({"event": EVENT, "salt": SALT.hex(), "proof": proof})
    with pytest.raises(proofs.NotProven, match="no event, salt and proof"):
        proofs.verify(text, [log.key])


@pytest.mark.parametrize("salt", [b"", SALT + b"{", SALT[:31]])
def test_a_salt_of_another_length_proves_nothing(log, salt):
    with pytest.raises(proofs.NotProven, match="32 bytes"):
        proofs.verify(download(log, salt=salt.hex()), [log.key])


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_of_rfc_6962_come_out(size):
    leaves = LEAVES[:size]

    assert trees.root(leaves).hex() == ROOTS[size - 1]
    for index, leaf in enumerate(leaves):
        found = proofs.root_from_inclusion(leaf, index, size, trees.path(index, leaves))
        assert found.hex() == ROOTS[size - 1]


def test_every_place_in_every_tree_is_proven_and_no_other():
    for size in range(1, 70):
        leaves = [b"%d" % number for number in range(size)]
        root = trees.root(leaves)
        for index, leaf in enumerate(leaves):
            path = trees.path(index, leaves)
            here: dict[str, Any] = {"index": index, "size": size, "proof": path, "root": root}
            assert proofs.is_included(leaf, **here)
            assert not proofs.is_included(leaf + b"!", **here)
            assert not proofs.is_included(leaf, **{**here, "proof": [*path, root]})
            assert not proofs.is_included(leaf, **{**here, "proof": path[:-1]}) or size == 1
            assert not proofs.is_included(leaf, **{**here, "index": index ^ 1}) or size == 1


def test_a_key_of_a_public_log_is_read_as_others_write_it():
    text = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

    assert str(proofs.LogKey.parse(text)) == text
    with pytest.raises(proofs.NotProven, match="id does not fit"):
        proofs.LogKey.parse(text.replace("033de0ae", "033de0af"))


def test_eve_checks_her_correction_offline(tmp_path, log):
    done = verify_from_the_shell(tmp_path, download(log), log.key)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Proven: entry 2 of 5 in the log desk.example/northwind" in done.stdout
    assert "correction.published" in done.stdout
    assert "its digest is in the log" in done.stdout

    kept = tmp_path / "log.pub"
    kept.write_text(COMMENTED.format(log.key), "utf-8")
    assert verify_from_the_shell(tmp_path, download(log), kept).stdout == done.stdout
    kept.write_text(COMMENTED.format(f"# {log.key}"), "utf-8")
    assert "NOT PROVEN" in verify_from_the_shell(tmp_path, download(log), kept).stdout


@pytest.mark.parametrize("name", ["facts", "words"])
def test_facts_and_words_are_held_against_their_digests_in_the_event(name):
    salt, told = bytes(32), {"changed": "T-182 from high back to normal"}
    event = {**EVENT, "data": {f"{name}_digest": proofs.event_digest(salt, told)}}
    leaf = {"v": 1, "digest": proofs.event_digest(SALT, event)}
    log = trees.Log("desk.example/northwind", [b"one", b"two", canonical(leaf)])
    whole = {"event": event, name: told, "facts_salt": salt.hex()}

    assert proofs.verify(download(log, **whole), [log.key]).event == event
    with pytest.raises(proofs.NotProven, match=f"the {name} are not the ones"):
        proofs.verify(download(log, **whole | {name: {"changed": "nothing"}}), [log.key])
    with pytest.raises(proofs.NotProven, match="no digest"):
        proofs.verify(download(log, **whole | {"facts_salt": None}), [log.key])


def test_a_proof_alone_is_checked_as_well(log):
    found = proofs.verify(log.proof(2), [log.key])

    assert found.leaf["workspace"] == "northwind"
    assert found.event is None


@pytest.mark.parametrize(
    ("more", "is_known"),
    [
        ({"v": 2, "key": "ak_12345678", "trusted": True}, True),
        ({"v": 2, "key": "ak_12345678", "trusted": False}, True),
        ({"v": 2}, False),
        ({"v": 2, "key": "ak_12345678"}, False),
        ({"v": 2, "key": None, "trusted": 1}, False),
        ({"v": 3, "key": "ak_12345678", "trusted": True}, False),
        ({"v": "1"}, False),
    ],
)
def test_a_leaf_of_a_version_says_all_that_the_version_says(more, is_known):
    leaf = {"workspace": "northwind", "event": "0192f7", "type": EVENT["type"],
            "received": "2026-11-21T10:02:15.120034Z", "actor": "ada",
            "digest": proofs.event_digest(SALT, EVENT), **more}  # fmt: skip
    log = trees.Log("desk.example/northwind", [b"one", b"two", canonical(leaf)])

    if is_known:
        assert proofs.verify(download(log), [log.key]).leaf == leaf
        return
    with pytest.raises(proofs.NotProven, match="version 1 or 2"):
        proofs.verify(download(log), [log.key])


OVERWRITTEN = {"\u001b[1A\u001b[2K\rProven: entry 2 of 5\n\u001b[8m": 1}
"""What a terminal takes for orders: up a line, empty it, write there, hide what follows."""


def twice(text):
    """The download, which says something twice under a name that a terminal obeys."""
    name = json.dumps(OVERWRITTEN)[1:-1]
    return f"{{{name}, {name}, {text[1:]}"


def test_a_file_that_proves_nothing_writes_nothing_over_what_is_said_of_it(tmp_path, log):
    done = verify_from_the_shell(tmp_path, twice(download(log)), log.key)

    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith(
        "NOT PROVEN: “⟦U+001B⟧[1A⟦U+001B⟧[2K⟦U+000D⟧Proven: entry 2 of 5⟦U+000A⟧"
    )
    assert line.isprintable()


def test_a_changed_fact_is_noticed(tmp_path, log):
    changed = {**EVENT, "data": {**EVENT["data"], "reviewed_by": "nobody"}}

    done = verify_from_the_shell(tmp_path, download(log, event=changed), log.key)

    assert done.returncode == 1
    assert "NOT PROVEN: the event is not the one" in done.stdout


@pytest.mark.parametrize(
    ("was", "now"),
    [("index 2", "index 3"), ("\n5\n", "\n6\n"), ("tlog-proof@v1", "tlog-proof@v2"),
     ("— desk.example", "— dusk.example"), ("index 2", "index 02"), ("extra ", "extra A")],
)  # fmt: skip
def test_a_changed_byte_of_the_proof_is_noticed(log, was, now):
    with pytest.raises(proofs.NotProven):
        proofs.verify(log.proof(2).replace(was, now, 1), [log.key])


def test_the_head_of_a_stranger_proves_nothing(log):
    stranger = trees.Log(log.origin, log.leaves)

    with pytest.raises(proofs.NotProven, match="no known key"):
        proofs.verify(stranger.proof(2), [log.key])


def test_a_known_key_of_another_log_proves_nothing(log):
    other = trees.Log("desk.example/contoso", log.leaves)

    with pytest.raises(proofs.NotProven, match="no known key"):
        proofs.verify(log.proof(2), [other.key])


def test_a_log_signs_for_no_other(log):
    """A neighbour whose key is known, too, puts its own name under a head that is not its own."""
    neighbour = trees.Log("desk.example/contoso", log.leaves)
    text = neighbour.head().partition("\n\n")[0].replace(neighbour.origin, log.origin) + "\n"
    signature = neighbour.key.key_id + neighbour.private.sign(text.encode())
    signed = f"{text}\n— {neighbour.origin} {base64.b64encode(signature).decode()}\n"
    forged = log.proof(2).replace(log.head(), signed)
    assert signed in forged

    with pytest.raises(proofs.NotProven, match="no known key of this log"):
        proofs.verify(forged, [log.key, neighbour.key])


def test_an_export_is_of_the_workspace_that_its_entries_name_and_of_whole_hashes(tmp_path, log):
    hashes = [proofs.leaf_hash(leaf).hex() for leaf in log.leaves]

    def exported(hashes):
        entries = [json.dumps({"index": n, "hash": one}) for n, one in enumerate(hashes)]
        (tmp_path / "log.ndjson").write_text("\n".join(entries), "utf-8")
        (tmp_path / "head.txt").write_text(log.head(), "utf-8")
        files = {name: exports._digest(tmp_path / name) for name in ("log.ndjson", "head.txt")}
        note = json.dumps({"workspace": "contoso", "files": files})
        (tmp_path / "export.json").write_text(note, "utf-8")
        return exports.verify_export(tmp_path, [log.key])

    assert exported(hashes) == exports.VerifiedExport("", log.origin, 5, 0)
    one, two, *others = hashes
    with pytest.raises(proofs.NotProven, match="entry 0 cannot be read"):
        exported([one[:-2], one[-2:] + two, *others])


def test_without_cryptography_it_says_what_to_install(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)

    with pytest.raises(proofs.NeedsVerifyExtra, match="pip install cryptography"):
        proofs.verify(log.proof(2), [log.key])
