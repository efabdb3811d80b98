"""Rerankers, reward models and embedding models behind the pooling endpoints of a server such as vLLM's."""

from __future__ import annotations

import math
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from reward.errors import ConfigError
from reward.http_client import GarbledReply, UnusableReply
from reward.judges.chat import QuestionRefused, data_url
from reward.judges.loading import load_judge
from reward.judges.server import ServerJudge
from reward.judges.wording import quoted
from reward.metrics.crossencoder import SPEC as CROSSENCODER
from reward.metrics.embedscore import SPEC as EMBEDSCORE
from reward.metrics.saving import check_longest
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group
from reward.metrics.vlmreward import SPEC as VLMREWARD

if TYPE_CHECKING:
    from typing_extensions import Self

_IMAGES_KEPT = 16  # encoded ones of a call, for other captions of the same image

ImagePart = Callable[[int], dict[str, Any]]  # from the index of a group to its image, as a part of a message


class _Request(NamedTuple):
    """A request: an image, by the index of its group, or a text; and the captions that it is asked about."""

    subject: int | str
    captions: Sequence[str] = ()
    rows: Sequence[int] = ()  # of the captions, in the scores


class PooledScorer(CaptionScorer):
    """Base of the metrics whose model is behind a server.

    Derive, set `spec` and `endpoint`, and write `score_groups`, `_fields` and `_read`. Failures are those of every
    server that is asked, see `ServerJudge`. Texts that are too long for the model are refused by vLLM, and have no
    score; with `extra_body={"truncate_prompt_tokens": -1}` it cuts them without a word.

    Args:
        server: address, model and patience.
        prompt: what the model is told beside image and caption; None is what the server's chat template says.
        max_characters: longer texts are cut and flagged.
    """

    decodes_images = False  # they are when they are sent
    window_size = 256
    endpoint: ClassVar[str]

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

    @abstractmethod
    def _fields(self, request: _Request, image_part: ImagePart) -> dict[str, Any]:
        """The fields of a request, without the model."""

    @abstractmethod
    def _read(self, reply: Any, request: _Request) -> Any:
        """What a reply says; one of another form may raise whatever reading it raises."""

    def _post(self, groups: Sequence[Group], requests: Sequence[_Request]) -> tuple[list[Any], dict[int, Any]]:
        """What the replies say, in order; and {index of a request without a reply: why}."""

        @lru_cache(maxsize=_IMAGES_KEPT)
        def image_part(index: int) -> dict[str, Any]:
            return {"type": "image_url", "image_url": {"url": data_url(groups[index].image)}}  # type: ignore[arg-type]

        def read(reply: Any, request: _Request) -> Any:
            try:
                return self._read(reply, request)
            except (LookupError, TypeError, ValueError) as error:
                raise GarbledReply(f"the reply of {self.endpoint} has another form ({error!r:.80})") from None

        url = self.endpoint
        if url == "/classify":  # not below /v1, as it is none of OpenAI's endpoints
            url = re.sub(r"/v1/?$", "", str(self.server.base_url)) + url
        return self.server.post(url, requests, lambda request: self._fields(request, image_part), read)

    def _text(self, text: str) -> str:
        # The server's tokenizer would take written chat markers for the end of the text.
        return quoted(text.strip()[: self.max_characters], quote=False)

    def _cut(self, groups: Sequence[Group]) -> list[bool]:
        """Of each candidate, whether it or one of its references is cut."""
        cut = []
        for group in groups:
            for candidate in group.rows:
                lengths = [len(text.strip()) for text in (candidate, *group.references)]
                cut.append(max(lengths) > self.max_characters)
        return cut


