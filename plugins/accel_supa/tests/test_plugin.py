"""What is Biren's own: which releases it needs.

What its members do is told by its score card.
"""

import pytest
from packaging.requirements import Requirement

from accel_supa import BACKEND

RELEASES = [
    ("torch", "2.4.0", False),
    ("torch", "2.6.0", True),
    ("torch-supa", "1.0.0.20501+br2xx", False),
    ("torch-supa", "1.0.0.20600", True),
    ("torch-supa", "1.0.0.21000+br2xx.isa", True),
    ("torch-supa", "1.0.0.20900+git68fb624", True),
    ("torch-supa", "1.1.0.20800", True),
]


@pytest.mark.parametrize(("distribution", "version", "fits"), RELEASES)
def test_which_releases_it_needs(distribution, version, fits):
    needed = {found.name: found for found in map(Requirement, BACKEND.requires)}
    assert needed[distribution].specifier.contains(version, prereleases=True) is fits
