"""What goes wrong on the way to a hub, in one line: what was found and the next step."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engine.records.errors import InputError

GIB = 2**30
Kind = Literal["unreachable", "incomplete", "token", "access", "missing", "limit", "server", "disk", "storage", "other"]
_KINDS = {"model": "model", "dataset": "data set"}


class Failure(NamedTuple):
    """kind `unreachable`: `found` is only the reason, to be put in brackets; of the others it is a sentence."""

    kind: Kind
    found: str
    next_step: str | None = None


def hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's clients raise. The storage layer's errors are plain RuntimeErrors."""
    from huggingface_hub.errors import HTTPError

    return (OSError, ValueError, RuntimeError, HTTPError)


def model_failure(model_id: str, error: Exception, revision: str | None = None, *, partly: bool = False) -> InputError:
    """The line for a model that was neither a local folder nor could be had from the hub.
    partly: a part of it is in the local cache."""
    failure = explain(error, model_id, revision=revision)
    kind, found, next_step = _incomplete(model_id, failure) if partly and failure.kind == "unreachable" else failure
    otherwise = "give a model folder, or `demo` for the shipped model"
    if kind == "unreachable":
        found = (
            f"there is no local folder {model_id}, and as a Hugging Face model it is neither in the local cache nor "
            f"can the hub be reached ({found})"
        )
        next_step = f"{next_step}, or {otherwise}" if next_step else otherwise
    return InputError(f"{found}; {next_step or otherwise}")


def explain(error: Exception, repo_id: str, *, repo_type: str = "model", revision: str | None = None) -> Failure:
    """The failure behind an error of huggingface_hub, of its HTTP client or of the storage layer."""
    chain = list(_chain(error))
    answer = failed_answer(error)
    if any("HF_HUB_OFFLINE" in str(one) for one in chain) or _named(chain, "OfflineModeIsEnabled"):
        failure = Failure("unreachable", "HF_HUB_OFFLINE is set")
    elif answer is not None:
        failure = _answered(answer, repo_id, repo_type, revision)
    else:
        failure = _full(chain) or _storage_layer(chain) or _line(chain) or _closed(chain) or _rest(error, repo_id)
    return _incomplete(repo_id, failure) if _named(chain, "IncompleteSnapshotError") else failure


def push_failure(repo_id: str, error: Exception) -> InputError:
    """The line for a data set that could not be written."""
    answer, token, page = failed_answer(error), token_source(), page_of(repo_id, "dataset")
    status = _status(answer) if answer is not None else None
    sentence = _sentence(answer) if answer is not None else ""
    quoted = f' (the hub: "{sentence}")' if sentence else ""
    if status == 401:
        line = f"the hub does not accept the token from {token}{quoted}"
        step = "make one that may write (Settings, Access Tokens, on the hub's site) and set HF_TOKEN"
    elif status == 403:
        line = f"the token from {token} may not write to {repo_id}{quoted}"
        step = "give one with the right to write, or a name of your own with --to"
    elif status in (409, 412):
        line = f"{repo_id} was made or changed by somebody else meanwhile{quoted}"
        step = f"look at {page}, and push again or give another name with --to"
    else:
        why = explain(error, repo_id, repo_type="dataset")
        reason = f"the hub cannot be reached ({why.found})" if why.kind == "unreachable" else why.found
        reason = re.sub(rf"^{re.escape(repo_id)}(?: cannot be fetched)?: ", "", reason)
        line = f"{repo_id} was not pushed: {reason}"
        first = why.next_step if why.kind in ("unreachable", "limit") else None
        step = f"{first}, then push again" if first else "push again"
    return InputError(f"{line}; {step}")


def disk_full(needed: int | None = None, what: str = "the files") -> Failure:
    """The failure of a disk that cannot hold a download. needed: bytes, where that is known."""
    folder, free = free_bytes()
    wanted = f"{what} need {needed / GIB:.2f} GiB, and " if needed is not None else "the disk is full: "
    shortage = f"{wanted}{folder} has {free / GIB:.2f} GiB free"
    return Failure("disk", shortage, "make room, or keep the hub's files on another disk: HF_HOME=FOLDER")


def free_bytes() -> tuple[Path, int]:
    """The folder of the hub's cache and the bytes that are free there."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).expanduser()
    existing = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    return folder, shutil.disk_usage(existing).free


def token_source() -> str | None:
    """Where the token that is sent comes from, None where there is none."""
    from huggingface_hub import get_token

    if get_token() is None:
        return None
    named = next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if os.environ.get(name)), None)
    return named or "`hf auth login`"


def page_of(repo_id: str, repo_type: str = "model") -> str:
    """The address of a repository's page."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{'datasets/' if repo_type == 'dataset' else ''}{repo_id}"


