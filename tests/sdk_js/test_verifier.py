"""The page that people save to check a record: made of the client's own check, whole, in each
language. What it says in a browser is in tests/browser/test_verifier.py.
"""

import hashlib
import json
import re
import subprocess

import pytest

from amends.protocol import signatures
from amends.protocol.proofs import LogKey, NotProven
from config.local.places import ROOT
from tests import npm
from tests.sdk.brought import Brought, everything

SOURCES = ROOT / "sdk-js" / "verifier"
MADE = ROOT / "static" / "verifier.html"
WORDS = json.loads((SOURCES / "words.json").read_text("utf-8"))


def test_the_file_that_is_handed_out_is_what_its_sources_make():
    command = [str(npm.NODE), "--no-warnings", str(SOURCES / "make.ts"), "--print"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)

    assert done.stdout == MADE.read_bytes(), "run: make verifier"
    digest = hashlib.sha256(done.stdout).hexdigest()
    assert f"SHA-256 of `static/verifier.html`: `{digest}`" in (
        ROOT / "docs" / "proofs.md"
    ).read_text("utf-8"), "run: make verifier"


def test_nothing_in_it_comes_from_elsewhere():
    page = MADE.read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)

    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert re.findall(r"\b(?:src|href)=|\bimport\b[ (]|\burl\(|https?://", page) == []


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_each_language_has_every_sentence(language):
    english, words = WORDS["en"], WORDS[language]

    assert words.keys() == english.keys()
    assert words["reasons"].keys() == english["reasons"].keys()
    for said, there in ((english, words), (english["reasons"], words["reasons"])):
        for name, sentence in there.items():
            if isinstance(sentence, str):
                wanted = re.findall(r"\{\w+\}", said[name])
                assert (name, re.findall(r"\{\w+\}", sentence)) == (name, wanted)
                assert sentence.strip()


def in_python(brought: Brought) -> tuple[str, str]:
    """The entry that is proven and who signed what it says; or else nothing."""
    lines = [line for line in brought.key.split("\n") if line]
    try:
        found, signed = signatures.verify(brought.text, [LogKey.parse(line) for line in lines])
    except NotProven:
        return "", ""
    return f"{found.index} {found.leaf}", signed.origin if signed else ""


def test_both_clients_say_the_same_of_whatever_is_brought(client):
    """And the one in TypeScript says why, in a word that the page has a sentence for."""
    wrong, reasons = {}, set()
    for one in everything():
        keys = [line for line in one.key.split("\n") if line]
        said = client("proven", text=one.text, keys=keys)
        found = said.get("answer")
        heard = ("", "")
        if found:
            signed = found["signed"] or {"origin": ""}
            heard = (f"{found['index']} {found['leaf']}", signed["origin"])
        reasons.add(one.reason)
        if (heard, said.get("reason") or "") != (in_python(one), one.reason):
            wrong[one.name] = said
        if bool(heard[0]) == bool(one.reason):
            wrong[one.name] = said

    assert wrong == {}
    assert reasons == {"", *WORDS["en"]["reasons"]}, "a reason of which there is no example"
