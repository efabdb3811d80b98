"""A Hub on the loopback interface: enough of the Hub's HTTP API for the real huggingface_hub and datasets clients."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from huggingface_hub import constants

from tests.toys.loopback_http import send, serving

_CALLS = "revision|tree|paths-info|preupload|commit|commits|branch"
_API = re.compile(rf"^/api/(models|datasets)/([^/]+/[^/]+)(?:/({_CALLS})/(.+))?$")
_RESOLVE = re.compile(r"^/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")
_LFS_BATCH = re.compile(r"^/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch$")
_Answer: TypeAlias = "tuple[int, dict[str, str], bytes]"  # status, headers, body
_DATE = "2024-01-01T00:00:00.000Z"
# What the Hub stores as large files, whatever their size; so a push goes through the LFS calls.
_LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".parquet")


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class _Repo:
    """Commits of one repository, each {path: content}; `refs` names the newest commit of each branch."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def commit(self, files: dict[str, bytes], branch: str) -> str:
        listing = json.dumps([len(self.commits), sorted((path, _git_oid(data)) for path, data in files.items())])
        sha = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[sha] = files
        self.refs[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)


class LoopbackHub:
    """Repositories held in memory and the requests that were made.

    Args:
        token: when given, pushes and whoami without this bearer token are refused with 401, as the Hub does.

    Attributes:
        role: what the token may do, as whoami tells it: write or read.
        closed: organisations in which the token may not create a repository.

    Example:
        with loopback_hub() as hub:
            hub.add_repo("owner/name", {"config.json": b"{}"})
            huggingface_hub.snapshot_download("owner/name", endpoint=hub.endpoint)
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.role = "write"
        self.closed: set[str] = set()
        self.endpoint = ""
        self.requests: list[tuple[str, str]] = []
        self._repos: dict[tuple[str, str], _Repo] = {}
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def add_repo(self, repo_id: str, files: Mapping[str, bytes | Path], *, kind: str = "models") -> str:
        """Creates a repository with one commit on `main`, or adds a commit; gives the commit's hash."""
        contents = {path: data if isinstance(data, bytes) else data.read_bytes() for path, data in files.items()}
        with self._lock:
            return self._repos.setdefault((kind, repo_id), _Repo()).commit(contents, "main")

    def add_folder(self, repo_id: str, folder: Path, *, kind: str = "models") -> str:
        """`add_repo` with every file below a folder."""
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        return self.add_repo(repo_id, files, kind=kind)

    def files(self, repo_id: str, *, kind: str = "models", revision: str = "main") -> dict[str, bytes]:
        """Contents of a repository at a revision."""
        repo = self._repos[(kind, repo_id)]
        return repo.commits[repo.refs.get(revision, revision)]

    def point_client(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        """Sends the Hub client of this process here until the test ends, with a cache that no other test has filled."""
        import datasets

        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", self.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        template = self.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    def reply(self, handler: BaseHTTPRequestHandler, sent: bytes) -> None:
        status, headers, body = self._answer(handler.command, handler.path, handler.headers, sent)  # type: ignore[arg-type]
        send(handler, body, status, **headers)

    # What follows answers the HTTP calls: each gives (status, headers, body).

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        url = urlsplit(target)
        path = unquote(url.path)
        with self._lock:
            self.requests.append((method, path))
            # POST /paths-info reads, and PUT goes to links that are signed on the Hub, so neither carries the token.
            guarded = path == "/api/whoami-v2" or (method == "POST" and "/paths-info/" not in path)
            if guarded and self.token and headers.get("Authorization") != f"Bearer {self.token}":
                return self._error(401, "", "Invalid credentials")
            if path == "/api/repos/create":
                return self._create(json.loads(body))
            if path == "/api/validate-yaml":
                return self._json({"errors": [], "warnings": []})
            if path == "/api/whoami-v2":
                key = {"displayName": "test", "role": self.role}
                return self._json({"name": "tester", "type": "user", "orgs": [], "auth": {"accessToken": key}})
            if match := _LFS_BATCH.match(path):
                return self._lfs_batch(json.loads(body))
            if path.startswith("/lfs/") and method == "PUT":
                return self._lfs_put(path.removeprefix("/lfs/"), body)
            if match := _API.match(path):
                return self._api(method, match, parse_qs(url.query), body)
            if match := _RESOLVE.match(path):
                kind = "datasets" if match[1] else "models"
                return self._resolve(kind, match[2], match[3], match[4], headers.get("Range"))
        return self._error(404, "", f"the loopback Hub has no answer for {method} {path}")

    def _create(self, payload: dict[str, Any]) -> _Answer:
        kind = {"dataset": "datasets"}.get(payload.get("type") or "model", "models")
        repo_id = f"{payload.get('organization') or 'tester'}/{payload['name']}"
        url = f"{self.endpoint}/{'datasets/' if kind == 'datasets' else ''}{repo_id}"
        if repo_id.partition("/")[0] in self.closed:
            return self._error(403, "", "You don't have the rights to create a model under this namespace")
        if (kind, repo_id) in self._repos:
            return self._json({"error": "You already created this repo", "url": url}, 409)
        self._repos[(kind, repo_id)] = _Repo(
            private=bool(payload.get("private")) or payload.get("visibility") == "private"
        )
        self._repos[(kind, repo_id)].commit({".gitattributes": b""}, "main")
        return self._json({"url": url, "name": repo_id, "id": repo_id})

    def _api(self, method: str, match: re.Match[str], query: dict[str, list[str]], body: bytes) -> _Answer:
        kind, repo_id, call, rest = match[1], match[2], match[3], match[4] or ""
        repo = self._repos.get((kind, repo_id))
        if repo is None:
            return self._error(404, "RepoNotFound", "Repository not found")
        revision, _, folder = rest.partition("/")
        if call == "branch":
            repo.refs[rest] = repo.refs["main"]
            return self._json({})
        sha = repo.resolve(revision or "main")
        if sha is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = repo.commits[sha]
        if call in (None, "revision"):
            siblings = [{"rfilename": path} for path in sorted(files)]
            facts = {"id": repo_id, "modelId": repo_id, "sha": sha, "siblings": siblings, "lastModified": _DATE}
            return self._json(
                {**facts, "private": repo.private, "gated": False, "tags": [], "downloads": 0, "likes": 0}
            )
        if call == "tree":
            return self._tree(files, folder, recursive=query.get("recursive", ["false"])[0].lower() in ("true", "1"))
        if call == "paths-info":
            form = json.loads(body) if body[:1] == b"{" else parse_qs(body.decode())
            wanted = form.get("paths", [])
            entries = [self._entry(path, files[path]) for path in wanted if path in files]
            folders = [path for path in wanted if any(name.startswith(path.rstrip("/") + "/") for name in files)]
            return self._json(entries + [{"type": "directory", "path": path, "oid": sha} for path in folders])
        if call == "commits":
            return self._json([{"id": sha, "authors": [], "date": _DATE, "title": "commit", "message": ""}])
        if call == "preupload":
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(_LFS_SUFFIXES) else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self._json({"files": modes})
        return self._commit(repo_id, repo, revision, dict(files), body)

    def _commit(self, repo_id: str, repo: _Repo, branch: str, files: dict[str, bytes], body: bytes) -> _Answer:
        for line in body.splitlines():
            operation = json.loads(line)
            key, value = operation["key"], operation["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                if value["oid"] not in self._blobs:
                    return self._error(400, "", f"LFS object {value['oid']} was never uploaded")
                files[value["path"]] = self._blobs[value["oid"]]
            elif key == "deletedFile":
                files.pop(value["path"], None)
        sha = repo.commit(files, branch)
        return self._json({"success": True, "commitOid": sha, "commitUrl": f"{self.endpoint}/{repo_id}/commit/{sha}"})

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _git_oid(content)}
        if path.endswith(_LFS_SUFFIXES):
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return entry

    def _tree(self, files: dict[str, bytes], folder: str, *, recursive: bool) -> _Answer:
        prefix = folder.rstrip("/") + "/" if folder else ""
        entries: dict[str, dict[str, Any]] = {}
        for path, content in sorted(files.items()):
            if not path.startswith(prefix):
                continue
            parts = path.removeprefix(prefix).split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                name = prefix + "/".join(parts[:depth])
                entries[name] = {"type": "directory", "path": name, "size": 0, "oid": _git_oid(name.encode())}
            if recursive or len(parts) == 1:
                entries[path] = self._entry(path, content)
        if prefix and not entries:
            return self._error(404, "EntryNotFound", f"no folder {folder}")
        return self._json(list(entries.values()))

    def _resolve(self, kind: str, repo_id: str, revision: str, path: str, span: str | None) -> _Answer:
        repo = self._repos.get((kind, repo_id))
        if repo is None:
            return self._error(404, "RepoNotFound", "Repository not found")
        sha = repo.resolve(revision)
        if sha is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        content = repo.commits[sha].get(path)
        if content is None:
            return self._error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": sha})
        etag = hashlib.sha256(content).hexdigest() if path.endswith(_LFS_SUFFIXES) else _git_oid(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if span and (match := re.fullmatch(r"bytes=(\d+)-(\d*)", span)):
            start, stop = int(match[1]), min(int(match[2] or len(content) - 1), len(content) - 1)
            if start > stop:
                return 416, {**headers, "Content-Range": f"bytes */{len(content)}"}, b""
            headers["Content-Range"] = f"bytes {start}-{stop}/{len(content)}"
            return 206, headers, content[start : stop + 1]
        return 200, headers, content

    def _lfs_batch(self, payload: dict[str, Any]) -> _Answer:
        objects = []
        for item in payload["objects"]:
            answer = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in self._blobs:
                answer["actions"] = {"upload": {"href": f"{self.endpoint}/lfs/{item['oid']}"}}
            objects.append(answer)
        return self._json({"transfer": "basic", "objects": objects})

    def _lfs_put(self, oid: str, body: bytes) -> _Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._error(400, "", "content does not match its oid")
        self._blobs[oid] = body
        return 200, {}, b""

    def _json(self, value: Any, status: int = 200) -> _Answer:
        return status, {}, json.dumps(value).encode()

    def _error(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> _Answer:
        extra = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}
        return status, extra, json.dumps({"error": message}).encode()


@contextmanager
def loopback_hub(token: str | None = None) -> Iterator[LoopbackHub]:
    """Runs a LoopbackHub on a free port of 127.0.0.1 in a thread of this process, until the block ends."""
    hub = LoopbackHub(token)
    with serving(hub.reply) as hub.endpoint:
        yield hub
