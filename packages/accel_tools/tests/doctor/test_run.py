"""Topics side by side, the ranks' differences, and the codes that the pages tell."""

import io
import json
import logging
import os
import re
import stat
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from accel_tests import children
from hypothesis import example, given, settings
from hypothesis import strategies as st

import accel_tools
from accel_core.settings import Settings
from accel_core.verdict import Status
from accel_tools.cli.handing_on import _besides, _html
from accel_tools.commands.doctor import _page
from accel_tools.doctor.bundle import _link, bundle, recorded, write
from accel_tools.doctor.identity import ENVIRONMENT, HOME, PATH, Identity, may_be_told
from accel_tools.doctor.markdown import markdown
from accel_tools.doctor.outgoing import Outgoing, Ranked
from accel_tools.doctor.ranks import Looked, compared
from accel_tools.doctor.records import Examined, Finding, Level, Report, Topic, Visit
from accel_tools.doctor.redact import Redactor
from accel_tools.doctor.run import examine, visited
from accel_tools.doctor.topics import TOPICS
from accel_train.launch.agreement import exchange
from accel_train.launch.rendezvous import Rank
from accel_train.launch.worker import REFUSED

# ---------------------------------------------------------------------------- run
# Topics side by side: one that fails or hangs costs nothing but itself.


FINE = Finding(Level.OK, "fine.fine", "all is well")
ODD = Finding(Level.WARNING, "odd.odd", "this is odd", "mend it")


def fine(visit):
    return [FINE]


def test_topics_that_fail_keep_what_they_found_and_the_others_go_on():
    forever = threading.Event()

    def fails(visit):
        yield ODD
        raise RuntimeError("no more") from KeyError("inside")

    def exits(visit):
        raise SystemExit(3)

    def hangs(visit):
        yield ODD
        forever.wait()

    topics = [
        Topic(f.__name__, f.__name__.title(), f) for f in (fails, exits, hangs, fine)
    ]
    start = time.monotonic()
    failed, exited, hung, well = examine(Visit(Settings(), {}), topics, limit=1)
    assert time.monotonic() - start < 3  # not the limit for each
    assert (failed.findings, failed.failed) == ((ODD,), "KeyError: 'inside'")
    assert exited.failed == "SystemExit: it tried to end the process with 3"
    assert (hung.findings, hung.failed) == (
        (ODD,),
        "it did not finish within 1 s and was abandoned",
    )
    assert hung.ms >= 1000
    assert (well.findings, well.failed, well.level) == ((FINE,), "", Level.OK)
    assert {failed.level, exited.level, hung.level} == {Level.WARNING}
    left = [
        thread
        for thread in threading.enumerate()
        if thread.name == "accel doctor: hangs"
    ]
    assert [thread.daemon for thread in left] == [True]  # the process ends without it
    forever.set()


def test_the_report_counts_what_is_wrong_and_gives_the_worst_first():
    broken = Finding(Level.ERROR, "bad.bad", "it is broken", "replace it", "npu")
    bad = Topic("bad", "Bad", lambda visit: [ODD, broken])
    report = visited(Visit(Settings(), {}), [bad, Topic("fine", "Fine", fine)])
    assert report.verdict == "2 things are wrong, first npu: it is broken."
    assert (report.level, report.exit_status) == (Level.ERROR, 1)
    one = visited(Visit(Settings(), {}), [Topic("odd", "Odd", lambda visit: [ODD])])
    assert (one.verdict, one.exit_status) == ("One thing is wrong: this is odd.", 1)
    well = visited(Visit(Settings(), {}), [Topic("fine", "Fine", fine)])
    assert (well.verdict, well.exit_status) == ("Nothing is wrong.", 0)


def test_a_survey_that_fails_fails_once_for_all_who_ask(monkeypatch):
    asked = []

    def failing(*_, **__):
        asked.append(1)
        raise OSError("no process")

    monkeypatch.setattr("accel_tools.doctor.records.survey", failing)
    topics = [Topic(str(i), str(i), lambda visit: [visit.survey()]) for i in range(3)]
    assert [e.failed for e in examine(Visit(Settings(), {}), topics)] == [
        "OSError: no process"
    ] * 3
    assert asked == [1]


# ---------------------------------------------------------------------------- ranks
# What `accel run --doctor` tells of the ranks: differences, who is absent, and when no script starts.


