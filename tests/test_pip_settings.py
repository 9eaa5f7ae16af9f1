"""`tools/pip_settings.py`: uv installs from where pip would, or not at all."""

import pytest
from accel_tests.tools import load

in_uvs_words = load("pip_settings").in_uvs_words
LIKE_PIP = {"UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        ("", {}),
        (
            "global.index-url='https://mirror/simple'",
            {"UV_DEFAULT_INDEX": "https://mirror/simple"},
        ),
        (
            "global.extra-index-url='https://one https://two'",
            {"UV_INDEX": "https://one https://two"},
        ),
        ("install.find-links='/wheels\\n/more'", {"UV_FIND_LINKS": "/wheels,/more"}),
        ("global.cert='/etc/ca.pem'", {"SSL_CERT_FILE": "/etc/ca.pem"}),
        (
            "global.constraint='/etc/constraints.txt'",
            {"UV_CONSTRAINT": "/etc/constraints.txt"},
        ),
        (":env:.default-timeout='180'", {"UV_HTTP_TIMEOUT": "180"}),
        ("global.disable-pip-version-check='1'\ndownload.no-deps='true'", {}),
        (":env:.config-file='/mine/pip.conf'", {}),
    ],
)
def test_what_pip_is_configured_with_is_told(listed, variables):
    assert in_uvs_words(listed) == LIKE_PIP | variables


def test_the_environment_overrides_the_files():
    listed = ":env:.find-links='/mine'\nglobal.find-links='/everyones'"
    assert in_uvs_words(listed) == {**LIKE_PIP, "UV_FIND_LINKS": "/mine"}


@pytest.mark.parametrize(
    "setting", ["trusted-host", "proxy", "client-cert", "no-binary", "pre", "no-index"]
)
def test_a_setting_that_uv_has_no_word_for_leaves_the_work_to_pip(setting):
    assert (
        in_uvs_words(f"global.index-url='https://mirror'\nglobal.{setting}='x'") is None
    )
