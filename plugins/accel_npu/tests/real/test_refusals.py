"""What the real torch_npu refuses on the stand-in for CANN, and what we make of it."""

import pytest

REFUSED = (
    "import accel_core, json\n"
    "try: accel_core.accelerator('npu')\n"
    "except accel_core.BackendUnavailableError as error: print(json.dumps(str(error)))"
)


HOMES = [
    (None, ("HOME",), "does not exist"),
    ((), ("HOME",), "ASCEND_OPP_PATH environment variable is not set"),
    (("compiler",), ("HOME", "OPP"), "ASCEND_RUNTIME_PATH"),
    (("runtime",), ("HOME", "OPP"), "ASCEND_COMPILER_PATH"),
]


@pytest.mark.parametrize(("folders", "names", "words"), HOMES)
def test_a_home_that_is_not_whole_is_refused(
    with_cann, tmp_path, folders, names, words
):
    home = tmp_path / "cann"
    for folder in () if folders is None else (".", *folders):
        (home / folder).mkdir(parents=True)
    variables = {f"ASCEND_{name}_PATH": str(home) for name in names}
    message = with_cann(REFUSED, **variables).answer
    assert words in message
    assert "set_env.sh" in message


def test_a_whole_home_is_reported(with_cann, tmp_path):
    for part in ("runtime", "compiler", "x86_64-linux"):
        (tmp_path / part).mkdir()
    info = tmp_path / "x86_64-linux" / "ascend_toolkit_install.info"
    info.write_text(
        "package_name=Ascend-cann-toolkit\nversion=8.3.RC1\ninnerversion=V100R001C23\n"
    )
    code = (
        "import accel_core, accel_npu, json; acc = accel_core.get_accelerator()\n"
        "print(json.dumps([acc.toolkit(), accel_npu.cann_version()]))"
    )
    home = {"ASCEND_HOME_PATH": str(tmp_path), "ASCEND_OPP_PATH": str(tmp_path)}
    answer = with_cann(
        code, DS_ACCELERATOR="npu", STANDIN_CANN="8.3.RC1", **home
    ).answer
    assert answer == [{"CANN": "8.3.RC1", "ASCEND_HOME_PATH": str(tmp_path)}, "8.3.RC1"]


def test_another_accelerator_in_torch_is_told(with_cann):
    code = "import accel_core\nfrom accel_core.torch_import import import_torch\n"
    code += "torch = import_torch()\n"
    code += "torch._C._get_accelerator = lambda *_: torch.device('cuda')\n" + REFUSED
    message = with_cann(code).answer
    assert (
        "Two accelerators cannot be used at the same time in PyTorch: npu and cuda"
        in message
    )
    assert "accel setup npu" in message


def test_a_cann_that_lacks_a_function_does_not_fit_torch_npu(
    with_cann, stand_in, tmp_path
):
    """As an older CANN does; the stand-in is built again without it."""
    from stand_in import build

    older = build.built(tmp_path, without=("aclAppLog",))
    message = with_cann(REFUSED, LD_LIBRARY_PATH=str(older)).answer
    assert "undefined symbol: aclAppLog" in message
    assert "is incompatible with torch_npu 2.13.0: run `accel setup npu`" in message