def looked(rank, host="a", problem="", **facts):
    return Looked(
        rank,
        host,
        {"accelerator": "npu (accel-npu 1.0), 8 devices", "torch": "2.9", **facts},
        problem,
    )


def test_the_same_everywhere_is_one_line():
    assert compared([looked(0), looked(1, "b")], 2, 30) == (
        ["the same on all 2 ranks: npu (accel-npu 1.0), 8 devices, torch 2.9"], False,
    )  # fmt: skip
    assert compared([looked(0)], 1, 30)[0][0].startswith(
        "the same on the one rank: npu"
    )


def test_differences_name_the_ranks_and_the_hosts_that_have_them():
    seen = [
        looked(0),
        looked(1),
        looked(2, "b", torch="2.8"),
        looked(3, "b", torch="2.8", HCCL_X="1"),
    ]
    assert compared(seen, 4, 30) == (
        [
            "2 differences between the ranks",
            "  torch: 2.9 on ranks 0, 1 (host a); 2.8 on ranks 2, 3 (host b)",
            "  HCCL_X: none on ranks 0, 1, 2 (host a, b); 1 on rank 3 (host b)",
        ],
        False,
    )


def test_a_rank_that_cannot_answer_is_named_and_scripts_start():
    lines, refused = compared([looked(0), looked(2)], 4, 30)
    assert lines == [
        "ranks 1, 3 of 4 did not answer within 30 s; the script starts nonetheless",
        "no other difference between the ranks",
    ]
    assert not refused


def test_no_script_starts_where_one_rank_can_choose_nothing():
    lines, refused = compared(
        [looked(0), looked(1, "b", problem="npu is not usable.\nmore")], 2, 30
    )
    assert lines == [
        "rank 1 (host b) can choose no accelerator: npu is not usable",
        "no other difference between the ranks",
        "no script was started; for details run `accel doctor` on that host",
    ]
    assert refused


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[1, 2, 3]",
        b"[" * 10000,
        b'["h", {"a": "b"}]',
        b'["h", null, ""]',
    ],
)
def test_whatever_a_rank_leaves_is_read(data):
    assert "no record" in Looked.read(3, data).facts["what it left"]


def test_others_words_are_cut_and_cleaned():
    left = json.dumps(
        ["h\x1b[2J", {f"{n}": "x" * 9999 for n in range(999)}, "no\n\x07"]
    ).encode()
    read = Looked.read(3, left)
    assert (read.host, read.problem) == ("h\\x1b[2J", "no \\x07")
    assert len(read.facts) == 400
    assert set(map(len, read.facts.values())) == {500}


def test_ranks_meet_in_a_store_in_which_others_have_met_before():
    """The agreement that follows uses the same store; a rank that is late is absent from the verdict."""
    pytest.importorskip("torch")
    from torch.distributed import HashStore

    store = HashStore()
    store.set_timeout(timedelta(seconds=20))

    def of(ranks, timeout):
        got = {}

        def one(rank):
            me = Rank(rank, 3, None, "h")
            got[rank] = exchange(
                store,
                me,
                f"of {rank}",
                lambda left: repr(sorted(left.items())),
                timeout,
            )

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, ranks))
        if len(ranks) == 3:
            got[0].depart_last()
        return {rank: exchanged.verdict for rank, exchanged in got.items()}

    whole = b"[(1, b'of 1'), (2, b'of 2')]"
    assert of(range(3), 20) == {0: whole, 1: whole, 2: whole}
    assert of((0, 1), 0.5)[1] == b"[(1, b'of 1')]"
    assert of(range(3), 20) == {0: whole, 1: whole, 2: whole}


ALONE = "import sys\nfrom accel_tools.doctor.ranks import main\nsys.exit(main([]))"


def test_a_rank_that_can_choose_nothing_refuses(torch_world):
    torch_world.backend("npu", 700)
    place = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }
    done = torch_world.child(
        ALONE, variables={**place, "DS_ACCELERATOR": "npu"}
    ).succeeded()
    assert done.stderr.startswith(
        "accel run --doctor: the same on the one rank: npu (accel-npu 1.0)"
    )
    done = torch_world.child(ALONE, variables={**place, "DS_ACCELERATOR": "nobodys"})
    assert done.returncode == REFUSED
    assert "rank 0 (host " in done.stderr
    assert ") can choose no accelerator: DS_ACCELERATOR='nobodys'" in done.stderr
    # What is no rank cannot compare itself, and that is no reason not to start.
    done = torch_world.child(ALONE).succeeded()
    assert (
        "not compared with the other ranks: RANK, WORLD_SIZE, LOCAL_RANK" in done.stderr
    )