def _answered(error: Any, repo_id: str, repo_type: str, revision: str | None) -> Failure:
    """The hub, or a host that it named, answered with an error."""
    from huggingface_hub import errors

    status, headers, said = _status(error), error.response.headers, _sentence(error)
    token, page, kind = token_source(), page_of(repo_id, repo_type), _KINDS[repo_type]
    quoted = f' (the hub: "{said}")' if said else ""
    log_in = "run `hf auth login` or set HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return Failure("missing", f"{repo_id} has no revision {revision!r}", "give a branch, a tag or a full commit")
    if isinstance(error, errors.GatedRepoError):
        if token is None:
            problem = f"{repo_id} is gated and no token was sent{quoted}"
            return Failure("access", problem, f"accept its terms on {page}, {log_in}, and try again")
        return Failure(
            "access",
            f"{repo_id} is gated and the token from {token} has no access{quoted}",
            f"ask for access on {page}; where it was granted, give a token of that account that may read gated "
            f"repositories: {log_in}",
        )
    if isinstance(error, errors.DisabledRepoError):
        return Failure("missing", f"the hub has disabled {repo_id}{quoted}", f"give a local copy or another {kind}")
    # A 401 to somebody who sent a token is about that, unless the hub says that it is about the repository.
    refused = token is not None and not headers.get("X-Error-Code")
    if status == 401 and (re.search(r"credential|token|expired", said, re.I) or refused):
        from_where = f"the token from {token}" if token else "the token"
        return Failure(
            "token",
            f"the hub does not accept {from_where}{quoted}",
            "make a new one (Settings, Access Tokens, on the hub's site) and set HF_TOKEN or run `hf auth login`; "
            "what is public needs none: unset HF_TOKEN, or run `hf auth logout`",
        )
    if isinstance(error, errors.RepositoryNotFoundError) or (status == 401 and not token):
        whose = f"the token from {token} may see" if token else "you may see"
        private = f"{log_in} for a private one"
        if token:
            private = "for a private one give a token of an account that may read it"
        local = "there is no local folder and no" if repo_type == "model" else "there is no"
        problem = f"{local} Hugging Face {kind} {repo_id} that {whose}"
        return Failure("missing", problem, f"check the spelling, or {private}")
    if isinstance(error, errors.EntryNotFoundError):
        return Failure("missing", f"{repo_id} lacks a file that its listing names{quoted}", f"look at {page}")
    if status == 429:
        seconds = retry_after(headers)
        again = f"; it ends in {seconds} s" if seconds is not None else ""
        more = "" if token else ", or log in for a higher limit: `hf auth login`"
        return Failure("limit", f"{repo_id}: the hub's limit of requests is reached{quoted}{again}", f"wait{more}")
    if status is not None and 300 <= status < 400:
        there = _clean(headers.get("Location", "elsewhere"))
        return Failure("missing", f"{repo_id} has moved to {there}", "give its new name")
    host = address_of(error)[0] or "the Hugging Face hub"
    who = "the Hugging Face hub" if host in page else host
    if status is not None and status >= 500:
        return Failure("server", f"{repo_id}: {who} answered {status}{quoted}", "try later")
    if status in (401, 403):
        rights = f"the rights of the token from {token}" if token else "whether it needs a token"
        problem = f"{repo_id}: {who} answered {status}{quoted}"
        return Failure("access", problem, f"check {rights}, and whether a proxy or firewall blocks {host}")
    return Failure("other", f"{repo_id}: {who} answered {status}{quoted}", f"try later, and look at {page}")


