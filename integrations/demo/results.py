"""Everything the demo finds out, as plain data: what the tables, the report and figures.json show."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from integrations.demo.agreement import AgreementPart
from integrations.demo.choosing import ChoicePart
from integrations.demo.grpo import GrpoPart
from integrations.demo.offline import OfflinePart

__all__ = ["QUICK", "SEED", "Results", "Sizes"]

SEED = 7  # of all held-out scenes; no model was trained on scenes of this seed


@dataclass(frozen=True)
class Sizes:
    """How much of everything. The defaults take under five minutes on two cores.

    Args:
        samples: rated captions in the comparison of metrics.
        scenes: held-out scenes of best-of-n and GRPO.
        n: candidates of best-of-n.
        steps, prompts, generations: GRPO steps, scenes a step, captions a scene.
        learning_rate: of GRPO.
        samples_judged: sampled captions a held-out scene before and after GRPO.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.
    """

    samples: int = 300
    scenes: int = 48
    n: int = 16
    steps: int = 45
    prompts: int = 8
    generations: int = 8
    learning_rate: float = 3e-4
    samples_judged: int = 2
    max_new_tokens: int = 90
    resamples: int = 1000


QUICK = Sizes(
    samples=24,
    scenes=4,
    n=4,
    steps=2,
    prompts=2,
    generations=2,
    samples_judged=1,
    max_new_tokens=12,
    resamples=50,
)


@dataclass
class Results:
    """What has been found so far; a part that has not run is None.

    Args:
        version: of this package.
        vela, beitscore, captioner: the checkpoints used.
        sizes: see `Sizes`.
        agreement, choice, grpo, offline: the parts.
        seconds: {part: time it took}.
        stopped: the part in which the user stopped the demo, if so.
    """

    version: str
    vela: str
    beitscore: str
    captioner: str
    sizes: Sizes
    agreement: AgreementPart | None = None
    choice: ChoicePart | None = None
    grpo: GrpoPart | None = None
    offline: OfflinePart | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None

    def to_json(self) -> str:
        """All figures as JSON."""
        plain: dict[str, Any] = asdict(self)
        return json.dumps(plain, indent=1)