class PooledCrossEncoder(PooledScorer):
    """A reranker behind `/rerank`: the query is the image, and its captions are the documents of one request.

    Args:
        server, prompt, max_characters: see `PooledScorer`.
        query: `"image"`, or `"references"` for a model that takes no images; the best reference counts.
        activation: `"sigmoid"`, or `"none"` for the bare number, as vLLM knows it; None is what the server does.
    """

    spec = CROSSENCODER
    endpoint = "/rerank"

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
        requests: list[_Request] = []
        count = 0
        for index, group in enumerate(groups):
            captions = [self._text(candidate) for candidate in group.rows]
            rows = range(count, count + len(captions))
            subjects: list[Any] = [index]
            if not self.spec.needs_image:
                subjects = [self._text(reference) for reference in group.references]
            requests += [_Request(subject, captions, rows) for subject in subjects]
            count += len(captions)

        scores = np.full(count, -math.inf)
        errors: dict[int, str] = {}
        while requests:
            replies, failures = self._post(groups, requests)
            refused: list[_Request] = []
            for index, (request, reply) in enumerate(zip(requests, replies, strict=True)):
                if reply is not None:
                    # Of several references the best counts.
                    scores[request.rows] = np.maximum(scores[request.rows], reply)
                elif isinstance(failures[index], QuestionRefused) and len(request.rows) > 1:
                    # One of the captions may be at fault: each is sent alone, so that the others have their scores.
                    for text, row in zip(request.captions, request.rows, strict=True):
                        refused.append(_Request(request.subject, [text], [row]))
                else:
                    errors.update(dict.fromkeys(request.rows, str(failures[index])))
            requests = refused
        return CandidateScores(scores[:, None], self._cut(groups), errors)

    def _fields(self, request: _Request, image_part: ImagePart) -> dict[str, Any]:
        query: Any = request.subject
        if isinstance(query, int):
            query = {"content": [image_part(query)]}
        fields = {"query": query, "documents": list(request.captions)}
        if self.prompt is not None:
            fields["instruction"] = self.prompt
        if self.activation is not None:
            fields["use_activation"] = self.activation == "sigmoid"
        return fields

    def _read(self, reply: Any, request: _Request) -> list[float]:
        """The scores of the captions in their order; a reply lists the best first."""
        scores = {result["index"]: float(result["relevance_score"]) for result in reply["results"]}
        if sorted(scores) != list(range(len(request.captions))):
            raise UnusableReply(f"the server ranks {len(scores)} of {len(request.captions)} captions")
        return [scores[index] for index in range(len(scores))]


class PooledVlmReward(PooledScorer):
    """A reward model behind `/classify`: its bare number for the chat of `prompt`, image and caption.

    The server pools the last token of the chat. A model whose class leaves out the end mark, as it also pads, needs
    `extra_body={"continue_final_message": true}`.

    Args:
        server, max_characters: see `PooledScorer`.
        prompt: what the user says beside the image.
        with_image: False for a language model, which reads the same chat without the image.
    """

    spec = VLMREWARD
    endpoint = "/classify"

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
        chats = []
        for index, group in enumerate(groups):
            chats += [_Request(index, [self._text(candidate)]) for candidate in group.rows]
        replies, failures = self._post(groups, chats)
        scores = [[math.nan if number is None else number] for number in replies]
        return CandidateScores(scores, self._cut(groups), {row: str(problem) for row, problem in failures.items()})

    def _fields(self, request: _Request, image_part: ImagePart) -> dict[str, Any]:
        content: Any = self.prompt
        if self.spec.needs_image:
            content = [image_part(request.subject), {"type": "text", "text": self.prompt}]  # type: ignore[arg-type]
        [caption] = request.captions
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": caption}]
        return {"messages": messages, "use_activation": False}

    def _read(self, reply: Any, request: _Request) -> float:
        [result] = reply["data"]
        numbers = [float(number) for number in result["probs"]]
        if len(numbers) != 1:
            raise UnusableReply(f"the model gives {len(numbers)} numbers a caption; a reward is one number")
        return numbers[0]


class PooledEmbedScore(PooledScorer):
    """An embedding model behind `/embeddings`: the cosine of image and caption, each of which is a chat of its own."""

    spec = EMBEDSCORE
    endpoint = "/embeddings"

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        texts = [[self._text(candidate) for candidate in group.rows] for group in groups]
        # A caption of several images is sent once.
        subjects: list[int | str] = [*range(len(groups)), *dict.fromkeys(text for row in texts for text in row)]
        replies, failures = self._post(groups, [_Request(subject) for subject in subjects])
        embeddings: dict[int | str, Any] = dict(zip(subjects, replies, strict=True))
        problems = {subjects[index]: str(problem) for index, problem in failures.items()}
        scores: list[list[float]] = []
        errors: dict[int, str] = {}
        for index, captions in enumerate(texts):
            for caption in captions:
                problem = problems.get(index) or problems.get(caption)
                cosine = math.nan
                if problem is None:
                    cosine = float(np.clip(embeddings[index] @ embeddings[caption], -1, 1))
                else:
                    errors[len(scores)] = problem
                scores.append([cosine])
        return CandidateScores(scores, self._cut(groups), errors)

    def _fields(self, request: _Request, image_part: ImagePart) -> dict[str, Any]:
        content: dict[str, Any] = {"type": "text", "text": request.subject}
        if isinstance(request.subject, int):
            content = image_part(request.subject)
        messages = [{"role": "user", "content": [content]}]
        if self.prompt is not None:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": self.prompt}]})
        return {"messages": messages, "encoding_format": "float"}

    def _read(self, reply: Any, request: _Request) -> np.ndarray:
        """The embedding of an image or a text, of length 1."""
        [result] = reply["data"]
        embedding = np.array(result["embedding"], dtype=float)
        length = float(np.linalg.norm(embedding))
        if embedding.ndim != 1 or not 0 < length < math.inf:
            raise UnusableReply("the model gives an embedding that has no direction")
        return embedding / length
