"""The names of accel_core.toolkit, for type checkers; tools/public_names.py writes them."""

from accel_core import machine as host
from accel_core._support import LOGGER as LOGGER
from accel_core._support import child as child
from accel_core._support import fork_safe_lock as fork_safe_lock
from accel_core._support import logged_by as logged_by
from accel_core._support import packages as packages
from accel_core._support.torch_import import AUTOLOAD as AUTOLOAD
from accel_core._support.torch_import import TORCH_GROUP as TORCH_GROUP
from accel_core._support.torch_import import autoload_is_on as autoload_is_on
from accel_core._support.torch_import import import_torch as import_torch
from accel_core._support.torch_import import origin as origin
from accel_core.accelerators.cpu import CPUAccelerator as CPUAccelerator
from accel_core.accelerators.devices import missing_defaults as missing_defaults
from accel_core.accelerators.devices import torchs_device as torchs_device
from accel_core.accelerators.memory import lacks_page_locks as lacks_page_locks
from accel_core.backend import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
from accel_core.backend import EXPECTED_PREFIX as EXPECTED_PREFIX
from accel_core.backend import PROJECT as PROJECT
from accel_core.backend import decode_backend as decode_backend
from accel_core.backend import is_variable_prefix as is_variable_prefix
from accel_core.cli import output as options
from accel_core.cli import page as page
from accel_core.cli.output import Output as Output
from accel_core.cli.output import answering as answering
from accel_core.cli.output import status_of as status_of
from accel_core.current import exact as exact
from accel_core.current import exchange as exchange
from accel_core.current import late_changes as late_changes
from accel_core.current import named as named
from accel_core.current import overriding as overriding
from accel_core.detection import How as How
from accel_core.detection import discovery as discovery
from accel_core.detection import guard as guard
from accel_core.detection import messages as messages
from accel_core.detection.device import installed_imports as installed_imports
from accel_core.detection.discovery import Spoiler as Spoiler
from accel_core.detection.discovery import declarers as declarers
from accel_core.detection.discovery import find_candidates as find_candidates
from accel_core.detection.discovery import installed_names as installed_names
from accel_core.detection.discovery import spoilers as spoilers
from accel_core.detection.isolated import IsolatedLoader as IsolatedLoader
from accel_core.detection.select import Survey as Survey
from accel_core.detection.select import select as select
from accel_core.detection.select import survey as survey
from accel_core.machine import devices as devices
from accel_core.machine import placement as placement
from accel_core.machine import vendors as vendors
from accel_core.machine import visible_devices as visible_devices
from accel_core.operators import providers as providers
from accel_core.ops import is_host_code as is_host_code
from accel_core.settings import ACCEL_ALLOW as ACCEL_ALLOW
from accel_core.settings import ACCEL_PROBE as ACCEL_PROBE
from accel_core.settings import DS_ACCELERATOR as DS_ACCELERATOR
from accel_core.settings import OURS as OURS
from accel_core.settings import Pin as Pin
from accel_core.settings import Settings as Settings
from accel_core.settings import Variable as Variable
from accel_core.settings import entry_points as entry_points
from accel_core.settings import flag as flag
from accel_core.settings import normalize_distribution as normalize_distribution
from accel_core.settings import parse_pin as parse_pin
from accel_core.settings import read as read_settings
from accel_core.settings import whole_number as whole_number

__all__ = [
    "ACCEL_ALLOW",
    "ACCEL_PROBE",
    "AUTOLOAD",
    "DS_ACCELERATOR",
    "ENTRY_POINT_GROUP",
    "EXPECTED_PREFIX",
    "LOGGER",
    "OURS",
    "PROJECT",
    "TORCH_GROUP",
    "CPUAccelerator",
    "How",
    "IsolatedLoader",
    "Output",
    "Pin",
    "Settings",
    "Spoiler",
    "Survey",
    "Variable",
    "answering",
    "autoload_is_on",
    "child",
    "declarers",
    "decode_backend",
    "devices",
    "discovery",
    "entry_points",
    "exact",
    "exchange",
    "find_candidates",
    "flag",
    "fork_safe_lock",
    "guard",
    "host",
    "import_torch",
    "installed_imports",
    "installed_names",
    "is_host_code",
    "is_variable_prefix",
    "lacks_page_locks",
    "late_changes",
    "logged_by",
    "messages",
    "missing_defaults",
    "named",
    "normalize_distribution",
    "options",
    "origin",
    "overriding",
    "packages",
    "page",
    "parse_pin",
    "placement",
    "providers",
    "read_settings",
    "select",
    "spoilers",
    "status_of",
    "survey",
    "torchs_device",
    "vendors",
    "visible_devices",
    "whole_number",
]
