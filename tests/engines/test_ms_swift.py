"""ms-swift: GRPO by its own command, with the plugin and the options of docs/FRAMEWORKS.md.

The captioner has learned drawings like these. Its captions get better in 20 steps all the same.
"""

import json
import os
import shlex
import signal
import subprocess
import time

import pytest

from reward.decoding.captioners import EMBEDDED_PROMPT
from reward.scenes import make_dataset
from tests.engines.environments import program
from tests.integrations.frameworks import ROOT, launch, snippet

WEIGHTS = {"vela": 0.7, "unigram": 0.3}
STEPS, EPOCH = 20, 10  # both epochs have the same photos, so that their means can be compared
HERE = {
    "--model_type": "llava1_5_hf",
    "--template": "captioner",
    "--torch_dtype": "float32",
    "--per_device_train_batch_size": "32",
    "--max_completion_length": "90",
    "--max_steps": str(STEPS),
    "--logging_steps": "1",
    "--save_steps": "5",
    "--check_model": "false",  # asks a server on the internet
}
TEMPLATE = """
from swift.template import register_template
from swift.template.templates.llava import LlavaHfTemplate
from swift.template.templates.utils import ChatmlTemplateMeta

class CaptionerTemplate(LlavaHfTemplate):
    def replace_tag(self, media_type, index, inputs):
        return ["<image>"]  # LLaVA has a line break behind it

register_template(ChatmlTemplateMeta("captioner", template_cls=CaptionerTemplate, auto_add_bos=False))
register("unigram")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Drawings with captions, and the plugin."""
    folder = tmp_path_factory.mktemp("ms_swift")
    with (folder / "captions.jsonl").open("w") as file:
        for number, row in enumerate(make_dataset(40, seed=5)):
            row["image"].save(folder / f"{number}.png")
            asked = [{"role": "user", "content": f"<image>{EMBEDDED_PROMPT}"}]
            file.write(json.dumps({"messages": asked, "images": [f"{number}.png"], "references": row["refs"]}) + "\n")
    plugin = snippet("ms-swift", "python").replace("my/checkpoint", "embedded")
    (folder / "captions.py").write_text(plugin + TEMPLATE)
    return folder


class Training:
    """`swift rlhf` in a process of its own, with the options of the docs but for those given."""

    def __init__(self, folder, output, **options):
        command = shlex.split(launch("ms-swift"))[1:]  # without NPROC_PER_NODE
        options_of_docs = zip(command[2::2], command[3::2], strict=True)
        given = {name: value for name, value in options_of_docs if "vllm" not in name} | HERE
        given |= {f"--{name}": str(value) for name, value in options.items()} | {"--output_dir": output}
        words = [word for option in given.items() for word in option]
        words += ["--reward_funcs", *WEIGHTS, "--reward_weights", *map(str, WEIGHTS.values())]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        self.folder, self.output, self.log = folder, output, folder / f"{output}.log"
        self.process = subprocess.Popen(
            [str(program("ms_swift", "swift")), command[1], *words],
            cwd=folder,
            env=environment,
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def logs(self):
        """What was logged, step by step."""
        files = self.folder.glob(f"{self.output}/v*/logging.jsonl")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [line for line in lines if "reward" in line]


def test_full_with_two_rewards_killed_and_resumed(folder, captioner):
    options = {"model": captioner, "tuner_type": "full", "learning_rate": 3e-4}
    killed = Training(folder, "killed", **options)
    while len(killed.logs) < 7:
        assert killed.process.poll() is None, killed.log.read_text()[-3000:]
        time.sleep(0.2)
    os.killpg(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    (checkpoint,) = folder.glob("killed/v*/checkpoint-5")
    resumed = Training(folder, "resumed", **options, resume_from_checkpoint=checkpoint)
    assert resumed.process.wait() == 0, resumed.log.read_text()[-3000:]
    # As if it had never stopped. In later epochs the order of the rows would be another one.
    again, before = ([line["reward"] for line in logs] for logs in (resumed.logs[:2], killed.logs[5:7]))
    print(f"steps 6 and 7: {before} before the kill, {again} after it")
    assert again == pytest.approx(before, abs=1e-4)
    logs = killed.logs[:5] + resumed.logs
    assert len(logs) == STEPS
    for line in logs:
        parts = sum(weight * line[f"rewards/{name}/mean"] for name, weight in WEIGHTS.items())
        assert line["reward"] == pytest.approx(parts, abs=1e-4)
    first, second = (sum(line["reward"] for line in part) / EPOCH for part in (logs[:EPOCH], logs[EPOCH:]))
    print(f"mean reward of the first epoch {first:.3f}, of the second {second:.3f}")
    assert second - first > 0.01
