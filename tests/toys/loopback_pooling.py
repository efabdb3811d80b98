"""Pooling endpoints as vLLM has them, on the loopback interface, around tiny models of other libraries."""

import torch

from tests.toys.loopback_judge import LoopbackJudge, with_image


class LoopbackReranker(LoopbackJudge):
    """`/v1/rerank` around a CrossEncoder of sentence-transformers, by its own `predict`."""

    def __init__(self, model, processor=None, *, key=None):
        super().__init__(model, processor, key=key)
        self.path = "/v1/rerank"

    def complete(self, body):
        query = body["query"]
        if not isinstance(query, str):
            query = with_image(query["content"][0])["image"]
        activations = {None: self.model.activation_fn, True: torch.nn.Sigmoid(), False: torch.nn.Identity()}
        pairs = [(query, document) for document in body["documents"]]
        options = {"activation_fn": activations[body.get("use_activation")], "prompt": body.get("instruction")}
        with self._model_lock:
            scores = self.model.predict(pairs, show_progress_bar=False, **options).tolist()
        results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
        results.sort(key=lambda result: -result["relevance_score"])
        return {"id": "rerank-1", "model": body["model"], "usage": {"prompt_tokens": 9}, "results": results}


class LoopbackClassifier(LoopbackJudge):
    """`/classify`, which is not below /v1, around a `...ForSequenceClassification`, by its own forward pass."""

    def __init__(self, model, processor, *, key=None):
        super().__init__(model, processor, key=key)
        self.path = "/classify"

    def complete(self, body):
        assert body["use_activation"] is False
        turns = []
        for message in body["messages"]:
            content = message["content"]
            if hasattr(self.processor, "image_processor"):
                parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                content = [with_image(part) for part in parts]
            turns.append({"role": message["role"], "content": content})
        inputs = self.processor.apply_chat_template(turns, tokenize=True, return_dict=True, return_tensors="pt")
        with self._model_lock, torch.inference_mode():
            numbers = self.model(**inputs).logits[0].tolist()
        data = [{"index": 0, "label": "LABEL_0", "probs": numbers, "num_classes": len(numbers)}]
        return {"id": "classify-1", "object": "list", "model": body["model"], "data": data}


class LoopbackEmbedder(LoopbackJudge):
    """`/v1/embeddings` around a SentenceTransformer, by its own `encode`."""

    def __init__(self, model, processor=None, *, key=None):
        super().__init__(model, processor, key=key)
        self.path = "/v1/embeddings"

    def complete(self, body):
        *system, user = body["messages"]
        prompt = system[0]["content"][0]["text"] if system else None
        [part] = map(with_image, user["content"])
        content = part["image"] if part["type"] == "image" else {"text": part["text"]}
        with self._model_lock:
            embedding = self.model.encode([content], prompt=prompt, show_progress_bar=False)[0].tolist()
        data = [{"index": 0, "object": "embedding", "embedding": embedding}]
        return {"id": "embd-1", "object": "list", "model": body["model"], "data": data}
