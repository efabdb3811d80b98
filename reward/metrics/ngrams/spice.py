"""SPICE of single captions, by the Java program of pycocoevalcap and models that are installed by hand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward.errors import CapRewardError, MissingExtraError
from reward.metrics.ngrams import SPICE
from reward.metrics.ngrams.java import run_java
from reward.metrics.ngrams.scorer import NgramScorer, Words
from reward.optional import require


class SpiceScorer(NgramScorer):
    """F1 of the objects, attributes and relations that a parser finds in the caption and in its references.

    The models of the parser must be installed by hand: unlike the package, this class downloads nothing. It has been
    tested with a stand-in for the program, not with the real models.

    Raises:
        MissingExtraError: the package, Java or the models are missing; the message says where to put them.
    """

    spec = SPICE

    def __init__(self) -> None:
        super().__init__()
        package = require("pycocoevalcap.spice.get_stanford_models", extra="ngrams", purpose=self._purpose)
        folder = Path(package.__file__ or "").parent
        library = folder / package.SPICELIB
        jars = [f"{package.JAR}.jar", f"{package.JAR}-models.jar"]
        missing = [name for name in jars if not (library / name).is_file()]
        if missing:
            raise MissingExtraError(
                f"{self._purpose} needs {' and '.join(missing)} in {library}. They are part of "
                f"{package.CORENLP}.zip, which the Stanford NLP group gives away (some 400 MB): unpack it and copy "
                "them there, or let `python -m pycocoevalcap.spice.get_stanford_models` download and copy them"
            )

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """SPICE of each caption."""
        package = require("pycocoevalcap.spice.spice", extra="ngrams", purpose=self._purpose)
        questions: list[dict[str, Any]] = []
        for candidates, references in items:
            for candidate in candidates:
                questions.append({"image_id": len(questions), "test": candidate, "refs": list(references)})
        with tempfile.TemporaryDirectory() as name:
            captions_file, scores_file = Path(name) / "captions.json", Path(name) / "scores.json"
            captions_file.write_text(json.dumps(questions), encoding="utf-8")
            # The program writes a file, and says more than scores on its standard output.
            arguments = ["-Xmx8G", "-jar", package.SPICE_JAR, str(captions_file), "-out", str(scores_file), "-silent"]
            run_java(arguments, "", purpose=self._purpose, folder=Path(package.__file__ or "").parent)
            rows = json.loads(scores_file.read_text("utf-8"))
        scores = {int(row["image_id"]): row["scores"]["All"]["f"] for row in rows}
        if sorted(scores) != list(range(len(questions))):
            raise CapRewardError(f"{self._purpose}: {len(scores)} scores came back for {len(questions)} captions")
        # The program may answer in another order.
        return [float(scores[number]) for number in range(len(questions))]
