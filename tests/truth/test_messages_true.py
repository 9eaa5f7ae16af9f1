"""Every command, option, variable, group, distribution, address and file that users are told of exists."""

import itertools

from accel_tests.tools import TREE
from accel_truth.collect import KINDS, OWN, names
from accel_truth.texts import documents, of_document, of_source, sources


def test_what_messages_and_documents_name_exists(judge, outside):
    modules = [of_source(file, file.read_text(encoding="utf-8")) for file in sources(TREE)]
    pages = [of_document(file, file.read_text(encoding="utf-8")) for file in documents(TREE)]
    found = [name for text in itertools.chain(*modules, *pages) for name in names(text, outside.programs)]
    faults = judge.faults(found)
    assert not faults, "\n".join(["", *faults])
    # Of others' names no more is on record than somebody uses, and nothing that is this tree's.
    superfluous = [*outside.unused(), *judge.superfluous()]
    assert not superfluous, "\n".join(["", *superfluous])
    # What is looked for is found: each kind is in use.
    assert len(modules) > 100
    assert len(pages) > 50
    assert {name.kind for name in found} == {*KINDS, *OWN}
