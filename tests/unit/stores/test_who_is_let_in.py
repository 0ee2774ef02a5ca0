"""Keys reach another process of this user, and nothing that could be written down."""

import io
import os
import pickle
import subprocess
import sys

import pytest

from swift_loader import ConfigError, Secret
from swift_loader.stores.answers import Kind, told
from swift_loader.stores.client import Client
from swift_loader.stores.credentials import Credentials

KEY, MARKER = "AKIAEXAMPLE", "marker-of-a-secret-4711"


def client_with_keys():
    return Client("http://localhost:8333", Credentials.given(KEY, Secret(MARKER), "marker-token"))


def test_nothing_that_is_shown_or_pickled_has_the_secret():
    client = client_with_keys()
    assert MARKER.encode() not in pickle.dumps(client)
    assert (
        "marker"
        not in f"{client!r} {client.name} {client.options()} {client.credentials!r} {client.credentials.keys()}"
    )


def test_another_process_of_this_user_opens_them():
    client = client_with_keys()
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).credentials.keys().secret.reveal())"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(client), stdout=subprocess.PIPE, check=True)
    assert found.stdout.decode().strip() == MARKER


def test_a_child_that_is_forked_has_them():
    client = client_with_keys()
    seen, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, pickle.loads(pickle.dumps(client)).credentials.keys().secret.reveal().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with io.FileIO(seen) as end:
        assert end.read().decode() == MARKER


def test_they_go_with_the_process_that_was_given_them():
    client = client_with_keys()
    gone = subprocess.Popen(["true"])
    gone.wait()
    function, (_, fd, source) = client.credentials.__reduce__()
    with pytest.raises(ConfigError, match="it is gone"):
        function(gone.pid, fd, source)


def test_those_of_the_environment_are_found_again_where_the_process_is_gone(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", MARKER)
    gone = subprocess.Popen(["true"])
    gone.wait()
    function, (_, fd, source) = Credentials.found().__reduce__()
    assert function(gone.pid, fd, source).keys().secret.reveal() == MARKER


def test_a_profile_is_read_anew_each_time(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    credentials = Credentials.found()
    assert credentials.keys() is None
    for secret in ("old", "new"):
        file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {secret}\n")
        assert credentials.keys().secret.reveal() == secret


@pytest.mark.parametrize(
    ("type_name", "text", "kind"),
    [
        ("GenericError", "Server returned non-2xx status code: 503 Service Unavailable: x", Kind.LATER),
        ("GenericError", "HTTP error: error sending request", Kind.LATER),
        ("GenericError", "status code: 400 Bad Request: <Code>ExpiredToken</Code>", Kind.EXPIRED),
        ("PermissionDeniedError", "status code: 403 Forbidden: <Code>ExpiredToken</Code>", Kind.EXPIRED),
        ("PermissionDeniedError", "status code: 403 Forbidden: <Code>AccessDenied</Code>", Kind.REFUSED),
        ("FileNotFoundError", "status code: 404 Not Found", Kind.MISSING),
        ("GenericError", "Received non-partial response when range requested", Kind.ODD),
        ("GenericError", "invalid peer certificate: UnknownIssuer", Kind.CERTIFICATE),
    ],
)
def test_a_refusal_is_told_by_what_helps(type_name, text, kind):
    assert told(type_name, text).kind is kind


@pytest.mark.parametrize("endpoint", ["localhost:8333", "ftp://host", "http://key:secret@host", "http://host?x=1"])
def test_an_address_that_is_none_is_refused(endpoint):
    with pytest.raises(ConfigError) as caught:
        Client(endpoint, Credentials.none())
    assert "secret" not in str(caught.value)
