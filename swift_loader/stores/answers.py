"""What a store's refusal means, and how it is told: without its body, its address and what signs it. Pure."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """Sorts of trouble, by what helps."""

    MISSING = "there is no such object"
    REFUSED = "the store lets us not in (403): look at the keys, and at what they may do"
    EXPIRED = "the store's keys have expired, and there are no newer ones"
    CHANGED = "the object has been changed under us: it is not the one that was read before"
    EXISTS = "there is an object of that name already"
    LATER = "the store does not answer"
    SILENT = "the store takes requests, and does not answer"
    NOWHERE = "there is no host of that name: look at the endpoint"
    CUT = "the store's answer ends before its end"
    ODD = "the store gives other bytes than were asked for"
    CERTIFICATE = "the server's certificate is not one that is trusted for its name"
    ELSEWHERE = "the store sends us elsewhere: look at the endpoint and the region"
    UNSUPPORTED = "the store cannot do that"
    WRONG = "the store does not understand the request"


class Trouble(NamedTuple):
    """What has become of a request."""

    kind: Kind
    status: int | None
    """What the server said, if it said something."""

    def sentence(self) -> str:
        """For people."""
        said = f" (it says {self.status})" if self.status and str(self.status) not in self.kind.value else ""
        return f"{self.kind.value}{said}"


_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3}),")
_EXPIRED = re.compile(r"Expired_?Token|TokenRefreshRequired|RequestExpired|InvalidToken", re.IGNORECASE)
_BY_TYPE = {
    "FileNotFoundError": Kind.MISSING,
    "NotFoundError": Kind.MISSING,
    "AlreadyExistsError": Kind.EXISTS,
    "PreconditionError": Kind.CHANGED,
    "PermissionDeniedError": Kind.REFUSED,
    "UnauthenticatedError": Kind.REFUSED,
    "NotSupportedError": Kind.UNSUPPORTED,
}
_BY_STATUS = {
    401: Kind.REFUSED,
    403: Kind.REFUSED,
    404: Kind.MISSING,
    408: Kind.LATER,
    412: Kind.CHANGED,
    416: Kind.CHANGED,
    425: Kind.LATER,
    429: Kind.LATER,
    501: Kind.UNSUPPORTED,
}
_BY_WORDS = (
    ("InvalidCertificate", Kind.CERTIFICATE),
    ("UnknownIssuer", Kind.CERTIFICATE),
    ("redirect", Kind.ELSEWHERE),
    ("dns error", Kind.NOWHERE),
    ("response body", Kind.CUT),
    ("NotPartial", Kind.ODD),
    ("UnexpectedRange", Kind.ODD),
    ("non-partial response", Kind.ODD),
    ("InvalidRangeRequest", Kind.CHANGED),
)


def told(type_name: str, text: str) -> Trouble:
    """What an error of the client means, by its type and all of its text.

    Example:
        >>> told("GenericError", "Server returned non-2xx status code: 503 Service Unavailable: ...").kind
        <Kind.LATER: 'the store does not answer'>
    """
    found = _STATUS.search(text)
    status = int(found[1] or found[2]) if found else None
    if status in (400, 401, 403) and _EXPIRED.search(text):
        return Trouble(Kind.EXPIRED, status)
    if type_name in _BY_TYPE:
        return Trouble(_BY_TYPE[type_name], status)
    if status is not None:
        other = Kind.LATER if status >= 500 else Kind.WRONG
        return Trouble(_BY_STATUS.get(status, other), status)
    for words, kind in _BY_WORDS:
        if words in text:
            return Trouble(kind, None)
    return Trouble(Kind.LATER, None)
