"""Every command, option, variable, group, distribution, address and file that users are told of exists."""

import itertools

import pytest
from accel_tests.tools import TREE
from accel_truth.collect import KINDS, OWN, names
from accel_truth.texts import documents, of_document, of_source, sources


def test_what_messages_and_documents_name_exists(judge, outside):
    modules = [
        of_source(file, file.read_text(encoding="utf-8")) for file in sources(TREE)
    ]
    pages = [
        of_document(file, file.read_text(encoding="utf-8")) for file in documents(TREE)
    ]
    found = [
        name
        for text in itertools.chain(*modules, *pages)
        for name in names(text, outside.programs)
    ]
    faults = judge.faults(found)
    assert not faults, "\n".join(["", *faults])
    # Of others' names no more is on record than somebody uses, and nothing that is this tree's.
    superfluous = [*outside.unused(), *judge.superfluous()]
    assert not superfluous, "\n".join(["", *superfluous])
    # What is looked for is found: each kind is in use.
    assert len(modules) > 100
    assert len(pages) > 50
    assert {name.kind for name in found} == {*KINDS, *OWN}


# ---------------------------------------------------------------------------- planted
# The collector finds a wrong name of each kind, and nothing in the right one beside it.


#: A document with a wrong name, the same with the right one, and the words of the fault.
DOCUMENTS = {
    "a command": (
        "See `accel lsit`.",
        "See `accel list`.",
        "accel has no command lsit",
    ),
    "a command behind -v": (
        "See `accel -v wyh`.",
        "See `accel -v why`.",
        "no command wyh",
    ),
    "an option": (
        "`accel list --jsno` says it.",
        "`accel list --json` says it.",
        "--jsno",
    ),
    "an option of another command": (
        "`accel why --build`",
        "`accel simulate --build acme`",
        "--build",
    ),
    "a word too many": (
        "`accel list npu`",
        "`accel why npu`",
        "accel list does not accept a name",
    ),
    "a value": ("`accel bench --ranks two`", "`accel bench --ranks 2`", "'two'"),
    "accel's own option": ("`accel --versoin`", "`accel --version`", "--versoin"),
    "an option in a sentence": (
        "Give `--no-bnid` then.",
        "Give `--no-bind` then.",
        "--no-bnid",
    ),
    "torchrun's": (
        "```sh\naccel run --nproc-per-nod 2 t.py\n```",
        "```sh\naccel run --nproc-per-node 2 t.py --lr 1\n```",
        "--nproc-per-nod",
    ),
    "in the middle of a shell's line": (
        "    cd x && DS_ACCELERATOR=cpu accel info --jsno > out",
        "    cd x && DS_ACCELERATOR=cpu accel info --json > out",
        "--jsno",
    ),
    "over two lines": (
        "```sh\naccel run --nnodes 2 \\\n  --rdvz-id job t.py\n```",
        "```sh\naccel run --nnodes 2 \\\n  --rdzv-id job t.py\n```",
        "--rdvz-id",
    ),
    "what a console shows": (
        "```console\n$ accel list --jsno\nusable: accel lists none\n```",
        "```console\n$ accel list --json\nusable\n```",
        "--jsno",
    ),
    "DeepSpeed's": (
        "`accel deepspeed --num_gpu 2 t.py`",
        "`accel deepspeed --num_gpus 2 t.py`",
        "--num_gpu",
    ),
    "another program's": (
        "`docker run --gpuz all`",
        "`docker run --gpus all`",
        "docker run has no option --gpuz",
    ),
    "a variable": ("Set `ACCEL_STRIKT`.", "Set `ACCEL_STRICT`.", "ACCEL_STRIKT"),
    "a variable that is expanded": (
        "`ls $ACCEL_CASHE`",
        "`ls $ACCEL_CACHE`",
        "ACCEL_CASHE",
    ),
    "a variable's value": (
        "`ACCEL_PROBE=isolatd`",
        "`ACCEL_PROBE=isolated`",
        "expected inline or isolated",
    ),
    "a vendor's variable": (
        "`HABANA_VISIBLE_MODULE`",
        "`HABANA_VISIBLE_MODULES`",
        "HABANA_VISIBLE_MODULE ",
    ),
    "a group": (
        "In group `accel.backend`.",
        "In group `accel.backends`.",
        "accel.backend ",
    ),
    "another's group": (
        "In group `torch.backend`.",
        "In group `torch.backends`.",
        "torch.backend ",
    ),
    "a group in TOML": (
        '```toml\n[project.entry-points."accel.op_builder"]\n```',
        '```toml\n[project.entry-points."accel.op_builders"]\n```',
        "accel.op_builder ",
    ),
    "a distribution": (
        "    pip install acel-core",
        "    pip install accel-core",
        "acel-core",
    ),
    "a plugin": ("`accel-nqu` brings it.", "`accel-npu` brings it.", "accel-nqu"),
    "an extra": (
        "`pip install 'accel-tools[plots]'`",
        "`pip install 'accel-tools[plot]'`",
        "accel-tools[plots]",
    ),
    "a folder to install": (
        "    pip install plugins/accel_cdua",
        "    pip install plugins/accel_cuda",
        "accel_cdua",
    ),
    "a session": ("    ./dev lint tset", "    ./dev lint test", "no session tset"),
    "a session in a sentence": (
        "in session `lintt`",
        "in session `lint`",
        "no session lintt",
    ),
    "an address": (
        "<https://docs.habana.ai/x>",
        "<https://docs.habana.ai/>",
        "https://docs.habana.ai/x",
    ),
    "a link": ("[a](docs/nowhere.md)", "[a](docs/index.md)", "no such file"),
    "an anchor": (
        "[a](docs/reference/json.md#setup)",
        "[a](docs/reference/json.md#accel-setup)",
        "no heading for #setup",
    ),
    "a file": (
        "`tests/test_nothing.py`",
        "`tests/test_backend.py`",
        "tests/test_nothing.py",
    ),
    "a module": (
        "`python -m benchmarks.nothing`",
        "`python -m benchmarks.independent`",
        "benchmarks.nothing",
    ),
    "a name in Python": (
        "`accel_core.selektion()`",
        "`accel_core.selection()`",
        "accel_core.selektion",
    ),
    "a submodule's": (
        "`accel_core.settings.reed`",
        "`accel_core.settings.read`",
        "accel_core.settings.reed",
    ),
}
#: The same in the source of a module.
LITERALS = {
    "a command in prose": ("'Try accel inof. It'", "'Try accel info. It'", "accel has no command inof"),
    "an option of a literal": ("'run accel list --jsno'", "'run accel list --json'", "no option --jsno"),
    "an f-string": ("f'`accel why {x} --jsno`'", "f'`accel why {x} --json`'", "--jsno"),
    "a docstring": ("'''Read ACCEL_PROBF.'''", "'''Read ACCEL_PROBE.'''", "ACCEL_PROBF"),
    "a setting": ("f'set {x}, or ACCEL_STRICT=allways.'", "f'set {x}, or ACCEL_STRICT=always.'", "always"),
    "a requirement": ("requires = ('torchh>=2.6',)", "requires = ('torch>=2.6',)", "torchh"),
    "a hint": ("hint = 'pip install torch-nqu'", "hint = 'pip install torch-npu'", "torch-nqu"),
    "a group in a literal": ("f(group='accel.backend')", "f(group='accel.backends')", "accel.backend "),
}  # fmt: skip


