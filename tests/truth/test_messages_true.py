"""Every command, option, variable, group, distribution, address and file that users are told of exists."""

import itertools

import pytest
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


# ---------------------------------------------------------------------------- planted
# The collector finds a wrong name of each kind, and nothing in the right one beside it.


#: What is told in a document, with what is wrong and what is right in it; then what is said of the wrong, if
#: that is more than the word.
DOCUMENTS = """
a command | See `accel {}`. | lsit | list | accel has no command lsit
a command behind -v | See `accel -v {}`. | wyh | why | no command wyh
an option | `accel list {}` says it. | --jsno | --json
an option of another command | `accel {} --build` | why | ops FusedAdam | --build
a word too many | `accel {} npu` | list | why | accel list takes no name
a value | `accel bench --ranks {}` | two | 2 | 'two'
accel's own option | `accel {}` | --versoin | --version
an option in a sentence | Give `{}` then. | --no-bnid | --no-bind
torchrun's | ```sh¶accel run {}¶``` | --nproc-per-nod 2 t.py | --nproc-per-node 2 t.py | --nproc-per-nod
in the middle of a shell's line |     cd x && DS_ACCELERATOR=cpu accel info {} > out | --jsno | --json
over two lines | ```sh¶accel run --nnodes 2 \\¶  {} job t.py¶``` | --rdvz-id | --rdzv-id
what a console shows | ```console¶$ accel list {}¶``` | --jsno¶accel lists none | --json¶accel | --jsno
DeepSpeed's | `accel deepspeed {} 2 t.py` | --num_gpu | --num_gpus
another program's | `docker run {} all` | --gpuz | --gpus | docker run has no option --gpuz
a variable | Set `{}`. | ACCEL_STRIKT | ACCEL_STRICT
a variable that is expanded | `ls ${}` | ACCEL_CASHE | ACCEL_CACHE
a variable's value | `ACCEL_PROBE={}` | isolatd | isolated | expected inline or isolated
a vendor's variable | `{}` | HABANA_VISIBLE_MODULE | HABANA_VISIBLE_MODULES
a group | In group `{}`. | accel.backend | accel.backends
another's group | In group `{}`. | torch.backend | torch.backends
a group in TOML | ```toml¶[project.entry-points."{}"]¶``` | accel.op_builder | accel.op_builders
a distribution |     pip install {} | acel-core | accel-core
a plugin | `{}` brings it. | accel-nqu | accel-npu
an extra | `pip install 'accel-tools[{}]'` | plots | plot | accel-tools[plots]
a folder to install |     pip install plugins/{} | accel_cdua | accel_cuda
a session |     ./dev lint {} | tset | test | no session tset
a session in a sentence | in session `{}` | lintt | lint | no session lintt
an address | <https://docs.habana.ai/{}> | x |  | https://docs.habana.ai/x
a link | [a](docs/{}) | nowhere.md | index.md | no such file
an anchor | [a](docs/reference/{}) | bench.md#json | bench.md#the-json-document | no heading for #json
a file | `tests/{}` | test_nothing.py | test_backend.py | tests/test_nothing.py
a module | `python -m {}` | benchmarks.nothing | benchmarks.independent
a name in Python | `{}()` | accel_core.selektion | accel_core.selection
a submodule's | `{}` | accel_core.settings.reed | accel_core.settings.read
"""
TABLE = [row.replace("¶", "\n").split(" | ") for row in DOCUMENTS.strip().splitlines()]
#: The same in a module's literals.
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


@pytest.mark.parametrize(
    ("what", "text", "wrong", "right", "said"),
    [
        *(
            (what, text, wrong, *(more if len(more) > 1 else (*more, wrong)))
            for what, text, wrong, *more in TABLE
        ),
        *((what, "", *row) for what, row in LITERALS.items()),
    ],
)
def test_what_is_wrong_is_found(judge, outside, what, text, wrong, right, said):
    for body, faults in ((wrong, True), (right, False)):
        if text:
            body = text.replace("{}", body)
            texts = of_document(TREE / "README.md", f"# Title\n\n{body}\n")
        else:
            texts = of_source(TREE / "src/accel_core/settings.py", body)
        found = judge.faults(name for text in texts for name in names(text, outside.programs))
        assert bool(found) is faults, (body, found)
        if faults:
            assert said in "\n".join(found)
            assert all(line.startswith(("README.md:", "src/accel_core/settings.py:")) for line in found)


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
