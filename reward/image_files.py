"""The file that an image is named by, where data leave out its ending or write its number only."""

from __future__ import annotations

import os

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".JPG", ".JPEG", ".PNG")
_OF_COCO = ("", "COCO_val2014_", "COCO_train2014_", "COCO_test2014_", "COCO_test2015_")


def image_file(path: str | os.PathLike[str]) -> str:
    """The path itself if a file is there, else the file that it means, else the path.

    The ending may be left out, and a path may be written as on Windows. CLIPScore's and CapArena's captions name images
    `image1` and `test_00731`; in COCO's results `391895` is 000000391895.jpg or COCO_val2014_000000391895.jpg.

    Example:
        >>> image_file("absent/391895")
        'absent/391895'
    """
    path = os.fsdecode(path)
    folder, name = os.path.split(path)
    if not name or os.path.exists(path):
        return path
    if "\\" in name and ".." not in name:  # as Windows writes paths; never out of the folder
        path = os.path.join(folder, *filter(None, name.split("\\")))
        folder, name = os.path.split(path)
    if name.lower().endswith(IMAGE_ENDINGS):
        return path
    names = [name, *(f"{before}{int(name):012d}" for before in _OF_COCO)] if name.isdecimal() else [name]
    files = (os.path.join(folder, each + ending) for each in names for ending in IMAGE_ENDINGS)
    return next(filter(os.path.isfile, files), path)
