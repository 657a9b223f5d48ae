"""TLS for the HTTPS server; changed certificate files are loaded without a restart."""

import asyncio
import datetime
import ssl
from collections.abc import Sequence

import structlog

from dray.runtime.certificates import Issued, expires_at, problem
from dray_webhook.service.certificates import RENEW_BEFORE, Certificates

_LOOK_S = 10.0


class ServerTls:
    """A TLS context. New connections get the newest certificate that can be used."""

    def __init__(self, files: Certificates, names: Sequence[str]) -> None:
        self._files = files
        self._names = tuple(names)
        self._held = self._served = files.read()
        self._refused = ""
        self.context = self._newest = self._load(self._held)
        self.context.sni_callback = self._use_newest

    @property
    def expires_at(self) -> datetime.datetime:
        """When the certificate that is served expires."""
        return expires_at(self._served.certificate)

    @property
    def problem(self) -> str | None:
        """The problem that an administrator must solve, or None."""
        return self.problem_at(datetime.datetime.now(datetime.UTC))

    def problem_at(self, now: datetime.datetime) -> str | None:
        """The problem at that time: files that can't be used, else a certificate that expires
        within RENEW_BEFORE."""
        if self._refused:
            return self._refused
        left = self.expires_at - now
        if left > RENEW_BEFORE:
            return None
        when = f"{self.expires_at:%Y-%m-%d %H:%M} UTC"
        state = (
            f"expires in {left.days} days, at {when}" if left.days >= 0 else f"expired at {when}"
        )
        return f"{self._files.certificate} {state}; replace it: it is loaded without a restart"

    async def run(self) -> None:
        """Follow the files until cancelled."""
        logged = None
        while True:
            self.reload()
            # Without the days that are left: they would cause a log line each day.
            if (state := (self._refused, self.expires_at, bool(self.problem))) != logged:
                logged = state
                if found := self.problem:
                    structlog.get_logger().warning("certificate", problem=found)
            await asyncio.sleep(_LOOK_S)

    def reload(self) -> None:
        """Load the files if they have changed and can be used; else the loaded ones stay."""
        try:
            found = self._files.read()
            if found == self._held:
                return
            wrong = problem(found, self._names, at=datetime.datetime.now(datetime.UTC))
            if not wrong:
                self._newest = self._load(found)
        except (OSError, ValueError) as error:
            self._refused = f"{self._files.certificate} or a file next to it can't be used: {error}"
            return
        # Files that are just being replaced do not belong together; they are read again then.
        self._held = found
        self._refused = f"the new {self._files.certificate} {wrong}; replace it" if wrong else ""

    def _load(self, issued: Issued) -> ssl.SSLContext:
        """A new context: a context that fails to load a certificate loses its old one.

        Raises OSError, including ssl.SSLError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._files.certificate, self._files.key)
        self._served = issued
        structlog.get_logger().info("certificate loaded", expires_at=self.expires_at.isoformat())
        return context

    def _use_newest(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Called for each connection, with and without a server name."""
        connection.context = self._newest