@pytest.mark.parametrize(("status", "starts"), [(0, True), (REFUSED, False), (3, True)])
def test_the_worker_starts_the_script_unless_it_is_refused(tmp_path, status, starts):
    (tmp_path / "first.py").write_text(
        f"import sys\nprint(sys.argv[1:], flush=True)\nsys.exit({status})"
    )
    rank = {"device": "cpu", "cores": "", "environment": {"MINE": "1"}}
    plan = json.dumps({"launcher": os.getpid(), "started": "", "ranks": [rank]})
    words = [f"--plan={plan}", "--before=first", "--command", "echo", "ran"]
    environ = {
        **children.clean_environment(LOCAL_RANK="0"),
        "PYTHONPATH": str(tmp_path),
    }
    done = children.run_python(["-m", "accel_train.launch.worker", *words], environ)
    assert done.stdout.splitlines() == ["['MINE']", "ran"][: 1 + starts]
    assert (done.returncode == 0) is starts
    assert ("first ended with status 3; the script starts" in done.stderr) is (
        status == 3
    )


# ---------------------------------------------------------------------------- topics documented
# Every code that a topic gives stands in the documentation, and nothing else does.


SOURCES = Path(accel_tools.__file__).parent / "doctor"
PAGES = Path(__file__).parents[4] / "docs" / "reference"
#: Verdicts' own words, which the page of verdicts explains.
STATUSES = {f"candidates.{status.value.replace('_', '-')}" for status in Status}


def test_the_pages_have_the_codes_of_the_sources():
    names = [topic.name for topic in TOPICS]
    code = rf"(?:{'|'.join(names)})\.[a-z][a-z-]+"
    given = {
        c
        for file in SOURCES.rglob("*.py")
        for c in re.findall(f'"({code})"', file.read_text("utf-8"))
    }
    of_topics = (PAGES / "doctor-topics.md").read_text("utf-8")
    of_candidates = re.findall(
        r"`(candidates\.[a-z-]+)`", (PAGES / "doctor.md").read_text("utf-8")
    )
    told = {*re.findall(f"`({code})`", of_topics), *of_candidates}
    assert given - {"candidates.conflict"} - STATUSES == told - STATUSES
    assert {found.partition(".")[0] for found in given} == set(names)
    assert re.findall(r"^## (.+)$", of_topics, re.MULTILINE) == [
        n for n in names if n != "candidates"
    ]


# ---------------------------------------------------------------------------- redact
# What leaves the doctor names nobody, and is whole or not there.


# ---------------------------------------------------------------------------- redact
# What leaves the doctor names nobody: text by text, and secrets planted wherever a visit can hold them.


ENVIRON = {
    "HOME": "/home/alice",
    "USER": "alice",
    "HF_TOKEN": "hunter2",
    "WORK": "/data/clientx",
    "HTTPS_PROXY": "http://bob:pw99@proxy.corp.example:3128",
    "GREETING": 'say "ÄÖÜ" & go\\home',
    "CUDA_VISIBLE_DEVICES": "0,1",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/srv/clienty/lib",
    "LANG": "C.UTF-8",
}
WITHIN = Identity(
    ENVIRON,
    (
        ("/home/alice/envs/job/lib/python3.11/site-packages", ENVIRONMENT),
        ("/home/alice", HOME),
        ("/home/alice/Big Project", PATH),
        ("/data/clientx", PATH),
        ("/usr/local/cuda/lib64", PATH),
        ("/srv/clienty/lib", PATH),
        (r"C:\Users\alice", HOME),
    ),
    (
        ("alice", "<user>"),
        ("node17", "<host>"),
        ("hunter2", "<$HF_TOKEN>"),
        ("bob", "<$HTTPS_PROXY>"),
        ("pw99", "<$HTTPS_PROXY>"),
        ("proxy.corp.example", "<$HTTPS_PROXY>"),
        (ENVIRON["GREETING"], "<$GREETING>"),
    ),
    frozenset({"torch_npu", "accel_npu"}),
)
REDACTOR = Redactor(WITHIN)

