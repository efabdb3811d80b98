"""llama.cpp's server with a small LLaVA, in its environment, whose package has the server but no program for it.

python llama_cpp_server.py FOLDER GGUF PORT SLOTS TOKENS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import xllamacpp
from gguf_model import convert


def serve(folder: Path, gguf: Path, port: int, slots: int, tokens: int) -> None:
    """Serves a checkpoint until it is killed.

    Args:
        folder: of the checkpoint.
        gguf: folder of what it is converted to.
        port: on loopback.
        slots: captions that are written at a time, the most that `n` may be.
        tokens: of a slot.
    """
    convert(folder, gguf)
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.mmproj.path = str(gguf / "model.gguf"), str(gguf / "mmproj.gguf")
    settings.model_alias = {folder.name}
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_parallel, settings.n_ctx = slots, slots * tokens
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it is in half precision
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
