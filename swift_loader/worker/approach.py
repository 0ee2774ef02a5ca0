"""How a porter gets to its server: it tries until it is let in, or until nobody is left who could do the work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from swift_loader.errors import ConfigError, PeerError, PeerLost, ProtocolMismatch
from swift_loader.net import schema
from swift_loader.net.address import Address, parse
from swift_loader.net.dial import dial
from swift_loader.net.frames import Limits
from swift_loader.net.greeting import Attempts, Refusal, greeted
from swift_loader.net.keys import read_key
from swift_loader.net.link import Link, LinkLost, LinkRefused
from swift_loader.net.receiver import Place, Receiver, fresh
from swift_loader.wire.remote_samples import RemoteSamples

_FIRST_PAUSE_S = 0.03
#: For so long a server may serve something else while no other answers: all of them may be started anew one by one.
_LEFT_OUT_S = 10.0


class Approach:
    """To one of the servers of a loader.

    Args:
        samples: All of them, and what they must serve.
        address: Which it is.
        consumer: For whom.
        limits: What may come from it.
        tell: Has the user read something.
    """

    def __init__(
        self, samples: RemoteSamples, address: Address, consumer: int, limits: Limits, tell: Callable[[str], None]
    ) -> None:
        self._samples = samples
        self._address = address
        self._limits = limits
        self._tell = tell
        self._hello = schema.hello(
            "loader", consumer=consumer, loader=samples.loader, hwm=samples.width, most_nbytes=limits.bulk_nbytes,
            takes_files=bool(address.path),
        )  # fmt: skip
        self._attempts = Attempts(_FIRST_PAUSE_S)
        self._is_left_out = False
        """It serves something else, and the user was told so;"""
        self._looked_s = 0.0
        """then it was looked last whether others serve."""

    def connected(self, place: Place, goes_on: Callable[[], bool]) -> tuple[Link, Receiver]:
        """A connection, for as long as it takes.

        Args:
            place: Where bulks are to lie.
            goes_on: Called before each attempt: whether to make it.

        Raises:
            PeerError: if there will be none.
        """
        while goes_on():
            try:
                return self._greeted(self._address, place)
            except LinkRefused as error:
                if not self._attempts.is_refused():
                    continue
                self._leave_out(self._lost(f"does not let this loader in: {error}. Both must have the same key"))
            except PeerError as error:
                self._leave_out(error)
            except LinkLost as lost:
                self._be_patient(str(lost))
            self._attempts.pause()
        raise self._lost("was not waited for any longer")

    def _greeted(self, address: Address, place: Place = fresh) -> tuple[Link, Receiver]:
        link = dial(address, None if self._samples.key is None else read_key(self._samples.key))
        link.takes_files = bool(address.path)
        try:
            receiver, welcome = greeted(link, self._hello, self._limits, place)
            if welcome.loader != self._samples.loader:
                raise ProtocolMismatch(f"{address} serves another loader than this one was connected to")
        except Refusal as refusal:
            link.close()
            kind = ProtocolMismatch if refusal.why in ("version", "loader") else PeerLost
            raise kind(f"{address}: {refusal}") from refusal
        except BaseException:
            link.close()
            raise
        return link, receiver

    def _be_patient(self, why: str) -> None:
        """Nobody answers there: it is tried again, for as long as another does, or might."""
        if self._attempts.is_to_be_told():
            self._tell(f"the server at {self._address} does not answer: {why}. It is tried again and again")
        waited_s = self._attempts.waited_s
        if waited_s > self._samples.wait_s and not self._others_serve():
            raise self._lost(f"has not answered for {waited_s:.0f} s, nor has any other: {why}")

    def _leave_out(self, error: PeerError) -> None:
        """It was started with other data, or another key: others go on without it until that has changed."""
        if len(self._samples.servers) == 1:
            raise error
        if not self._is_left_out:
            self._is_left_out = True
            self._tell(f"{error}. It is left out, as long as another server goes on")
        if self._attempts.waited_s - self._looked_s > _LEFT_OUT_S:
            if not self._others_serve():
                raise error
            self._looked_s = self._attempts.waited_s

    def _others_serve(self) -> bool:
        for text in self._samples.servers:
            if (address := parse(text)) != self._address:
                with contextlib.suppress(LinkLost, PeerError, ConfigError):
                    self._greeted(address)[0].close()
                    return True
        return False

    def _lost(self, what: str) -> PeerLost:
        error = PeerLost(f"the server at {self._address} {what}")
        error.peer = str(self._address)
        return error
