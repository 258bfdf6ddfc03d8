"""Every block of code that a page prints is run by a test, and this table says by which.

A block of JSON or of a diagram shows a form; whatever somebody would paste is run. Who adds a block
names its test here.
"""

import re
import shlex

import pytest
from django.core.management import get_commands, load_command_class

from config.local.places import ROOT

FORMS = {"json", "mermaid", "text"}
SDK, JS = "tests/sdk/test_docs.py::", "tests/sdk_js/test_docs.py::"
FRAMEWORK = "tests/adapters/test_docs.py::test_the_ten_lines_of_a_framework_connect_it"
COOKBOOK = "tests/approvals/test_policy.py::test_each_recipe_of_the_cookbook_is_a_policy"
CONNECTOR = "tests/connectors/test_docs.py::"
NEWCOMER = f"{CONNECTOR}test_a_newcomers_test_of_a_connector_runs_as_it_is_printed"
RESTORED = "tests/mcp/test_story.py::test_files_that_an_agent_wrote_are_restored_byte_for_byte"
AAP = "tests/sdk/test_approval_protocol.py::test_the_lines_of_the_guide"
HTTP = f"{SDK}test_plain_http_is_three_calls_as_printed"

RUN_BY = {
    "README.md": [
        f"{SDK}test_the_readme_shows_the_same_ten_lines_as_the_guide",
        f"{JS}test_the_readme_shows_the_same_ten_lines_as_the_guide",
    ],
    "agents.md": [
        f"{SDK}test_ten_lines_connect_an_agent",
        f"{SDK}test_the_decorated_tool_of_the_guide_runs",
        f"{JS}test_ten_lines_connect_an_agent",
        f"{JS}test_the_tool_of_the_guide_runs",
        f"{SDK}test_the_async_lines_of_the_guide_run",
        "tests/sdk/test_real_resume.py::test_a_restarted_agent_goes_on_from_its_checkpoint",
        *[f"{SDK}test_the_tests_of_the_guide_run_wherever_the_client_is_installed"] * 2,
        "tests/sdk/test_real_plan.py::test_the_test_of_the_guide_passes_against_a_real_desk",
    ],
    "approvals.md": [HTTP],
    "connectors.md": [
        f"{CONNECTOR}test_the_guides_connector_is_whole",
        f"{CONNECTOR}test_what_makes_a_connector_known_names_it",
        f"{CONNECTOR}test_the_lines_for_another_protocol_ask_and_take_no_half_answer",
        *[NEWCOMER] * 3,
        f"{CONNECTOR}test_the_table_that_the_guide_prints_is_the_one_that_is_made",
    ],
    "cookbook.md": [COOKBOOK] * 6,
    "frameworks.md": [
        *[FRAMEWORK] * 4,
        f"{JS}test_the_lines_for_the_ai_sdk_connect_an_agent",
        *[FRAMEWORK] * 6,
        *[f"{SDK}test_the_lines_for_any_other_framework_are_a_gate"] * 2,
    ],
    "http.md": [HTTP, HTTP],
    "imports.md": ["tests/ledger/test_cloud_events.py::test_the_request_of_the_guide_is_taken"],
    "install.md": [
        "tests/config/test_clean_root.py::test_the_guide_leads_from_an_empty_debian_to_a_desk_that_comes_back"
    ]
    * 7,
    "interchange.md": [
        AAP,
        "tests/sdk/test_approval_receivers.py::test_the_lines_of_the_guide_register_a_receiver",
        AAP,
    ],
    "mcp.md": [
        "tests/mcp/test_docs.py::test_each_line_of_the_page_runs_in_a_shell",
        RESTORED,
        RESTORED,
        "tests/mcp/test_story.py::test_a_repository_is_as_it_was_before_the_agent",
    ],
    "policy.md": [
        "tests/approvals/test_versions.py::test_the_commands_of_the_guide_rehearse_a_policy_and_then_put_it_in_force",
        "tests/approvals/test_policy.py::test_the_example_of_the_guide_is_a_policy",
        "tests/approvals/test_policy.py::test_the_rules_that_hold_always_of_the_guide",
        "tests/approvals/test_policy.py::test_lists_hours_and_reviews_of_the_guide_are_taken",
        "tests/approvals/test_policy.py::test_lists_hours_and_reviews_of_the_guide_are_taken",
        "tests/approvals/test_policy.py::test_lists_hours_and_reviews_of_the_guide_are_taken",
    ],
    "policy-api.md": [
        "tests/sdk/test_policy_file.py::test_the_workflow_of_the_guide_comments_a_pull_request_and_applies_the_merge"
    ],
    "recovery-api.md": [
        "tests/recovery/cases/test_api.py::test_the_lines_of_the_guide_lead_from_the_queue_to_a_published"
    ],
    "twins.md": [
        f"{SDK}test_the_service_of_the_twins_guide_works",
        f"{JS}test_the_twin_of_the_guide_runs",
        f"{SDK}test_the_service_of_the_twins_guide_works",
        f"{SDK}test_the_service_of_the_twins_guide_works",
    ],
}
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)): page for page in DOCS.rglob("*.md")} | {
    "README.md": ROOT / "README.md"
}


def blocks(page):
    """The language and the beginning of each block that somebody would paste."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    drawn = re.compile(r"^\S+( +→| → )")  # the floors and the ways between them
    return [
        (language, text.splitlines()[0])
        for language, text in found
        if language not in FORMS and not drawn.match(text)
    ]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_each_block_of_a_page_is_run_by_a_test(name):
    tests, found = RUN_BY.get(name, []), blocks(PAGES[name])

    assert len(found) == len(tests), found
    for test in tests:
        file, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / file).read_text("utf-8"), test


OPERATORS = ("running.md", "keeping.md", "versions.md", "proofs.md", "imports.md", "policy.md")
LINE = re.compile(r"^ {4}(?:\S+ )*?(make|manage\.py) +(.*?)(?:  +#.*)?$", re.MULTILINE)
IN_TEXT = re.compile(r"`manage\.py (\w+)[^`]*`")


def lines_of(name):
    return LINE.findall((DOCS / name).read_text("utf-8"))


@pytest.mark.parametrize("name", OPERATORS)
def test_each_command_that_a_page_prints_is_there_and_takes_its_options(name):
    for program, words in lines_of(name):
        if program == "make":
            target, *variables = words.split()
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), words
            assert all(f"{one.partition('=')[0]} ?=" in MAKEFILE for one in variables), words
        else:
            command, *arguments = shlex.split(words)
            parser = load_command_class(get_commands()[command], command).create_parser("", command)
            parser.parse_args(arguments)
    for command in IN_TEXT.findall((DOCS / name).read_text("utf-8")):
        assert command in get_commands(), command


def test_pages_for_operators_do_print_lines():
    assert len(lines_of("running.md")) >= 8
