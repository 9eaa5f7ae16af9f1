"""Hosts of our own: network namespaces with names, joined by a bridge in one more, which is the switch.

Nothing lies outside these namespaces, so that deleting them removes everything. Each carries the process that
made it in its name: what a killed run left behind is found and removed by the next one.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

_PREFIX = "accelhosts"
_SUBNET = "10.213.77"
#: Run in a new UTS namespace, so that the host has its own name.
_NAMED = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'


class Transcript:
    """Every line that the hosts print, as it comes: seconds since the start, host, text."""

    def __init__(self):
        self._start = time.monotonic()
        self._changed = threading.Condition()
        self.lines = []

    def add(self, host, text):
        """Add a line; gives the seconds since the start."""
        with self._changed:
            when = time.monotonic() - self._start
            self.lines.append((when, host, text))
            self._changed.notify_all()
        return when

    def wait_for(self, pattern, host=None, *, after=0, timeout=60):
        """The first line later than `after` seconds that has `pattern`: when it came, and the match."""
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                for when, where, text in self.lines:
                    match = re.search(pattern, text)
                    if match and when > after and host in (None, where):
                        return when, match
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"{pattern!r} did not come within {timeout:g} s:\n{self}"
                    )
                self._changed.wait(left)

    def __str__(self):
        return "\n".join(
            f"{when:7.2f} {host:>7} | {text}" for when, host, text in self.lines
        )


class Hosts:
    """Hosts by name, each with the address `10.213.77.N` and all names in its hosts file.

    Skips the test where they cannot be made: that needs Linux, root, iproute2 and util-linux.
    """

    def __init__(self, names, *, misnamed=False):
        """`misnamed`: each host's own name is 127.0.1.1 to itself, as Debian's installer has it."""
        self.names = list(names)
        self._misnamed = misnamed
        self.transcript = Transcript()
        self._job = f"{_PREFIX}-{os.getpid()}"
        self._switch = f"{self._job}-switch"
        self._started = []

    def __enter__(self):
        try:
            sweep()
            self._make()
            self.start(self.names[0], ["true"]).wait()
        except (OSError, subprocess.CalledProcessError) as error:
            self._remove()
            pytest.skip(
                f"network namespaces cannot be made here: {error} {getattr(error, 'stderr', '')}"
            )
        return self

    def __exit__(self, kind, error, trace):
        self._remove()

    def _make(self):
        _ip(f"netns add {self._switch}")
        _ip(f"-n {self._switch} link add bridge type bridge")
        _ip(f"-n {self._switch} link set bridge up")
        for number, name in enumerate(self.names, 1):
            space = self._space(name)
            # `ip netns exec` puts these files in the places of /etc/hosts and /etc/nsswitch.conf.
            folder = Path("/etc/netns", space)
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(self._table(name))
            (folder / "nsswitch.conf").write_text("hosts: files\n")
            _ip(f"netns add {space}")
            _ip(
                f"-n {self._switch} link add port-{name} type veth peer eth0 netns {space}"
            )
            _ip(f"-n {self._switch} link set port-{name} master bridge up")
            _ip(f"-n {space} address add {_SUBNET}.{number}/24 dev eth0")
            for link in ("eth0", "lo"):
                _ip(f"-n {space} link set {link} up")

    def _table(self, own):
        """The hosts file of the host with this name."""
        lines = ["127.0.0.1 localhost"]
        for number, name in enumerate(self.names, 1):
            address = f"{_SUBNET}.{number}"
            if self._misnamed and name == own:
                address = "127.0.1.1"
            lines.append(f"{address} {name}")
        return "\n".join(lines) + "\n"

    def _remove(self):
        for started in self._started:
            started.kill()
        for space in (*map(self._space, self.names), self._switch):
            _delete(space)

    def _space(self, name):
        return f"{self._job}-{name}"

    def start(self, host, command, environ=None):
        """Start a command on a host; what it prints goes into the transcript."""
        inside = [
            "ip",
            "netns",
            "exec",
            self._space(host),
            "unshare",
            "--uts",
            "sh",
            "-c",
            _NAMED,
            host,
        ]
        started = Started(
            host, [*inside, *command], dict(environ or os.environ), self.transcript
        )
        self._started.append(started)
        return started

    def cut_off(self, host):
        """Pull the host's cable: packets vanish both ways, and no connection is told. Gives when it was."""
        _ip(f"-n {self._switch} link set port-{host} down")
        return self.transcript.add("switch", f"the cable of {host} is pulled")

    def reconnect(self, host):
        """Plug the cable in again."""
        self.transcript.add("switch", f"the cable of {host} is plugged in")
        _ip(f"-n {self._switch} link set port-{host} up")


class Started:
    """A process on a host."""

    def __init__(self, host, command, environ, transcript):
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        how = {**pipes, "text": True, "errors": "replace", "start_new_session": True}
        self._process = subprocess.Popen(command, env=environ, **how)
        self._reader = threading.Thread(
            target=self._read, args=(host, transcript), daemon=True
        )
        self._reader.start()

    def _read(self, host, transcript):
        for line in self._process.stdout:
            transcript.add(host, line.rstrip("\n"))

    @property
    def returncode(self):
        """The exit status; `None` while it runs."""
        return self._process.poll()

    def wait(self, timeout=60):
        """The exit status; raises `subprocess.TimeoutExpired`."""
        status = self._process.wait(timeout)
        self._reader.join(5)
        return status

    def kill(self):
        """End it and what it started in its session."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        if not self._reader.is_alive():
            self._process.stdout.close()


def sweep():
    """Remove the hosts of runs that are no more."""
    for space, pid in re.findall(
        rf"^({_PREFIX}-(\d+)-\S+)", _ip("netns list"), re.MULTILINE
    ):
        if not Path("/proc", pid).exists():
            _delete(space)


def _delete(space):
    """Remove a namespace and end what still runs in it; whatever of it is not there is passed over."""
    with contextlib.suppress(subprocess.CalledProcessError):
        for pid in _ip(f"netns pids {space}").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        _ip(f"netns delete {space}")
    shutil.rmtree(Path("/etc/netns", space), ignore_errors=True)
    with contextlib.suppress(OSError):
        Path("/etc/netns").rmdir()  # unless it holds what is not ours


def _ip(words):
    return subprocess.run(
        ["ip", *words.split()], capture_output=True, text=True, check=True
    ).stdout
