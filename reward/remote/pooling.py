"""Rerankers, reward models and embedding models behind the pooling endpoints of a server such as vLLM's."""

from __future__ import annotations

import math
import os
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError
from reward.http_client import GarbledReply, UnusableReply
from reward.judges.chat import Refused, data_url
from reward.judges.loading import load_judge
from reward.judges.server import ServerJudge
from reward.judges.wording import quoted
from reward.metrics.crossencoder import SPEC as CROSSENCODER
from reward.metrics.embedscore import SPEC as EMBEDSCORE
from reward.metrics.saving import check_longest
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group
from reward.metrics.vlmreward import SPEC as VLMREWARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_URLS_KEPT = 16  # encoded images of a call


class PooledScorer(CaptionScorer):
    """Base of the metrics whose model is behind a server: derive, set `spec`, and write `score_groups`.

    Failures are those of every server that is asked, see `ServerJudge`. Texts that are too long for the model are
    refused by vLLM, and have no score; with `extra_body={"truncate_prompt_tokens": -1}` it cuts them without a word.

    Args:
        server: address, model and patience.
        prompt: what the model is told beside image and caption.
        max_characters: longer texts are cut and flagged.
    """

    decodes_images = False  # they are when they are sent
    window_size = 256

    def __init__(self, server: ServerJudge, *, prompt: str | None = None, max_characters: int = 4000) -> None:
        check_longest(max_characters)
        self.server, self.prompt, self.max_characters = server, prompt, max_characters
        self.judges = (server,)  # whoever trains has these wait longer for a server that restarts

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
        concurrency: int | None = None,
        timeout: float | None = None,
        retries: int | None = None,
        extra_body: Any = None,
        **settings: Any,
    ) -> Self:
        """Connects to a server.

        Args:
            source: its address, and a model of it if it has several, as in `"http://localhost:8000/v1#name/model"`.
            revision, dtype: must be None: they are the server's.
            device: has no effect.
            concurrency, timeout, retries, extra_body: see `ServerJudge`.
            settings: keywords of the class; None counts as not given.

        Raises:
            ConfigError: a setting cannot be, or the server has several models and none is named.
            JudgeError: no model is named, and the server does not tell which models it has.
        """
        if revision is not None or dtype is not None:
            raise ConfigError("revision and dtype are the server's: give them where it is started")
        options = {"concurrency": concurrency, "timeout": timeout, "retries": retries, "extra_body": extra_body}
        settings = {name: value for name, value in settings.items() if value is not None}
        server: Any = load_judge(os.fspath(source), **options)
        return cls(server, **settings)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Refuses: the weights are with the server."""
        raise ConfigError("a model behind a server has nothing to save; its weights are with the server")

    @abstractmethod
    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1). How many captions run together is for the server."""

    def _text(self, text: str) -> str:
        # The server's tokenizer would take written chat markers for the end of the text.
        return quoted(text.strip()[: self.max_characters], quote=False)

    def _is_long(self, *texts: str) -> bool:
        return any(len(text.strip()) > self.max_characters for text in texts)


@dataclass(frozen=True)
class _Ranking:
    """A request for the scores of captions.

    Args:
        query: the index of a group whose image it is, or a reference.
        captions: texts.
        rows: of the captions, in the scores.
    """

    query: int | str
    captions: Sequence[str]
    rows: list[int]


