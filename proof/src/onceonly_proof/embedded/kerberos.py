"""A real KDC of MIT Kerberos on loopback, out of Debian's packages: gone with the process. Linux with apt.

::

    with EmbeddedKdc() as kdc:
        kdc.keytab("alice.keytab", "alice")
        kdc.ticket("alice", cache, lifetime_s=60)
        os.environ |= kdc.environment
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

from onceonly.errors import SetupError
from onceonly_proof.embedded.debian import unpacked
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

REALM: Final = "ONCEONLY.TEST"
_PACKAGES = (
    "krb5-kdc", "krb5-admin-server", "krb5-user", "libkadm5srv-mit12", "libkadm5clnt-mit12", "libkdb5-10",
    "libgssrpc4", "libverto1", "libverto-libev1", "libev4", "libkrb5-3", "libk5crypto3", "libkrb5support0",
    "libgssapi-krb5-2", "libfaketime", "python3-gssapi", "python3-decorator",
)  # fmt: skip
_READY_S, _POLL_S, _CALL_S = 30.0, 0.05, 30.0
_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
# Always by TCP: the only port that is known to be free.
udp_preference_limit = 1
default_ccache_name = FILE:{folder}/nobody.ccache
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = {realm}
"""
_SERVER = """\
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/none
  max_life = 10h
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
}}
[dbmodules]
db_module_dir = {modules}
[logging]
default = STDERR
"""


class EmbeddedKdc(EmbeddedServer):
    """One KDC with a realm of its own. Not shared between threads."""

    title = "the KDC"

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory, prefix="kerberos")
        self._port = 0
        self._known: set[str] = set()

    @property
    def configuration(self) -> Path:
        """What a client is told of it: ``KRB5_CONFIG``, and Java's ``java.security.krb5.conf``."""
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What a client's environment must have."""
        return {"KRB5_CONFIG": str(self.configuration)}

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same principals. Idempotent while it runs.

        Raises:
            SetupError: there is no KDC and none to be fetched, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self._port = self._port or free_ports(1)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        (modules,) = _packages().glob("usr/lib/*/krb5/plugins/kdb")
        told = {"realm": REALM, "folder": self.directory, "port": self._port, "modules": modules}
        self.configuration.write_text(_CLIENT.format(**told))
        (self.directory / "kdc.conf").write_text(_SERVER.format(**told))
        if not (self.directory / "principals").exists():
            self._run("usr/sbin/kdb5_util", "create", "-s", "-P", "of a test", "-r", REALM)
            self._admin("addprinc", "-randkey", "probe")
            self._admin("ktadd", "-q", "-k", str(self.directory / "probe.keytab"), "probe")
        self._process = self._launch(self._command("usr/sbin/krb5kdc", "-n", "-r", REALM))
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def keytab(self, name: str, *principals: str) -> Path:
        """Make principals with random keys, where they are not there, and return a file with their keys."""
        file = self.directory / name
        for principal in (each.removesuffix(f"@{REALM}") for each in principals):
            if principal not in self._known:
                self._admin("addprinc", "-randkey", principal)
                self._known.add(principal)
            self._admin("ktadd", "-q", "-norandkey", "-k", str(file), principal)
        return file

    def remove(self, principal: str) -> None:
        """Forget a principal. Tickets that it has still hold."""
        self._admin("delprinc", "-force", principal)
        self._known.discard(principal)

    def ticket(self, principal: str, keytab: Path, cache: Path, *, lifetime_s: int = 3600) -> None:
        """Get a ticket by a keytab into a cache, as ``kinit -k`` does. Raises ``SetupError``."""
        self._run(
            "usr/bin/kinit", "-c", f"FILE:{cache}", "-l", f"{lifetime_s}s", "-k", "-t", str(keytab), principal
        )

    def _answers(self) -> bool:
        try:
            self.ticket("probe", self.directory / "probe.keytab", self.directory / "probe.ccache")
        except SetupError:
            return False
        return True

    def _admin(self, *words: str) -> None:
        self._run("usr/sbin/kadmin.local", "-r", REALM, *words)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            self._command(program, *words), capture_output=True, text=True, timeout=_CALL_S, check=False
        )
        if done.returncode:
            raise self._failure(f"could not do {Path(program).name}: {' '.join(done.stderr.split())[-300:]}")

    def _command(self, program: str, *words: str) -> list[str]:
        root = _packages()
        (libraries,) = root.glob("usr/lib/*/krb5")
        given = {
            **self.environment,
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "LD_LIBRARY_PATH": str(libraries.parent),
        }
        return [
            "/usr/bin/env",
            *(f"{name}={value}" for name, value in given.items()),
            str(root / program),
            *words,
        ]


def gssapi_folder() -> Path | None:
    """Return the folder of the Python package ``gssapi`` that goes on the path; None where it is installed.

    Raises:
        SetupError: it is not installed, and Debian's is for another Python.
    """
    try:
        import gssapi  # noqa: F401
    except ImportError:
        folder = _packages() / "usr/lib/python3/dist-packages"
        if not list(folder.glob(f"gssapi/raw/*.{sys.implementation.cache_tag}-*.so")):
            raise SetupError(
                f"Debian's gssapi is for another Python than {platform.python_version()}",
                next_step="apt install libkrb5-dev gcc, and pip install gssapi",
            ) from None
        return folder
    return None


def shifted_clock(seconds: int) -> dict[str, str]:
    """Return what makes a process, by its environment, believe that it is later by so many seconds."""
    (library,) = _packages().glob("usr/lib/*/faketime/libfaketime.so.1")
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _packages() -> Path:
    return unpacked("kerberos", "KDC", _PACKAGES)