def _full(chain: list[BaseException]) -> Failure | None:
    for one in chain:
        number = one.errno if isinstance(one, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(one):
            return disk_full()
    return None


def _closed(chain: list[BaseException]) -> Failure | None:
    if any(isinstance(one, OSError) and one.errno in (errno.EACCES, errno.EPERM, errno.EROFS) for one in chain):
        folder, _ = free_bytes()
        return Failure("disk", f"the hub's cache {folder} cannot be written", "give a folder of yours: HF_HOME=FOLDER")
    return None


def _storage_layer(chain: list[BaseException]) -> Failure | None:
    """The library of the hub's newer storage raises plain RuntimeErrors, known by their words, and a few classes."""
    for one in chain:
        worded = type(one) is RuntimeError and re.search(
            r"\b(CAS|xet|xorb|reconstruction|Task error)\b", str(one), re.I
        )
        if worded or type(one).__module__.startswith("hf_xet") or _named([one], "XetDownloadError"):
            return Failure(
                "storage",
                f"the hub's storage layer (Xet) failed: {_shortened(str(one))}",
                "try again; where it fails again, do without it: HF_HUB_DISABLE_XET=1",
            )
    return None


def _line(chain: list[BaseException]) -> Failure | None:
    """Failures of the connection, by the names of the HTTP client's classes, which changed their package once."""
    from huggingface_hub import constants

    endpoint = _clean(constants.ENDPOINT)
    network = "check the network" if endpoint == "https://huggingface.co" else f"check HF_ENDPOINT={endpoint}"
    for one in chain:
        line = _shortened(str(one))
        if "CERTIFICATE_VERIFY_FAILED" in str(one):
            own = "behind a proxy with a certificate of its own, give it: SSL_CERT_FILE=FILE"
            return Failure("unreachable", f"its certificate is not accepted: {line}", own)
        if _named([one], "ProxyError"):
            return Failure("unreachable", f"the proxy refuses: {line}", "check HTTPS_PROXY and NO_PROXY")
        if _named([one], "TimeoutException", "TimeoutError"):
            return Failure("unreachable", f"it stayed silent: {type(one).__name__}", f"{network}, or try later")
        if _named([one], "RemoteProtocolError", "ReadError") or "Consistency check failed" in str(one):
            again = "run the command again; files that are complete are kept"
            return Failure("server", f"the connection broke: {line}", again)
        if _named([one], "FileMetadataError"):
            return Failure("other", f"{endpoint} does not answer like a hub: {line}", "check HF_ENDPOINT and the proxy")
        if _named([one], "ConnectError", "ConnectionError", "TransportError"):
            return Failure("unreachable", f"{type(one).__name__}: {line}", network)
    return None


def _rest(error: Exception, repo_id: str) -> Failure:
    cause = error.__cause__ or error
    if _named([error], "LocalEntryNotFoundError"):
        return Failure("unreachable", _shortened(str(cause)) or type(cause).__name__)
    problem = f"{repo_id} cannot be fetched: {type(cause).__name__}: {_shortened(str(cause))}"
    return Failure("other", problem, "try again")


def _incomplete(repo_id: str, why: Failure) -> Failure:
    reason = f"the hub cannot be reached ({why.found})" if why.kind == "unreachable" else why.found
    return Failure(
        "incomplete",
        f"the local cache holds only a part of {repo_id}, and {reason}",
        why.next_step or f"go online once: selector-audit fetch {repo_id}",
    )


def retry_after(headers: Any) -> int | None:
    """Seconds until a limit ends, from the headers that state it: `Retry-After`, or `ratelimit: "api";r=0;t=55`."""
    given = str(headers.get("Retry-After") or headers.get("retry-after") or "").strip()
    if given.isdigit():
        return int(given)
    stated = re.search(r"\bt\s*=\s*(\d+)", str(headers.get("ratelimit") or headers.get("RateLimit") or ""))
    return int(stated[1]) if stated else None


def failed_answer(error: BaseException) -> Any | None:
    """The error in a chain of causes that carries the hub's answer, None where none came."""
    return next((one for one in _chain(error) if isinstance(_status(one), int)), None)


def address_of(error: Any) -> tuple[str, str]:
    """Host and path of the question that was answered with an error; empty where they are not known."""
    try:
        url = error.response.request.url
    except (AttributeError, RuntimeError):  # httpx raises a RuntimeError for a response without a request
        return "", ""
    return str(url.host), str(url.path)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _named(chain: list[BaseException], *names: str) -> bool:
    return any(kind.__name__ in names for one in chain for kind in type(one).__mro__)


def _status(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _sentence(error: Any) -> str:
    """The hub's own sentence, if it sent one."""
    message = getattr(error, "server_message", None) or error.response.headers.get("X-Error-Message") or ""
    return _shortened(str(message))


def _shortened(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = _clean(lines[0]) if lines else ""
    return line if len(line) <= 240 else f"{line[:240]}…"


def _clean(text: str) -> str:
    """Addresses without what identifies somebody: user and password of a proxy, the signature of a link."""
    return re.sub(r"(https?://)[^\s/@]+@", r"\1", re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text))