class PooledCrossEncoder(PooledScorer):
    """A reranker behind `/rerank`: the query is the image, and its captions are the documents of one request.

    Args:
        server: address, model and patience.
        prompt: the instruction; None is the one of the server's chat template.
        max_characters: longer captions and references are cut and flagged.
        query: `"image"`, or `"references"` for a model that takes no images; the best reference counts.
        activation: `"sigmoid"`, or `"none"` for the bare number, as vLLM knows it; None is what the server does.
    """

    spec = CROSSENCODER

    def __init__(
        self,
        server: ServerJudge,
        *,
        prompt: str | None = None,
        max_characters: int = 4000,
        query: str = "image",
        activation: str | None = None,
    ) -> None:
        super().__init__(server, prompt=prompt, max_characters=max_characters)
        if query not in ("image", "references"):
            raise ConfigError(f"query must be one of image, references, got {query!r:.80}")
        if activation not in (None, "sigmoid", "none"):
            raise ConfigError(f"activation must be one of sigmoid, none, got {activation!r:.80}")
        self.query, self.activation = query, activation
        score_range = (0.0, 1.0) if activation == "sigmoid" else (-math.inf, math.inf)
        self.spec = replace(
            CROSSENCODER, needs_image=query == "image", needs_references=query == "references", range=score_range
        )

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        rankings: list[_Ranking] = []
        cut: list[bool] = []
        for index, group in enumerate(groups):
            captions = [self._text(candidate) for candidate in group.rows]
            rows = list(range(len(cut), len(cut) + len(captions)))
            queries: list[Any] = [index]
            if not self.spec.needs_image:
                queries = [self._text(reference) for reference in group.references]
            rankings += [_Ranking(query, captions, rows) for query in queries]
            cut += [self._is_long(candidate, *group.references) for candidate in group.rows]

        url_of = _image_urls(groups)
        scores = np.full(len(cut), -math.inf)
        errors: dict[int, str] = {}
        while rankings:
            replies, failures = self.server.post(
                "/rerank", rankings, lambda ranking: self._fields(ranking, url_of), _read_scores
            )
            refused: list[_Ranking] = []
            for index, (ranking, reply) in enumerate(zip(rankings, replies, strict=True)):
                problem = failures.get(index)
                if reply is not None:
                    # Of several references the best counts.
                    scores[ranking.rows] = np.maximum(scores[ranking.rows], reply)
                elif isinstance(problem, Refused) and len(ranking.rows) > 1:
                    # One of the captions may be at fault: each is sent alone, so that the others have their scores.
                    for text, row in zip(ranking.captions, ranking.rows, strict=True):
                        refused.append(_Ranking(ranking.query, [text], [row]))
                else:
                    errors.update(dict.fromkeys(ranking.rows, str(problem)))
            rankings = refused
        return CandidateScores(scores[:, None], cut, errors)

    def _fields(self, ranking: _Ranking, url_of: Callable[[int], str]) -> dict[str, Any]:
        query: Any = ranking.query
        if isinstance(query, int):
            query = {"content": [{"type": "image_url", "image_url": {"url": url_of(query)}}]}
        fields = {"query": query, "documents": list(ranking.captions)}
        if self.prompt is not None:
            fields["instruction"] = self.prompt
        if self.activation is not None:
            fields["use_activation"] = self.activation == "sigmoid"
        return fields


class PooledVlmReward(PooledScorer):
    """A reward model behind `/classify`: its bare number for the chat of `prompt`, image and caption.

    The server pools the last token of the chat. A model whose class leaves out the end mark, as it also pads, needs
    `extra_body={"continue_final_message": true}`.

    Args:
        server: address, model and patience.
        prompt: what the user says beside the image.
        max_characters: longer captions are cut and flagged.
        with_image: False for a language model, which reads the same chat without the image.
    """

    spec = VLMREWARD

    def __init__(
        self,
        server: ServerJudge,
        *,
        prompt: str = "Describe the image.",
        max_characters: int = 4000,
        with_image: bool = True,
    ) -> None:
        super().__init__(server, prompt=prompt, max_characters=max_characters)
        if not isinstance(with_image, bool):
            raise ConfigError(f"with_image must be true or false, got {with_image!r:.80}")
        self.spec = replace(VLMREWARD, needs_image=with_image)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        chats: list[tuple[int, str]] = []  # the index of the group, and a caption
        cut: list[bool] = []
        for index, group in enumerate(groups):
            chats += [(index, self._text(candidate)) for candidate in group.rows]
            cut += [self._is_long(candidate) for candidate in group.rows]

        url_of = _image_urls(groups)

        def fields(chat: tuple[int, str]) -> dict[str, Any]:
            index, caption = chat
            content: Any = self.prompt
            if self.spec.needs_image:
                image = {"type": "image_url", "image_url": {"url": url_of(index)}}
                content = [image, {"type": "text", "text": self.prompt}]
            messages = [{"role": "user", "content": content}, {"role": "assistant", "content": caption}]
            return {"messages": messages, "use_activation": False}

        # Not below /v1, as it is none of OpenAI's endpoints.
        url = re.sub(r"/v1/?$", "", str(self.server.base_url)) + "/classify"
        replies, failures = self.server.post(url, chats, fields, _read_number)
        scores = [[math.nan if number is None else number] for number in replies]
        return CandidateScores(scores, cut, {index: str(problem) for index, problem in failures.items()})


