"""Images in folders that are named for their classes: `photos/oak/1.jpg`, `photos/elm/2.jpg`."""

from __future__ import annotations

from pathlib import Path

from fedquilt.base.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Of the files in a folder, those that are images, by name; what is in them decides how they are read."""


def class_folders(folder: Path) -> tuple[list[str], list[str]]:
    """Return the paths of all images in the folders of a folder, in order, and the names of the folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for path in ("oak/2.jpg", "oak/1.JPG", "elm/3.png", "elm/notes.txt"):
    ...         Path(name, path).parent.mkdir(exist_ok=True)
    ...         Path(name, path).touch()
    ...     class_folders(Path(name))
    (['elm/3.png', 'oak/1.JPG', 'oak/2.jpg'], ['elm', 'oak', 'oak'])
    """
    paths, labels = [], []
    for kind in sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")):
        images = sorted(file.name for file in kind.iterdir() if file.suffix.lower() in ENDINGS)
        if not images:
            raise DataError(f"{kind}: has no images; without a `table`, every subfolder of {folder} is a class")
        paths += [f"{kind.name}/{name}" for name in images]
        labels += [kind.name] * len(images)
    if not paths:
        raise DataError(f"{folder}: has no folders of images; set `table`, or make one subfolder per class")
    return paths, labels
