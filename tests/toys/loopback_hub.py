"""A Hub on the loopback interface: enough of the Hub's HTTP API for the real huggingface_hub and datasets clients."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from huggingface_hub import constants

from tests.toys.loopback_http import send, serving

_API = re.compile(
    r"^/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info|preupload|commit|branch)/(.+))?$"
)
_RESOLVE = re.compile(r"^/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")


def _oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _json(value, status=200):
    return status, {}, json.dumps(value).encode()


def _error(status, code, message):
    return status, {"X-Error-Message": message, "X-Error-Code": code}, json.dumps({"error": message}).encode()


@dataclass
class _Repo:
    """Commits of one repository, each {path: content}; `refs` names the newest commit of each branch."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def commit(self, files, branch="main"):
        listing = json.dumps([len(self.commits), sorted((path, _oid(data)) for path, data in files.items())])
        sha = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[sha] = files
        self.refs[branch] = sha
        return sha


class LoopbackHub:
    """Repositories held in memory and the requests that were made.

    Args:
        token: when given, calls that write without this bearer token are refused with 401, as the Hub does.

    Attributes:
        closed: organisations in which nobody may create a repository.

    Example:
        with loopback_hub() as hub:
            hub.add_repo("owner/name", {"config.json": b"{}"})
            huggingface_hub.snapshot_download("owner/name", endpoint=hub.endpoint)
    """

    def __init__(self, token=None):
        self.token = token
        self.closed = set()
        self.endpoint = ""
        self.requests = []
        self._repos = {}
        self._lock = threading.Lock()

    def add_repo(self, repo_id, files, *, kind="models"):
        """Creates a repository with one commit on `main`, or adds a commit; gives the commit's hash."""
        contents = {path: data if isinstance(data, bytes) else data.read_bytes() for path, data in files.items()}
        with self._lock:
            return self._repos.setdefault((kind, repo_id), _Repo()).commit(contents)

    def add_folder(self, repo_id, folder, *, kind="models"):
        """`add_repo` with every file below a folder."""
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        return self.add_repo(repo_id, files, kind=kind)

    def files(self, repo_id, *, kind="models"):
        """Contents of a repository's main branch."""
        repo = self._repos[(kind, repo_id)]
        return repo.commits[repo.refs["main"]]

    def point_client(self, monkeypatch, cache):
        """Sends the Hub client of this process here until the test ends, with a cache that no other test has filled."""
        import datasets

        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", self.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        template = self.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    def reply(self, handler, sent):
        url = urlsplit(handler.path)
        path = unquote(url.path)
        with self._lock:
            self.requests.append((handler.command, path))
            writes = handler.command == "POST" and "/paths-info/" not in path
            if writes and self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
                answer = _error(401, "", "Invalid credentials")
            elif path == "/api/repos/create":
                answer = self._create(json.loads(sent))
            elif path == "/api/validate-yaml":
                answer = _json({"errors": [], "warnings": []})
            elif match := _API.match(path):
                recursive = parse_qs(url.query).get("recursive", ["false"])[0].lower() in ("true", "1")
                answer = self._call(match, sent, recursive=recursive)
            elif match := _RESOLVE.match(path):
                answer = self._resolve(match, handler.headers.get("Range"))
            else:
                answer = _error(404, "", f"the loopback Hub has no answer for {handler.command} {path}")
        status, headers, body = answer
        send(handler, body, status, **headers)

    def _create(self, payload):
        repo_id = f"{payload.get('organization') or 'tester'}/{payload['name']}"
        facts = {"url": f"{self.endpoint}/{repo_id}", "name": repo_id, "id": repo_id}
        if repo_id.partition("/")[0] in self.closed:
            return _error(403, "", "You don't have the rights to create a model under this namespace")
        if ("models", repo_id) in self._repos:
            return _json({"error": "You already created this repo", **facts}, 409)
        private = bool(payload.get("private")) or payload.get("visibility") == "private"
        self._repos[("models", repo_id)] = _Repo(private=private)
        self._repos[("models", repo_id)].commit({".gitattributes": b""})
        return _json(facts)

    def _call(self, match, body, *, recursive):
        repo, call, rest = self._repos.get((match[1], match[2])), match[3], match[4] or "main"
        if repo is None:
            return _error(404, "RepoNotFound", "Repository not found")
        if call == "branch":
            repo.refs[rest] = repo.refs["main"]
            return _json({})
        revision, _, folder = rest.partition("/")
        sha = repo.refs.get(revision, revision)
        if sha not in repo.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = repo.commits[sha]
        if call == "tree":
            return _tree(files, folder, recursive=recursive)
        if call == "paths-info":
            form = json.loads(body) if body[:1] == b"{" else parse_qs(body.decode())
            return _json([entry for path in form.get("paths", []) for entry in _entries(files, path)])
        if call == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            return _json({"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]})
        if call == "commit":
            operations = [json.loads(line) for line in body.splitlines()]
            sent = [operation["value"] for operation in operations if operation["key"] == "file"]
            sha = repo.commit({**files, **{each["path"]: base64.b64decode(each["content"]) for each in sent}}, revision)
            return _json({"success": True, "commitOid": sha, "commitUrl": f"{self.endpoint}/{match[2]}/commit/{sha}"})
        siblings = [{"rfilename": path} for path in sorted(files)]
        return _json({"id": match[2], "sha": sha, "siblings": siblings, "private": repo.private, "gated": False})

    def _resolve(self, match, span):
        repo = self._repos.get(("datasets" if match[1] else "models", match[2]))
        if repo is None:
            return _error(404, "RepoNotFound", "Repository not found")
        sha = repo.refs.get(match[3], match[3])
        if sha not in repo.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {match[3]}")
        content = repo.commits[sha].get(match[4])
        if content is None:
            status, headers, body = _error(404, "EntryNotFound", "Entry not found")
            return status, {**headers, "X-Repo-Commit": sha}, body
        headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if span and (asked := re.fullmatch(r"bytes=(\d+)-(\d*)", span)):
            start, stop = int(asked[1]), min(int(asked[2] or len(content) - 1), len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{stop}/{len(content)}"
            return 206, headers, content[start : stop + 1]
        return 200, headers, content


def _entries(files, path):
    """What is at a path: a file, a folder or nothing."""
    if path in files:
        return [{"type": "file", "path": path, "size": len(files[path]), "oid": _oid(files[path])}]
    is_folder = any(name.startswith(path.rstrip("/") + "/") for name in files)
    return [{"type": "directory", "path": path, "oid": _oid(path.encode())}] if is_folder else []


def _tree(files, folder, *, recursive):
    prefix = folder.rstrip("/") + "/" if folder else ""
    below = [path.removeprefix(prefix).split("/") for path in sorted(files) if path.startswith(prefix)]
    if prefix and not below:
        return _error(404, "EntryNotFound", f"no folder {folder}")
    depths = [range(1, len(parts) + 1 if recursive else 2) for parts in below]
    paths = [prefix + "/".join(parts[:depth]) for parts, some in zip(below, depths, strict=True) for depth in some]
    return _json([entry for path in dict.fromkeys(paths) for entry in _entries(files, path)])


@contextmanager
def loopback_hub(token=None):
    """Runs a LoopbackHub on a free port of 127.0.0.1 in a thread of this process, until the block ends."""
    hub = LoopbackHub(token)
    with serving(hub.reply) as hub.endpoint:
        yield hub