class PooledEmbedScore(PooledScorer):
    """An embedding model behind `/embeddings`: the cosine of image and caption, each of which is a chat of its own.

    Args:
        server: address, model and patience.
        prompt: what the system says before image and caption; None is what the server's chat template says.
        max_characters: longer captions are cut and flagged.
    """

    spec = EMBEDSCORE

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        # Images go by the index of their group. A caption of several images is sent once.
        texts = [[self._text(candidate) for candidate in group.rows] for group in groups]
        inputs: list[int | str] = [*range(len(groups)), *dict.fromkeys(text for row in texts for text in row)]
        url_of = _image_urls(groups)

        def fields(image_or_text: int | str) -> dict[str, Any]:
            content: dict[str, Any] = {"type": "text", "text": image_or_text}
            if isinstance(image_or_text, int):
                content = {"type": "image_url", "image_url": {"url": url_of(image_or_text)}}
            messages = [{"role": "user", "content": [content]}]
            if self.prompt is not None:
                messages.insert(0, {"role": "system", "content": [{"type": "text", "text": self.prompt}]})
            return {"messages": messages, "encoding_format": "float"}

        replies, failures = self.server.post("/embeddings", inputs, fields, _read_embedding)
        embeddings: dict[int | str, Any] = dict(zip(inputs, replies, strict=True))
        problems = {inputs[index]: str(problem) for index, problem in failures.items()}
        scores: list[list[float]] = []
        cut: list[bool] = []
        errors: dict[int, str] = {}
        for index, group in enumerate(groups):
            for candidate, text in zip(group.rows, texts[index], strict=True):
                problem = problems.get(index) or problems.get(text)
                cosine = math.nan
                if problem is None:
                    cosine = float(np.clip(embeddings[index] @ embeddings[text], -1, 1))
                else:
                    errors[len(scores)] = problem
                scores.append([cosine])
                cut.append(self._is_long(candidate))
        return CandidateScores(scores, cut, errors)


def _image_urls(groups: Sequence[Group]) -> Callable[[int], str]:
    """Gives the image of a group as text, given its index; those of the last groups are kept for other captions."""

    @lru_cache(maxsize=_URLS_KEPT)
    def url_of(index: int) -> str:
        return data_url(groups[index].image)  # type: ignore[arg-type]

    return url_of


def _read_scores(reply: Any, ranking: _Ranking) -> list[float]:
    """The scores of the captions of a request, in their order; a reply lists the best first."""
    try:
        scores = {result["index"]: float(result["relevance_score"]) for result in reply["results"]}
    except (LookupError, TypeError, ValueError) as error:
        raise GarbledReply(f"the server's reply is no ranking ({error!r:.80})") from None
    if sorted(scores) != list(range(len(ranking.captions))):
        raise UnusableReply(f"the server ranks {len(scores)} of {len(ranking.captions)} captions")
    return [scores[index] for index in range(len(scores))]


def _read_number(reply: Any, chat: tuple[int, str]) -> float:
    """The number that a reward model gives to a chat."""
    try:
        [result] = reply["data"]
        numbers = [float(number) for number in result["probs"]]
    except (LookupError, TypeError, ValueError) as error:
        raise GarbledReply(f"the server's reply is no classification ({error!r:.80})") from None
    if len(numbers) != 1:
        raise UnusableReply(f"the model gives {len(numbers)} numbers a caption; a reward is one number")
    return numbers[0]


def _read_embedding(reply: Any, image_or_text: int | str) -> np.ndarray:
    """The embedding of an image or a text, of length 1."""
    try:
        [result] = reply["data"]
        embedding = np.array(result["embedding"], dtype=float)
        length = float(np.linalg.norm(embedding))
    except (LookupError, TypeError, ValueError) as error:
        raise GarbledReply(f"the server's reply is no embedding ({error!r:.80})") from None
    if embedding.ndim != 1 or not 0 < length < math.inf:
        raise UnusableReply("the model gives an embedding that has no direction")
    return embedding / length