TOLD = (
    # Nothing of this names anybody.
    "torch_npu failed to import: libhccl.so: cannot open shared object file: No such file or directory",
    "Source CANN's set_env.sh, or set DS_ACCELERATOR to one of: cuda, cpu",
    "this machine has no NVIDIA GPU (none of /dev/nvidia[0-9]*, /dev/nvgpu/igpu[0-9]*, PCI 10de/03)",
    "driver 535.104.05, torch 2.13.0+cpu, CUDA/ROCm, at::Tensor c10::cuda at 10:15:45, 0000:3b:00.0",
    "/usr/local/Ascend/ascend-toolkit/latest/lib64/libhccl.so.1.2.3.4 of torch-npu==2.1.0.13 has 50% of it",
    "see https://github.com/ascend/pytorch, ACCEL_BLOCK=npu, CUDA_VERSION=12.8.1, npu@accel-npu",
    "accel_npu/__init__.py, line 3; undefined symbol: _ZN3c106detail14torchCheckFail",
    "",
)
REPLACED = {
    "/home/alice/envs/job/lib/python3.11/site-packages/torch_npu/x.so: bad": "<env>/torch_npu/x.so: bad",
    "no /home/alice/secret work/x.py:12: bad": "no ~/…:12: bad",
    "'/data/Big Deal Inc/model.pt' is gone": "'<path>' is gone",
    "in /data/Big Deal Inc/libx.so: cannot": "in <path>/libx.so: cannot",
    "/home/alice/Big Project/a b/libx.so.2": "<path>/libx.so.2",
    "LoadLibrary C:\\Users\\alice\\My Docs\\x.dll failed": "LoadLibrary ~/x.dll failed",
    "open(D:/jobs/clientz/x.dll)": "open(<path>/x.dll)",
    r"\\fileserver\teams\clientz\x.dll": "<path>/x.dll",
    "~carol/job/x.py and ~/job": "<path> and ~/…",
    "jobs/clientz/train.py ../clientz/x": "<path> <path>",
    "/usr/lib/../../home/carol/x.so": "<path>/x.so",
    "file:///home/alice/a%20b/c.py": "file: ~/…",
    "%2Fhome%2Fcarol%2Fx.py": "<path>",
    "at https://dave:pw@index.corp/simple?key=1, and ftp://10.1.2.3/x": "at https://<host>, and ftp://<host>",
    "hunter2 was sent by Alice on NODE17": "<$HF_TOKEN> was sent by <user> on <host>",
    "HF_TOKEN=other and SECRET_THING='a b'": "HF_TOKEN=<secret> and SECRET_THING=<set>",
    "password: xyz, Bearer abc.def": "password: <secret>, Bearer <secret>",
    "serial number 0321519012345, serial=AB12": "serial number <secret>, serial=<secret>",
    "hf_abcdefghijkl ghp_0123456789ab": "<secret> <secret>",
    "10.0.0.1:29500 fe80::1%eth0 [2001:db8::2]": "<ip>:29500 <ip> [<ip>]",
    "aa:bb:cc:dd:ee:0f AA-BB-CC-DD-EE-0F 0011.2233.4455": "<mac> <mac> <mac>",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937": "GPU-<uuid>,GPU-<uuid>",
    "c0ffee00-1234-4567-89ab-0123456789ab": "<uuid>",
    "container 0123456789abcdef0123456789abcdef0123456789abcdef": "container <id>",
    "carol@corp.example wrote": "<address> wrote",
    repr(ENVIRON["GREETING"])[1:-1]: "<$GREETING>",
    quote(ENVIRON["GREETING"], safe=""): "<$GREETING>",
    "/srv/clienty/lib/libx.so and /usr/local/cuda/lib64/liby.so": (
        "<path>/libx.so and /usr/local/cuda/lib64/liby.so"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", TOLD)
def test_what_names_nobody_stays(text):
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize(("text", "expected"), REPLACED.items())
def test_what_names_somebody_is_replaced(text, expected):
    assert REDACTOR.text(text) == expected


def test_values_by_the_variable_of_their_name():
    given = {
        "CUDA_VISIBLE_DEVICES": "0,GPU-8932f937", "HF_TOKEN": "x", "ACME_HOME": "/opt/acme",
        "LANG": "C.UTF-8", "CUDA_VERSION": "not a version", "hostname": "n",
        "device serial": "1", "PCI": "10de:2330",
    }  # fmt: skip
    assert REDACTOR.of(given) == {
        "CUDA_VISIBLE_DEVICES": "0,GPU-<uuid>", "HF_TOKEN": "set", "ACME_HOME": "set", "LANG": "set",
        "CUDA_VERSION": "set", "hostname": "<private>", "device serial": "<private>", "PCI": "10de:2330",
    }  # fmt: skip
    assert may_be_told("DS_ACCELERATOR", "npu")
    assert not may_be_told("ACCEL_CACHE", "/home/alice/cache")


#: What must not come out; alone between spaces, as a part of a path, an address, an assignment.
SECRETS = (
    "hunter2", "alice", "node17", "clientx", "clienty", "proxy.corp.example", "pw99", "Big Project",
    ENVIRON["GREETING"],
)  # fmt: skip
SHAPES = (
    "{}", "/home/{}/x.py", "/data/{}/model", "~/{}/a/b", "C:\\Users\\{}\\x.dll", "C:/Users/{}/x",
    "\\\\server\\{}\\x", "https://{}.internal/x", "https://u:{}@h/x", "file:///mnt/{}/x.py", "NAME={}",
    "NAME='{}'", "jobs/{}/train.py", "password={}", '"/mnt/{}/y"', "(/mnt/a b/{}/y)", "see:/mnt/{}/y:3",
    "<b>/mnt/{}/y",
)  # fmt: skip
#: Of a secret that is a folder alone, only these shapes are known to be one; else it is any word.
FOLDERS = ("clientx", "clienty", "Big Project")


@st.composite
def plantings(draw):
    """A text with a secret in it, in some shape and some encoding; and the secret."""
    secret = draw(st.sampled_from(SECRETS))
    shape = draw(st.sampled_from(SHAPES[1:7] if secret in FOLDERS else SHAPES))
    encode = draw(
        st.sampled_from(
            [str, lambda t: quote(t, safe=""), lambda t: repr(t)[1:-1], str.upper]
        )
    )
    around = st.text(
        st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12
    )
    before, after = draw(around), draw(around)
    # Between letters a word is another word; a quote or a slash may make it a part of something else.
    return f"{before} \n{encode(shape.format(secret))}\n {after}", secret


def holds(text, secret):
    """Whether the secret is in the text, whatever it is escaped with."""
    plain = unescape(unquote(text.replace("\\\\", "\\")))
    return any(
        secret.casefold() in form.casefold()
        for form in (text, plain, plain.replace("\\", ""))
    )


@settings(max_examples=400, deadline=None)
@given(plantings())
@example(("/mnt/a\tb/hunter2", "hunter2"))
@example(("\ue000/hunter2/\ue100\ue101", "hunter2"))
def test_no_planted_secret_comes_out(planting):
    text, secret = planting
    assert not holds(REDACTOR.text(text), secret)


@settings(max_examples=50, deadline=2000)
@given(st.text(st.sampled_from("/\\~ab. :%4'\"C-=@\ue000\ue100"), max_size=3000))
def test_any_text_is_redacted_in_time(text):
    """Paths upon paths, quotes without an end, marks of ours: no crash, and no step that takes for ever."""
    assert isinstance(REDACTOR.text(text), str)


def everywhere(text):
    """A visit that holds the text wherever a record can."""
    finding = Finding(Level.ERROR, text, text, text, text, {text: text, "cause": text})
    well = finding._replace(level=Level.OK)
    report = Report(text, (Examined(text, text, (finding, well), 1.0, text),), 2.0)
    row = Ranked(text, text, 1, text, True, False, True, 3.0)
    return Outgoing(report, (row,), {text: text}, {text: text, "HF_TOKEN": text})


def written(text):
    """All that is written of such a visit."""
    outgoing = REDACTOR.of(everywhere(text))
    archive = zipfile.ZipFile(io.BytesIO(bundle(outgoing, [text], REDACTOR)))
    files = [
        archive.read(name).decode()
        for name in archive.namelist()
        if name != "distributions.txt"
    ]
    parts = [
        *_page(outgoing.report, in_unicode=True, everything=True),
        *_besides(outgoing),
    ]
    return [markdown(outgoing), _html(parts, 10_000), *files]


def test_no_place_of_a_visit_holds_a_secret():
    for secret in SECRETS:
        for text in (f"it said {secret}!", f"at /home/{secret}/x.py"):
            if secret in FOLDERS and "said" in text:
                continue
            for document in written(text):
                assert not holds(document, secret), document


def test_strangers_words_are_no_markup():
    """Neither in Markdown, whose fences they cannot close, nor in the page, nor as terminal codes."""
    text = "~~~~\n# <img src=x onerror=alert(1)> @everyone ]]> \x1b[31m `code` </style></script>"
    made, shown, *files = written(text)
    assert "~~~~~text" in made
    outside = [
        part for number, part in enumerate(made.split("~~~~~")) if number % 2 == 0
    ]
    assert not any("@everyone" in part or "<img" in part for part in outside)
    assert "<img" not in shown
    assert "\x1b" not in made + shown
    assert json.loads(files[0])["schema"] == 1


def test_this_process_and_its_user_are_known(tmp_path, monkeypatch):
    work = tmp_path / "Some Work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("socket.gethostname", lambda: "box42.lab.example")
    numbers = {
        "PIN": "48151623",
        "WAIT": "1800",
        "TOOL": "2.13.0",
        "PEER": "203.0.113.7",
    }
    redactor = Redactor(Identity.here({**ENVIRON, **numbers, "HOME": str(tmp_path)}))
    assert (
        redactor.text("48151623 1800 2.13.0 203.0.113.7")
        == "<$PIN> 1800 2.13.0 <$PEER>"
    )
    assert redactor.text(f"{work}/x.py") == "<path>"
    assert redactor.text(f"{tmp_path}/other/x.py") == "~/…"
    assert redactor.text(f"{os.__file__}: no") == "<env>/os.py: no"
    assert (
        redactor.text("box42 box42.lab.example lab.example") == "<host> <host> <host>"
    )
    assert (
        redactor.text("alice, bob, hunter2, C.UTF-8")
        == "<user>, <$HTTPS_PROXY>, <$HF_TOKEN>, <$LANG>"
    )
    assert (
        redactor.text("at proxy.corp.example, /srv/clienty/lib/a.so")
        == "at <$HTTPS_PROXY>, <path>/a.so"
    )
    assert redactor.text(f"{sys.prefix}/nobody") == "<env>/nobody"


# ---------------------------------------------------------------------------- bundle
# Files of a visit: whole or not there, and of nobody else's making.


def test_a_file_is_written_as_a_whole_and_replaces_nothing_unasked(tmp_path):
    target = tmp_path / "visit.zip"
    write(str(target), b"first", force=False)
    if os.name == "posix":
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match="it exists already"):
        write(str(target), b"second", force=False)
    assert target.read_bytes() == b"first"
    write(str(target), b"second", force=True)
    assert target.read_bytes() == b"second"
    # Nor does one go that came in the last moment, or a link that leads nowhere.
    made = tmp_path / "made"
    made.write_bytes(b"third")
    with pytest.raises(FileExistsError):
        _link(made, target)
    assert target.read_bytes() == b"second"
    made.unlink()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError):
        write(str(tmp_path / "dangling"), b"x", force=False)
    with pytest.raises(FileNotFoundError):
        write(str(tmp_path / "no folder" / "x"), b"x", force=False)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "visit.zip"]


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from accel_tools.doctor.bundle import write
try:
    write(sys.path[0] + "/visit.zip", b"x" * 5000, force=True)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX's")
def test_a_disk_that_is_full_leaves_nothing_behind_and_the_old_file_whole(
    tmp_path, base_path
):
    """A limit on the size of files: to whoever writes, a disk that takes no more."""
    (tmp_path / "visit.zip").write_bytes(b"old")
    done = children.run(FULL, [tmp_path, *base_path])
    assert done.stdout == "OSError\n", done.stderr
    assert os.listdir(tmp_path) == ["visit.zip"]
    assert (tmp_path / "visit.zip").read_bytes() == b"old"


def test_the_log_is_recorded_and_everything_is_as_it_was(capsys):
    log = logging.getLogger("accel_core.somewhere")
    with recorded() as lines:
        log.debug("a %s", "line")
    log.info("not asked for")
    assert [line.partition("] ")[2] for line in lines] == ["a line"]
    assert capsys.readouterr().err == ""
    assert logging.getLogger("accel_core").handlers == []