def faults_of_document(judge, outside, text):
    texts = of_document(TREE / "README.md", f"# Title\n\n{text}\n")
    return judge.faults(
        name for text in texts for name in names(text, outside.programs)
    )


def faults_of_source(judge, outside, text):
    texts = of_source(TREE / "src/accel_core/settings.py", text)
    return judge.faults(
        name for text in texts for name in names(text, outside.programs)
    )


@pytest.mark.parametrize(("wrong", "right", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_wrong_name_in_a_document_is_found(judge, outside, wrong, right, words):
    found = faults_of_document(judge, outside, wrong)
    assert words in "\n".join(found)
    assert all(line.startswith("README.md:") for line in found)
    assert not faults_of_document(judge, outside, right)


@pytest.mark.parametrize(("wrong", "right", "words"), LITERALS.values(), ids=LITERALS)
def test_a_wrong_name_in_a_literal_is_found(judge, outside, wrong, right, words):
    found = faults_of_source(judge, outside, wrong)
    assert words in "\n".join(found)
    assert all(line.startswith("src/accel_core/settings.py:") for line in found)
    assert not faults_of_source(judge, outside, right)


def test_a_record_that_nobody_needs(judge):
    from accel_truth.judge import Judge, Outside

    written = '[[source]]\nfrom = "x"\nvariable = ["ACCEL_PROBE", "NOBODYS_NAME", "ACCEL_PROBE"]\n'
    outside = Outside(written)
    assert outside.unused() == [
        "variable ACCEL_PROBE: on record, and nobody names it",
        "variable NOBODYS_NAME: on record, and nobody names it",
    ]
    assert Judge(judge.known, outside).superfluous() == [
        "variable ACCEL_PROBE: on record twice",
        "variable ACCEL_PROBE: on record as others', and this tree has it",
    ]
