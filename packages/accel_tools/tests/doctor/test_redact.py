"""What leaves the doctor names nobody, and is whole or not there."""

import io
import json
import logging
import os
import stat
import sys
import zipfile
from html import unescape
from urllib.parse import quote, unquote

import pytest
from accel_tests import children
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accel_tools.cli.handing_on import _besides, _html
from accel_tools.commands.doctor import _page
from accel_tools.doctor.bundle import _link, bundle, recorded, write
from accel_tools.doctor.identity import ENVIRONMENT, HOME, PATH, Identity, may_be_told
from accel_tools.doctor.markdown import markdown
from accel_tools.doctor.outgoing import Outgoing, Ranked
from accel_tools.doctor.records import Examined, Finding, Level, Report
from accel_tools.doctor.redact import Redactor

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
    "no /home/alice/secret work/x.py:12: bad": "no ~/x.py:12: bad",
    "'/data/Big Deal Inc/model.pt' is gone": "'<path>' is gone",
    "in /data/Big Deal Inc/libx.so: cannot": "in <path>/libx.so: cannot",
    "/home/alice/Big Project/a b/libx.so.2": "<path>/libx.so.2",
    "LoadLibrary C:\\Users\\alice\\My Docs\\x.dll failed": "LoadLibrary ~/x.dll failed",
    "open(D:/jobs/clientz/x.dll)": "open(<path>/x.dll)",
    r"\\fileserver\teams\clientz\x.dll": "<path>/x.dll",
    "~carol/job/x.py and ~/job": "<path>/x.py and ~/…",
    "jobs/clientz/train.py ../clientz/x": "<path>/train.py <path>",
    "/usr/lib/../../home/carol/x.so": "<path>/x.so",
    "file:///home/alice/a%20b/c.py": "file: ~/c.py",
    "%2Fhome%2Fcarol%2Fx.py": "<path>/x.py",
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
    encode = draw(st.sampled_from([str, lambda t: quote(t, safe=""), lambda t: repr(t)[1:-1], str.upper]))
    around = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
    before, after = draw(around), draw(around)
    # Between letters a word is another word; a quote or a slash may make it a part of something else.
    return f"{before} \n{encode(shape.format(secret))}\n {after}", secret


def holds(text, secret):
    """Whether the secret is in the text, whatever it is escaped with."""
    plain = unescape(unquote(text.replace("\\\\", "\\")))
    return any(secret.casefold() in form.casefold() for form in (text, plain, plain.replace("\\", "")))


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
    files = [archive.read(name).decode() for name in archive.namelist() if name != "distributions.txt"]
    parts = [*_page(outgoing.report, in_unicode=True, everything=True), *_besides(outgoing)]
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
    outside = [part for number, part in enumerate(made.split("~~~~~")) if number % 2 == 0]
    assert not any("@everyone" in part or "<img" in part for part in outside)
    assert "<img" not in shown
    assert "\x1b" not in made + shown
    assert json.loads(files[0])["schema"] == 1


def test_this_process_and_its_user_are_known(tmp_path, monkeypatch):
    work = tmp_path / "Some Work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("socket.gethostname", lambda: "box42.lab.example")
    numbers = {"PIN": "48151623", "WAIT": "1800", "TOOL": "2.13.0", "PEER": "203.0.113.7"}
    redactor = Redactor(Identity.here({**ENVIRON, **numbers, "HOME": str(tmp_path)}))
    assert redactor.text("48151623 1800 2.13.0 203.0.113.7") == "<$PIN> 1800 2.13.0 <$PEER>"
    assert redactor.text(f"{work}/x.py") == "<path>/x.py"
    assert redactor.text(f"{tmp_path}/other/x.py") == "~/x.py"
    assert redactor.text(f"{os.__file__}: no") == "<env>/os.py: no"
    assert redactor.text("box42 box42.lab.example lab.example") == "<host> <host> <host>"
    assert redactor.text("alice, bob, hunter2, C.UTF-8") == "<user>, <$HTTPS_PROXY>, <$HF_TOKEN>, <$LANG>"
    assert redactor.text("at proxy.corp.example, /srv/clienty/lib/a.so") == "at <$HTTPS_PROXY>, <path>/a.so"
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
def test_a_disk_that_is_full_leaves_nothing_behind_and_the_old_file_whole(tmp_path, base_path):
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
