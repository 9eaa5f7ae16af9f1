"""`accel doctor --issue`: a report that anybody may read."""

import re

import pytest

SECRETS = {
    "HF_TOKEN": "hf_verysecrettoken",
    "USER": "carolina",
    "ACME_LICENCE": "wintermute",
}


@pytest.fixture
def talkative_acme(accel, tmp_path):
    """A vendor whose package fails, and says more than strangers should read."""
    message = (
        f"libacme.so: cannot open {tmp_path}/private work/libacme.so for carolina: wintermute, "
        "https://carolina:hf_verysecrettoken@index.acme.internal/simple, card GPU-8932f937-d72c-4106"
    )
    accel.world.module("torch_acme", f"raise ImportError({message!r})")
    accel.world.backend("acme", 700, vendor_import="torch_acme")
    accel.install("npu", priority=500)
    return accel


def test_the_report_for_an_issue_has_statuses_reasons_and_versions(talkative_acme):
    done = talkative_acme("doctor", "--issue")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("### accel doctor\n\n**Versions**\n\n~~~text\n")
    for line in (
        "1. acme (accel-acme), priority 700: broken, vendor_fails\n",
        "2. npu (accel-npu), priority 500: usable, chosen\n",
        "! acme: candidates.broken\n",
    ):
        assert line in done.stdout
    assert re.search(r"(?m)^accel-npu +1\.5$", done.stdout)


def test_the_report_for_an_issue_has_no_text_of_a_vendor(talkative_acme, tmp_path):
    made = talkative_acme("doctor", "--issue", HOME=str(tmp_path), **SECRETS).stdout
    texts = ("libacme.so", "ImportError", "private work", "acme.internal", "GPU-8932")
    for private in (*SECRETS.values(), str(tmp_path), *texts):
        assert private not in made


def test_the_report_with_messages_says_what_they_may_hold(talkative_acme):
    done = talkative_acme("doctor", "--issue", "--with-messages")
    assert "Messages may contain paths, host names and names of people" in done.stdout
    assert "torch_acme failed: ImportError: libacme.so: cannot open" in done.stdout
    assert "for carolina: wintermute" in done.stdout


def test_the_help_says_what_messages_may_hold(accel):
    words = " ".join(accel("doctor", "--help").stdout.split())
    assert "Messages may contain paths, host names and names of people." in words


def test_two_documents_on_stdout_are_refused(accel):
    done = accel("doctor", "--issue", "--json")
    assert done.returncode == 2
    assert "both write to stdout. Next step: pass one of them." in done.stderr


def test_messages_without_a_report_are_refused(accel):
    done = accel("doctor", "--with-messages")
    assert done.returncode == 2
    assert "--with-messages has no effect without --issue." in done.stderr
