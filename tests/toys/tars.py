"""Tar files of tests."""

import io
import tarfile


def write_tar(path, members):
    """Writes a tar of {name: bytes}; names that are no UTF-8 stay as they are."""
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
